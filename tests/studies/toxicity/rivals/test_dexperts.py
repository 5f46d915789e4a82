"""DExperts adds what the expert says beyond the anti-expert, and nothing outside the base's nucleus."""

import itertools
from functools import partial

import pytest
import torch

from repsurgery.errors import DataError, TextError
from repsurgery.lm.batching.tokens import pad
from repsurgery.studies.toxicity.decoding import adapters, parts
from repsurgery.studies.toxicity.decoding.adapters import with_adapters
from repsurgery.studies.toxicity.rivals.dexperts import ensemble
from tests.studies.toxicity.rivals.contexts import (
    PROMPTS,
    base,
    part_digests,
    rival,
    rows,
    share_of_target,
    taught_context,
)

LINE = "dexperts tokens=480"


@pytest.fixture
def taught(monkeypatch, tmp_path):
    """A context whose texts differ, and a learning rate with which a tiny model learns them in a few steps."""
    monkeypatch.setattr(adapters, "LEARNING_RATE", 0.03)
    monkeypatch.setattr(adapters, "BLOCK", 16)
    return partial(taught_context, work=tmp_path)


def test_two_tokens_by_hand():
    base_logits = torch.tensor([[0.0, 1.0]])
    expert, anti = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.5, 1.0]])
    both = torch.tensor([[True, True]])
    # 0 + 2 (2 - .5) = 3 and 1 + 2 (0 - 1) = -1
    torch.testing.assert_close(ensemble(base_logits, expert, anti, 2.0, both), torch.tensor([[3.0, -1.0]]))
    kept = torch.tensor([[True, False]])
    assert ensemble(base_logits, expert, anti, 2.0, kept)[0, 1] == -torch.inf
    assert torch.equal(ensemble(base_logits, expert, anti, 0.0, both), base_logits)


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
def test_strength_zero_is_the_base(taught, family):
    context = taught(family)
    expected = rows(base(context))
    assert rows(rival(f"{LINE} alpha=0", context)) == expected
    assert rows(rival(LINE, context)) != expected


def test_more_alpha_gives_more_of_the_target(taught):
    # every token may be drawn, so that the nucleus of a random model does not hide the words of the target
    context = taught(top_p=1.0)
    shares = [share_of_target(rival(f"{LINE} alpha={alpha}", context)) for alpha in (-1, 0, 1, 2)]
    assert shares == sorted(shares) and shares[-1] > shares[0] + 0.3


def test_a_batch_writes_what_its_rows_write_alone(taught):
    context = taught()
    whole = rows(rival(LINE, context))
    alone = [rows(rival(LINE, context), [prompt], [seed])[0][0] for prompt in PROMPTS for seed in (0, 1, 2, 7)]
    assert [tokens for row in whole for tokens in row] == alone


@pytest.mark.parametrize("top_p", [0.5, 1.0])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_logits_with_a_cache_are_the_formula_without_one(taught, family, top_p):
    context = taught(family, top_p=top_p, temperature=0.7)
    one = rival(LINE, context)
    prompts, new = [p for p in one.encode(PROMPTS) for _ in range(2)], torch.tensor([[9, 8, 7, 6, 5, 4], [5] * 6])
    of_the_sum = 0
    with torch.no_grad():
        decoder = one.decoder()
        found = [decoder.read(*pad(prompts, token=0, side="left")), *(decoder.step(tokens) for tokens in new)]
        for step, logits in enumerate(found):
            for i, prompt in enumerate(prompts):
                plain, expert, anti = uncached(one, [*prompt, *new[:step, i].tolist()])
                assert (expert - anti).abs().max() > 0.1  # neither reads the other's cache, nor the base's
                total = plain + 2 * (expert - anti)
                expected = total.masked_fill(~in_nucleus(plain, top_p), -torch.inf)
                torch.testing.assert_close(logits[i], expected, rtol=1e-3, atol=1e-3)
                of_the_sum += not torch.equal(in_nucleus(total, top_p), in_nucleus(plain, top_p))
    assert (of_the_sum > 0) == (top_p < 1)  # the nucleus of the sum would be another one


def uncached(one, row):
    """Return the logits of base, expert and anti-expert after ``row``, each by a pass over the whole text."""
    trained = {name: with_adapters(one.model, {name: one.part(name).arrays}) for name in ("expert", "anti-expert")}
    return [model(input_ids=torch.tensor([row])).logits[0, -1] for model in (one.model, *trained.values())]


def in_nucleus(logits, top_p):
    """Return which tokens lie in the nucleus at the temperature 0.7, one token after the other."""
    p, kept, mass = (logits / 0.7).softmax(-1), torch.zeros(len(logits), dtype=torch.bool), 0.0
    for token in p.argsort(descending=True):
        kept[token] = top_p == 1 or mass < top_p
        mass += p[token].item()
    return kept


def test_labels_and_tokens_decide_an_adapter_and_alpha_does_not(taught):
    context = taught()
    of = partial(part_digests, context=context)
    assert of(f"{LINE} alpha=1") == of(LINE)
    more = of("dexperts tokens=481")
    assert all(more[name] != identity for name, identity in of(LINE).items()) and more.keys() == of(LINE).keys()
    assert of(LINE)["expert"] != of(LINE)["anti-expert"]


def test_both_adapters_are_made_once_and_the_model_is_left_alone(taught, monkeypatch):
    context, ticks = taught(), itertools.count()
    # a quick machine trains tiny adapters between two ticks of a coarse clock
    monkeypatch.setattr(parts.time, "process_time", lambda: float(next(ticks)))
    before = {name: (p.clone(), p.requires_grad) for name, p in context.model.named_parameters()}
    first = rival(LINE, context)
    assert first.training_seconds is None
    expected = rows(first)
    assert first.training_seconds > 0 and first.cost.extra_passes > 0
    assert {name: part.header["tokens"] for name, part in first.known_parts().items()} == {
        "expert": 480,
        "anti-expert": 480,
    }
    stored = {path: path.stat().st_mtime_ns for path in (context.work / "rivals").iterdir()}
    assert rows(rival("dexperts alpha=2 tokens=480", context)) == expected
    assert {path: path.stat().st_mtime_ns for path in (context.work / "rivals").iterdir()} == stored
    for name, parameter in context.model.named_parameters():
        assert torch.equal(parameter, before[name][0]) and parameter.requires_grad == before[name][1]


def test_too_few_texts_and_long_prompts_are_refused(taught):
    context = taught()
    with pytest.raises(DataError, match="at least one block of 16"):
        rival("dexperts tokens=10", context).prepare(progress=False)
    with pytest.raises(TextError, match="the context holds 64"):
        rival(LINE, context).generate([" ".join(["w1"] * 70)], [0])
