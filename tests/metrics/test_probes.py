import numpy as np
import pytest

from repsurgery import metrics
from repsurgery.errors import DataError, LabelError, NotConvergedWarning, ParameterError, ShapeError


def split(X, z):
    half = len(X) // 2
    return X[:half], z[:half], X[half:], z[half:]


def shifted(gap, n=2000, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    return rng.normal(size=(n, 4)) + gap * z[:, None], np.array(["f", "m"])[z]


def exclusive_or(n=2000):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] * X[:, 1] > 0


def test_a_linear_probe_finds_a_shift_and_nothing_where_there_is_none():
    # Bayes: Φ(‖gap‖ / 2) = Φ(2) = .977 for a shift of 2 in four directions
    assert metrics.linear_probe_accuracy(*split(*shifted(2.0))) == pytest.approx(0.977, abs=0.02)
    assert metrics.linear_probe_accuracy(*split(*shifted(0.0))) == pytest.approx(0.5, abs=0.05)


def test_only_the_network_reads_an_exclusive_or():
    parts = split(*exclusive_or())
    # the best line, x + y = .95, is right for 5/8 of the rows although the class means coincide
    assert metrics.linear_probe_accuracy(*parts) < 0.65
    assert metrics.mlp_probe_accuracy(*parts) > 0.9


def test_accuracy_is_held_out():
    rng = np.random.default_rng(2)
    X, z = rng.normal(size=(80, 200)), rng.integers(2, size=80)
    assert metrics.linear_probe_accuracy(X, z, X, z) == 1.0
    assert metrics.linear_probe_accuracy(*split(X, z)) < 0.8


def test_the_network_depends_on_its_seed_alone():
    parts = split(*shifted(0.5))
    assert metrics.mlp_probe_accuracy(*parts, seed=3) == metrics.mlp_probe_accuracy(*parts, seed=3)
    assert len({metrics.mlp_probe_accuracy(*parts, hidden=8, seed=s) for s in range(4)}) > 1


def test_rows_are_standardised():
    X, z = shifted(1.0)
    scales = np.array([1e-6, 1.0, 1e3, 1e6])
    plain, scaled = metrics.linear_probe_accuracy(*split(X, z)), metrics.linear_probe_accuracy(*split(X * scales, z))
    assert plain == scaled


def test_a_class_unseen_in_training_is_always_missed():
    X, z = shifted(3.0)
    parts = split(X, z)
    strangers = np.where(np.arange(len(parts[3])) % 2, parts[3], "x")
    assert metrics.linear_probe_accuracy(*parts[:3], strangers) <= 0.5


def test_an_unfinished_fit_says_so(monkeypatch):
    from repsurgery.metrics import probes

    class Hasty(probes.LogisticRegression):
        def __init__(self, max_iter):
            super().__init__(max_iter=2)

    parts = split(*shifted(1.0))
    monkeypatch.setattr(probes, "LogisticRegression", Hasty)
    with pytest.warns(NotConvergedWarning, match="after 2 iterations"):
        metrics.linear_probe_accuracy(*parts)


def test_majority_share_is_of_the_largest_class():
    assert metrics.majority_share([1, 1, 2, 3]) == 0.5
    with pytest.raises(LabelError, match="at least one row"):
        metrics.majority_share([])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, z: (X, z[:-1], X, z), LabelError, "one label per row"),
        (lambda X, z: (X, ["f"] * len(X), X, z), LabelError, "two classes or more"),
        (lambda X, z: (X, z, X[:, :2], z), ShapeError, "2 features"),
        (lambda X, z: (X, z, np.where(X[1] == X, np.nan, X), z), DataError, "row 1"),
        (lambda X, z: (X, z, X, np.arange(len(X))), LabelError, "can never agree"),
    ],
)
def test_unusable_input_is_refused(change, error, message):
    parts = change(*shifted(1.0, n=40))
    for probe in (metrics.linear_probe_accuracy, metrics.mlp_probe_accuracy):
        with pytest.raises(error, match=message):
            probe(*parts)


def test_the_network_needs_rows_to_hold_back():
    X, z = shifted(1.0, n=40)
    with pytest.raises(LabelError, match="ten or more of each"):
        metrics.mlp_probe_accuracy(X[:12], z[:12], X, z)
    with pytest.raises(ParameterError, match="at least 1"):
        metrics.mlp_probe_accuracy(X, z, X, z, hidden=0)
