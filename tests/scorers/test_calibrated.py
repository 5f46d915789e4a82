import dataclasses

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from repsurgery.errors import DataError, FileFormatError, ModelError, ParameterError
from repsurgery.files import Contents, write_file
from repsurgery.scorers import CalibratedScorer, LinearScorer, ToxicityScorer, load_scorer
from repsurgery.scorers.calibrated import KIND
from tests.scorers.stand_ins import Length

N = 400


def problem(seed=0):
    """Texts whose archived score is a noisy, rising function of their length, far from the identity."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 101, size=N)
    archived = np.clip((lengths / 100) ** 3 + 0.05 * rng.normal(size=N), 0, 1)
    return ["x" * n for n in lengths], archived.tolist()


@pytest.fixture(scope="module")
def fitted():
    return CalibratedScorer.fit(Length(), *problem())


def test_it_is_a_frozen_scorer(fitted):
    assert isinstance(fitted, ToxicityScorer)
    assert (fitted.name, fitted.version) == ("calibrated length", "1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        fitted.values = None
    with pytest.raises(ValueError, match="read-only"):
        fitted.values[0] = 1


def test_it_comes_nearer_to_the_archive_than_the_inner_score(fitted):
    texts, archived = problem(seed=1)
    raw = np.abs(np.array(Length()(texts)) - archived).mean()
    near = np.abs(np.array(fitted(texts)) - archived).mean()
    # the noise alone has a mean absolute value of .05 √(2/π) = .04
    assert near < 0.045 < 0.2 < raw
    assert fitted.held_out.texts == N // 5
    assert fitted.held_out.mean_absolute_error == pytest.approx(0.04, abs=0.01)
    assert fitted.held_out.mean_absolute_error <= fitted.held_out.root_mean_square_error
    assert fitted.held_out.auc > 0.98


def test_calibration_keeps_the_order(fitted):
    scores = fitted(["x" * n for n in range(1, 101)])
    assert (np.diff(scores) >= 0).all()
    assert scores[0] < 0.1 < 0.8 < scores[-1]


def test_what_is_held_out_takes_no_part():
    texts, archived = problem()
    first = CalibratedScorer.fit(Length(), texts, archived, seed=3)
    away = np.random.default_rng(3).permutation(N)[: N // 5]
    for row in away:
        archived[row] = 1 - archived[row]
    second = CalibratedScorer.fit(Length(), texts, archived, seed=3)
    assert second.digest == first.digest
    assert second.held_out.auc < 0.5 < first.held_out.auc
    assert CalibratedScorer.fit(Length(), texts, archived, seed=4).digest != first.digest


def test_the_function_is_scikit_learns_and_constant_outside():
    texts, archived = problem()
    fitted = CalibratedScorer.fit(Length(), texts[:100], archived[:100], held_out=0.5)
    near = np.random.default_rng(0).permutation(100)[50:]
    scores = np.array(Length()(texts[:100]))
    isotonic = IsotonicRegression(out_of_bounds="clip").fit(scores[near], np.array(archived)[near])
    everywhere = ["x" * n for n in range(1, 101)]
    np.testing.assert_allclose(fitted(everywhere), isotonic.predict(Length()(everywhere)), rtol=0, atol=1e-12)


def test_none_stays_none(fitted):
    assert fitted([" ", "x", ""])[::2] == [None, None]
    assert fitted([" "]) == [None]
    assert fitted([]) == []


def test_a_file_brings_the_same_scorer_back(fitted, tmp_path):
    fitted.save(tmp_path / "c.safetensors")
    again = CalibratedScorer.load(tmp_path / "c.safetensors", Length())
    assert (again.digest, again.held_out, again.name) == (fitted.digest, fitted.held_out, fitted.name)
    texts, _ = problem(seed=2)
    assert again(texts) == fitted(texts)
    assert again == fitted
    assert again != CalibratedScorer.fit(Length(), *problem(), seed=1)


def test_a_measure_that_is_nan_survives_the_file(tmp_path):
    texts, _ = problem()
    fitted = CalibratedScorer.fit(Length(), texts, [0.1] * N)
    fitted.save(tmp_path / "c.safetensors")
    held_out = CalibratedScorer.load(tmp_path / "c.safetensors", Length()).held_out
    assert np.isnan([held_out.auc, held_out.spearman]).all()
    assert held_out.mean_absolute_error == pytest.approx(0)


def test_a_file_fits_its_own_scorer_only(fitted, tmp_path):
    path = tmp_path / "c.safetensors"
    fitted.save(path)
    with pytest.raises(ModelError, match=r"calibrates length 1 .*Pass the scorer it was fitted to"):
        CalibratedScorer.load(path, Length(digest="1" * 64))
    with pytest.raises(ParameterError, match=r"not a name of load_scorer.*CalibratedScorer.load\(file, scorer\)"):
        load_scorer(f"calibrated:{path}")
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(FileFormatError, match="its digest does not match"):
        CalibratedScorer.load(path, Length())


@pytest.mark.parametrize(
    ("header", "arrays"),
    [
        ({}, {"thresholds": [0.0], "values": [0.0]}),
        ({"scorer": {"name": "length"}, "held_out": {}}, {"thresholds": [0.0], "values": [0.0]}),
        ({"scorer": dataclasses.asdict(Length()), "held_out": {"texts": 1}}, {"thresholds": [0.0], "values": [0.0]}),
        ({"scorer": dataclasses.asdict(Length()), "held_out": {}}, {"values": [0.0]}),
    ],
)
def test_a_file_with_parts_missing_is_refused(header, arrays, tmp_path):
    write_file(tmp_path / "c", Contents(KIND, header, {key: np.array(value) for key, value in arrays.items()}))
    with pytest.raises(FileFormatError, match="Fit again"):
        CalibratedScorer.load(tmp_path / "c", Length())


@pytest.mark.parametrize(
    ("thresholds", "values", "message"),
    [
        ([0.1, 0.2], [0.1], "as many values as thresholds"),
        ([], [], "at least one"),
        ([0.1, np.nan], [0.1, 0.2], "NaN"),
        ([0.2, 0.1], [0.1, 0.2], "increasing thresholds"),
        ([0.1, 0.2], [0.2, 0.1], "never decrease"),
        ([0.1, 0.2], [0.2, 1.1], "within 0 to 1"),
        ([0.1, 0.2], [0.2, np.nan], "never decrease"),
    ],
)
def test_a_function_that_is_none_is_refused(thresholds, values, message, fitted):
    with pytest.raises(DataError, match=message):
        CalibratedScorer(Length(), thresholds, values, fitted.held_out)


def test_too_few_texts_or_a_share_outside_its_range_are_refused():
    texts, archived = problem()
    with pytest.raises(DataError, match="it needs 20"):
        CalibratedScorer.fit(Length(), texts[:19], archived[:19])
    for share in (0, 1, np.nan):
        with pytest.raises(ParameterError, match="strictly between 0 and 1"):
            CalibratedScorer.fit(Length(), texts, archived, held_out=share)
    with pytest.raises(DataError, match="Hold out fewer"):
        CalibratedScorer.fit(Length(), texts, archived, held_out=0.9999)


def test_constant_scores_calibrate_to_the_mean():
    archived = np.linspace(0, 1, 40).tolist()
    fitted = CalibratedScorer.fit(Length(), ["xx"] * 40, archived)
    near = np.random.default_rng(0).permutation(40)[8:]
    assert fitted(["x", "xx", "xxx"]) == pytest.approx([np.array(archived)[near].mean()] * 3)


def test_a_file_of_a_named_scorer_loads_by_its_own_name(tmp_path):
    pytest.importorskip("profanity_check", reason="the linear scorer needs the extra repsurgery[scorers]")
    texts = [f"{word} {n}" for n in range(15) for word in ("you idiot", "good morning")]
    fitted = CalibratedScorer.fit(LinearScorer(), texts, [0.9, 0.05] * 15)
    fitted.save(tmp_path / "c.safetensors")
    loaded = load_scorer(f"calibrated:{tmp_path / 'c.safetensors'}")
    assert loaded.digest == fitted.digest
    assert loaded(texts) == fitted(texts)
