"""PPLM against its definition: two tokens by hand, gradients without a cache, rows on their own, and limits."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import layer_norm
from transformers.cache_utils import DynamicCache

from repsurgery.errors import ModelError, ParameterError
from repsurgery.lm.sites.names import reading_model
from repsurgery.studies.toxicity.decoding.lookahead import fused
from repsurgery.studies.toxicity.rivals.pplm import Perturbed, unit_gradients
from tests.lm.tiny_models import tiny_model
from tests.studies.toxicity.rivals.contexts import base, rival, rows
from tests.studies.toxicity.rivals.guided import NEXT, ROWS, along, guided_context, padded, some_head, started

FAMILIES = ["llama", "gpt2"]


def perturbed(model, head=None, **options):
    chosen = {"step": 0.2, "iterations": 10, "fusion": 0.9, "kl": 0.01, **options}
    return Perturbed(SimpleNamespace(model=model, chosen=chosen, count_passes=lambda passes: None), head or some_head())


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_step_the_texts_are_those_of_the_base(family, tmp_path):
    context = guided_context(tmp_path, family)
    untouched = rows(base(context))
    assert rows(rival("pplm step=0 texts=20 iterations=2", context)) == untouched
    assert rows(rival("pplm texts=20 iterations=2", context)) != untouched


class OneBlock:
    """GPT-2 with one block and one head, written out for one new token after given keys and values."""

    def __init__(self, model):
        self.t, self.block, self.d = model.transformer, model.transformer.h[0], model.config.n_embd
        self.logits = model.lm_head

    def __call__(self, embedding, position, keys, values):
        """Return the final state (d,), and keys and values (t + 1, d) with those of this token."""
        x = embedding + self.t.wpe.weight[position]
        q, k, v = self.block.attn.c_attn(self.norm(x, self.block.ln_1)).split(self.d)
        keys, values = torch.cat([keys, k[None]]), torch.cat([values, v[None]])
        weights = (keys @ q / self.d**0.5).softmax(-1)
        x = x + self.block.attn.c_proj(weights @ values)
        x = x + self.block.mlp(self.norm(x, self.block.ln_2))
        return self.norm(x, self.t.ln_f), keys, values

    def norm(self, x, module):
        return layer_norm(x, (self.d,), module.weight, module.bias, module.eps)


def test_two_tokens_by_hand():
    model = tiny_model("gpt2", n_layer=1, n_head=1)
    one, head, E = OneBlock(model), some_head(), model.transformer.wte.weight.detach()
    none = torch.zeros(0, 16)
    with torch.no_grad():
        h_0, k, v = one(E[5], 0, none, none)  # the first token, whose key and value are moved
        h_1, *clean = one(E[9], 1, k, v)
        log_u = one.logits(h_1).log_softmax(-1)
    moved = [k.clone().requires_grad_(), v.clone().requires_grad_()]
    state, *_ = one(E[9], 1, *moved)
    log_p = one.logits(state).log_softmax(-1)
    soft, *_ = one(log_p.exp() @ E, 2, *clean)
    mean = (h_0 + state.detach() + soft) / 3
    loss = -head.log_p(mean[None])[0] + 0.01 * (log_p.exp() * (log_p - log_u)).sum()
    g, h = torch.autograd.grad(loss, moved)
    norm = (g.square().sum() + h.square().sum()).sqrt()
    with torch.no_grad():
        changed, *_ = one(E[9], 1, k - 0.2 * g / norm, v - 0.2 * h / norm)
        expected = fused(one.logits(changed), log_u, 0.9)
    found = along(perturbed(model, iterations=1), [[5, 9]], [])[0][0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found - log_u).abs().max() > 0.01  # the step has an effect


def by_definition(model, row, new, *, step, iterations, fusion, kl):
    """Yield the fused logits after ``row`` and after each token of ``new``.

    The unchanged model reads the whole text again at every token, and the sum of all steps is a variable of its own.
    """
    inner, logits = reading_model(model), model.get_output_embeddings()
    E, head, text = model.get_input_embeddings().weight.detach(), some_head(), list(row)

    def after(past, **given):
        given = given or {"input_ids": torch.tensor([text[-1:]])}
        output = inner(**given, past_key_values=DynamicCache(past), use_cache=True)
        return output.last_hidden_state[0, -1], [(layer.keys, layer.values) for layer in output.past_key_values.layers]

    def whole(ids):
        output = inner(torch.tensor([ids]), use_cache=True)
        past = [(layer.keys.detach(), layer.values.detach()) for layer in output.past_key_values.layers]
        return output.last_hidden_state[0].detach(), past

    perturbed = whole(text[:-1])[1]
    for following in [*new, None]:
        states, clean = whole(text)
        log_u = logits(states[-1]).log_softmax(-1).detach()
        moves = [(torch.zeros_like(k), torch.zeros_like(v)) for k, v in perturbed]
        for _ in range(iterations):
            moves = [(a.detach().requires_grad_(), b.detach().requires_grad_()) for a, b in moves]
            state, _ = after([(k + a, v + b) for (k, v), (a, b) in zip(perturbed, moves, strict=True)])
            log_p = logits(state).log_softmax(-1)
            soft, _ = after(clean, inputs_embeds=(log_p.exp() @ E)[None, None])
            mean = (states[:-1].sum(0) + state.detach() + soft) / (len(text) + 1)
            loss = -head.log_p(mean[None])[0] + kl * (log_p.exp() * (log_p - log_u)).sum()
            gradients = torch.autograd.grad(loss, [tensor for pair in moves for tensor in pair])
            units = []
            for g, h in zip(gradients[::2], gradients[1::2], strict=True):
                norm = torch.cat([g.flatten(), h.flatten()]).norm()
                units.append((g / norm, h / norm))
            moves = [(a - step * g, b - step * h) for (a, b), (g, h) in zip(moves, units, strict=True)]
        with torch.no_grad():
            state, past = after([(k + a, v + b) for (k, v), (a, b) in zip(perturbed, moves, strict=True)])
            perturbed = past
            yield fusion * logits(state).log_softmax(-1) + (1 - fusion) * log_u
        text.append(following)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_several_steps_and_tokens_are_the_definition(family, kl):
    # two blocks, four steps, and a large weight of the divergence; float64, since steps amplify rounding
    model = tiny_model(family, dtype=torch.float64)
    options = {"step": 0.2, "iterations": 4, "fusion": 0.9, "kl": kl}
    found = along(perturbed(model, **options))
    for i, row in enumerate(ROWS):
        new = NEXT[:, i].tolist()
        for logits, expected in zip(found, by_definition(model, row, new, **options), strict=True):
            # logits are rounded to float32 before the next step
            torch.testing.assert_close(logits[i].double(), expected, rtol=1e-4, atol=1e-4)


def test_every_block_has_its_own_norm():
    two = [(torch.full((1, 1, 1, 1), x), torch.zeros(1, 1, 1, 1)) for x in (3.0, 4.0)]
    assert [g.item() for g, _ in unit_gradients(two)] == [1.0, 1.0]


def test_keys_and_values_of_a_row_have_one_norm():
    keys = torch.tensor([3.0, 0.0, 0.0]).reshape(3, 1, 1, 1)
    values = torch.tensor([4.0, 2.0, 0.0]).reshape(3, 1, 1, 1)
    [(g, h)] = unit_gradients([(keys, values)])
    assert torch.equal(g.flatten(), torch.tensor([0.6, 0.0, 0.0]))
    assert torch.equal(h.flatten(), torch.tensor([0.8, 1.0, 0.0]))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_larger_the_step_the_surer_the_head(family):
    model = tiny_model(family)
    for way in (1, -1):
        seen = []
        for step in (0.0, 0.002, 0.005, 0.01):
            ahead, tokens = started(model)
            decoder = perturbed(model, some_head(way), step=step, iterations=3)
            with torch.no_grad():
                decoder._past = ahead.past
                decoder._ahead.start(*padded())
                clean = ahead.last(tokens, ahead.past)
                changed = ahead.last(tokens, decoder.moved(tokens, clean))
                seen.append(ahead.log_p(changed._replace(state=clean.state), clean.past))
        assert all((way * (later - sooner) > 0).all() for sooner, later in pairwise(seen))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_moved_as_if_it_were_alone(family):
    # float64: in float32, ten normalised steps amplify the rounding of padded passes
    model = tiny_model(family, dtype=torch.float64)
    together = along(perturbed(model))
    plain = along(perturbed(model, step=0.0))
    for i, row in enumerate(ROWS):
        alone = along(perturbed(model), [row], NEXT[:, i : i + 1])
        for step, (logits, expected) in enumerate(zip(together, alone, strict=True)):
            torch.testing.assert_close(logits[i], expected[0], rtol=1e-5, atol=1e-5)
            assert (logits[i] - plain[step][i]).abs().max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_the_perturbed_cache_is_kept(family):
    model = tiny_model(family)
    decoder = perturbed(model, iterations=1)
    first = along(decoder, new=NEXT[:1])[-1]
    # without further steps, the next token still sees the keys and values that were moved before
    decoder = perturbed(model, iterations=1)
    with torch.no_grad():
        decoder.read(*padded())
        decoder._rival.chosen["iterations"] = 0
        later = decoder.step(NEXT[0])
    clean = along(perturbed(model, step=0.0), new=NEXT[:1])[-1]
    assert (later - clean).abs().max() > 1e-3 and (first - later).abs().max() > 1e-3


def test_a_text_of_one_token_has_nothing_to_move():
    model = tiny_model("llama")
    alone, padded_beside = along(perturbed(model), [[7]], [])[0], along(perturbed(model), [[7], [1, 5, 9]], [])[0]
    plain = along(perturbed(model, step=0.0), [[7], [1, 5, 9]], [])[0]
    torch.testing.assert_close(alone[0], plain[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(padded_beside[0], plain[0], rtol=1e-5, atol=1e-5)
    assert (padded_beside[1] - plain[1]).abs().max() > 0.01


def test_passes_are_counted(tmp_path):
    context = guided_context(tmp_path, tokens=3)
    one = rival("pplm texts=20 iterations=2", context)
    one.generate(["w1 w2"], [0, 1])
    assert one.cost.extra_passes == 2 * 3 * 5


@pytest.mark.parametrize("options", ["step=-0.1", "iterations=-1", "fusion=2", "texts=1", "kl=nan"])
def test_options_outside_their_range_are_refused(options, tmp_path):
    with pytest.raises(ParameterError, match=f"{options.split('=')[0]}=.*it must"):
        rival(f"pplm {options}", guided_context(tmp_path))


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
@pytest.mark.parametrize("line", ["pplm texts=20", "uddia texts=20"])
def test_a_model_with_sliding_windows_is_refused_before_a_head_is_trained(line, family, tmp_path):
    with pytest.raises(ModelError, match=rf"'{line}' needs.*sliding windows.*Leave this line out, or use a model"):
        rival(line, guided_context(tmp_path, family))
