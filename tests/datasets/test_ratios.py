import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsurgery.datasets import sample_ratio
from repsurgery.errors import DataError, LabelError, ParameterError, ShapeError

WHOLE = (0.5, 0.6, 0.75, 0.85, 0.95)
CUT = (0.55, 0.65, 0.7, 0.8, 0.9)


def table(size):
    return np.repeat(["negative", "negative", "positive", "positive"], size), np.tile(
        np.repeat(["SAE", "AAE"], size), 2
    )


@pytest.fixture(scope="module")
def full():
    return table(44_000)


@pytest.mark.parametrize("ratio", WHOLE + CUT)
def test_sizes_are_the_published_ones(full, ratio):
    sizes = tuple(len(part) for part in sample_ratio(*full, ratio))
    assert sizes == ((52_800, 26_399, 8_801) if ratio in WHOLE else (52_798, 26_400, 8_800))


@given(
    ratio=st.sampled_from((0.0, *WHOLE, *CUT, 1.0)),
    per_cell=st.integers(1, 60),
    seed=st.integers(0, 5),
)
def test_each_cell_has_its_count_and_no_row_comes_twice(ratio, per_cell, seed):
    labels, concepts = table(60)
    rows = np.concatenate(sample_ratio(labels, concepts, ratio, per_cell=per_cell, seed=seed))
    assert len(set(rows.tolist())) == len(rows)
    pairs = list(zip(labels[rows], concepts[rows], strict=True))
    together, apart = int(per_cell * ratio), int(per_cell * (1 - ratio))
    assert pairs.count(("positive", "AAE")) == pairs.count(("negative", "SAE")) == together
    assert pairs.count(("positive", "SAE")) == pairs.count(("negative", "AAE")) == apart


def test_all_splits_share_the_ratio(full):
    labels, concepts = full
    for rows in sample_ratio(labels, concepts, 0.8):
        share = np.mean((labels[rows] == "positive") == (concepts[rows] == "AAE"))
        # six standard deviations of a share of .8
        assert abs(share - 0.8) < 6 * np.sqrt(0.16 / len(rows))


def test_the_seed_decides_rows_and_order():
    one, again, other = (sample_ratio(*table(50), 0.6, per_cell=40, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not np.array_equal(one[0], other[0])


def test_codes_do_as_well_as_names():
    labels, concepts = table(50)
    named = sample_ratio(labels, concepts, 0.7, per_cell=40)
    coded = sample_ratio(labels == "positive", (concepts == "AAE") * 1, 0.7, label=True, concept=1, per_cell=40)
    assert all(np.array_equal(a, b) for a, b in zip(named, coded, strict=True))


def test_what_cannot_be_drawn_is_refused():
    labels, concepts = table(5)
    with pytest.raises(DataError, match=r"needs 6 rows in a cell .* one has 5\. Lower per_cell"):
        sample_ratio(labels, concepts, 0.6, per_cell=10)
    with pytest.raises(LabelError, match=r"needs two labels, one of them 'good'; got .*name one with label="):
        sample_ratio(labels, concepts, 0.5, label="good", per_cell=2)
    with pytest.raises(LabelError, match="needs two concepts"):
        sample_ratio(labels, ["AAE"] * 20, 0.5, per_cell=2)
    with pytest.raises(ShapeError, match="20 labels and 19 concepts"):
        sample_ratio(labels, concepts[1:], 0.5, per_cell=2)
    with pytest.raises(ParameterError, match="from 0 to 1"):
        sample_ratio(labels, concepts, 1.5, per_cell=2)
    with pytest.raises(ParameterError, match="positive number"):
        sample_ratio(labels, concepts, 0.5, per_cell=0)
