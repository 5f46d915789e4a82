"""Whole studies on a user's own table, read by the embedded encoder."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from repsurgery.datasets import ConceptTexts, Representations
from repsurgery.errors import CacheWarning, DataError, LabelError
from repsurgery.studies.fairness import make_spec, run_study
from repsurgery.studies.fairness import run as running
from repsurgery.studies.fairness.data import splits_of
from repsurgery.studies.records import read_record, write_record

JOBS = {
    "nurse": ("cares for patients on the ward", "gives medicine at night", "works in a hospital"),
    "judge": ("hears cases in court", "writes verdicts", "studied law for years"),
}
PRONOUN = {"woman": "She", "man": "He"}
SMALL = {
    "label": "job",
    "concept": "gender",
    "source": "man",
    "target": "woman",
    "methods": ["mean", "leace"],
    "neighbour_counts": [1, 4],
    "neighbour_queries": 20,
    "cosine_rows": 10,
    "probe_rows": 0,
    "resamples": 20,
}


SPLIT = {"woman": "train", "man": "test", "nurse": "train", "judge": "test"}


def rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(n):
        job = list(JOBS)[i % 2]
        gender = "woman" if rng.random() < (0.7 if job == "nurse" else 0.3) else "man"
        yield {"text": f"{PRONOUN[gender]} {rng.choice(JOBS[job])}, case {i}.", "job": job, "gender": gender}


def table(path, found):
    found = list(found)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, found[0])
        writer.writeheader()
        writer.writerows(found)
    return str(path)


def run(path, work, **changes):
    return run_study(make_spec("bios", data=path, **{**SMALL, **changes}), work_dir=work, progress=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def record(work):
    return run(table(work / "jobs.csv", rows()), work)


def test_a_table_becomes_a_record(record, tmp_path):
    [setting] = record.settings
    assert setting.sizes == {"train": 78, "dev": 12, "test": 30}
    assert [m.method for m in setting.methods] == ["base", "mean", "leace"]
    assert record.spec["data"] == "jobs.csv"  # the folder is nobody's business
    assert record.encoder["dim"] == 384 and record.encoder["pooling"] == "mean"
    assert setting.methods[0].measures["test.accuracy"].value > 0.9
    counts = record.data["counts"]
    assert sum(n for cells in counts.values() for n in cells.values()) == 120
    assert read_record(write_record(record, tmp_path)) == record
    assert str(tmp_path.parent.parent) not in json.dumps(record.to_dict())


def test_the_same_study_again_reads_no_text_and_gives_the_same_numbers(record, work, monkeypatch):
    def fail(*_):
        pytest.fail("a text was read again")

    monkeypatch.setattr("torch.nn.Module.__call__", fail)
    again = run(str(work / "jobs.csv"), work)
    assert again.settings == record.settings and again.encoder == record.encoder


def test_corrected_labels_are_not_answered_from_old_stages(record, work, tmp_path):
    # the same texts, so the same encodings
    other = {"nurse": "judge", "judge": "nurse"}
    swapped = [{**row, "job": other[row["job"]]} if i % 3 == 0 else row for i, row in enumerate(rows())]
    found = run(table(tmp_path / "jobs.csv", swapped), work)
    assert found.encoder["digest"] == record.encoder["digest"]
    assert found.settings[0].methods[0].measures["test.accuracy"].value < 0.9


def test_components_belong_to_the_training_rows_of_each_ratio(tmp_path):
    path = table(tmp_path / "tweets.csv", rows(400))
    choices = {**SMALL, "neighbour_counts": [], "cosine_rows": 0, "methods": [], "components": 3, "per_cell": 50}
    spec = make_spec("dialect", data=path, **choices, positive="nurse", ratios=[0.5, 0.8])
    here = run_study(spec, work_dir=tmp_path / "kept", progress=False)
    there = run_study(replace(spec, ratios=(0.8, 0.5)), work_dir=tmp_path / "fresh", progress=False)
    again = run_study(replace(spec, ratios=(0.8, 0.5)), work_dir=tmp_path / "kept", progress=False)
    assert list(here.settings) == list(reversed(there.settings)) == list(reversed(again.settings))
    pooled = run_study(replace(spec, components_from="all"), work_dir=tmp_path / "kept", progress=False)
    assert pooled.settings != here.settings


def test_a_damaged_encoding_is_read_again(record, work):
    [path] = (work / "encodings").rglob("rows-*.safetensors")
    held = bytearray(path.read_bytes())
    held[-9] ^= 0xFF
    path.write_bytes(bytes(held))
    with pytest.warns(CacheWarning, match="read anew"):
        again = run(str(work / "jobs.csv"), work)
    assert again.settings == record.settings


def test_stray_white_space_around_labels_changes_nothing(record, work, tmp_path):
    spaced = [{**row, "job": f" {row['job']} ", "gender": f"{row['gender']}\t"} for row in rows()]
    assert run(table(tmp_path / "jobs.csv", spaced), work).settings == record.settings


def test_a_profession_with_one_gender_is_reported_and_left_out_of_the_gap(work, tmp_path):
    lone = [{**row, "gender": "woman"} if row["job"] == "nurse" else row for row in rows()]
    found = run(table(tmp_path / "lone.csv", lone), work)
    base = found.settings[0].methods[0]
    assert base.gaps["nurse"] is None and base.gaps["judge"] is not None
    assert any("nurse" in note for note in found.notes)


def test_a_study_without_task_looks_at_neighbours_alone(work):
    found = run(str(work / "jobs.csv"), work, label="")
    base = found.settings[0].methods[0]
    assert "test.accuracy" not in base.measures and base.gaps == {}
    assert set(base.neighbours) == {"1", "4"}


@pytest.mark.parametrize(
    ("change", "options", "error", "words"),
    [
        (lambda row: {**row, "gender": row["text"][-4:]}, {}, LabelError, "values .*--set concept="),
        (
            lambda row: row,
            {"label": "profession"},
            DataError,
            r"no column 'profession'.*text, job, gender.*--set label=",
        ),
        (lambda row: row, {"source": "boy"}, LabelError, r"are man \(\d+\), woman \(\d+\)|are woman .* man"),
        (lambda row: {**row, "text": " "}, {}, DataError, "None of the 120 rows"),
        (lambda row: {**row, "gender": "woman"}, {}, LabelError, "1 values"),
        (
            lambda row: {**row, "split": SPLIT[row["gender"]]},
            {"split": "split"},
            LabelError,
            "'train' have the concept",
        ),
        (lambda row: {**row, "split": SPLIT[row["job"]]}, {"split": "split"}, LabelError, "have the label 'nurse'"),
    ],
)
def test_unusable_tables_are_refused_before_any_text_is_read(change, options, error, words, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "encode_texts", lambda *_, **__: pytest.fail("a text was read"))
    with pytest.raises(error, match=words):
        run(table(tmp_path / "bad.csv", map(change, rows())), tmp_path, **options)


def test_unknown_data_are_named_with_the_known(tmp_path):
    with pytest.raises(DataError, match="winobias, synthetic-bios"):
        run("nowhere.csv", tmp_path)


def test_a_dialect_study_has_one_training_set_per_ratio(work, tmp_path):
    path = table(tmp_path / "tweets.csv", rows(600))
    spec = make_spec(
        "dialect",
        data=path,
        **{**SMALL, "neighbour_counts": [], "cosine_rows": 0, "target": "woman", "methods": ["mean"]},
        ratios=[0.5, 0.8],
        per_cell=60,
        positive="nurse",
    )
    found = run_study(spec, work_dir=work, progress=False)
    assert [s.ratio for s in found.settings] == [0.5, 0.8]
    assert [sum(s.sizes.values()) for s in found.settings] == [120, 118]  # truncated as floats, as published
    with pytest.raises(DataError, match="Lower per_cell"):
        run_study(replace(spec, per_cell=5000), work_dir=work, progress=False)


def test_splits_come_from_the_data_where_they_have_some():
    texts = ConceptTexts(
        tuple("abcdefghij"),
        ("y",) * 10,
        ("f", "m") * 5,
        ("train",) * 5 + ("Train", "test-pro", "test-anti", "TEST", "Validation"),
        name="n",
        source="s",
    )
    spec = make_spec("bios")
    assert splits_of(spec, texts).tolist() == ["train"] * 6 + ["test", "test", "test", "dev"]
    joined = splits_of(make_spec("bios", dev_to_train=0.9), texts)
    assert joined.tolist() == ["train"] * 6 + ["test", "test", "test", "train"]
    with pytest.raises(LabelError, match="contains 'held', 'other'"):
        splits_of(spec, replace(texts, splits=("train",) * 8 + ("other", "held")))
    drawn = Representations(
        np.eye(3),
        np.array(list("abc")),
        np.array(list("fmf")),
        {"train": slice(0, 2), "test": slice(2, 3)},
        "n",
        "s",
        "d",
    )
    assert splits_of(spec, drawn).tolist() == ["train", "train", "test"]
