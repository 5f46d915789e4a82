"""What a method leaves on rows that were left out of its fit, by folds: each fold is steered by a map of all others."""

import warnings
from collections.abc import Callable, Mapping, Sequence
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
ATTEMPTS = 20
"""So often are groups of rows that span classes dealt anew where a fold would lack a class."""


def usual_folds(z: Any, groups: Any, *, continuous: bool = False) -> int | None:
    """Return five folds, or as many as the smallest class of labels (n,) is large enough for; None below two."""
    labels, codes = (["all"], np.zeros(len(z), dtype=np.intp)) if continuous else check_labels(z, len(z))
    units = np.arange(len(z)) if groups is None else check_groups(groups, len(z))
    assert units is not None
    members = [np.unique(units[codes == code]) for code in range(len(labels))]
    return next((folds for folds in range(USUAL, 1, -1) if _dealt(members, folds) is not None), None)


def fold_of_rows(rows: FitRows, folds: int) -> NDArray[np.intp]:
    """Return the fold (n,) of each row; rows of one group share a fold, and each class is dealt out evenly.

    Guarantees
    ----------
    Each fold has two groups of each class, also where groups span classes, or an error says how many there are
    (test_groups_are_never_split_between_folds).
    """
    units = _units(rows)
    members = [np.unique(units[_counted(rows, code)]) for code in range(len(rows.labels))]
    dealt = _dealt(members, folds)
    if dealt is None:
        kind = "rows" if rows.groups is None else "groups of rows"
        have = ", ".join(f"{label!r} has {len(mine)}" for label, mine in zip(rows.labels, members, strict=True))
        spanning = int((np.unique(np.concatenate(members), return_counts=True)[1] > 1).sum())
        span = f"; {spanning} of these groups have rows of several classes and must stay whole" if spanning else ""
        raise DataError(
            f"folds={folds} leaves out a fold of rows at a time and needs at least {FEWEST * folds} {kind} of each "
            f"class, {FEWEST} in each fold; {have}{span}. Choose fewer folds, or folds=None."
        )
    fold = np.zeros(int(units.max()) + 1, dtype=np.intp)  # also of rows of weight zero, which count nowhere
    fold[list(dealt)] = list(dealt.values())
    return fold[units]


def _dealt(members: Sequence[NDArray[np.intp]], folds: int) -> dict[int, int] | None:
    """Return the fold of each unit, given the units of each class; None where a fold would lack some of a class."""
    if min(map(len, members)) < FEWEST * folds:
        return None
    units, inverse = np.unique(np.concatenate(members), return_inverse=True)
    of_unit = np.zeros((len(units), len(members)))
    of_unit[inverse, np.repeat(np.arange(len(members)), [len(mine) for mine in members])] = 1.0
    dice = np.random.default_rng(SEED)
    for _ in range(ATTEMPTS):  # without units of several classes, the first succeeds
        fold = _deal(of_unit, folds, dice)
        if all((np.bincount(fold, of_class, folds) >= FEWEST).all() for of_class in of_unit.T):
            return dict(zip(units.tolist(), fold.tolist(), strict=True))
    return None


def _deal(of_unit: NDArray[np.float64], folds: int, dice: np.random.Generator) -> NDArray[np.intp]:
    """Return a fold for each unit, whose classes are marked in (units, classes).

    Units of several classes are dealt first, each to the fold that lacks most of its classes, and of such folds to the
    one that has the smallest share of them; units of one class fill up what is left.
    """
    total, have = of_unit.sum(axis=0), np.zeros((folds, of_unit.shape[1]))
    fold = np.full(len(of_unit), -1, dtype=np.intp)
    spanning = np.flatnonzero(of_unit.sum(axis=1) > 1)
    if len(spanning):
        rarest = np.where(of_unit[spanning] > 0, total, np.inf).min(axis=1)
        spanning = spanning[np.lexsort((dice.permutation(len(spanning)), rarest))]
    for unit in spanning:
        mine = of_unit[unit] > 0
        lacking, share = (have[:, mine] < FEWEST).sum(axis=1), (have[:, mine] / total[mine]).sum(axis=1)
        fold[unit] = np.lexsort((have.sum(axis=1), share, -lacking))[0]
        have[fold[unit]] += mine
    for code, of_class in enumerate(of_unit.T):
        alone = dice.permutation(np.flatnonzero((of_class > 0) & (fold < 0)))
        # the emptiest fold is next, and of equal ones the first
        rounds = np.add.outer(have[:, code], np.arange(len(alone)))
        places = np.lexsort((np.repeat(np.arange(folds), len(alone)), rounds.ravel()))[: len(alone)]
        fold[alone] = places // max(len(alone), 1)
    return fold


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
