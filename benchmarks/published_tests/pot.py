"""POT's tests of Gaussian transport against this library: each name below stands in for POT's own of that name.

Maps and distances between samples are `MiMiC` with a ridge of ``reg``, between Gaussians `MiMiC` of moments with that
mean and covariance; the barycentre is `BarycenterErasure`. Without ``bias`` POT transports about the origin, which is
transport between the rows and their negatives. What the library has only for one pair of Gaussians is called for each
pair of a batch, whose shapes are checked as POT checks them. Arrays are NumPy's, the only kind the library computes
with; ``log`` returns an empty dict. `LinearTransport` and Gaussian mixtures are POT's own around these functions. No
other test file of POT calls any of them.
"""

from typing import Any

import numpy as np
import ot
import pytest
from numpy.typing import NDArray

import repsurgery as rs
from benchmarks.published_tests import gaussians
from benchmarks.published_tests.gaussians import gaussian, transport
from benchmarks.published_tests.peer import Peer

PEER = Peer(
    name="POT",
    sdist="pot-0.9.7.post1.tar.gz",
    sha256="2edd70845047ac2d378487b980a2bffb5ff58e9b92b7133896ff5753f6300cec",
    files=("test/test_gaussian.py", "test/test_da.py", "test/test_gmm.py", "test/test_solvers.py"),
    explained={
        "test_gaussian::test_empirical_bures_wasserstein_mapping_numerical_error_warning": "The test demands that the "
        "algorithm breaks down, with a warning and a map that is not finite. Here the map is found.",
        "test_gmm::test_gradient_gmm_ot_loss_pytorch": "The test differentiates the distance with PyTorch, and this "
        "library computes in NumPy, without gradients.",
        "test_gmm::test_gmm_barycenter_fixed_point": "POT takes the barycentre of Gaussians of which some have weight "
        "0; here moments of weight 0 hold no rows, and are refused instead of left out.",
    },
)
Array = NDArray[Any]


def pytest_configure() -> None:
    # the sdist lacks POT's conftest.py; with NumPy alone no test is skipped for its kind of array
    pytest.skip_backend = lambda *_names, **_reasons: lambda test: test
    pytest.skip_arg = pytest.skip_backend


@pytest.fixture
def nx() -> Any:
    return ot.backend.NumpyBackend()


def bures_wasserstein_mapping(ms, mt, Cs, Ct, log=False):
    return _written(transport(gaussian(ms, Cs), gaussian(mt, Ct)), np.shape(ms), log)


def empirical_bures_wasserstein_mapping(xs, xt, reg=1e-6, ws=None, wt=None, bias=True, log=False):
    return _written(transport(_counted(xs, ws, bias), _counted(xt, wt, bias), ridge=reg), (1, xs.shape[1]), log)


def empirical_bures_wasserstein_distance(xs, xt, reg=1e-6, ws=None, wt=None, bias=True, log=False):
    found = gaussians.distance(_counted(xs, ws, bias), _counted(xt, wt, bias), ridge=reg)
    return (found, {}) if log else found


def _counted(X: Array, weights: Array | None, bias: bool) -> rs.Moments:
    w = None if weights is None else np.ravel(weights)
    if bias:
        return rs.Moments.of(X, sample_weight=w)
    return rs.Moments.of(np.vstack([X, -X]), sample_weight=None if w is None else np.tile(w, 2))


def _written(map_: rs.AffineMap, shape: tuple[int, ...], log: bool) -> tuple[Any, ...]:
    # POT multiplies rows by A from the right, and its bias has the shape of its means
    found = np.array(map_.weight.T), map_.bias.reshape(shape)
    return (*found, {}) if log else found


def bures_distance(Cs, Ct, paired=False, log=False, nx=None):
    return bures_wasserstein_distance(np.zeros(Cs.shape[:-1]), np.zeros(Ct.shape[:-1]), Cs, Ct, paired, log)


def bures_wasserstein_distance(ms, mt, Cs, Ct, paired=False, log=False):
    assert ms.shape == Cs.shape[:-1] and mt.shape == Ct.shape[:-1] and Cs.ndim == Ct.ndim
    assert Cs.shape[-1] == Ct.shape[-1]
    source, target = _batch(ms, Cs), _batch(mt, Ct)
    if paired and len(source) == len(target):
        found = np.array([gaussians.distance(*pair) for pair in zip(source, target, strict=True)])
    else:
        found = np.array([[gaussians.distance(s, t) for t in target] for s in source])
    found = found.item() if Cs.ndim == 2 else found
    return (found, {}) if log else found


def _batch(means: Array, covariances: Array) -> list[rs.Moments]:
    d = covariances.shape[-1]
    pairs = zip(means.reshape(-1, d), covariances.reshape(-1, d, d), strict=True)
    return [gaussian(mean, covariance) for mean, covariance in pairs]


def dist_bures_squared(m_s, m_t, C_s, C_t):
    return bures_wasserstein_distance(m_s, m_t, C_s, C_t) ** 2


def bures_barycenter_fixpoint(C, weights=None, num_iter=1000, eps=1e-7, log=False, nx=None):
    found = gaussians.barycentre(list(C), np.ones(len(C)) if weights is None else weights)
    return (found, {}) if log else found


STAND_INS = (
    ("ot.gaussian", bures_wasserstein_mapping),
    ("ot.gaussian", empirical_bures_wasserstein_mapping),
    ("ot.gaussian", empirical_bures_wasserstein_distance),
    ("ot.gaussian", bures_distance),
    ("ot.gaussian", bures_wasserstein_distance),
    ("ot.gaussian", bures_barycenter_fixpoint),
    ("ot.gmm", dist_bures_squared),
)
