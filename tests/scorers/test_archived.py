import math

import pytest

from repsurgery.errors import DataError, ParameterError
from repsurgery.scorers import Agreement, agreement
from tests.scorers.stand_ins import Length


def of_length(*lengths):
    return ["x" * n for n in lengths]


def test_agreement_by_hand():
    # scores .1 .2 .3 .4 against archived .2 .6 .1 .9: of four pairs (toxic, other) three are in order
    found = agreement(Length(), of_length(10, 20, 30, 40), [0.2, 0.6, 0.1, 0.9])
    # ranks 1 2 3 4 and 2 3 1 4: 1 - 6 (1 + 1 + 4) / (4 * 15)
    assert found == Agreement(
        texts=4,
        auc=pytest.approx(3 / 4),
        spearman=pytest.approx(0.4),
        mean_absolute_error=pytest.approx((0.1 + 0.4 + 0.2 + 0.5) / 4),
        root_mean_square_error=pytest.approx(math.sqrt((0.01 + 0.16 + 0.04 + 0.25) / 4)),
    )


def test_a_half_is_toxic():
    assert agreement(Length(), of_length(10, 20), [0.49, 0.5]).auc == 1
    assert math.isnan(agreement(Length(), of_length(10, 20), [0.4, 0.49]).auc)


def test_texts_without_either_score_are_left_out():
    texts = [*of_length(10, 20, 30), " "]
    assert agreement(Length(), texts, [0.2, None, 0.7, 0.9]) == agreement(Length(), of_length(10, 30), [0.2, 0.7])


def test_a_constant_has_no_rank_correlation():
    assert math.isnan(agreement(Length(), of_length(10, 10), [0.2, 0.7]).spearman)
    assert agreement(Length(), of_length(10, 10), [0.2, 0.7]).auc == 0.5


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ParameterError, match="2 texts and 1 archived scores; give one per text"):
        agreement(Length(), of_length(1, 2), [0.5])
    with pytest.raises(DataError, match="pass 0 to 1, or None"):
        agreement(Length(), of_length(1, 2), [0.5, math.nan])
    with pytest.raises(DataError, match="no text with both"):
        agreement(Length(), [" ", "a"], [0.5, None])
