"""What every rival inherits: paired noise, texts that do not depend on their batch, parts of exactly this study."""

from dataclasses import replace

import numpy as np
import pytest

from repsurgery.studies.toxicity.decoding.parts import Part
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.generators import MOST_SAMPLES, SHARE
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import PROMPTS, base, rows, tiny_context


class Plain(Rival):
    """The base, written by the loop of the rivals, with a part that counts how often it is made."""

    def __init__(self, context, **options):
        super().__init__("dexperts", context, **options)
        self.made = 0

    def parts(self):
        return {"counter": Part("counter", self._make)}

    def _make(self, workshop):
        self.made += 1
        return {}, {"x": np.zeros(1)}


def test_a_plain_rival_is_the_base(tmp_path):
    context = tiny_context(work=tmp_path)
    seeds = [0, 3, MOST_SAMPLES + 1]  # the last one belongs to another seed of the study
    assert rows(Plain(context), seeds=seeds) == rows(base(context), seeds=seeds)


def test_a_rival_writes_the_same_in_any_batch(tmp_path):
    context = tiny_context(work=tmp_path)
    one, whole = Plain(context), rows(Plain(context))
    assert [rows(one, [prompt])[0] for prompt in PROMPTS] == whole
    assert rows(one, PROMPTS[::-1]) == whole[::-1]
    Plain.batch_size, before = 2, Plain.batch_size
    try:
        assert rows(Plain(context)) == whole
    finally:
        Plain.batch_size = before


def test_the_cost_counts_every_token(tmp_path):
    one = Plain(tiny_context(work=tmp_path))
    written = one.generate(PROMPTS, [0, 1])
    assert one.cost.tokens_written == sum(len(c.tokens) + c.finished for row in written for c in row)
    assert one.cost.tokens_read == sum(map(len, one.encode(PROMPTS)))


CHANGES = {
    "model": lambda c: tiny_context(work=c.work, model=tiny_model("llama", seed=1)),
    "tokenizer": lambda c: tiny_context(work=c.work, tokenizer=_other_tokenizer()),
    "texts": lambda c: _with_other_texts(c),
    "seed": lambda c: tiny_context(work=c.work, seed=1),
    "label": lambda c: tiny_context(work=c.work, target="w1"),
}


def _other_tokenizer():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["w41"])
    return tokenizer


def _with_other_texts(context):
    fitted = {label: texts[::-1] for label, texts in context.texts.fitted.items()}
    return replace(context, texts=replace(context.texts, fitted=fitted))


@pytest.mark.parametrize("change", CHANGES)
def test_a_part_belongs_to_one_model_tokenizer_texts_and_seed(tmp_path, change):
    context = tiny_context(work=tmp_path)
    first, again = Plain(context), Plain(tiny_context(work=tmp_path))
    first.prepare(progress=False)
    again.prepare(progress=False)
    assert (first.made, again.made) == (1, 0)
    other = Plain(CHANGES[change](context))
    assert other.training_seconds is None and other.identity != first.identity
    other.prepare(progress=False)
    assert other.made == 1


def test_the_share_of_prompts_decides_no_text(tmp_path):
    context = tiny_context(work=tmp_path)
    assert Plain(context, **{SHARE: 0.5}).identity == Plain(context, **{SHARE: 1.0}).identity
    assert Plain(context, other=1).identity != Plain(context, other=2).identity
