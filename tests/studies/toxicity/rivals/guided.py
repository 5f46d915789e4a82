"""What the tests of PPLM and UDDIA share: a study with held-out texts and training prompts, a head, rows."""

from dataclasses import replace

import torch

from repsurgery.datasets import Prompts
from repsurgery.lm.batching.tokens import pad
from repsurgery.studies.toxicity.decoding.head import Head
from repsurgery.studies.toxicity.decoding.lookahead import Lookahead
from tests.lm.tiny_models import WIDTH, texts, tiny_model
from tests.studies.toxicity.rivals.contexts import tiny_context

ROWS = [[1, 5, 9, 30], [1, 7], [1, 8, 9, 10, 11, 12, 13]]
NEXT = torch.tensor([[4, 20, 33], [17, 4, 9], [8, 25, 6]])


def guided_context(work, family="llama", **differences):
    context = tiny_context(work=work, model=tiny_model(family), **differences)
    held_out = {label: texts(10, seed=7 + i) for i, label in enumerate(context.texts.fitted)}
    training = Prompts(tuple(texts(12, seed=5)), name="tiny", source="tests", licence="none")
    return replace(context, texts=replace(context.texts, held_out=held_out, training=training))


def some_head(sign=1):
    """Return a head; with ``sign=-1`` it calls the other label the target."""
    return Head(sign * torch.randn(WIDTH, generator=torch.Generator().manual_seed(3)), sign * 0.1)


def padded(rows=ROWS):
    return pad(rows, token=0, side="left")


def started(model, rows=ROWS):
    """Return a lookahead that has read all but the last token of ``rows``, and those tokens."""
    ahead = Lookahead(model, some_head())
    with torch.no_grad():
        return ahead, ahead.start(*padded(rows))


def along(decoder, rows=ROWS, new=NEXT):
    """Return the logits of ``decoder`` after ``rows`` and after each of the given tokens."""
    with torch.no_grad():
        return [decoder.read(*padded(rows)), *(decoder.step(tokens) for tokens in new)]
