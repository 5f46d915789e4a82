"""`make_bios`: synthetic vectors with the size and the skews of the Bios corpus."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from repsurgery.arrays import Matrix, Rows, Vector, check_integer
from repsurgery.checkpoint import atomic_file, digest
from repsurgery.datasets.representations import Representations
from repsurgery.errors import DataError, ParameterError

__all__ = ["FEMALE", "MALE", "make_bios"]

FEMALE, MALE = 0, 1
BIOS_TRAIN, BIOS_DEV, BIOS_TEST = 255_710, 39_369, 98_344
BIOS = BIOS_TRAIN + BIOS_DEV + BIOS_TEST
BLOCK = 4096
"""Rows drawn by one generator; another size would draw different rows."""

SEPARATION = 2.8
GENDER_SHIFT = 1.0
STEREOTYPE = 2.5
GENDER_SPREAD = 1.2
MIDDLE, OFFSET = 0.45, 0.1
"""Of `female_shares`: with these, 46 % of the rows of 28 professions are female."""
NOISE = (4.0, 0.05)
LAW = 1
"""Version of the distribution: raised when it changes, so that the digest changes too."""


def make_bios(
    n: int = BIOS,
    d: int = 768,
    professions: int = 28,
    *,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> Representations:
    """Return ``n`` rows of ``d`` numbers with a profession (0 … K − 1) and a gender (0 female, 1 male) each.

    Rows are independent. With σ = +1 for female and −1 for male, and g, ε, η standard normal:

    * profession y with share ∝ (y + 2)^−1.6: .31 for the first of 28, .004 for the last;
    * female given y with probability f_y, .07 to .92, nearer .45 for the most frequent and the rarest professions;
    * v = exp(σΓ/2) (c_y + ε) + 2.5 σ w in ℝ^K: centroids c_y orthogonal with norms 2.8 · (.9 … 1.1); Γ symmetric with
      eigenvalues from −1.2 to 1.2; w the unit vector along Σ_y share_y (f_y − ½) c_y;
    * e_j = s_j exp(σγ_j/2) η_j in ℝ^(d−K−1): s from 4 down to .05, γ_j uniform in [−1.2, 1.2];
    * x = μ + Q (g + σ, v, e), Q a rotation, μ standard normal.

    Gender thus shifts a coordinate of its own and moves vectors towards the professions of its stereotype, which
    matching means reverses. It also stretches the directions that distinguish professions, by up to e^1.2 between the
    genders, which only matching covariances reverses. Nothing else differs between the genders, so that matching
    covariances also raises accuracy; on real text it costs a little. Q, μ, Γ, γ and c depend on the seed.

    Parameters
    ----------
    n : int
        The default is the size of Bios. With a smaller n the rows are the first of the larger sample.
    d : int
        At least ``professions`` + 2.
    professions : int
        K, at least 2.
    seed : int
    path : str or path, or None
        A folder for the float32 rows, which are returned as a read-only memory map and reused by the next call with
        the same arguments; None keeps them in memory. In both cases rows are drawn 4,096 at a time.

    Returns
    -------
    Representations
        Splits "train", "dev" and "test" have the proportions of Bios (255,710 / 39,369 / 98,344). ``digest`` is that
        of the parameters; the last bits of the rows may differ between builds of BLAS and LAPACK.

    Examples
    --------
    >>> from repsurgery.datasets import make_bios
    >>> bios = make_bios(1000, 8, 3)
    >>> bios.X.shape, {name: rows.stop - rows.start for name, rows in bios.splits.items()}
    ((1000, 8), {'train': 650, 'dev': 100, 'test': 250})
    """
    n, d = check_integer("n", n), check_integer("d", d, least=2)
    professions, seed = check_integer("professions", professions, least=2), check_integer("seed", seed, least=0)
    if d < professions + 2:
        raise ParameterError(
            f"make_bios got d={d} for {professions} professions; it needs at least {professions + 2}: "
            "one direction per profession, one for gender and one of noise."
        )
    recipe = {"law": LAW, "n": n, "d": d, "professions": professions, "seed": seed, "block": BLOCK}
    key = digest(recipe)
    law = _Law.drawn(d, professions, seed)
    y, z = np.empty(n, np.int64), np.empty(n, np.int64)
    for rows, drawn in _blocks(n, seed):
        y[rows], z[rows] = (part[: rows.stop - rows.start] for part in law.labels(drawn))
    if path is None:
        X: Rows = np.empty((n, d), np.float32)
        for rows, block in _drawn_rows(n, law, seed):
            X[rows] = block
    else:
        X = _on_disk(Path(path), f"synthetic-bios-{key[:16]}.npy", (n, d), law, seed)
    return Representations(X, y, z, _splits(n), "synthetic-bios", f"make_bios{tuple(recipe.values())[1:5]}", key)


@dataclass(frozen=True, slots=True)
class _Law:
    shares: Vector
    female: Vector
    centroids: Matrix
    stretch: NDArray[np.float64]
    """(2, K, K): exp(±Γ/2), by gender."""
    stereotype: Vector
    scales: Matrix
    """(2, d − K − 1), by gender."""
    rotation: NDArray[np.float32]
    mean: NDArray[np.float32]

    @classmethod
    def drawn(cls, d: int, K: int, seed: int) -> "_Law":
        rng = np.random.default_rng([seed, 0])
        shares, female = profession_shares(K), female_shares(K)
        norms = SEPARATION * rng.permutation(np.linspace(0.9, 1.1, K))
        centroids = _rotation(rng, K) * norms[:, None]
        U = _rotation(rng, K)
        gamma = (U * np.linspace(-GENDER_SPREAD, GENDER_SPREAD, K)) @ U.T
        w = (shares * (female - 0.5)) @ centroids
        spread = rng.uniform(-GENDER_SPREAD, GENDER_SPREAD, d - K - 1)
        scales = np.geomspace(*NOISE, d - K - 1) * np.exp(np.outer([0.5, -0.5], spread))
        rotation, mean = _rotation(rng, d).astype(np.float32), rng.standard_normal(d, dtype=np.float32)
        stretch = np.stack([expm(gamma / 2), expm(-gamma / 2)])
        return cls(shares, female, centroids, stretch, w / np.linalg.norm(w), scales, rotation, mean)

    def labels(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return professions and genders of one block, which its generator draws first."""
        y = np.searchsorted(np.cumsum(self.shares)[:-1], rng.random(BLOCK), side="right")
        return y, np.where(rng.random(BLOCK) < self.female[y], FEMALE, MALE)

    def rows(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return one block (4096, d)."""
        y, z = self.labels(rng)
        K = len(self.shares)
        u = rng.standard_normal((BLOCK, len(self.mean)), dtype=np.float32)
        for gender, sign in ((FEMALE, 1.0), (MALE, -1.0)):
            own = z == gender
            v = (self.centroids[y[own]] + u[own, 1 : K + 1]) @ self.stretch[gender]
            u[own, 0] += sign * GENDER_SHIFT
            u[own, 1 : K + 1] = v + sign * STEREOTYPE * self.stereotype
            u[own, K + 1 :] *= self.scales[gender].astype(np.float32)
        return u @ self.rotation.T + self.mean


def profession_shares(K: int) -> Vector:
    """Return the shares (K,) of the professions, falling as (y + 2)^−1.6."""
    shares: Vector = np.power(np.arange(K) + 2.0, -1.6, dtype=np.float64)
    shares /= shares.sum()
    return shares


def female_shares(K: int) -> Vector:
    """Return P(female | y) (K,): about .07 … .92, closer to the middle for the most frequent and the rarest ones."""
    k = np.arange(1, K + 1)
    # ranks of a golden-ratio sequence, so that skew and frequency are unrelated
    ranks = np.argsort(np.argsort((k * (np.sqrt(5) - 1) / 2 + OFFSET) % 1))
    pull = np.minimum(np.minimum(1.0, 4 * (k - 1) / K), 1.6 - k / K)
    return MIDDLE + (np.linspace(0.07, 0.92, K)[ranks] - MIDDLE) * pull


def _rotation(rng: np.random.Generator, d: int) -> Matrix:
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    # LAPACK chooses the signs of a QR factorisation; this choice is unique
    return Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)


def _blocks(n: int, seed: int) -> Iterator[tuple[slice, np.random.Generator]]:
    for index, start in enumerate(range(0, n, BLOCK)):
        yield slice(start, min(start + BLOCK, n)), np.random.default_rng([seed, index + 1])


def _drawn_rows(n: int, law: _Law, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    for rows, generator in _blocks(n, seed):
        # a whole block is drawn even if its end is cut off, so that a smaller n gives the first rows of a larger one
        yield rows, law.rows(generator)[: rows.stop - rows.start]


def _on_disk(folder: Path, name: str, shape: tuple[int, int], law: _Law, seed: int) -> Rows:
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder} to write {name} into. Create it first.")
    file = folder / name
    if not file.exists():
        header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
        with atomic_file(file) as stream:
            np.lib.format.write_array_header_1_0(stream, header)
            for _, block in _drawn_rows(shape[0], law, seed):
                stream.write(np.ascontiguousarray(block).data)
    rows: Rows = np.load(file, mmap_mode="r")
    if rows.shape != shape or rows.dtype != np.float32:
        raise DataError(f"{file} holds {rows.dtype} rows of shape {rows.shape}, not float32 {shape}. Delete it.")
    return rows


def _splits(n: int) -> dict[str, slice]:
    train = round(n * BIOS_TRAIN / BIOS)
    dev = train + round(n * BIOS_DEV / BIOS)
    return {"train": slice(0, train), "dev": slice(train, dev), "test": slice(dev, n)}
