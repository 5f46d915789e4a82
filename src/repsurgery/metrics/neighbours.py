"""Exact cosine neighbours, and how often they share a concept.

Similarities are first screened by float32 products, whose rounding error has a known bound; every row that the bound
cannot exclude is then compared in float64. The result is that of float64, at about the cost of float32.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.arrays import Rows, Vector, check_integer, check_labels, check_rows, require_finite, row_blocks
from repsurgery.errors import DataError, LabelError, ParameterError

__all__ = ["chance_level", "nearest_neighbours", "neighbour_bias", "neighbour_shares", "unit_rows"]

Indices = NDArray[np.intp]
Tile = NDArray[np.float32]

QUERIES = 1024
"""Queries that are screened together."""
BLOCK = 2048
"""Rows that are screened together; with `QUERIES` this limits the similarities in memory to 8 MiB."""
CANDIDATES = 2**22
"""With more candidates than this, and than eight times the requested neighbours, queries are screened in halves."""

LENGTHS = (1e-30, 1e30)
"""Rows outside these lengths, such as zero rows, raise an error: float32 could not hold them as unit rows."""


def nearest_neighbours(X: Any, queries_index: Any, k: int) -> Indices:
    """Return for each query the ``k`` other rows of highest cosine similarity, nearest first.

    A query is excluded from its own neighbours by its index, so that an equal row elsewhere does count. Equal
    similarities are ordered by index, lowest first.

    Parameters
    ----------
    X : (n, d) array
    queries_index : (q,) whole numbers
        The indices of the rows whose neighbours are wanted.
    k : int
        At most n − 1.

    Returns
    -------
    (q, k) array of row indices

    Notes
    -----
    The result is that of a comparison in float64, whatever the dtype and the blocks
    (test_neighbours_equal_a_float64_brute_force). Only rows whose similarities agree up to the rounding of float64,
    about 1e-16, without being copies of each other may change places. Memory above ``X`` stays below about 100 MiB. If
    very many rows lie within float32's rounding of the k-th neighbour, time grows towards that of float64.

    Examples
    --------
    >>> from repsurgery.metrics import nearest_neighbours
    >>> nearest_neighbours([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1], [1.0, 0.0]], [0], 2).tolist()
    [[3, 2]]
    """
    X = _usable_rows(X, "nearest_neighbours")
    queries = _query_index(queries_index, len(X))
    _require_k([k], len(X), "nearest_neighbours")
    norms = _norms(X)
    parts = [_neighbours(X, norms, queries[i : i + QUERIES], k) for i in range(0, len(queries), QUERIES)]
    return np.concatenate(parts)


def neighbour_shares(
    X: Any, concept: Any, k: Sequence[int] | int = (1, 8, 128), queries: int = 1000, seed: int = 0
) -> dict[int, Vector]:
    """Return for each ``k`` the share of every query's k nearest rows that have the query's concept.

    Parameters
    ----------
    X : (n, d) array
    concept : (n,) labels
    k : whole numbers of at most n − 1, or one
    queries : int
        Rows drawn without replacement; with n or more, all rows in their order.
    seed : int
        Queries depend on n, ``queries`` and ``seed`` alone, so that representations of the same rows are comparable.

    Returns
    -------
    {k: (q,) array}, queries in the order of their rows
    """
    X = _usable_rows(X, "neighbour_shares")
    _, codes = check_labels(concept, len(X), caller="neighbour_shares")
    sizes = _require_k([k] if isinstance(k, int | np.integer) else k, len(X), "neighbour_shares")
    drawn = _draw(len(X), queries, seed)
    same = codes[nearest_neighbours(X, drawn, max(sizes))] == codes[drawn, None]
    return {size: same[:, :size].mean(axis=1) for size in sizes}


def neighbour_bias(
    X: Any, concept: Any, k: Sequence[int] | int = (1, 8, 128), queries: int = 1000, seed: int = 0
) -> dict[int, float]:
    """Return for each ``k`` the mean share of the k nearest rows that have the query's concept.

    Without any bias it is about `chance_level`, not the share of the larger class. Parameters as in `neighbour_shares`.

    Examples
    --------
    >>> from repsurgery.metrics import neighbour_bias
    >>> neighbour_bias([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], ["f", "f", "m", "m"], k=[1, 3])
    {1: 1.0, 3: 0.3333333333333333}
    """
    return {size: float(shares.mean()) for size, shares in neighbour_shares(X, concept, k, queries, seed).items()}


def chance_level(concept: Any) -> float:
    """Return Σ p_c², the probability that two rows drawn at random have the same concept.

    Examples
    --------
    >>> from repsurgery.metrics import chance_level
    >>> chance_level(["f", "m", "m", "m"])
    0.625
    """
    n = len(concept)
    if n == 0:
        raise LabelError("chance_level got no labels; give the concept label of each row.")
    _, codes = check_labels(concept, n, caller="chance_level")
    return float(np.square(np.bincount(codes) / n).sum())


def _neighbours(X: Rows, norms: Vector, queries: Indices, k: int) -> Indices:
    candidates = _screen(X, norms, queries, k)
    if candidates is None:
        half = len(queries) // 2
        return np.concatenate([_neighbours(X, norms, part, k) for part in (queries[:half], queries[half:])])
    return np.array([_ranked(X, norms, i, rows, k) for i, rows in zip(queries, candidates, strict=True)], dtype=np.intp)


def _screen(X: Rows, norms: Vector, queries: Indices, k: int) -> list[Indices] | None:
    """Return for each query every row that may be among its k nearest; None if these are too many for memory."""
    n, d = X.shape
    width = max(BLOCK, k + 1)
    # one buffer for all blocks, because allocating memory would cost more than the comparisons
    units, products = np.empty((width, d), np.float32), np.empty((len(queries), width), np.float32)
    Q = _units(X, norms, queries, np.empty((len(queries), d), np.float32))
    slack = _slack(d)
    candidates: list[tuple[Indices, Indices, Tile]] = []
    fresh = 0
    for block, start in enumerate(range(0, n, width)):
        stop = min(start + width, n)
        S = np.matmul(Q, _units(X, norms, slice(start, stop), units[: stop - start]).T, out=products[:, : stop - start])
        inside = (start <= queries) & (queries < stop)
        S[inside, queries[inside] - start] = -np.inf
        if start == 0:
            best = np.partition(S, stop - k, axis=1)[:, stop - k :]
            least = best.min(axis=1, keepdims=True)
        q, j = np.divmod(np.flatnonzero(least - slack <= S), S.shape[1])
        candidates.append((q, j + start, S[q, j]))
        if start == 0:
            fresh = 1
        elif block & (block - 1) == 0 or stop == n:
            # the threshold is raised at blocks 1, 2, 4, 8, ...: an old one passes a few more rows, which costs less
            best = _largest(best, candidates[fresh:])
            least = best.min(axis=1, keepdims=True)
            fresh = len(candidates)
        if len(queries) > 1 and sum(len(q) for q, _, _ in candidates) > max(CANDIDATES, 8 * k * len(queries)):
            return None
    q, rows, values = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
    possible = values >= (least[:, 0] - slack)[q]
    q, rows = q[possible], rows[possible]
    ends = np.cumsum(np.bincount(q, minlength=len(queries)))
    return np.split(rows[np.argsort(q, kind="stable")], ends[:-1])


def _slack(d: int) -> np.float32:
    """Return twice the error of a float32 product of unit rows: two similarities may err in opposite directions.

    With u = 2⁻²⁴, the error of a product of d terms is at most d u / (1 − d u) times ‖x‖ ‖y‖, and scaling both rows
    adds 4 u; the rest covers lengths slightly above 1, tiny numbers and the error of float64.
    """
    u = 2.0**-24
    return np.float32(2 * (d / max(1 - d * u, 0.5) + 6) * u)


def _largest(best: Tile, candidates: Sequence[tuple[Indices, Indices, Tile]]) -> Tile:
    """Return each query's k largest values among ``best`` (q, k) and the ``candidates`` since."""
    q = np.concatenate([part[0] for part in candidates])
    order = np.argsort(q, kind="stable")
    q, values = q[order], np.concatenate([part[2] for part in candidates])[order]
    counts = np.bincount(q, minlength=len(best))
    width = counts.max()
    if width == 0:
        return best
    k = best.shape[1]
    pool = np.full((len(best), k + width), -np.inf, np.float32)
    pool[:, :k] = best
    place = np.arange(len(q)) - np.repeat(np.cumsum(counts) - counts, counts)
    pool[q, k + place] = values
    pool.partition(width, axis=1)
    return np.ascontiguousarray(pool[:, width:])


