"""The scores of tokens: their texts join to that of the answer, and nothing is told of a stop."""

import asyncio
import time
from collections import deque

import pytest
import torch

from repsurgery.lm.steer.rows import RowPlan
from repsurgery.serve.job import Job, RowSpec
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.responses import ChatAnswer, CompletionAnswer
from repsurgery.serve.row import Row
from tests.serve.test_text import TOKENIZERS, byte_level


async def written(tokenizer, prompt, new, **how):
    """Return the piece of a row that draws the tokens ``new``, the last of which ends it."""
    spec = RowSpec(0, prompt, RowPlan(), b"", 0.0, 1.0, len(new), alternatives=2, **how)
    job = Job([spec], False, time.monotonic() + 60, 10)
    row = Row(job, spec, tokenizer, ())
    generator = torch.Generator().manual_seed(0)
    for token in new:
        if not row.ended:
            row.take(token, torch.randn(len(tokenizer), generator=generator))
    return await job.next()


@pytest.mark.parametrize("name", ["metaspace", "byte fallback", "words", "word pieces", "byte level"])
def test_the_tokens_join_to_the_text(name):
    tokenizer = TOKENIZERS[name]
    hidden = {"", *tokenizer.all_special_tokens}
    visible = [t for t in range(len(tokenizer)) if tokenizer.decode([t, t], skip_special_tokens=True) not in hidden]
    new = [t for t in visible if "\ufffd" not in tokenizer.decode([t])][:60]
    piece = asyncio.run(written(tokenizer, tokenizer("it w1 G", add_special_tokens=False)["input_ids"], new))
    assert "".join(score.text for score in piece.scores) == piece.text and len(new) >= 6
    content = ChatAnswer("m", True).choice(piece)["logprobs"]["content"]
    assert b"".join(bytes(one["bytes"]) for one in content).decode() == piece.text
    # a completion also scores the drawn token where it is not among the best
    for score, top in zip(
        piece.scores, CompletionAnswer("m", True).choice(piece)["logprobs"]["top_logprobs"], strict=True
    ):
        assert top[score.text] == score.logprob and len(top) <= 3


def test_the_parts_of_the_first_character_of_a_stop_are_not_scored():
    tokenizer = byte_level()
    new = tokenizer("ab你c", add_special_tokens=False)["input_ids"]
    piece = asyncio.run(written(tokenizer, [65], new, stops=["你"]))
    assert (piece.text, piece.finish) == ("ab", "stop")
    assert [score.text for score in piece.scores] == ["a", "b"]
    # the parts of a character before a stop are
    piece = asyncio.run(written(tokenizer, [65], new, stops=["c"]))
    assert piece.text == "ab你" and len(piece.scores) == 5


def test_a_reader_waits_where_the_engine_has_just_cleared_what_it_saw():
    class Cleared(deque):
        def __bool__(self):
            return True

    async def read():
        job = Job([], True, 0.0, 1)
        job._unread = Cleared()
        job._loop.call_later(0.1, job.fail, Refusal(408, "it was not read"))
        await asyncio.wait_for(job.next(), 60)

    with pytest.raises(Refusal, match="it was not read"):
        asyncio.run(read())
