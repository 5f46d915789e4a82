"""The nearest rows by cosine similarity against scikit-learn's brute force, rows to neighbours."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.clock import interleaved
from benchmarks.data import two_classes
from benchmarks.lines import Line, Settings, at_least, at_most, fact
from repsurgery.metrics import nearest_neighbours

ROWS, QUERIES, D, K = 100_000, 1000, 768, 128
BLOCK = 2048


def run(settings: Settings) -> list[Line]:
    """Time both on the same float32 rows, normalisation included, and compare the sets they find."""
    rows, queries, d, k = (2000, 50, 64, 16) if settings.quick else (ROWS, QUERIES, D, K)
    X = two_classes(rows // 2, d, condition=1e4).X
    asked = np.sort(np.random.default_rng(0).choice(rows, queries, replace=False))
    clock = interleaved(
        {
            "ours": lambda: nearest_neighbours(X, asked, k),
            "scikit-learn": lambda: _peer(X, asked, k),
            "product": lambda: _product(X, asked),
        },
        rounds=settings.rounds(d),
    )
    ours, peer = clock.results["ours"], clock.results["scikit-learn"]
    differing = sum(len(set(a) - set(b)) for a, b in zip(ours, peer, strict=True))
    size = f"{queries:,} x {rows:,} x {d}, k = {k}, float32"
    ratio = clock.paired("scikit-learn", "ours")
    return [
        at_least(f"speed against scikit-learn, {size}", ratio, 2.3, note=clock.spread("scikit-learn", "ours")),
        fact("CPU time", clock.of("ours"), "s"),
        fact("CPU time of scikit-learn", clock.of("scikit-learn"), "s"),
        fact(
            "time in products of this size", clock.paired("ours", "product"), "x", "1 is the floor of any brute force"
        ),
        at_most("neighbours not among scikit-learn's", differing / ours.size, 1e-4, note=f"{differing} of {ours.size}"),
        fact("of these, further than scikit-learn's in float64", _further(X, asked, ours, peer)),
    ]


def _peer(X, asked, k):
    found = NearestNeighbors(n_neighbors=k + 1, metric="cosine", algorithm="brute").fit(X)
    indices = found.kneighbors(X[asked], return_distance=False)
    # it finds the query itself among them, in whatever place
    return [row[row != i][:k] for i, row in zip(asked, indices, strict=True)]


def _product(X, asked):
    """The similarities alone, in blocks, unscaled and thrown away."""
    Q, out = X[asked], np.empty((len(asked), BLOCK), np.float32)
    for start in range(0, len(X), BLOCK):
        block = X[start : start + BLOCK]
        np.matmul(Q, block.T, out=out[:, : len(block)])


def _further(X, asked, ours, peer):
    """Count the neighbours of ours that lie further, in float64, than one of the peer's that we left out."""
    count = 0
    for i, a, b in zip(asked, ours, peer, strict=True):
        mine, theirs = np.setdiff1d(a, b), np.setdiff1d(b, a)
        if len(mine):
            count += int((_similarity(X, i, mine) < _similarity(X, i, theirs).max()).sum())
    return count


def _similarity(X, i, rows):
    U, q = X[rows].astype(np.float64), X[i].astype(np.float64)
    return U @ q / np.linalg.norm(U, axis=1) / np.linalg.norm(q)
