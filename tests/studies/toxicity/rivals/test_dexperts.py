"""DExperts adds what the expert says beyond the anti-expert, and nothing outside the base's nucleus."""

from functools import partial

import pytest
import torch

from repsurgery.errors import DataError, TextError
from repsurgery.studies.toxicity.decoding import adapters
from repsurgery.studies.toxicity.rivals.dexperts import ensemble
from tests.studies.toxicity.rivals.contexts import PROMPTS, base, rival, rows, share_of_target, taught_context

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


def test_both_adapters_are_made_once_and_the_model_is_left_alone(taught):
    context = taught()
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
