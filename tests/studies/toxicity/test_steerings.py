"""From configuration and vectors to the steering that was asked for, and what is said of it."""

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import Documents
from repsurgery.errors import CacheWarning, ParameterError
from repsurgery.lm.twins import Twin
from repsurgery.moments import ClassMoments
from repsurgery.studies.toxicity import make_toxicity_spec, parse_configuration
from repsurgery.studies.toxicity.collateral import divergences, document_perplexities
from repsurgery.studies.toxicity.gains import gain_notes
from repsurgery.studies.toxicity.judging import steered_share
from repsurgery.studies.toxicity.notes import toxicity_notes
from repsurgery.studies.toxicity.record import Configured
from repsurgery.studies.toxicity.steerings import fit_configuration
from repsurgery.studies.toxicity.vectors import Labelled, Vectors
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

MODEL = {"model": "tiny", "tokenizer": "words"}
SPEC = make_toxicity_spec("local", false_steer_rate=0.2)


def rows(shift, *, n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, WIDTH)).astype(np.float32)
    X[:n, 0] += 2
    return Labelled(X + np.float32(shift), np.repeat(["toxic", "non-toxic"], n))


@pytest.fixture
def vectors():
    last = rows(0)
    return Vectors(
        last={"final": last},
        held_out={"final": rows(0, n=40, seed=1)},
        tokens={"final": ClassMoments.of(rows(0.1).X, rows(0.1).z)},
        policy={"final": rows(0.5, n=100, seed=2)},
    )


def fitted(words, vectors, folder):
    return fit_configuration(parse_configuration(words), vectors, SPEC, folder)


def test_a_calibrated_gate_fires_on_the_stated_share_of_clean_steps(vectors, tmp_path):
    found = fitted("mean selective gate=calibrated", vectors, tmp_path)
    fired = found.facts["gate_on_policy"]
    assert fired["non-toxic"] == pytest.approx(0.2, abs=0.011)
    assert fired["toxic"] > 0.5
    nearest = fitted("mean selective", vectors, tmp_path).facts["gate_on_policy"]
    assert nearest["non-toxic"] != pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("method", ["mean", "mimic", "leace"])
def test_selective_steering_moves_what_the_gate_takes_for_toxic_and_nothing_else(method, vectors, tmp_path):
    found = fitted(f"{method} selective", vectors, tmp_path).steering.function
    X = vectors.last["final"].X
    moved = np.any(found(X) != X, axis=1)
    assert np.array_equal(moved, found.gate.predict(X) == "toxic")
    assert 0 < moved.sum() < len(X)
    everybody = fitted(f"{method} all", vectors, tmp_path).steering.function
    assert np.any(everybody(X) != X, axis=1).all()
    np.testing.assert_allclose(found(X)[moved], everybody(X)[moved], atol=1e-6)


@pytest.mark.parametrize("fit", ["last", "tokens", "on-policy"])
def test_each_fit_matches_its_own_means(fit, vectors, tmp_path):
    found = fitted(f"mean all fit={fit}", vectors, tmp_path)
    data = {"last": rows(0), "tokens": rows(0.1), "on-policy": vectors.policy["final"]}[fit]
    gap = data.X[data.z == "non-toxic"].mean(axis=0) - data.X[data.z == "toxic"].mean(axis=0)
    np.testing.assert_allclose(found.steering.function(np.zeros((1, WIDTH)))[0], gap, atol=1e-5)
    assert found.certificate.mean_gap < 1e-6
    assert (found.held_out is None) == (fit != "last")


def test_rows_are_the_first_of_each_label(vectors, tmp_path):
    found = fitted("mean all rows=10", vectors, tmp_path)
    assert found.facts["rows"] == {"non-toxic": 10, "toxic": 10}
    X = vectors.last["final"].X
    gap = X[120:130].mean(axis=0) - X[:10].mean(axis=0)
    np.testing.assert_allclose(found.steering.function(np.zeros((1, WIDTH)))[0], gap, atol=1e-5)
    with pytest.raises(ParameterError, match="there are 120"):
        fitted("mean all rows=121", vectors, tmp_path)
    with pytest.raises(ParameterError, match="token_rows"):
        fitted("mean all fit=tokens rows=10", vectors, tmp_path)


def test_a_damaged_steering_is_written_again(vectors, tmp_path):
    whole = fitted("mimic all", vectors, tmp_path).steering.function.digest()
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.warns(CacheWarning, match=r"The steering .* is computed again"):
        assert fitted("mimic all", vectors, tmp_path).steering.function.digest() == whole
    assert rs.load(path).digest() == whole