def _ranked(X: Rows, norms: Vector, query: np.intp, rows: Indices, k: int) -> Indices:
    """Return the k of ``rows`` nearest to the query in float64, nearest first, then lowest index."""
    unit = X[query].astype(np.float64) / norms[query]
    similarity = np.empty(len(rows))
    for block in row_blocks(len(rows), X.shape[1]):
        # einsum sums every row alone and in one order, so that copies of a row tie exactly, unlike in a BLAS product
        similarity[block] = np.einsum("ij,j->i", X[rows[block]].astype(np.float64), unit)
    similarity /= norms[rows]
    return rows[np.lexsort((rows, -similarity))[:k]]


def _units(X: Rows, norms: Vector, rows: Indices | slice, out: Tile) -> Tile:
    inverse = (1 / norms[rows, None]).astype(np.float32)
    return np.multiply(X[rows], inverse, out=out, casting="same_kind")


def unit_rows(X: Rows) -> Tile:
    """Return the rows scaled to length 1 in float32, shape (n, d)."""
    return _units(X, _norms(X), slice(None), np.empty(X.shape, np.float32))


def _norms(X: Rows) -> Vector:
    norms = np.empty(len(X))
    for block in row_blocks(*X.shape):
        rows = X[block].astype(np.float64)
        norms[block] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    shortest, longest = LENGTHS
    bad = np.flatnonzero(~((shortest <= norms) & (norms <= longest)))
    if len(bad):
        raise DataError(
            f"Cosine similarity needs rows of length {shortest:g} to {longest:g}; row {bad[0]} has length "
            f"{norms[bad[0]]:g} ({len(bad)} such rows). Drop zero rows, rescale the others."
        )
    return norms


