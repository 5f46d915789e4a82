"""The synthetic Bios follows its law, row by row, whatever the number of rows and wherever they are kept."""

import numpy as np
import pytest

from repsurgery.datasets import Representations, make_bios
from repsurgery.datasets.synthetic import BIOS, FEMALE, MALE, _splits, female_shares, profession_shares
from repsurgery.errors import DataError, LabelError, ParameterError, ShapeError


def test_fewer_rows_are_the_first_of_more():
    few, more = make_bios(5000, 12, 4), make_bios(9000, 12, 4)
    assert np.array_equal(few.X, more.X[:5000])
    assert np.array_equal(few.labels, more.labels[:5000])
    assert np.array_equal(few.concepts, more.concepts[:5000])
    # rows of different blocks are different draws
    assert not np.array_equal(more.X[:100], more.X[4096:4196])


def test_a_file_holds_what_memory_holds(tmp_path):
    inside, outside = make_bios(5000, 12, 4), make_bios(5000, 12, 4, path=tmp_path)
    assert np.array_equal(inside.X, outside.X)
    assert np.array_equal(inside.labels, outside.labels)
    assert isinstance(outside.X, np.memmap)
    assert inside.digest == outside.digest
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 5000 * 12 * 4 + 4096
    made = file.stat().st_mtime_ns
    assert np.array_equal(make_bios(5000, 12, 4, path=tmp_path).X, inside.X)
    assert file.stat().st_mtime_ns == made


def test_a_foreign_file_is_refused(tmp_path):
    make_bios(100, 12, 4, path=tmp_path)
    (file,) = tmp_path.iterdir()
    np.save(file, np.zeros((3, 3)))
    with pytest.raises(DataError, match="Delete it"):
        make_bios(100, 12, 4, path=tmp_path)
    with pytest.raises(DataError, match="Create it first"):
        make_bios(100, 12, 4, path=tmp_path / "missing")


def test_the_seed_decides_everything():
    assert np.array_equal(make_bios(300, 8, 3, seed=5).X, make_bios(300, 8, 3, seed=5).X)
    one, other = make_bios(300, 8, 3, seed=5), make_bios(300, 8, 3, seed=6)
    assert one.digest == make_bios(300, 8, 3, seed=5).digest != other.digest
    assert not np.array_equal(one.labels, other.labels)
    assert not np.allclose(one.X, other.X)


def test_splits_are_those_of_bios():
    sizes = {name: rows.stop - rows.start for name, rows in _splits(BIOS).items()}
    assert sizes == {"train": 255_710, "dev": 39_369, "test": 98_344}
    bios = make_bios(1000, 8, 3)
    X, y, z = bios.split("dev")
    assert X.shape == (100, 8)
    assert X.base is not None
    assert len(y) == len(z) == 100
    with pytest.raises(ShapeError, match="'train', 'dev', 'test'"):
        bios.split("valid")


def test_shares_are_those_of_the_law():
    shares, female = profession_shares(28), female_shares(28)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] > 0.28
    assert shares[-1] == pytest.approx(0.004, abs=5e-4)
    assert shares @ female == pytest.approx(0.46, abs=0.01)
    assert female.min() == pytest.approx(0.07, abs=0.02)
    assert female.max() == pytest.approx(0.92, abs=0.02)
    n = 40_000
    bios = make_bios(n, 30, 28)
    counts = np.bincount(bios.labels, minlength=28)
    # five standard deviations of a binomial share, for 28 shares at once
    assert (np.abs(counts / n - shares) < 5 * np.sqrt(shares * (1 - shares) / n)).all()
    seen = np.bincount(bios.labels[bios.concepts == FEMALE], minlength=28) / counts
    assert (np.abs(seen - female) < 5 * np.sqrt(female * (1 - female) / counts)).all()


def test_gender_is_in_means_and_in_covariances():
    bios = make_bios(20_000, 12, 4)
    balanced = bios.labels == 0
    female, male = (bios.X[balanced & (bios.concepts == z)].astype(float) for z in (FEMALE, MALE))
    gap = np.linalg.norm(female.mean(axis=0) - male.mean(axis=0))
    assert gap > 2
    ratios = np.linalg.eigvals(np.linalg.solve(np.cov(male.T), np.cov(female.T))).real
    # within a profession Σ_female = exp(2Γ) Σ_male, so e^±2.4 at the ends; halves of one gender differ by sampling
    assert ratios.max() > 5
    assert ratios.min() < 0.2
    halves = np.linalg.eigvals(np.linalg.solve(np.cov(male[::2].T), np.cov(male[1::2].T))).real
    assert halves.max() < 1.3


@pytest.mark.parametrize(
    "arguments", [{"n": 0}, {"n": 2.5}, {"d": 4}, {"professions": 1}, {"seed": -1}, {"professions": True}]
)
def test_arguments_outside_their_range_are_refused(arguments):
    with pytest.raises(ParameterError, match="at least"):
        make_bios(**{"n": 10, "d": 12, "professions": 4, **arguments})


def record(**changes):
    fields = {
        "X": np.zeros((4, 2)),
        "labels": np.arange(4),
        "concepts": np.arange(4),
        "splits": {"train": slice(0, 3), "test": slice(3, 4)},
        "name": "n",
        "source": "s",
        "digest": "d",
    }
    return Representations(**{**fields, **changes})


def test_representations_are_frozen_and_consistent():
    found = record()
    assert len(found) == 4
    for array in (found.X, found.labels, found.concepts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(TypeError):
        found.splits["dev"] = slice(0, 1)
    with pytest.raises(ShapeError, match="one row per vector"):
        record(X=np.zeros(4))
    with pytest.raises(LabelError, match="Give each row one"):
        record(concepts=np.arange(3))
    with pytest.raises(ShapeError, match="contiguous"):
        record(splits={"train": slice(0, 5)})
