import warnings
from contextlib import ExitStack

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import NonFiniteError, ParameterError, ShapeError, SteeringWarning
from repsurgery.lm.generate.decode_pass import decode_pass, parameters_of
from repsurgery.lm.steer.row_steering import RowSteering
from repsurgery.lm.steer.rows import prepare_row
from repsurgery.price import Price
from repsurgery.price.fisher import Fisher
from tests.lm.tiny_models import DECODERS, WIDTH, tiny_model, tiny_tokenizer

PROMPTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9", "w4", "w2 w3", "w1 w2 w3"]
FAMILIES = ["gpt2", "llama", "opt", "gemma3", "qwen2_moe", "mistral"]


def shift(seed, size=1.0):
    return rs.Translation(size * np.random.default_rng(seed).normal(size=WIDTH))


def dense(seed):
    rng = np.random.default_rng(seed)
    return rs.Dense(np.eye(WIDTH) + 0.3 * rng.normal(size=(WIDTH, WIDTH)), rng.normal(size=WIDTH))


def low_rank(seed):
    rng = np.random.default_rng(seed)
    return rs.LowRank(rng.normal(size=(WIDTH, 2)), 0.3 * rng.normal(size=(2, WIDTH)), rng.normal(size=WIDTH))


def gated(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, WIDTH)) + np.repeat([[0.0], [1.0]], 100, axis=0)
    return rs.MeanMatching(source=0, target=1, gate="lda").fit(X, np.repeat([0, 1], 100)).steering_


def choices():
    """One entry of each kind, as long as PROMPTS."""
    return [
        lm.Choice(shift(0), strength=0.7),
        None,
        {"layers.0": dense(1), "final": shift(2)},
        [lm.Choice({"layers.1": low_rank(3)}), lm.Choice({"layers.1": shift(4)}, positions="generated")],
        lm.Choice({"layers.0": gated(5)}, positions="prompt"),
        lm.Choice(rs.Diagonal(np.full(WIDTH, 1.3), np.full(WIDTH, 0.2)), positions="last"),
    ]


def batch(tokenizer, prompts):
    tokenizer.padding_side = "left"
    return tokenizer(prompts, return_tensors="pt", padding=True)


def steered_logits(model, tokenizer, prompts, rows):
    inputs = batch(tokenizer, prompts)
    with torch.no_grad(), lm.steer_rows(model, rows):
        output = decode_pass(model, parameters_of(model), inputs["input_ids"], inputs["attention_mask"])
    return output.logits[:, -1]


