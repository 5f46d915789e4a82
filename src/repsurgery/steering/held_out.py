"""What a method leaves on rows that were left out of its fit, by folds: each fold is steered by a map of all others."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.affine import AffineMap
from repsurgery.arrays import Label, Vector, check_groups, check_labels
from repsurgery.certificates.certificate import Certificate, HeldOut
from repsurgery.certificates.continuous import ContinuousCertificate, HeldOutColumns
from repsurgery.certificates.shown import promised_gaps
from repsurgery.certificates.unbiased import Sample, SquaredGaps, squared_columns, squared_gaps
from repsurgery.errors import DataError, HeldOutWarning
from repsurgery.linalg.whitening import Whitening
from repsurgery.moments.shrinkage import FitRows

__all__ = ["fold_of_rows", "held_out_columns", "held_out_gaps", "usual_folds", "warn_of_held_out"]

Maps = Mapping[Label | None, AffineMap]
SEED = 0
USUAL = 5
FEWEST = 2
"""So many independent rows of a class must be in each fold, because one alone shows no sampling error."""


def usual_folds(z: Any, groups: Any, *, continuous: bool = False) -> int | None:
    """Return five folds, or as many as the smallest class of labels (n,) is large enough for; None below two."""
    labels, codes = (["all"], np.zeros(len(z), dtype=np.intp)) if continuous else check_labels(z, len(z))
    units = np.arange(len(z)) if groups is None else check_groups(groups, len(z))
    assert units is not None
    fewest = min(len(np.unique(units[codes == code])) for code in range(len(labels)))
    folds = min(USUAL, fewest // FEWEST)
    return folds if folds >= 2 else None


def fold_of_rows(rows: FitRows, folds: int) -> NDArray[np.intp]:
    """Return the fold (n,) of each row; rows of one group share a fold, and each class is dealt out evenly."""
    units = _units(rows)
    dice, fold = np.random.default_rng(SEED), np.full(int(units.max()) + 1, -1, dtype=np.intp)
    for code, label in enumerate(rows.labels):
        counted = _counted(rows, code)
        mine = np.unique(units[counted])
        if len(mine) < FEWEST * folds:
            kind = "rows" if rows.groups is None else "groups of rows"
            raise DataError(
                f"folds={folds} leaves out a fold of rows at a time and needs at least {FEWEST * folds} {kind} of each "
                f"class; {label!r} has {len(mine)}. Choose fewer folds, or folds=None."
            )
        new = dice.permutation(mine[fold[mine] < 0])
        fold[new] = np.arange(len(new)) % folds
    left: NDArray[np.intp] = fold[units]
    left[left < 0] = 0  # rows of weight zero, which count nowhere
    return left


def held_out_gaps(
    certificate: Certificate, rows: FitRows, folds: int, maps_without: Callable[[NDArray[np.intp], int], Maps]
) -> HeldOut:
    """Return the gaps on rows left out; ``maps_without(fold_of_rows, f)`` fits the maps without the fold f."""
    fold = fold_of_rows(rows, folds)
    found: dict[Label, list[tuple[SquaredGaps, SquaredGaps]]] = {label: [] for label in certificate.by_source}
    for f in range(folds):
        maps, left = maps_without(fold, f), rows.subset(fold == f)
        both = certificate.population == "all"
        for label, record in certificate.by_source.items():
            before = [_sample(left, name, None) for name in (label, record.target)]
            after = [
                _sample(left, label, maps),
                _sample(left, record.target, maps) if both else before[1],
            ]
            found[label].append((squared_gaps(*before), squared_gaps(*after)))
    figures = {label: [_averaged(gaps, i) for i in (0, 1)] for label, gaps in found.items()}
    worst = [np.max([f[i] for f in figures.values()], axis=0) for i in (0, 1)]
    names = ("mean_gap", "covariance_gap", "ebbn")
    measured = {name: float(value) for name, value in zip(names, worst[1], strict=True)}
    unsteered = {f"{name}_before": float(value) for name, value in zip(names, worst[0], strict=True)}
    return HeldOut(**measured, **unsteered, folds=folds)


def _averaged(gaps: list[tuple[SquaredGaps, SquaredGaps]], i: int) -> tuple[float, float, float]:
    means, covariances, neighbours, scale = (
        max(float(np.mean([getattr(g[i], name) for g in gaps])), 0.0)
        for name in ("means", "covariances", "neighbours", "scale")
    )
    relative = np.sqrt(covariances / scale) if scale > 0 else 0.0 if covariances == 0 else np.inf
    return float(np.sqrt(means)), float(relative), float(np.sqrt(neighbours))


def _sample(rows: FitRows, label: Label, maps: Maps | None) -> Sample:
    """Return the rows of a class, steered by its map."""
    mine = _counted(rows, rows.labels.index(label))
    X = rows.X[mine].astype(np.float64)
    if maps is not None:
        X = maps[label if label in maps else None].apply(X)
    weights = None if rows.weights is None else rows.weights[mine]
    return Sample.of(X, weights, None if rows.groups is None else rows.groups[mine])


def held_out_columns(
    rows: FitRows,
    Z: NDArray[np.float64],
    folds: int,
    map_without: Callable[[NDArray[np.intp], int], AffineMap],
    whitenings: tuple[Whitening, Whitening],
) -> HeldOutColumns:
    """Return what erasure leaves of each column of a continuous concept (n, k) on rows left out.

    ``whitenings`` are those of all rows, before and after erasure.
    """
    fold = fold_of_rows(rows, folds)
    w = np.ones(len(Z)) if rows.weights is None else rows.weights
    spread = np.sqrt(w @ np.square(Z - w @ Z / w.sum()) / w.sum())
    squared: dict[str, list[Vector]] = {name: [] for name in ("before", "after", "r2_before", "r2_after")}
    for f in range(folds):
        left = np.flatnonzero((fold == f) & (w > 0))
        X = rows.X[left].astype(np.float64)
        z = Z[left] / spread
        z = z - w[left] @ z / w[left].sum()
        groups = None if rows.groups is None else rows.groups[left]
        for name, H, whitening in zip(("before", "after"), (X, map_without(fold, f).apply(X)), whitenings, strict=True):
            h = Sample.of(H, w[left], groups)
            squared[name].append(squared_columns(h, z))
            squared[f"r2_{name}"].append(squared_columns(Sample.of(whitening.apply(H.T).T, w[left], groups), z))
    means = {name: np.maximum(np.mean(values, axis=0), 0.0) for name, values in squared.items()}
    return HeldOutColumns(
        covariance_before=tuple(map(float, np.sqrt(means["before"]))),
        covariance_after=tuple(map(float, np.sqrt(means["after"]))),
        r2_before=tuple(map(float, np.minimum(means["r2_before"], 1.0))),
        r2_after=tuple(map(float, np.minimum(means["r2_after"], 1.0))),
        folds=folds,
    )


def warn_of_held_out(certificate: Certificate | ContinuousCertificate) -> None:
    """Warn where a gap that the method promises to close is wider on rows left out than without steering."""
    for gap, after, before in _wider(certificate):
        warnings.warn(
            f"{certificate.method}: on rows left out of the fit, the gap between {gap} is {after:.2g}, and "
            f"{before:.2g} without steering, so that the map does harm to new rows. Add rows, or choose a shrinkage "
            "such as 'pooled' or 'oas'.",
            HeldOutWarning,
            stacklevel=5,
        )


def _wider(certificate: Certificate | ContinuousCertificate) -> list[tuple[str, float, float]]:
    held_out = certificate.held_out
    if held_out is None:
        return []
    if isinstance(held_out, HeldOutColumns):
        pairs = zip(held_out.covariance_after, held_out.covariance_before, strict=True)
        return [(f"the rows and column {j}", a, b) for j, (a, b) in enumerate(pairs) if a > b]
    assert isinstance(certificate, Certificate)
    return [(words, after, before) for words, before, after in promised_gaps(certificate) if after > before]


def _units(rows: FitRows) -> NDArray[np.intp]:
    return np.arange(len(rows.X)) if rows.groups is None else rows.groups


def _counted(rows: FitRows, code: int) -> NDArray[np.intp]:
    of_class = rows.codes == code
    return np.flatnonzero(of_class if rows.weights is None else of_class & (rows.weights > 0))
