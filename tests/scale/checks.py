"""When two statistics are the same: to 1e-12, and to the bit."""

import numpy as np


def assert_equal_bits(a, b):
    assert a.labels == b.labels
    for label in a:
        assert a[label].count == b[label].count
        assert np.array_equal(a[label].mean, b[label].mean)
        assert np.array_equal(a[label].scatter, b[label].scatter)
        assert a[label].groups == b[label].groups


def assert_exact(found, wanted):
    """To 1e-12 of the largest entry, and every row once."""
    assert found.labels == wanted.labels
    for label, m in wanted.items():
        assert found[label].count == m.count
        assert found[label].weight == m.weight
        assert (found[label].factor is None) == (m.factor is None)
        assert (found[label].groups is None) == (m.groups is None)
        np.testing.assert_allclose(found[label].effective_count, m.effective_count, rtol=1e-9)
        for name in ("mean", "scatter"):
            a, b = getattr(found[label], name), getattr(m, name)
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max(initial=1e-300))