def _usable_rows(X: Any, caller: str) -> Rows:
    rows = check_rows(X, caller=caller)
    require_finite(rows, caller=caller)
    return rows


def _query_index(queries: Any, n: int) -> Indices:
    index = np.asarray(queries)
    if index.ndim != 1 or len(index) == 0 or index.dtype.kind not in "iu":
        raise ParameterError(
            f"queries_index has shape {index.shape} and dtype {index.dtype}; give one or more row numbers, shape (q,)."
        )
    if index.min() < 0 or index.max() >= n:
        raise ParameterError(f"queries_index spans {index.min()} to {index.max()}; X has the rows 0 to {n - 1}.")
    return index.astype(np.intp)


def _require_k(k: Any, n: int, caller: str) -> list[int]:
    if not isinstance(k, Sequence | np.ndarray) or len(k) == 0:
        raise ParameterError(f"{caller} got k={k!r}; give a list of whole numbers, such as [1, 8, 128].")
    for size in k:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size < n:
            raise ParameterError(f"{caller} got k={size!r}; with {n} rows it must be a whole number from 1 to {n - 1}.")
    return [int(size) for size in k]


def _draw(n: int, queries: int, seed: int) -> Indices:
    check_integer("queries", queries)
    check_integer("seed", seed, least=0)
    if queries >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, queries, replace=False))
