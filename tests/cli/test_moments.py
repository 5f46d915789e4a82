"""``moments``, ``merge`` and ``fit --moments``, as a user types them."""

import json
import os

import numpy as np
import pytest

import repsurgery as rs
from tests.cli.words import instead
from tests.scale.checks import assert_equal_bits, assert_exact
from tests.scale.written import rows, write_npy, write_parquet


@pytest.fixture
def data():
    return rows(n=300, labels=(0, 1), cuts=(100, 170))


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    write_npy(tmp_path, data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def count(run):
    return lambda *more, out="m.safetensors": run(
        *("moments", "x*.npy", "--labels", "z*.npy", "--workers", 1, "--out", out), *more
    )


def test_patterns_in_one_file_out(folder, data, count):
    result = count()
    assert result.exit_code == 0, result.output
    assert "3 shards, 300 rows of 6 features (0: " in result.stdout
    assert "0 shards were finished before; all are kept in m.safetensors.work" in result.stdout
    assert_exact(rs.ClassMoments.load("m.safetensors"), data.moments)
    again = count("--batch-rows", 7, out="n.safetensors")
    assert again.exit_code == 0
    assert_equal_bits(rs.ClassMoments.load("n.safetensors"), rs.ClassMoments.load("m.safetensors"))


def test_the_second_run_counts_no_row(folder, count):
    assert count().exit_code == 0
    before = rs.ClassMoments.load("m.safetensors")
    result = count()
    assert result.exit_code == 0, result.output
    assert "3 shards were finished before" in result.stdout
    assert_equal_bits(rs.ClassMoments.load("m.safetensors"), before)


def test_shards_rewritten_under_their_old_time_are_counted_anew(folder, count):
    assert count().exit_code == 0
    for path in folder.glob("x*.npy"):
        stat = path.stat()
        np.save(path, np.full_like(np.load(path), np.nan))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    result = count()
    assert result.exit_code == 1 and "rows with NaN or infinity" in result.stderr


def test_labels_inside_and_cut_files(folder, data, run):
    write_parquet(folder / "all.parquet", data.X, data.z)
    result = run(
        *("moments", "all.parquet", "--label-column", "label", "--column", "vector", "--rows-per-shard", 120),
        *("--workers", 1, "--work-dir", "parts", "--out", "m.safetensors"),
    )
    assert result.exit_code == 0, result.output
    assert "3 shards" in result.stdout
    assert len(list((folder / "parts").glob("part-*"))) == 3
    assert_exact(rs.ClassMoments.load("m.safetensors"), data.moments)


def test_a_shard_listed_twice_is_told_and_counted_once(folder, data, run):
    result = run("moments", "x*.npy", "x01.npy", "--labels", "z*.npy", "--workers", 1, "--out", "m.safetensors")
    assert result.exit_code == 0, result.output
    assert "Warning: " in result.stderr
    assert "x01.npy is listed twice; it is counted once." in result.stderr
    assert_exact(rs.ClassMoments.load("m.safetensors"), data.moments)


def test_a_damaged_shard_is_one_line_and_the_next_run_does_the_rest(folder, data, count):
    whole = (folder / "x01.npy").read_bytes()
    (folder / "x01.npy").write_bytes(whole[:-1])
    result = count()
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "1 of 3 shards could not be counted" in result.stderr
    assert "x01.npy" in result.stderr
    assert "The 2 others are kept" in result.stderr
    assert not (folder / "m.safetensors").exists()
    (folder / "x01.npy").write_bytes(whole)
    result = count()
    assert result.exit_code == 0
    assert "2 shards were finished before" in result.stdout
    assert_exact(rs.ClassMoments.load("m.safetensors"), data.moments)


def test_rows_that_are_not_finite(folder, data, count):
    X = np.load("x01.npy")
    X[4, 2] = np.nan
    np.save("x01.npy", X)
    result = count()
    assert result.exit_code == 1
    assert "x01.npy: 1 row with NaN or infinity (4)" in result.stderr
    result = count("--skip-non-finite")
    assert result.exit_code == 0
    assert "1 rows left out" in result.stdout
    assert "Warning: " in result.stderr
    keep = np.delete(np.arange(300), 104)
    assert_exact(rs.ClassMoments.load("m.safetensors"), rs.ClassMoments.of(data.X[keep], data.z[keep]))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("x*.npy", "--labels", "none*.npy"), "Nothing matches none*.npy"),
        (("x*.npy",), "--labels"),
        (("x*.npy", "--labels", "z*.npy", "--address", "h:1"), "has no address"),
        (("x*.npy", "--labels", "z*.npy", "--workers", "0"), "at least one"),
        (("x*.npy", "--labels", "z*.npy", "--batch-rows", "0"), "--batch-rows is 0"),
        (("x*.npy", "--labels", "z*.npy", "--engine", "dask", "--address", "127.0.0.1:1"), "no Dask cluster"),
        (("x*.npy", "--labels", "z*.npy", "--out", "no/folder/m"), "There is no folder no/folder"),
        (("x*.npy", "--labels", "z*.npy", "--out", "."), "is a folder"),
    ],
)
def test_a_wrong_word_is_one_line(folder, run, words, told):
    result = run("moments", *instead(("--out", "m.safetensors"), *words))
    assert result.exit_code == 1
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (folder / "m.safetensors").exists()


