"""Principal components: the few directions in which rows differ most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Matrix, Vector, row_blocks
from repsurgery.files import digest_of
from repsurgery.moments import Moments

__all__ = ["PrincipalAxes"]


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalAxes:
    """The mean (d,) of some rows and their first principal components (d, k), from the exact covariance."""

    mean: Vector
    axes: Matrix

    @classmethod
    def of(cls, X: NDArray[Any], count: int) -> "PrincipalAxes":
        """Return the first ``count`` components of rows (n, d); each points where its largest entry is positive."""
        moments = Moments.of(X)
        axes = np.linalg.eigh(moments.covariance)[1][:, ::-1][:, :count]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
        return cls(moments.mean, axes)

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Return the coordinates (n, k) of rows (n, d), in float32 as encoders write."""
        out = np.empty((len(X), self.axes.shape[1]), dtype=np.float32)
        for block in row_blocks(*X.shape):
            out[block] = (X[block] - self.mean) @ self.axes
        return out

    def digest(self) -> str:
        """Return the SHA-256 of mean and axes."""
        return digest_of({"mean": np.asarray(self.mean), "axes": self.axes})
