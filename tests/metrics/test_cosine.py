import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.errors import DataError, ParameterError


def labelled(seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(60, 6)) + 0.5, np.array(["x", "f", "m"])[rng.choice(3, size=60, p=[0.2, 0.3, 0.5])]


def test_blocks_are_the_cosines_of_a_sample_in_class_order():
    X, z = labelled()
    blocks = metrics.cosine_blocks(X, z, per_class=15)
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    # float32: six terms of at most 1
    assert np.abs(blocks.similarity - U[blocks.rows] @ U[blocks.rows].T).max() < 10 * 2.0**-24
    assert blocks.similarity.dtype == np.float32
    assert blocks.classes == ("f", "m", "x")
    assert blocks.counts == tuple(min(15, (z == c).sum()) for c in "fmx")
    assert max(blocks.counts) == 15 > min(blocks.counts)
    assert np.array_equal(z[blocks.rows], np.repeat(blocks.classes, blocks.counts))
    assert len(set(blocks.rows)) == len(blocks.rows)


def test_means_leave_out_a_row_with_itself():
    X, z = labelled()
    blocks = metrics.cosine_blocks(X, z)
    names, S = z[blocks.rows], blocks.similarity.astype(np.float64)
    other = ~np.eye(len(S), dtype=bool)
    same = names[:, None] == names
    assert blocks.within == pytest.approx(S[same & other].mean(), rel=1e-12)
    assert blocks.between == pytest.approx(S[~same].mean(), rel=1e-12)
    assert blocks.within < S[same].mean()
    for a, first in enumerate(blocks.classes):
        for b, second in enumerate(blocks.classes):
            pairs = np.outer(names == first, names == second) & other
            assert blocks.means[a, b] == pytest.approx(S[pairs].mean(), rel=1e-12)


def test_the_sample_depends_on_the_seed_and_not_on_the_representation():
    X, z = labelled()
    rows = metrics.cosine_blocks(X, z, per_class=5).rows
    assert np.array_equal(metrics.cosine_blocks(X**3, z, per_class=5).rows, rows)
    assert not np.array_equal(metrics.cosine_blocks(X, z, per_class=5, seed=1).rows, rows)


def test_the_record_is_frozen():
    blocks = metrics.cosine_blocks(*labelled())
    with pytest.raises(ValueError, match="read-only"):
        blocks.similarity[0, 0] = 0


def test_a_single_row_has_no_similarity_within_its_class():
    blocks = metrics.cosine_blocks([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]], [0, 1, 1])
    assert np.isnan(blocks.means[0, 0])
    assert blocks.within == pytest.approx(1.0)


def test_unusable_input_is_refused():
    X, z = labelled()
    with pytest.raises(ParameterError, match="at least 1"):
        metrics.cosine_blocks(X, z, per_class=0)
    with pytest.raises(DataError, match="length 0"):
        metrics.cosine_blocks(0 * X, z)
    with pytest.raises(DataError, match="NaN"):
        metrics.cosine_blocks(np.nan * X, z)
