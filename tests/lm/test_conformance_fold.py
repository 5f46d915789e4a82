"""The table in the docs says what the code does."""

import pytest
import torch
import transformers

from tests.lm.folding import TABLE, table

pytestmark = [
    pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed"),
    pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`"),
]


def test_the_committed_table_is_what_is_measured():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    measured = table()
    assert "WRONG" not in measured and "DIFFERENTLY" not in measured
    assert TABLE.read_text(encoding="utf-8") == measured, "write it anew: python -m tests.lm.folding"
