import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import read_table


def test_the_file_holds_what_the_library_would_have_fitted(fitted, table, model_folder):
    texts = read_table(table, text="sentence", label="tone")
    X = lm.extract(*lm.load(model_folder), texts.texts, progress=False)
    expected = rs.MiMiC(source="a", target="b", shrinkage="oas").fit(X, texts.labels)
    found = rs.load(fitted)
    assert isinstance(found, rs.SteeringFunction)
    np.testing.assert_allclose(found(X), expected.transform(X), atol=1e-5)
    assert found.certificate.method == "MiMiC"


def test_the_certificate_is_printed(run, table, model_folder, tmp_path):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *(
            "--method",
            "mean",
            "--source",
            "a",
            "--target",
            "b",
            "--gate",
            "always",
            "--site",
            "layers.0",
            "--out",
            tmp_path / "f",
        ),
    )
    assert result.exit_code == 0, result.output
    assert "MeanMatching claims equal means" in result.stdout
    assert "a → b" in result.stdout
    assert "layers.0" in result.stdout


@pytest.mark.parametrize("pooling", ["mean", "all"])
@pytest.mark.parametrize("method", ["leace", "barycenter"])
def test_other_methods_and_poolings_fit_too(run, table, model_folder, tmp_path, method, pooling):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", method, "--pooling", pooling, "--out", tmp_path / "f", "--keep-moments"),
    )
    assert result.exit_code == 0, result.output
    assert type(rs.load(tmp_path / "f")).__name__.lower().startswith(method)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--method", "magic"], 2, "magic"),
        (["--shrinkage", "magic"], 2, "magic"),
        (["--source", "c"], 1, "the labels of the table are a, b"),
        (["--method", "leace", "--source", "a"], 1, "LEACE takes no source"),
        (["--target", "b", "--site", "layers.9"], 1, "layers.9"),
        (["--text-column", "missing"], 1, "has no column 'missing'"),
        (["--target", "b", "--model", "no/such/folder/at/all"], 1, "There is no folder"),
    ],
)
def test_a_wrong_word_is_one_line_and_no_traceback(run, table, model_folder, tmp_path, options, code, words):
    base = ["--text-column", "sentence", "--label-column", "tone", "--model", model_folder, "--out", tmp_path / "f"]
    result = run("fit", table, *base, *options)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert code == 2 or len(result.stderr.strip().splitlines()) == 1 + result.stderr.count("Loading weights")
    assert not (tmp_path / "f").exists()


def test_debug_lets_the_error_through(run, tmp_path):
    result = run("--debug", "fit", tmp_path / "none.csv", "--out", tmp_path / "f")
    assert isinstance(result.exception, rs.errors.DataError)


@pytest.mark.parametrize(
    ("words", "shrinkage", "alpha"),
    [
        ([], "pooled", "auto"),
        (["--alpha", "0.5"], "pooled", 0.5),
        (["--shrinkage", "pooled", "--alpha", "auto"], "pooled", "auto"),
        (["--shrinkage", "oas"], "oas", None),
        (["--method", "mean"], "none", None),
    ],
)
def test_mimic_on_texts_is_pooled_unless_another_shrinkage_is_named(
    run, table, model_folder, tmp_path, words, shrinkage, alpha
):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--target", "b", "--out", tmp_path / "f", *words),
    )
    assert result.exit_code == 0, result.output
    certificate = rs.load(tmp_path / "f").certificate
    assert (certificate.shrinkage, certificate.alpha) == (shrinkage, alpha)
    assert ("pooled, alpha" in result.stdout) == (shrinkage == "pooled")


@pytest.mark.parametrize("words", [["--alpha", "2"], ["--alpha", "much"], ["--shrinkage", "oas", "--alpha", "0.5"]])
def test_a_wrong_alpha_stops_before_the_model_is_read(run, table, tmp_path, words):
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", tmp_path / "absent"),
        *("--target", "b", "--out", tmp_path / "f", *words),
    )
    assert result.exit_code == 1 and "alpha is" in result.output and not (tmp_path / "f").exists()
