import numpy as np
import pytest
from hypothesis import given

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError, ParameterError
from tests.strategies import EXACT, concepts, cov, make_concept


def pairwise(X, z, *, selves):
    """EBBN by its definition, over all pairs of rows."""
    H0, H1 = X[z == 0], X[z == 1]
    within = np.square(H0[:, None] - H0).sum(axis=2)
    across = np.square(H0[:, None] - H1).sum(axis=2)
    n = len(H0)
    return abs(within.sum() / (n * n if selves else n * (n - 1)) - across.mean())


def matched(data):
    """Return the rows with the source given the target's mean and covariance, by whitening and recolouring."""
    X = data.X.copy()
    L0, L1 = np.linalg.cholesky(cov(data.of(0))), np.linalg.cholesky(cov(data.of(1)))
    source = data.of(0) - data.of(0).mean(axis=0)
    X[data.z == 0] = source @ np.linalg.solve(L0.T, L1.T) + data.of(1).mean(axis=0)
    return X


@given(concepts())
def test_the_closed_form_is_the_mean_over_pairs(data):
    scale = np.square(data.X).sum(axis=1).mean()
    for statistic, selves in (("v", True), ("u", False)):
        found = metrics.expected_bias_by_neighbours(data.X, data.z, statistic=statistic)
        assert found == pytest.approx(pairwise(data.X, data.z, selves=selves), abs=EXACT * scale)


@given(concepts())
def test_matched_moments_make_v_zero_and_leave_u_its_self_pairs(data):
    X = matched(data)
    trace, n0 = np.trace(cov(data.of(1))), len(data.of(0))
    scale = np.square(X).sum(axis=1).mean()
    assert metrics.expected_bias_by_neighbours(X, data.z) < EXACT * scale
    found = metrics.expected_bias_by_neighbours(X, data.z, statistic="u")
    assert found == pytest.approx(2 * trace / (n0 - 1), abs=EXACT * scale)
    assert found > 100 * EXACT * scale
    assert metrics.expected_bias_by_neighbours(data.X, data.z) > 100 * EXACT * scale


def test_mean_matching_leaves_the_difference_of_traces():
    data = make_concept(3)
    X = data.X - np.array([data.of(z).mean(axis=0) for z in (0, 1)])[data.z]
    difference = abs(np.trace(cov(data.of(0))) - np.trace(cov(data.of(1))))
    assert metrics.expected_bias_by_neighbours(X, data.z) == pytest.approx(difference, rel=1e-9)


def test_it_is_zero_by_accident_too_and_one_sided():
    # tr Σ₀ = 5, tr Σ₁ = 1, ‖μ₁ − μ₀‖² = 4: no bias in expectation, and yet the classes do not even overlap
    X = np.array([[0.0, np.sqrt(5)], [0.0, -np.sqrt(5)], [2.0, 1.0], [2.0, -1.0]])
    z = np.array([0, 0, 1, 1])
    assert metrics.expected_bias_by_neighbours(X, z) == pytest.approx(0.0, abs=1e-12)
    assert metrics.expected_bias_by_neighbours(X, z, source=1, target=0) == pytest.approx(8.0)
    assert metrics.linear_probe_accuracy(X, z, X, z) == 1.0


def test_other_classes_take_no_part_and_labels_are_free():
    data = make_concept(4, rows=(30, 40, 50))
    two = data.z < 2
    expected = metrics.expected_bias_by_neighbours(data.X[two], data.z[two])
    names = np.array(["f", "m", "x"])[data.z]
    assert metrics.expected_bias_by_neighbours(data.X, names, source="f", target="m") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"source": "f"}, LabelError, r"no rows of source 'f'; the labels are \[0, 1\]"),
        ({"target": 2}, LabelError, "no rows of target 2"),
        ({"statistic": "w"}, ParameterError, r"\['v', 'u'\]"),
        ({"statistic": "u"}, DataError, "need two"),
    ],
)
def test_unusable_input_is_refused(keywords, error, message):
    with pytest.raises(error, match=message):
        metrics.expected_bias_by_neighbours([[1.0], [2.0], [3.0]], [0, 1, 1], **keywords)
