"""What a fit says about the covariances that its rows support."""

import numpy as np
import pytest

import repsurgery as rs
from repsurgery.workflows.held_out import HeldOut
from repsurgery.workflows.support import support_notes


def rows(n, d, spread=1.0, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.linspace(1, spread, d)
    return np.vstack([rng.normal(size=(n, d)), rng.normal(size=(n, d)) * scales + 1]), np.repeat(["a", "b"], n)


def notes(estimator, X, z, **how):
    return support_notes(estimator.fit(X, z, **how), "texts")


def pooled(alpha="auto"):
    return rs.MiMiC(shrinkage="pooled", alpha=alpha)


def test_few_rows_get_the_sentence_and_many_get_none():
    assert notes(pooled(), *rows(10, 50)) == (
        "20 texts in 50 dimensions do not support a covariance: pooled shrinkage, alpha = 1.",
    )
    assert notes(pooled(), *rows(20_000, 4, spread=4)) == ()


def test_where_both_labels_exceed_the_dimensions_the_smaller_one_explains_it():
    X, z = rows(40, 50)
    (note,) = notes(rs.MiMiC(), X[:70], z[:70])
    assert note.startswith("Warning: 30 texts labelled b in 50 dimensions do not support a covariance")


def test_between_them_the_sentence_names_what_was_taken():
    X, z = rows(200, 20, spread=2)
    est = pooled().fit(X, z)
    alpha = est.alpha_
    assert all(0.01 < a < 0.99 for a in alpha.values())
    (note,) = support_notes(est, "texts")
    assert f"alpha = {alpha['a']:.2f} (a), {alpha['b']:.2f} (b)" in note
    assert "do not support" not in note


def test_equal_covariances_of_many_rows_are_not_called_unsupported():
    for seed in range(20):
        est = pooled().fit(*rows(2000, 50, seed=seed))
        if set(est.alpha_.values()) == {1.0}:
            break
    (note,) = support_notes(est, "texts")
    assert "do not differ by more than their sampling error" in note
    assert "do not support" not in note


@pytest.mark.parametrize("estimator", [rs.MiMiC(), pooled(alpha=0), rs.BarycenterErasure()])
def test_a_covariance_that_is_neither_supported_nor_shrunk_is_a_warning(estimator):
    (note,) = notes(estimator, *rows(10, 50))
    assert note.startswith("Warning: 20 texts in 50 dimensions do not support a covariance, and it is not shrunk")
    assert notes(estimator, *rows(2000, 5, spread=2)) == ()


@pytest.mark.parametrize("estimator", [rs.MeanMatching(), rs.MiMiC(shrinkage="oas"), pooled(alpha=0.5), rs.LEACE()])
def test_other_choices_are_left_to_the_user(estimator):
    assert notes(estimator, *rows(10, 50)) == ()


def test_repeated_texts_count_once():
    X, z = rows(30, 50)
    groups = np.arange(60) % 12
    X = X[groups * 5]
    z = np.repeat(["a", "b"], 6)[groups]
    X = X + (z == "a")[:, None]
    (note,) = notes(pooled(), X, z, groups=groups)
    assert note.startswith("60 texts, worth 12 independent ones, in 50 dimensions do not support a covariance")


def test_a_gap_that_is_wider_on_held_out_texts_is_said():
    est = rs.MiMiC().fit(*rows(30, 20))
    X, z = rows(60, 20, seed=1)
    said, *wider = HeldOut(est.certify(X, z), "cannot tell", 120, 120).notes(60)
    assert said.startswith("The map is fitted on 60 texts and measured on 120 that were held out")
    (note,) = wider
    pair = est.certify(X, z).by_source["a"]
    assert f"the covariance gap, from {pair.covariance_gap_before:.3g} to {pair.covariance_gap:.3g}" in note
    # mean matching keeps covariances as they are, and claims nothing about them
    mean = rs.MeanMatching().fit(*rows(30, 20))
    assert len(HeldOut(mean.certify(X, z), "cannot tell", 120, 120).notes(60)) == 1


def test_every_pair_of_labels_has_its_own_sentence():
    X, z = rows(10, 50)
    X, z = np.vstack([X, X[:8] - 1]), np.append(z, ["c"] * 8)
    found = notes(rs.MiMiC(target="b", shrinkage="pooled"), X, z)
    assert [note.split(" texts")[0] for note in found] == ["20", "18"]