def test_merge_adds_up_and_refuses_twice(folder, data, run):
    for name, pattern in (("a", "0[01]"), ("b", "02")):
        counted = run(
            *("moments", f"x{pattern}.npy", "--labels", f"z{pattern}.npy", "--workers", 1, "--out", f"{name}.st")
        )
        assert counted.exit_code == 0, counted.output
    result = run("merge", "a.st", "b.st", "--out", "m.st")
    assert result.exit_code == 0, result.output
    assert "300 rows of 6 features" in result.stdout
    assert_exact(rs.ClassMoments.load("m.st"), data.moments)
    for twice in ("a.st", "m.st"):
        refused = run("merge", "a.st", twice, "--out", "n.st")
        assert refused.exit_code == 1
        assert "twice" in refused.stderr
        assert not (folder / "n.st").exists()


def test_fit_from_moments_is_the_fit_from_rows(folder, data, count, run, as_json):
    assert count().exit_code == 0
    result = run(
        *("fit", "--moments", "m.safetensors", "--method", "mimic", "--source", "0", "--target", "1"),
        *("--out", "f.safetensors", "--keep-moments"),
    )
    assert result.exit_code == 0, result.output
    assert "the site where these moments were computed" in result.stdout
    wanted = rs.MiMiC(source=0, target=1, shrinkage="pooled").fit(data.X, data.z)
    found = rs.load("f.safetensors")
    np.testing.assert_allclose(found.transform(data.X), wanted.transform(data.X), rtol=1e-4, atol=1e-5)
    assert as_json("m.safetensors")["kind"] == "class-moments"
    json.dumps(as_json("m.safetensors"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--moments", "m.safetensors", "--source", "7"), "the labels of the moments are 0, 1"),
        (("--moments", "m.safetensors", "table.csv"), "either a table of texts or a file of moments"),
        ((), "either a table of texts or a file of moments"),
        (("--moments", "none.safetensors"), "does not exist"),
        (("--moments", "m.safetensors", "--target", "1", "--gate", "logistic"), "rows"),
    ],
)
def test_fit_from_moments_by_wrong_words(folder, count, run, words, told):
    assert count().exit_code == 0
    result = run("fit", *words, "--out", "f.safetensors")
    assert result.exit_code == (2 if "either" in told else 1)
    assert told in result.stderr
    assert not (folder / "f.safetensors").exists()


@pytest.mark.parametrize("name", ["x00.npy", "z01.npy"])
def test_a_source_is_not_overwritten(folder, count, name):
    before = (folder / name).read_bytes()
    result = count(out=name)
    assert result.exit_code == 1
    assert "would be overwritten" in result.stderr
    assert (folder / name).read_bytes() == before
