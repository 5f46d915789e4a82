"""The loop of the rivals draws what `lm.generate` draws, with a cache and without one, in any batch."""

import pytest
import torch

from repsurgery import lm
from repsurgery.lm.generate.sampling import draw, race, sample_key
from repsurgery.studies.toxicity.decoding.cached_model import CachedModel
from repsurgery.studies.toxicity.decoding.sampler import nucleus, sample
from tests.lm.tiny_models import DECODERS, tiny_model, tiny_tokenizer

PROMPTS = ["w1 w2 w3", "w4 w5", "w6 w7 w8 w9 w1"]
SAMPLING = {"tokens": 8, "ends": [2], "padding": 0, "top_p": 0.9, "temperature": 0.8}


def generations(model, **options):
    how = {"n": 3, "max_new_tokens": 8, "temperature": 0.8, "progress": False}
    return lm.generate(model, tiny_tokenizer(), PROMPTS, **how, **options)


def drawn(model, expected, decoder=None, **options):
    rows = [list(g.prompt_tokens) for g in expected]
    keys = [sample_key(0, g.prompt, 0, g.sample) for g in expected]
    with torch.no_grad():
        new = sample(decoder or CachedModel(model), rows, keys, **{**SAMPLING, **options})
    return [tuple(row[: len(g.tokens)]) for row, g in zip(new, expected, strict=True)]


@pytest.mark.parametrize("family", DECODERS)
def test_a_plain_model_writes_what_generate_writes(family):
    model = tiny_model(family)
    expected = generations(model)
    assert drawn(model, expected) == [g.tokens for g in expected]
    # the keys matter: other noise gives other texts
    assert drawn(model, generations(model, seed=1)) != [g.tokens for g in generations(model, seed=1)]


class Uncached:
    """Reads the whole text at every step, one row at a time and without padding."""

    def __init__(self, model):
        self.model = model

    def read(self, ids, mask):
        self.rows = [row[kept.bool()] for row, kept in zip(ids, mask, strict=True)]
        return self.logits()

    def step(self, tokens):
        self.rows = [torch.cat([row, token[None]]) for row, token in zip(self.rows, tokens, strict=True)]
        return self.logits()

    def logits(self):
        return torch.cat([self.model(row[None]).logits[:, -1] for row in self.rows])


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3", "mistral"])
def test_logits_with_a_cache_are_those_without(family):
    model = tiny_model(family)
    expected = generations(model)
    assert drawn(model, expected, Uncached(model)) == drawn(model, expected)


def test_equal_prompts_are_read_once():
    model, read = tiny_model("llama"), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    ids = torch.tensor([[5, 6], [5, 6], [5, 7], [5, 6]])
    one = CachedModel(model)
    with torch.no_grad():
        logits = one.read(ids, torch.ones_like(ids))
        after = one.step(torch.tensor([8, 9, 8, 8]))
        alone = torch.cat(
            [
                model(input_ids=torch.cat([row, t[None]])[None]).logits[:, -1]
                for row, t in zip(ids, torch.tensor([8, 9, 8, 8]), strict=True)
            ]
        )
    assert read[0] == (2, 2)
    torch.testing.assert_close(logits[0], logits[3])
    assert not torch.allclose(logits[0], logits[2])
    torch.testing.assert_close(after, alone)


@pytest.mark.parametrize("top_p", [0.2, 0.5, 0.9, 1.0])
def test_the_mask_of_the_nucleus_is_the_nucleus_of_the_race(top_p):
    torch.manual_seed(0)
    logits = 3 * torch.randn(20, 50)
    kept = nucleus(logits, top_p, 0.7)
    p = torch.softmax(logits / 0.7, dim=-1)
    for _ in range(200):
        noise = torch.empty_like(p).exponential_()
        first = race(p, noise, top_p)
        assert kept.gather(1, first[:, None]).all()
        # the race within the mask has the same winner, so that a masked base draws what the base draws
        masked = torch.softmax((logits / 0.7).masked_fill(~kept, -torch.inf), dim=-1)
        assert torch.equal(race(masked, noise, 1.0), first)
    assert kept.all() == (top_p == 1)


def test_a_draw_depends_on_key_and_step_alone():
    torch.manual_seed(0)
    logits, keys = torch.randn(6, 40), [sample_key(0, "p", 0, i) for i in range(6)]
    how = {"top_p": 0.9, "temperature": 1.0}
    whole = draw(logits, keys, 3, **how)
    assert torch.equal(draw(logits.flip(0), keys[::-1], 3, **how).flip(0), whole)
    assert not torch.equal(draw(logits, keys, 4, **how), whole)


def test_a_text_stops_at_its_end_token():
    class Ending:
        def read(self, ids, mask):
            self.steps = 0
            return torch.nn.functional.one_hot(torch.tensor([3, 4]), 6) * 100.0

        def step(self, tokens):
            self.steps += 1
            return torch.nn.functional.one_hot(torch.tensor([2, 4]), 6) * 100.0

    decoder = Ending()
    rows = sample(decoder, [[1], [1]], [b"a", b"b"], **{**SAMPLING, "tokens": 4})
    assert rows == [[3, 2, 0, 0], [4, 4, 4, 4]]
    # nothing is computed after the last text has ended
    ended = sample(Ending(), [[1], [1]], [b"a", b"b"], **{**SAMPLING, "ends": [3, 4]})
    assert ended == [[3], [4]]


def test_equally_probable_tokens_are_in_the_nucleus_together():
    p = torch.tensor([[0.5, 0.25, 0.25, 0.0]])
    assert nucleus(p.log(), 0.75, 1.0).tolist() == [[True, True, True, False]]
    assert nucleus(p.log(), 0.5, 1.0).tolist() == [[True, False, False, False]]