def test_a_kept_steering_knows_how_the_study_used_it(vectors, tmp_path):
    steered = fitted("mean all strength=0.5", vectors, tmp_path).steering
    (path,) = tmp_path.glob("*.safetensors")
    kept = rs.load(path)
    assert (kept.origin.site, kept.origin.strength) == (steered.site, 0.5)
    # the function is kept as it was fitted, and its placement says how strongly the study used it
    assert kept.digest() == steered.function.digest() != kept.at(0.5).digest()
    assert steered.strength == 0.5


def test_the_share_is_that_of_the_gate(vectors, tmp_path):
    twin = Twin(tiny_model("llama"), tiny_tokenizer())
    written = [
        lm.generate(twin.model, twin.tokenizer, [prompt], n=6, max_new_tokens=8, progress=False)
        for prompt in ("w1 w2", "w3 w4 w5")
    ]
    met = np.concatenate(
        lm.states_along(twin.model, twin.tokenizer, [g for some in written for g in some], progress=False)
    )
    half = Labelled(met, np.where(met[:, 0] > np.quantile(met[:, 0], 0.7), "toxic", "non-toxic"))
    found = fitted("mean selective", Vectors(last={"final": half}), tmp_path)
    expected = np.mean(found.steering.function.gate.predict(met) == "toxic")
    assert steered_share(twin, found, written) == pytest.approx(expected)
    assert expected != pytest.approx(0.5, abs=0.02)
    assert steered_share(twin, fitted("mean all", vectors, tmp_path), written) == 1.0


def test_collateral_damage_grows_with_strength(vectors, tmp_path):
    twin = Twin(tiny_model("llama"), tiny_tokenizer())
    names = ["mean all strength=0", "mean all strength=0.5", "mean all"]
    steerings = {name: fitted(name, vectors, tmp_path).steering for name in names}
    kl = divergences(twin, ("w1 w2 w3", "w4 w5"), steerings, digests=MODEL, folder=tmp_path)
    assert kl[names[0]] == pytest.approx(0, abs=1e-6)
    assert 1e-4 < kl[names[1]] < kl[names[2]]
    documents = Documents((" = A = \n w1 w2 w3 \n", " = B = \n w4 w5 \n"), name="two", source="here")
    options = {"digests": MODEL, "length": 8, "folder": tmp_path, "progress": False}
    found = document_perplexities(twin, documents, {"base": None, **steerings}, **options)
    words = {name: one.word_perplexity for name, one in found.items()}
    assert words[names[0]] == pytest.approx(words["base"], rel=1e-5)
    assert len({round(words[name], 3) for name in names}) == 3
    assert document_perplexities(twin, documents, {"base": None, **steerings}, **options) == found


@pytest.mark.parametrize(("source", "target"), [("abusive", "clean"), ("toxic", "non-toxic")])
def test_notes_tell_a_gate_that_sees_nothing(source, target):
    spec = make_toxicity_spec("local", source=source, target=target)

    def note(toxic, clean):
        facts = {"unscored": {"linear": 0}, "gate_on_policy": {source: toxic, target: clean}}
        return " ".join(toxicity_notes(spec, [Configured("mean selective", {"strength": 1.0}, facts=facts)]))

    assert "moves 50% of the steps of toxic continuations and 45% of the clean" in note(0.5, 0.45)
    assert "hardly tells" not in note(0.9, 0.1)
    facts = {"unscored": {"linear": 3}}
    assert "failed on 3 texts" in " ".join(toxicity_notes(spec, [Configured("base", facts=facts)]))


def test_a_map_that_stretches_too_much_is_told_with_its_remedy(vectors, tmp_path):
    """Fewer texts than dimensions leave MiMiC's covariance to its ridge; pooled shrinkage does not."""
    every = vectors.last["final"]
    few = Vectors(last={"final": Labelled(every.X[117:], every.z[117:])}, held_out={}, tokens={}, policy={})
    notes, gains = {}, {}
    for words in ("mimic all", "mimic all strength=0.5", "mimic all shrinkage=pooled", "mean all"):
        found = fitted(words, few, tmp_path)
        gains[words] = found.facts["gain"]
        notes[words] = gain_notes([Configured(words, facts=found.facts)])
    assert gains["mimic all"] > 100 > gains["mimic all shrinkage=pooled"] and gains["mean all"] == 1
    assert "mimic all'" in notes["mimic all"][0] and "shrinkage=pooled" in notes["mimic all"][0]
    assert notes["mimic all strength=0.5"]  # a row without a certificate as well
    assert notes["mimic all shrinkage=pooled"] == notes["mean all"] == []
    # an older record has the gain in its certificate
    assert gain_notes([Configured("mimic all", certificate={"gain": 708.0})])[0].count("708-fold") == 1
