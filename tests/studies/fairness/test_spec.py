"""A specification is a preset and its differences, checked before anything runs."""

import pytest

from repsurgery.errors import ParameterError
from repsurgery.studies.fairness import PRESETS, load_spec, make_spec, spec_toml


def differing(experiment):
    paper, released = (make_spec(experiment, preset).to_dict() for preset in ("paper", "released"))
    return {name: (paper[name], released[name]) for name in paper if paper[name] != released[name]} | {"preset": None}


def test_the_bios_presets_differ_where_text_and_code_do():
    found = differing("bios")
    assert found.pop("preset") is None
    assert found["source"] == ("male", "female") and found["target"] == ("female", "male")
    assert found["train_labels"] == ("predicted", "gold")
    assert found["early_stopping"] == (False, True)
    assert found["head"] == ("converged", "saga")
    assert found["tpr_classes"] == ("all", "predicted")
    assert found["neighbour_queries"] == (1000, 2000)
    assert found["neighbour_rows"] == (0, 30_000)
    assert found["cosine_sample"] == ("random", "first")
    assert set(found) == {
        *("source", "target", "train_labels", "early_stopping", "head", "tpr_classes"),
        *("neighbour_queries", "neighbour_rows", "neighbour_counts", "cosine_sample"),
    }


def test_the_dialect_presets_differ_where_text_and_code_do():
    found = differing("dialect")
    assert found["concept_classifier"] == ("mlp", "linear")
    assert found["fit_labels"] == ("gold", "predicted")
    assert found["head_epochs"][1] == 50
    assert set(found) == {"preset", "concept_classifier", "fit_labels", "head", "head_epochs", "components_from"}


@pytest.mark.parametrize(("experiment", "preset"), PRESETS)
def test_a_file_holds_the_differences_and_gives_the_study_back(tmp_path, experiment, preset):
    spec = make_spec(experiment, preset, data='a "quoted" näme.csv', seed=3, methods=["mimic"], ridge=0.0)
    text = spec_toml(spec)
    assert "early_stopping" not in text  # what the preset says is not repeated
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    assert load_spec(tmp_path / "run.toml") == spec
    assert load_spec(tmp_path / "run.toml", seed=4) != spec
    assert spec.methods == ("base", "mimic")


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ({"colour": "red"}, "no option 'colour'"),
        ({"methods": ["magic"]}, r"no methods \['magic'\]"),
        ({"head": "best"}, "'converged' or 'saga'"),
        ({"early_stopping": "yes"}, "early_stopping is 'yes'; it must be a valid boolean"),
        ({"ratios": [0.5, 1.0]}, r"ratios\[1\] is 1.0; it must be less than 1"),
        ({"alphas": ["a"]}, r"alphas\[0\] is 'a'; it must be a valid number"),
        ({"source": "female"}, "two concepts"),
        ({"resamples": 0}, "resamples is 0; it must be greater than or equal to 1"),
        ({"seed": 1.5}, "must be a valid integer"),
        ({"seed": True}, "must be a valid integer"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"post_groups": ["Gold"]}, r"post_groups\[0\] is 'Gold'; it must be 'predicted', 'gold' or 'blind'"),
        ({"methods": ["mimic strength=1.5"]}, "a strength from 0 to 1, as in mimic-oas strength=0.5"),
        ({"methods": ["mimic strength="]}, r"no methods \['mimic strength='\]"),
        ({"post_rows": "test"}, "'dev' or 'all'"),
        ({"post_calibration": "binning"}, "'none' or 'vector-scaling'"),
        ({"criteria": ["parity"]}, "'demographic-parity' or 'equal-opportunity'"),
        ({"alphas": [0.1, -0.1]}, r"alphas\[1\] is -0.1; it must be greater than or equal to 0"),
        ({"neighbour_counts": [0]}, r"neighbour_counts\[0\] is 0; it must be greater than or equal to 1"),
        ({"probe_rows": -1}, "greater than or equal to 0"),
        ({"components": -7}, "greater than or equal to -1"),
        ({"ridge": float("nan")}, "must be a finite number"),
    ],
)
def test_a_wrong_choice_is_named_with_the_right_ones(differences, words):
    with pytest.raises(ParameterError, match=words):
        make_spec("bios", "paper", **differences)


def test_every_wrong_choice_is_named_at_once():
    with pytest.raises(ParameterError, match=r"head is 'best'.*seed is -1") as caught:
        make_spec("bios", "paper", seed=-1, head="best", colour="red")
    assert "no option 'colour'; choose from experiment, preset" in str(caught.value)


def test_an_unknown_study_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(ParameterError, match="bios paper, bios released, dialect paper"):
        make_spec("toxicity", "paper")
    with pytest.raises(ParameterError, match=r"no experiment 'bios' with preset \['paper'\]"):
        make_spec("bios", ["paper"])
    with pytest.raises(ParameterError, match="needs ratios"):
        make_spec("dialect", "paper", ratios=[])
    (tmp_path / "a.toml").write_text("experiment = ")
    with pytest.raises(ParameterError, match="not valid TOML"):
        load_spec(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_text("seed = 1")
    with pytest.raises(ParameterError, match="which experiment"):
        load_spec(tmp_path / "b.toml")
    with pytest.raises(ParameterError, match="There is no file"):
        load_spec(tmp_path / "c.toml")
