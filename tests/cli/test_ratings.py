"""`fit` on a table whose labels are numbers: erased as they are, binned, or refused with the remedy."""

import json

import numpy as np
import pytest

import repsurgery as rs

WORDS = ["good", "kind", "warm", "fine", "calm", "cold", "harsh", "rude", "grim", "bleak"]


@pytest.fixture
def rated(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["stars,text"]
    for i in range(60):
        stars = rng.integers(0, 41) / 8
        lines.append(f"{stars},Row {i}: {' '.join(rng.choice(WORDS, 4))}")
    (tmp_path / "rated.csv").write_text("\n".join(lines))
    return tmp_path / "rated.csv"


@pytest.fixture
def fit(run, rated, model_folder, tmp_path):
    def fit(*words, table=rated):
        out = tmp_path / "out.safetensors"
        return run("fit", table, "--label-column", "stars", "--model", model_folder, "--out", out, *words), out

    return fit


def test_numbers_without_an_option_name_the_remedies(fit):
    result, out = fit("--method", "leace")
    assert result.exit_code != 0
    said = " ".join(result.output.split())
    assert "--bins 4" in said
    assert "--method leace --continuous" in said
    assert not out.exists()


def test_leace_erases_ratings_as_they_are(fit, run):
    result, out = fit("--method", "leace", "--continuous", "--keep-moments")
    assert result.exit_code == 0, result.output
    assert "linear probe R²" in result.output
    assert "held out" in result.output
    found = rs.load(out)
    assert found.concept_type == "continuous"
    assert found.moments_.count == 48
    assert max(found.certificate_.r2_after) < 1e-12
    assert found.origin.site == "final"
    shown = run("inspect", out, "--json")
    described = json.loads(shown.output)
    assert described["moments"]["concept columns"] == 1
    assert described["steering"]["certificate"]["r2_after"] == list(found.certificate_.r2_after)
    assert run("inspect", out).exit_code == 0


def test_bins_make_classes_for_every_method(fit, rated):
    stars = [float(line.split(",")[0]) for line in rated.read_text().splitlines()[1:]]
    names = np.unique(rs.quantile_bins(stars, 3))
    result, out = fit("--bins", "3", "--target", names[-1], "--method", "mean", "--held-out", "0")
    assert result.exit_code == 0, result.output
    assert list(rs.load(out).classes) == names.tolist()
    result, _ = fit("--bins", "3", "--method", "mean")
    assert names[0] in " ".join(result.output.split())  # without a target, the bins are named


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--continuous", "--method", "mean", "--target", "a"], "--continuous needs --method leace"),
        (["--continuous", "--method", "leace", "--bins", "3"], "leave out"),
        (["--continuous", "--method", "leace", "--pooling", "all"], "leave out"),
        (["--bins", "1", "--method", "leace"], "--bins"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(fit, options, words):
    result, out = fit(*options)
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
    assert not out.exists()


def test_labels_that_are_no_numbers_are_refused(fit, tmp_path):
    (tmp_path / "words.csv").write_text("stars,text\n1.5,some text\nmany,other text\n")
    for option in (["--bins", "2"], ["--continuous"]):
        result, _ = fit("--method", "leace", *option, table=tmp_path / "words.csv")
        assert result.exit_code != 0
        assert "'many' is not a finite number" in " ".join(result.output.split())
