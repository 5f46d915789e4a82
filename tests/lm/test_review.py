"""Small things a first user met."""

import numpy as np
import pandas as pd
import pytest
import torch

from repsurgery import Dense, Translation, lm
from repsurgery.errors import NonFiniteError, SiteError
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer


@pytest.mark.parametrize("column", [pd.Series, np.array, tuple])
def test_texts_may_be_a_column(column):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    texts = ["w1 w2", "w3"]
    expected = lm.extract(model, tokenizer, texts, progress=False)
    assert (lm.extract(model, tokenizer, column(texts), progress=False) == expected).all()


def test_a_site_is_a_name():
    with pytest.raises(SiteError, match="not 3"), lm.steer(tiny_model("llama"), {3: Translation(np.zeros(WIDTH))}):
        pass


def test_a_divergence_that_overflows_is_refused():
    model, tokenizer = tiny_model("llama", dtype=torch.float16), tiny_tokenizer()
    strong = Dense(2e4 * np.eye(WIDTH), np.zeros(WIDTH))
    with pytest.raises(NonFiniteError, match="Lower the strength"):
        lm.kl_divergence(model, tokenizer, ["w1 w2"], strong, progress=False)