# the small OPT has narrower states at its end than inside
@pytest.mark.parametrize("family", [family for family in DECODERS if family != "opt_350m"])
def test_a_mixed_batch_equals_its_rows(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    mixed = steered_logits(model, tokenizer, PROMPTS, choices())
    plain = steered_logits(model, tokenizer, PROMPTS, [None] * len(PROMPTS))
    for i, (prompt, choice) in enumerate(zip(PROMPTS, choices(), strict=True)):
        alone = steered_logits(model, tokenizer, [prompt], [choice])[0]
        torch.testing.assert_close(mixed[i], alone, rtol=1e-4, atol=1e-4)
        assert (choice is None) == torch.allclose(mixed[i], plain[i], rtol=1e-4, atol=1e-4)


def test_a_row_equals_the_block_of_its_steering(model, tokenizer):
    inputs = batch(tokenizer, PROMPTS[:2])
    with torch.no_grad(), lm.steer(model, {"layers.0": dense(1)}, strength=0.5):
        whole = model(**inputs).logits
    with torch.no_grad(), lm.steer_rows(model, [lm.Choice({"layers.0": dense(1)}, strength=0.5)] * 2):
        torch.testing.assert_close(model(**inputs).logits[:, -1], whole[:, -1])


def test_rows_without_steering_are_untouched(model, tokenizer):
    inputs = batch(tokenizer, PROMPTS)
    states = []
    hook = model.model.layers[0].register_forward_hook(lambda *a: states.append(a[2].clone()))
    with torch.no_grad():
        model(**inputs)
        with lm.steer_rows(model, [{"layers.0": dense(1)}, *[None] * (len(PROMPTS) - 1)]):
            # a hook that is set later sees what the steering left
            hook.remove()
            hook = model.model.layers[0].register_forward_hook(lambda *a: states.append(a[2].clone()))
            model(**inputs)
    hook.remove()
    assert torch.equal(states[0][1:], states[1][1:])
    assert not torch.equal(states[0][0], states[1][0])


def test_steerings_of_a_row_act_in_their_order(model, tokenizer):
    a, b = dense(1), dense(2)
    both = steered_logits(model, tokenizer, PROMPTS[:1], [[a, b]])
    composed = steered_logits(model, tokenizer, PROMPTS[:1], [b @ a])
    other = steered_logits(model, tokenizer, PROMPTS[:1], [[b, a]])
    torch.testing.assert_close(both, composed, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(both, other, rtol=1e-3, atol=1e-3)


def test_three_steerings_and_two_strengths_at_one_site(model, tokenizer):
    maps = [dense(1), dense(2), dense(3)]
    rows = [maps, lm.Choice(dense(1), strength=0.5), lm.Choice(dense(1))]
    logits = steered_logits(model, tokenizer, [PROMPTS[0]] * 3, rows)
    for i, m in enumerate([maps[2] @ maps[1] @ maps[0], dense(1).interpolate(0.5), dense(1)]):
        with torch.no_grad(), lm.steer(model, {"final": m}):
            expected = model(**batch(tokenizer, [PROMPTS[0]])).logits[0, -1]
        torch.testing.assert_close(logits[i], expected, rtol=1e-4, atol=1e-4)


def test_two_names_of_one_module_keep_the_order(model, tokenizer):
    named = [{"layers.0": dense(1)}, {"model.layers.0": dense(2)}]
    rows = [named, {"model.layers.0": dense(2)}]
    logits = steered_logits(model, tokenizer, [PROMPTS[0]] * 2, rows)
    composed = steered_logits(model, tokenizer, [PROMPTS[0]], [{"layers.0": dense(2) @ dense(1)}])
    torch.testing.assert_close(logits[0], composed[0], rtol=1e-4, atol=1e-4)


def test_equal_rows_are_steered_together(model, tokenizer, monkeypatch):
    calls = []
    counted = RowSteering.counted
    monkeypatch.setattr(RowSteering, "counted", lambda self, X: (calls.append(len(X)), counted(self, X))[1])
    inputs = batch(tokenizer, PROMPTS)
    one, two = {"layers.0": dense(1)}, {"layers.0": dense(2)}
    with torch.no_grad(), lm.steer_rows(model, [one, two, one, None, two, one]):
        model(**inputs)
    tokens = inputs["attention_mask"].sum(dim=1)
    assert sorted(calls) == sorted([int(tokens[[0, 2, 5]].sum()), int(tokens[[1, 4]].sum())])


def test_shifts_of_different_rows_are_one_operation(model, tokenizer, monkeypatch):
    calls = []
    counted = RowSteering.counted
    monkeypatch.setattr(RowSteering, "counted", lambda self, X: (calls.append(len(X)), counted(self, X))[1])
    rows = [shift(i) for i in range(5)] + [rs.Diagonal(np.full(WIDTH, 2.0), np.zeros(WIDTH))]
    mixed = steered_logits(model, tokenizer, PROMPTS, rows)
    assert calls == []
    for i, row in enumerate(rows):
        torch.testing.assert_close(
            mixed[i], steered_logits(model, tokenizer, [PROMPTS[i]], [row])[0], rtol=1e-4, atol=1e-4
        )


def nested(stack, model, choice):
    """Steer ``model`` as ``choice`` says, by blocks of `lm.steer` inside each other."""
    for one in [] if choice is None else choice if isinstance(choice, list) else [choice]:
        how = one if isinstance(one, lm.Choice) else lm.Choice(one)
        sites = how.steering if isinstance(how.steering, dict) else {"final": how.steering}
        stack.enter_context(lm.steer(model, sites, strength=how.strength, positions=how.positions))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", [1, 3])
def test_a_list_of_steerings_writes_what_each_writes_alone(family, n):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    options = {"n": n, "max_new_tokens": 6, "progress": False, "seed": 3}
    together = lm.generate(model, tokenizer, PROMPTS, steering=choices(), **options)
    for i, choice in enumerate(choices()):
        with ExitStack() as stack:
            nested(stack, model, choice)
            alone = lm.generate(model, tokenizer, [PROMPTS[i]], **options)
        assert [g.tokens for g in together[i * n : (i + 1) * n]] == [g.tokens for g in alone]
    base = lm.generate(model, tokenizer, PROMPTS, **options)
    assert [g.tokens for g in together] != [g.tokens for g in base]


@pytest.mark.parametrize("n", [1, 2])
def test_one_prompt_under_several_steerings(model, tokenizer, n):
    prompt, options = "w1 w2 w3", {"n": n, "max_new_tokens": 6, "progress": False}
    strengths = [None, 0.25, 1.0]
    entries = [None if s is None else lm.Choice({"layers.0": dense(1)}, strength=s) for s in strengths]
    together = lm.generate(model, tokenizer, [prompt] * 3, steering=entries, **options)
    texts = []
    for i, entry in enumerate(entries):
        with ExitStack() as stack:
            nested(stack, model, entry)
            alone = lm.generate(model, tokenizer, [prompt], **options)
        texts.append([g.tokens for g in alone])
        assert [g.tokens for g in together[i * n : (i + 1) * n]] == texts[-1]
    assert texts[0] != texts[1] != texts[2]


def test_defaults_hold_where_a_choice_states_nothing(model, tokenizer):
    options = {"n": 2, "max_new_tokens": 6, "progress": False}
    site, m = "layers.0", dense(1)
    entries = [lm.Choice({site: m}, strength=0.2), lm.Choice({site: m}, positions="all"), {site: m}]
    prompts = ["w1 w2 w3", "w4 w5", "w6 w7 w8"]
    together = lm.generate(model, tokenizer, prompts, steering=entries, strength=0.9, positions="generated", **options)
    stated = [(0.2, "generated"), (0.9, "all"), (0.9, "generated")]
    for i, (strength, positions) in enumerate(stated):
        how = {"steering": {site: m}, "strength": strength, "positions": positions}
        alone = lm.generate(model, tokenizer, [prompts[i]], **how, **options)
        assert [g.tokens for g in together[2 * i : 2 * i + 2]] == [g.tokens for g in alone]


def test_one_steering_in_a_list_is_that_steering(model, tokenizer):
    options = {"n": 2, "max_new_tokens": 5, "progress": False}
    listed = lm.generate(model, tokenizer, PROMPTS, steering=[shift(0)] * len(PROMPTS), strength=0.5, **options)
    whole = lm.generate(model, tokenizer, PROMPTS, steering={"final": shift(0)}, strength=0.5, **options)
    assert [g.tokens for g in listed] == [g.tokens for g in whole]


def test_expanded_batches_keep_their_steering(model, tokenizer):
    inputs = batch(tokenizer, PROMPTS[:2])
    beams = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4, "do_sample": False}
    with lm.steer_rows(model, [shift(0, 3.0), None]):
        mixed = model.generate(**inputs, **beams)
    plain = model.generate(**inputs, **beams)
    with lm.steer(model, {"final": shift(0, 3.0)}):
        whole = model.generate(**inputs, **beams)
    length = inputs["input_ids"].shape[1] + 4
    wide = [torch.nn.functional.pad(one, (0, length - one.shape[1])) for one in (mixed, plain, whole)]
    assert torch.equal(wide[0][2:], wide[1][2:]) and torch.equal(wide[0][:2], wide[2][:2])


def test_copies_of_a_row_have_the_shift_of_their_row(model, tokenizer):
    inputs = batch(tokenizer, PROMPTS[:2])
    how = {"num_return_sequences": 3, "max_new_tokens": 1, "do_sample": True, "output_logits": True}
    how |= {"return_dict_in_generate": True}
    with lm.steer_rows(model, [shift(0), shift(1)]):
        (mixed,) = model.generate(**inputs, **how).logits
    for i, one in enumerate([shift(0), shift(1)]):
        with lm.steer(model, {"final": one}):
            (whole,) = model.generate(**inputs, **how).logits
        torch.testing.assert_close(mixed[3 * i : 3 * i + 3], whole[3 * i : 3 * i + 3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("entries", [[shift(0), shift(1)], [shift(0), shift(1), None]])
def test_entries_are_compared_with_the_prompts_and_not_with_their_copies(model, tokenizer, entries):
    inputs = batch(tokenizer, PROMPTS[: 1 if len(entries) == 2 else 2])
    copies = len(entries)
    with pytest.raises(ShapeError, match="one entry for each row"), lm.steer_rows(model, entries):
        model.generate(**inputs, num_return_sequences=copies, do_sample=True, max_new_tokens=2)


def test_functions_that_order_their_batches_are_refused(model, tokenizer):
    texts = ["w1", "w2 w3 w4 w5"]
    with lm.steer_rows(model, [{"layers.0": shift(0)}, None]) as rows:
        rows.excuse()
        for call in (
            lambda: lm.extract(model, tokenizer, texts, site="final", progress=False),
            lambda: lm.generate(model, tokenizer, texts, progress=False),
            lambda: lm.log_likelihoods(model, tokenizer, texts, texts, progress=False),
        ):
            with pytest.raises(ParameterError, match="orders its batches"):
                call()
        # another model is not concerned
        lm.extract(tiny_model("gpt2"), tokenizer, texts, site="final", progress=False)


def test_rows_come_as_a_list(model):
    for rows in (None, shift(0), "rows"):
        with pytest.raises(ParameterError, match="one entry for each row"), lm.steer_rows(model, rows):
            pass


def test_a_batch_of_another_size_is_refused(model, tokenizer):
    with pytest.raises(ShapeError, match="one entry for each row"):
        steered_logits(model, tokenizer, PROMPTS[:3], [shift(0), None])
    # a multiple is refused, too, because nobody says which rows belong together
    with pytest.raises(ShapeError, match="one entry for each row"):
        steered_logits(model, tokenizer, PROMPTS[:4], [shift(0), None])


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        ("kinder", ParameterError, "fitted estimator"),
        ([[shift(0)]], ParameterError, "nested"),
        (rs.Translation([1.0, 2.0]), ShapeError, "2 features"),
    ],
)
def test_wrong_entries_are_refused_before_any_pass(model, value, error, match):
    with pytest.raises(error, match=match):
        prepare_row(model, value)


@pytest.mark.parametrize("strength", [float("nan"), float("inf"), "1"])
def test_a_choice_needs_a_finite_strength(strength):
    with pytest.raises(ParameterError, match="strength"):
        lm.Choice(shift(0), strength=strength)


def test_a_list_needs_one_entry_per_prompt_and_no_budget(model, tokenizer):
    with pytest.raises(ParameterError, match="list of 1 for 2 prompts"):
        lm.generate(model, tokenizer, ["w1", "w2"], steering=[None], progress=False)
    with pytest.raises(ParameterError, match="kl_budget"):
        lm.generate(model, tokenizer, ["w1"], steering=[shift(0)], kl_budget=0.1, progress=False)


def test_a_failed_row_does_not_disturb_the_others(model, tokenizer):
    huge = rs.Translation(np.full(WIDTH, 1e39))
    inputs = batch(tokenizer, PROMPTS[:3])
    with torch.no_grad(), lm.steer_rows(model, [shift(1), huge, dense(1)], failures="note") as rows:
        logits = model(**inputs).logits[:, -1]
    assert set(rows.failures) == {1} and "strength" in rows.failures[1].lower()
    for i, value in ((0, shift(1)), (1, None), (2, dense(1))):
        alone = steered_logits(model, tokenizer, [PROMPTS[i]], [value])[0]
        torch.testing.assert_close(logits[i], alone, rtol=1e-4, atol=1e-4)
    with pytest.raises(NonFiniteError):
        steered_logits(model, tokenizer, PROMPTS[:3], [shift(1), huge, dense(1)])


def test_a_row_that_fails_has_none_of_its_steerings(model, tokenizer):
    huge = rs.Translation(np.full(WIDTH, 1e39))
    inputs = batch(tokenizer, PROMPTS[:2])
    with torch.no_grad(), lm.steer_rows(model, [[dense(1), huge, dense(2)], dense(1)], failures="note") as rows:
        logits = model(**inputs).logits[:, -1]
    assert set(rows.failures) == {0}
    plain = steered_logits(model, tokenizer, PROMPTS[:2], [None, dense(1)])
    torch.testing.assert_close(logits, plain, rtol=1e-4, atol=1e-4)


def test_steerings_that_interfere_give_a_warning(model):
    v = np.zeros(WIDTH)
    v[0] = 1.0
    with pytest.warns(SteeringWarning, match=r"effect of steering 1 by -50%"):
        plan = prepare_row(model, [rs.Translation(v), rs.Translation(-0.5 * v)])
    assert plan.interferences[0].change == pytest.approx(-0.5)


def test_interference_is_predicted_at_the_mean_and_the_strength(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, WIDTH)) + 2.0
    moments = rs.Moments.of(X)
    price = Price(Fisher(50, np.eye(WIDTH)), moments, site="final")
    first = rs.SteeringFunction({None: dense(1)}).with_price(price)
    entries = [lm.Choice({"final": first}, strength=0.5), lm.Choice({"model.norm": dense(2)}, strength=0.3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (one,) = prepare_row(model, entries).interferences
    A, B, x = dense(1).interpolate(0.5), dense(2).interpolate(0.3), moments.mean
    moved = A.apply(x[None])[0]
    expected = (B.apply(moved[None])[0] - moved) @ (moved - x) / np.square(moved - x).sum()
    assert (one.first, one.second) == (0, 1) and one.change == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
def test_steerings_that_do_not_interfere_give_none(model):
    v, w = np.zeros(WIDTH), np.zeros(WIDTH)
    v[0], w[1] = 1.0, 5.0
    assert prepare_row(model, [rs.Translation(v), rs.Translation(w)]).interferences[0].change == 0
    assert prepare_row(model, [{"layers.0": rs.Translation(v)}, rs.Translation(-v)]).interferences == ()


def test_the_model_is_as_before(model, tokenizer):
    inputs = batch(tokenizer, PROMPTS)
    with torch.no_grad():
        before = model(**inputs).logits
        with lm.steer_rows(model, choices()):
            model(**inputs)
        assert torch.equal(model(**inputs).logits, before)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
