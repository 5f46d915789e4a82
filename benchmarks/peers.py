"""The peers, each called as its documentation does, on the same rows; casts count as part of the fit."""

import warnings

import numpy as np
import torch
from concept_erasure import LeaceEraser, LeaceFitter
from concept_erasure.optimal_transport import ot_map
from numpy.typing import NDArray
from ot.da import LinearTransport

from benchmarks.data import Array, Classes

__all__ = ["ce_batch", "ce_stream", "ce_transport", "pot"]

STREAM_ROWS = 1024
# its default shrinkage and its trace constraint move the answer; without them it solves the same problem as we do
LIKE_FOR_LIKE = {"shrinkage": False, "constrain_cov_trace": False}


def pot(data: Classes, *, dtype: str = "float64", reg: float = 0.0) -> NDArray[np.floating]:
    """Return the weight of POT's `LinearTransport`, in our convention; NaN where it breaks down.

    Its default ``reg`` of 1e-8 answers a slightly different question; 0 makes its errors those of arithmetic alone.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            fitted = LinearTransport(reg=reg).fit(Xs=_cast(data.source, dtype), Xt=_cast(data.target, dtype))
        except (np.linalg.LinAlgError, ValueError):
            return np.full((1, 1), np.nan)
    return fitted.A_.T


def _cast(X: Array, dtype: str) -> Array:
    return X.astype(dtype, copy=False)


def ce_batch(data: Classes, *, dtype: str = "float64") -> LeaceEraser:
    """Return concept-erasure's eraser fitted at once."""
    x = torch.from_numpy(data.X).to(getattr(torch, dtype))
    return LeaceEraser.fit(x, torch.from_numpy(data.z), **LIKE_FOR_LIKE)


def ce_stream(data: Classes, *, dtype: str = "float64") -> LeaceEraser:
    """Return concept-erasure's eraser fitted on batches of `STREAM_ROWS`."""
    x, z = torch.from_numpy(data.X), torch.from_numpy(data.z)
    fitter = LeaceFitter(x.shape[1], 1, dtype=getattr(torch, dtype), **LIKE_FOR_LIKE)
    for start in range(0, len(x), STREAM_ROWS):
        fitter.update(x[start : start + STREAM_ROWS], z[start : start + STREAM_ROWS])
    return fitter.eraser


def ce_transport(data: Classes, *, dtype: str) -> Array:
    """Return concept-erasure's `ot_map` between the classes' covariances, all in ``dtype``."""
    kind = getattr(torch, dtype)
    S0, S1 = (torch.cov(torch.from_numpy(X).to(kind).T, correction=0) for X in (data.source, data.target))
    return ot_map(S0, S1).numpy()
