"""GeDi: scores, filter and penalty by hand, a guide that learns and resumes, and one path for every batch."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from repsurgery.errors import DataError, ParameterError, TextError
from repsurgery.lm.batching.tokens import pad
from repsurgery.studies.toxicity.decoding import guide, training
from repsurgery.studies.toxicity.decoding.guide import GUIDE, Codes, log_likelihoods, scale_and_bias, train_guide
from repsurgery.studies.toxicity.decoding.parts import Workshop
from repsurgery.studies.toxicity.rivals.gedi import CLASS_BIAS, class_margins, filtered, penalised
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import (
    PROMPTS,
    SEEDS,
    base,
    part_digests,
    rival,
    rows,
    share_of_target,
    taught_context,
    tiny_context,
)

LINE = "gedi tokens=600 codes=w20/w21"


@pytest.fixture
def taught(monkeypatch, tmp_path):
    """A context whose texts differ, and a learning rate with which a tiny model learns them in a few steps."""
    monkeypatch.setattr(guide, "LEARNING_RATE", 0.02)
    monkeypatch.setattr(guide, "HEAD_RATE", 1.0)
    return partial(taught_context, work=tmp_path)


def test_two_candidates_by_hand():
    # the text so far, of three tokens, favours the wanted class by 1; the candidates by 3 and by -5
    margins = class_margins(torch.tensor([1.0]), torch.tensor([[3.0, -5.0]]), torch.tensor([3]), 2.0, 0.5)
    # 2 (1 + 3) / 4 + .5 and 2 (1 - 5) / 4 + .5
    torch.testing.assert_close(margins, torch.tensor([[2.5, -1.5]]))


def test_the_filter_by_hand():
    z = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    margins = torch.tensor([[0.0, -1.0, 1.0, 2.0]])
    # in the order of the margins the masses are .3, .7, .9 and 1: the first two stay below .8
    kept = filtered(z, margins, 0.8).isfinite()
    assert kept.tolist() == [[False, False, True, True]]
    # a mass that reaches .7 keeps the token that reaches it
    assert filtered(z, margins, 0.65).isfinite().tolist() == [[True, False, True, True]]
    # of the tokens that reach the target none is removed, whatever the mass: sigmoid(0) = .5
    assert filtered(z, margins, 0.8, target_p=0.49).isfinite().tolist() == [[True, False, True, True]]
    torch.testing.assert_close(filtered(z, margins, 0.8)[0, 2:], z[0, 2:])


def test_the_filter_is_its_definition_in_every_row():
    torch.manual_seed(0)
    z, margins = 2 * torch.randn(40, 30), 2 * torch.randn(40, 30) + torch.linspace(-3, 3, 40)[:, None]
    found = filtered(z, margins, 0.8)
    sorted_rows = 0
    for i in range(len(z)):
        p, order = z[i].softmax(-1), margins[i].argsort()
        mass, gone = 0.0, set()
        for token in order.tolist():
            mass += p[token].item()
            if mass < 0.8 and margins[i, token].sigmoid() < 0.8:
                gone.add(token)
        sorted_rows += p[margins[i].sigmoid() < 0.8].sum().item() >= 0.8
        assert set(found[i].isinf().nonzero()[:, 0].tolist()) == gone != set(range(30))
    # both branches were taken
    assert 0 < sorted_rows < len(z)


def test_the_penalty_by_hand():
    z = torch.tensor([[-1.0, -3.0, -20.0]])
    written = torch.tensor([[1, 1, 2]])
    # shifted to 10, 8 and -9; token 1 was written twice, token 2 once
    expected = torch.tensor([[10.0, 8 / 1.2**2, -9 / 1.2]])
    torch.testing.assert_close(penalised(z, written, 1.2), expected)
    torch.testing.assert_close(penalised(z, written[:, :0], 1.2), torch.tensor([[10.0, 8.0, -9.0]]))


def test_only_written_tokens_are_penalised(taught):
    context, new = taught(), torch.tensor([[9, 9, 5], [9, 8, 5]])
    found = {}
    for penalty in (1, 1.5):
        one = rival(f"{LINE} filter=0 penalty={penalty}", context)
        decoder = one.decoder()
        with torch.no_grad():
            read = decoder.read(*pad(one.encode(PROMPTS), token=0, side="left"))
            found[penalty] = [read, *(decoder.step(tokens) for tokens in new)]
    for step, (plain, penalised_z) in enumerate(zip(*found.values(), strict=True)):
        expected = plain - plain.amax(dim=-1, keepdim=True) + 10
        for tokens in new[:step]:  # no token of the prompts, however often it stands there
            for row, token in zip(expected, tokens, strict=True):
                row[token] /= 1.5
        torch.testing.assert_close(penalised_z, expected, rtol=1e-4, atol=1e-4)


def test_the_loss_by_hand(tmp_path):
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    codes, lines = Codes.of(tokenizer, "w20/w21"), (["w1 w2 w3"], ["w4 w5"])
    workshop = Workshop(tmp_path / "state", progress=False)
    facts, _ = train_guide(model, tokenizer, lines, codes, tokens=1, seed=0, workshop=workshop)
    generative, classification = [], []
    for label, [line] in enumerate(lines):
        means = []
        for row in codes.before(tokenizer(line)["input_ids"])[0]:
            with torch.no_grad():
                log_p = model(torch.tensor([row])).logits[0].log_softmax(-1)
            # <s> and the code are given
            means.append(torch.stack([log_p[t - 1, row[t]] for t in range(2, len(row))]).mean())
        generative.append(-means[label].item())
        classification.append(-torch.stack(means).log_softmax(0)[label].item())
    # a new adapter changes nothing, and there is one step
    expected = 0.8 * sum(generative) / 2 + 0.2 * sum(classification) / 2
    assert facts["steps"] == 1 and facts["last_loss"] == pytest.approx(expected, abs=2e-4)


def test_codes_and_tokens_decide_the_guide_and_omega_does_not(taught):
    of = partial(part_digests, context=taught())
    assert of(f"{LINE} omega=3 filter=0 penalty=2") == of(LINE)
    assert of("gedi tokens=601 codes=w20/w21")[GUIDE] != of(LINE)[GUIDE]
    assert of("gedi tokens=600 codes=w20/w22")[GUIDE] != of(LINE)[GUIDE]


def test_a_code_stands_after_the_token_that_begins_every_text():
    codes = Codes.of(tiny_tokenizer(), "w20/w21 w22")
    ids = tiny_tokenizer()("w1 w2")["input_ids"]
    (wanted, unwanted), starts = codes.before(ids)
    decoded = [tiny_tokenizer().decode(row) for row in (wanted, unwanted)]
    assert decoded == ["<s> w20 w1 w2", "<s> w21 w22 w1 w2"] and starts == [2, 3]
    assert codes.before(ids[1:])[1] == [1, 2]


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3"])
@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
def test_strength_zero_is_the_base(taught, family):
    context = taught(family)
    expected = rows(base(context))
    without = rival(f"{LINE} omega=0 filter=0.9 penalty=2", context)
    assert rows(without) == expected and not without.parts() and without.cost.extra_passes == 0
    assert rows(rival(LINE, context)) != expected


def test_more_omega_and_the_filter_give_more_of_the_target(taught):
    context = taught(top_p=1.0)
    shares = [share_of_target(rival(f"{LINE} filter=0 omega={omega}", context)) for omega in (-30, 0, 30, 300)]
    assert shares == sorted(shares) and shares[-1] > shares[0] + 0.3
    assert share_of_target(rival(LINE, context)) > shares[2]


def test_the_expected_class_rises_with_omega(taught):
    # softmax(b + w f) is an exponential family: the mean of f = log P grows with w in every row
    context, means = taught(), []
    for omega in (-30, -3, 3, 30):
        one = rival(f"{LINE} filter=0 omega={omega}", context)
        decoder = one.decoder()
        with torch.no_grad():
            z = decoder.read(*pad(one.encode(PROMPTS), token=0, side="left"))
        margins = class_margins(decoder.totals, decoder.candidates, decoder.lengths, *one.head)
        means.append((z.softmax(-1) * torch.nn.functional.logsigmoid(margins + CLASS_BIAS)).sum(-1))
    assert (torch.stack(means).diff(dim=0) > 0).all()


def test_a_batch_writes_what_its_rows_write_alone(taught):
    context = taught()
    line = f"{LINE} penalty=1.2"
    alone = [[rows(rival(line, context), [prompt], [seed])[0][0] for seed in SEEDS] for prompt in PROMPTS]
    assert rows(rival(line, context)) == alone


def test_each_token_takes_two_more_passes(taught):
    one = rival(LINE, taught(tokens=1))
    one.generate(PROMPTS, SEEDS)
    assert one.cost.extra_passes == 2 * len(PROMPTS) * len(SEEDS)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_scores_with_a_cache_are_the_formula_without_one(taught, family):
    context = taught(family)
    one = rival("gedi tokens=600 filter=0 codes=w20/w21,w22", context)  # codes of one and of three tokens
    prompts, new = [p for p in one.encode(PROMPTS) for _ in range(2)], torch.tensor([[9, 8, 7, 6, 5, 4], [5] * 6])
    with torch.no_grad():
        decoder = one.decoder()
        found = [decoder.read(*pad(prompts, token=0, side="left")), *(decoder.step(tokens) for tokens in new)]
        for step, scores in enumerate(found):
            for i, prompt in enumerate(prompts):
                row = [*prompt, *new[:step, i].tolist()]
                expected = uncached(one, row)
                # rounding of three passes in float32, of which omega multiplies two by 30 / length
                torch.testing.assert_close(scores[i], expected, rtol=1e-3, atol=1e-3)


def uncached(one, row):
    """Return log p_base + omega log P by whole passes over one row, with every candidate in turn."""
    context = one.context
    plain = context.model(torch.tensor([row])).logits[0, -1].log_softmax(-1)
    (wanted, unwanted), starts = one.codes.before(row)
    adapted = one.guided
    adapted.set_adapter(GUIDE)
    vocabulary = range(len(plain))
    scale, bias = one.head
    means = []
    for coded, start in ((wanted, starts[0]), (unwanted, starts[1])):
        total, count = log_likelihoods(
            adapted, [[*coded, token] for token in vocabulary], [start] * len(plain), padding=0
        )
        assert (count == len(coded) - start + 1).all()
        means.append(total / count)
    odds = scale * (means[0] - means[1]) + bias + 2.0
    return plain + 30.0 * torch.nn.functional.logsigmoid(odds)


def test_log_likelihoods_are_those_of_the_model():
    model = tiny_model("llama")
    long, short = [1, 9, 8, 7, 6], [1, 5, 4]
    with torch.no_grad():
        totals, counts = log_likelihoods(model, [long, short], [2, 1], padding=0)
        for row, start, total in ((long, 2, totals[0]), (short, 1, totals[1])):
            logs = model(torch.tensor([row])).logits[0].log_softmax(-1)
            torch.testing.assert_close(total, sum(logs[t - 1, row[t]] for t in range(start, len(row))))
    assert counts.tolist() == [3, 2]


def test_the_guide_tells_the_classes_apart(taught):
    context = taught()
    one = rival(LINE, context)
    facts = one.part(GUIDE).header
    assert facts["tokens"] >= 600 and math.isfinite(facts["last_loss"])
    right = 0
    for label, sign in ((context.spec.target, 1), (context.spec.source, -1)):
        for text in context.texts.fitted[label][-10:]:  # beyond the tokens of the training
            (wanted, unwanted), starts = one.codes.before(context.tokenizer(text)["input_ids"])
            with torch.no_grad():
                totals, _ = log_likelihoods(one.guided, [wanted, unwanted], starts, padding=0)
            right += bool(sign * (totals[0] - totals[1]) > 0)
    assert right >= 19
    scale, bias = one.head
    assert scale == pytest.approx(facts["scale"], abs=1e-4) and scale > 0
    assert bias == pytest.approx(facts["bias"][0] - facts["bias"][1], abs=3e-4)


def test_a_new_head_is_the_identity():
    scale, bias = scale_and_bias(torch.zeros(3))
    assert scale == 1 and bias.tolist() == [0, 0]


def test_an_interrupted_training_continues(taught, monkeypatch, tmp_path):
    expected = dict(rival(LINE, taught(work=tmp_path / "whole")).part(GUIDE).arrays)
    context = taught(work=tmp_path / "halves")
    step, done = training._step, []

    def interrupted(*arguments):
        if len(done) == 5:
            done.append(None)
            raise KeyboardInterrupt
        done.append(arguments)
        return step(*arguments)

    monkeypatch.setattr(training, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rival(LINE, context).prepare(progress=False)
    assert rival(LINE, context).training_seconds is None
    one = rival(LINE, context)
    resumed = one.part(GUIDE)
    assert len(done) - 1 == resumed.header["steps"] > 5  # no step was taken twice
    assert all(np.array_equal(resumed.arrays[name], expected[name]) for name in expected)


def test_codes_that_cannot_be_told_apart_are_refused():
    # the tiny tokenizer knows neither "clean" nor "dirty"
    for codes in ("clean/dirty", "w1", "w1/", "w1/w2/w3"):
        with pytest.raises(ParameterError, match="two words with different tokens"):
            Codes.of(tiny_tokenizer(), codes)
    with pytest.raises(ParameterError, match="codes is 'clean/dirty'") as refused:
        rival("gedi", tiny_context())
    assert "codes=clean/dirty" not in str(refused.value)  # what was refused is not recommended
    assert rival("gedi omega=0", tiny_context())  # there is no guide


@pytest.mark.parametrize("option", ["filter=1", "filter=-0.1", "penalty=0", "omega=inf", "omega=nan"])
def test_options_that_mean_nothing_are_refused(option):
    with pytest.raises(ParameterError, match="must lie in"):
        rival(f"gedi {option}", tiny_context())


def test_a_prompt_that_leaves_no_room_for_the_code_is_refused(taught):
    context = taught()
    prompt = " ".join(["w1"] * 58)  # with <s> and five new tokens, all 64 positions are taken
    assert base(context).generate([prompt], [0])
    with pytest.raises(TextError, match=r"gedi.* got a text of 59 tokens.*drop the prompt that begins"):
        rival(LINE, context).generate([prompt], [0])


def test_no_texts_are_refused(taught):
    context = taught()
    context.texts.fitted[context.spec.source] = []
    with pytest.raises(DataError, match="texts of both"):
        rival(LINE, context).prepare(progress=False)
