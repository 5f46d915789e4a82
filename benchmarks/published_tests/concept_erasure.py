"""concept-erasure's tests against this library: each name below stands in for the peer's own of that name.

LEACE is `LEACE` of a continuous concept, the columns of z; the orthogonal projection is LEACE of rows whose covariance
is a multiple of the identity; the quadratic eraser is `BarycenterErasure`; transport and barycentres are `MiMiC` and
`BarycenterErasure` of given covariances; the shrinkage is "oas", which this library has in its place. Covariances here
are 1/n; where a test reads a covariance of the fitter, it gets 1/(n − 1). Grouping, distances and the oracle eraser
stay the peer's own. ``svd_tol`` and ``constrain_cov_trace`` have no counterpart and are ignored. Of the other test
files, the one on scrubbing downloads models and erases nothing.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import repsurgery as rs
from benchmarks.published_tests.gaussians import barycentre, gaussian, transport
from benchmarks.published_tests.peer import Peer
from repsurgery.moments.shrinkage import NO_SHRINKAGE, shrink, shrunk_covariance

COMPLEX = "The rows are complex numbers, and this library refuses all but real ones."
PEER = Peer(
    name="concept-erasure",
    sdist="concept-erasure-0.2.4.tar.gz",
    sha256="3f2a8f3a9713c7a906c4013b1d94594ca588af7124f04541ca6b4ea72f04ce90",
    files=("tests/test_groupby.py", "tests/test_leace.py", "tests/test_ot.py", "tests/test_shrinkage.py"),
    explained={
        "test_leace::test_stats[dtype1-": COMPLEX,
        "test_shrinkage::test_olse_shrinkage[dtype1-": COMPLEX,
        "test_leace::test_linear_erasure[20]": "It stops before it calls this library: after the peer's own "
        "oracle eraser a logistic regression keeps a coefficient of 3e-9, and the test allows 2e-9.",
    },
)


def tensor(array: object) -> Tensor:
    return torch.from_numpy(np.array(array))


class LeaceFitter:
    def __init__(self, x_dim, z_dim, method="leace", *, affine=True, shrinkage=True, dtype=None, **_ignored):
        self.method, self.affine, self.shrinkage, self.moments = method, affine, shrinkage and method == "leace", None

    def update(self, x: Tensor, z: Tensor) -> "LeaceFitter":
        new = rs.CrossMoments.of(x.numpy(), z.reshape(len(z), -1).numpy())
        self.moments = new if self.moments is None else self.moments + new
        return self

    @property
    def mean_x(self) -> Tensor:
        return tensor(self.moments.rows.mean)

    @property
    def sigma_xx(self) -> Tensor:
        n, rows = self.moments.count, self.moments.rows
        if self.shrinkage:
            return tensor(shrunk_covariance(rows, shrink("oas", 0.0, rows, None)))
        return tensor(shrunk_covariance(rows, NO_SHRINKAGE) * n / (n - 1))

    @property
    def sigma_xz(self) -> Tensor:
        return tensor(self.moments.covariance * self.moments.count / (self.moments.count - 1))

    @property
    def eraser(self) -> "Eraser":
        moments = self.moments
        if self.method == "orth":
            isotropic = np.eye(moments.dim) * moments.rows.scatter.diagonal().max()
            moments = replace(moments, rows=moments.rows.derived(dense=isotropic, factor=None), joint=None)
        shrinkage = "oas" if self.shrinkage else "none"
        fitted = rs.LEACE(concept_type="continuous", shrinkage=shrinkage).fit_moments(moments)
        return Eraser(fitted.map_, self.affine)


@dataclass(frozen=True)
class Eraser:
    map: rs.AffineMap
    affine: bool

    @property
    def P(self) -> Tensor:
        return tensor(self.map.weight)

    def __call__(self, x: Tensor) -> Tensor:
        return tensor(self.map(x.numpy())) if self.affine else x @ self.P.T


class QuadraticEraser:
    def __init__(self, fitted: rs.BarycenterErasure):
        self.fitted = fitted
        self.ot_maps = torch.stack([tensor(fitted.maps_[label].weight) for label in fitted.classes_])

    @classmethod
    def fit(cls, x: Tensor, z: Tensor, *, shrinkage: bool = True) -> "QuadraticEraser":
        return cls(rs.BarycenterErasure(shrinkage="oas" if shrinkage else "none").fit(x.numpy(), concept=z.numpy()))

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        return tensor(self.fitted.transform(x.numpy(), concept=z.numpy()))


def optimal_linear_shrinkage(S_n: Tensor, n: int) -> Tensor:
    """Shrink one covariance or a batch of them."""
    stack = S_n.numpy().reshape(-1, *S_n.shape[-2:])
    moments = [replace(gaussian(np.zeros(len(S)), S, float(n)), count=int(n)) for S in stack]
    shrunk = [shrunk_covariance(m, shrink("oas", 0.0, m, None)) for m in moments]
    return tensor(np.stack(shrunk).reshape(S_n.shape)).type_as(S_n)


def ot_map(K1: Tensor, K2: Tensor) -> Tensor:
    source, target = (gaussian(np.zeros(len(K)), K.numpy()) for K in (K1, K2))
    return tensor(transport(source, target).weight)


def ot_midpoint(K1: Tensor, K2: Tensor, w1: float = 0.5, w2: float = 0.5) -> Tensor:
    return tensor(barycentre([K1.numpy(), K2.numpy()], [w1, w2]))


def ot_barycenter(Ks: Tensor, weights: Tensor | None = None) -> Tensor:
    weights = torch.ones(len(Ks)) if weights is None else weights
    return tensor(barycentre(list(Ks.numpy()), weights.tolist()))


STAND_INS = (
    ("concept_erasure.leace", LeaceFitter),
    ("concept_erasure.quadratic", QuadraticEraser),
    ("concept_erasure.shrinkage", optimal_linear_shrinkage),
    *(("concept_erasure.optimal_transport", function) for function in (ot_map, ot_midpoint, ot_barycenter)),
)
