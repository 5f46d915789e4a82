"""Self-debiasing: the formula by hand, the announced copies against passes without a cache, and limits."""

import math

import pytest
import torch

from repsurgery.errors import LabelWarning, ParameterError, TextError
from repsurgery.lm.batching.tokens import pad
from repsurgery.studies.toxicity.rivals.self_debias import debiased, prefixes_of
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.rivals.contexts import PROMPTS, SEEDS, base, rival, rows, tiny_context

FAMILIES = ["llama", "gpt2", "mistral"]


def logs(*p):
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("family", FAMILIES)
def test_without_decay_the_texts_are_those_of_the_base(family):
    context = tiny_context(model=tiny_model(family))
    untouched = base(context).generate(PROMPTS, SEEDS)
    assert rival("self-debias decay=0", context).generate(PROMPTS, SEEDS) == untouched
    assert rival("self-debias floor=1", context).generate(PROMPTS, SEEDS) == untouched
    assert rival("self-debias", context).generate(PROMPTS, SEEDS) != untouched


def test_two_tokens_by_hand():
    # the sentence raises the first token from .5 to .6, so it keeps exp(-50 · .1) = exp(-5) of its probability
    p = debiased(logs(0.5, 0.5), logs(0.6, 0.4)[None], decay=50.0, floor=0.0).softmax(-1)
    kept = math.exp(-5)
    torch.testing.assert_close(p, torch.tensor([[kept, 1.0]], dtype=torch.float64) / (kept + 1))
    # a floor of .01 is larger than exp(-5)
    p = debiased(logs(0.5, 0.5), logs(0.6, 0.4)[None], decay=50.0, floor=0.01).softmax(-1)
    torch.testing.assert_close(p, torch.tensor([[0.01, 1.0]], dtype=torch.float64) / 1.01)


def test_of_several_sentences_the_one_that_favours_a_token_most_counts():
    two = torch.stack([logs(0.6, 0.4), logs(0.3, 0.7)])
    found = debiased(logs(0.5, 0.5), two, decay=10.0, floor=0.0).softmax(-1)
    kept = torch.tensor([[math.exp(-1), math.exp(-2)]], dtype=torch.float64)
    torch.testing.assert_close(found, kept / kept.sum())


def test_more_decay_lowers_more():
    torch.manual_seed(0)
    logits, announced = torch.randn(4, 9), torch.randn(2, 4, 9)
    favoured = announced.softmax(-1).amax(0) > logits.softmax(-1)
    assert favoured.any() and not favoured.all()
    before = logits
    for decay in (1.0, 5.0, 20.0):
        after = debiased(logits, announced, decay=decay, floor=0.0)
        assert (after[favoured] < before[favoured]).all()
        assert torch.equal(after[~favoured], logits[~favoured])
        before = after
    mass = [(debiased(logits, announced, decay=d, floor=0.0).softmax(-1) * favoured).sum(-1) for d in (0.0, 1.0, 5.0)]
    assert (mass[0] > mass[1]).all() and (mass[1] > mass[2]).all()


@pytest.mark.parametrize("line", ["self-debias", "self-debias attributes=six decay=5"])
def test_a_batch_writes_what_single_rows_write(line):
    context = tiny_context()
    together = rows(rival(line, context))
    assert together == [[rows(rival(line, context), [p], [s])[0][0] for s in SEEDS] for p in PROMPTS]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_with_a_cache_are_the_formula_without_one(family):
    context = tiny_context(model=tiny_model(family))
    one = rival("self-debias attributes=six decay=5", context)
    prompts, new = one.encode(PROMPTS), torch.tensor([[9, 8, 7], [5, 5, 6]])
    decoder = one.decoder()
    with torch.no_grad():
        found = [decoder.read(*pad(prompts, token=0, side="left")), *(decoder.step(tokens) for tokens in new)]
        for step, logits in enumerate(found):
            for i, prompt in enumerate(PROMPTS):
                words = " ".join(context.tokenizer.convert_ids_to_tokens(new[:step, i].tolist()))
                texts = [f"{prefix}{prompt} {words}" for prefix in ("", *one.prefixes)]
                plain = torch.cat([_last(context, text) for text in texts])[:, None]
                expected = debiased(plain[0], plain[1:], decay=5.0, floor=0.01)
                # two rounding errors of a pass in float32
                torch.testing.assert_close(logits[i : i + 1], expected, rtol=1e-4, atol=1e-4)


def _last(context, text):
    return context.model(torch.tensor([context.tokenizer(text)["input_ids"]])).logits[:, -1]


def test_every_sentence_is_a_further_pass_of_each_row():
    context = tiny_context(tokens=1)
    for line, passes in (("self-debias", 1), ("self-debias attributes=six", 6)):
        one = rival(line, context)
        one.generate(PROMPTS, SEEDS)
        assert one.cost.extra_passes == passes * len(PROMPTS) * len(SEEDS)


def test_the_sentence_names_the_source():
    assert prefixes_of("toxic") == ["The following text contains very hateful, aggressive, disrespectful language:\n"]
    assert len(prefixes_of("toxic", "six")) == 6
    assert prefixes_of("rude", "six") == ["The following text is very rude:\n"]
    toxic, rude = (rival("self-debias", tiny_context(source=label)) for label in ("toxic", "rude"))
    assert toxic.identity != rude.identity


def test_a_prompt_that_fits_only_without_the_sentence_is_refused_before_any_generation(monkeypatch):
    context = tiny_context()
    one, prompt = rival("self-debias", context), "w1 " * 55
    assert base(context).generate([prompt], [0])
    monkeypatch.setattr(type(one), "decoder", None)
    said = (
        r"self-debias got a text of \d+ tokens at index 1; the context holds 64.*drop the prompt that begins with 'w1"
    )
    with pytest.raises(TextError, match=said) as refusal:
        one.generate(["w1", prompt], [0])
    assert "max_length" not in str(refusal.value)


@pytest.mark.parametrize("option", ["decay=-1", "decay=nan", "decay=inf", "floor=2", "floor=nan", "attributes=many"])
def test_options_that_mean_nothing_are_refused(option):
    with pytest.raises(ParameterError, match=r"must|choose one of severe, six"):
        rival(f"self-debias {option}", tiny_context())


def test_six_attributes_of_toxicity_need_toxic_texts():
    with pytest.raises(
        ParameterError, match=r"'self-debias attributes=six'.*the source is 'rude'. Leave attributes out"
    ):
        rival("self-debias attributes=six", tiny_context(source="rude"))


def test_a_source_that_is_no_word_is_warned_about():
    with pytest.warns(LabelWarning, match="'self-debias' lets the model read that a text is '1', which is not a word"):
        one = rival("self-debias", tiny_context(source="1", target="0"))
    assert one.prefixes == ["The following text is very 1:\n"]
