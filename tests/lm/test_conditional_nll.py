import pytest
import torch

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.score.conditional_nll import Surprise
from tests.lm.tiny_models import tiny_model

PROMPTS = ["w1 w2 w3", "w4", "w5 w6"]
CONTINUATIONS = [[" w7 w8", "", " w1", " w7 w8 w9 w1"], [" w2 w2", " w3"], []]


def nll(model, tokenizer, text):
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        log_p = model(ids).logits[0].double().log_softmax(dim=-1)
    return -float(log_p[:-1].gather(1, ids[0, 1:, None]).sum()), ids.shape[1]


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2"])
def test_surprises_are_differences_of_whole_texts(family, tokenizer):
    model = tiny_model(family)
    found = lm.surprises(model, tokenizer, PROMPTS, CONTINUATIONS, progress=False)
    assert [len(row) for row in found] == [4, 2, 0]
    for prompt, texts, row in zip(PROMPTS, CONTINUATIONS, found, strict=True):
        own, length = nll(model, tokenizer, prompt)
        for text, one in zip(texts, row, strict=True):
            total, whole = nll(model, tokenizer, prompt + text)
            assert one.tokens == whole - length
            assert one.nll == pytest.approx(total - own, abs=1e-4)
    assert found[0][1] == Surprise(0.0, 0)
    assert found[0][0].nll > 0.1


def test_a_continuation_may_merge_with_its_prompt(model, tokenizer):
    # "w1" + "0" is one token, "w10": the prompt's last token is not the whole text's
    (row,) = lm.surprises(model, tokenizer, ["w2 w1"], [["0", "0 w3"]], progress=False)
    own, length = nll(model, tokenizer, "w2 w1")
    for text, one in zip(["w2 w10", "w2 w10 w3"], row, strict=True):
        total, whole = nll(model, tokenizer, text)
        assert (one.tokens, one.nll) == (whole - length, pytest.approx(total - own, abs=1e-4))


def test_prompts_and_continuations_must_match(model, tokenizer):
    with pytest.raises(ParameterError, match="give one list per prompt"):
        lm.surprises(model, tokenizer, PROMPTS, [["a"]], progress=False)
