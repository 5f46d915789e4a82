"""A pass is understood or refused: virtual tokens, recurrent caches, wrappers, encoder-decoders, checkpointing."""

import numpy as np
import peft
import pytest
import torch
import transformers
from torch import nn

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ParameterError, PassError, SiteError
from repsurgery.lm.steer.block import Block
from tests.lm.tiny_models import CONTEXT, VOCABULARY, WIDTH, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close, gated, prompts, random_map, run, split_gate

POSITIONS = ["all", "generated", "prompt", "last"]
SETTINGS = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
ONES = rs.Translation(np.ones(WIDTH))


def touched(model, site, call, *, positions="all", call_through=None):
    """Return which positions of the first pass ``call`` makes are moved at ``site``, (batch, length)."""
    seen = []
    where = lm.resolve_site(model, site)
    inner = lambda module, args, output: seen.append((output[0] if isinstance(output, tuple) else output).detach())  # noqa: E731
    for steered in (False, True):
        if steered:
            with lm.steer(call_through or model, {site: ONES}, positions=positions):
                handle = where.module.register_forward_hook(inner)
                call()
        else:
            handle = where.module.register_forward_hook(inner)
            call()
        handle.remove()
    half = len(seen) // 2
    return (seen[0] != seen[half]).any(dim=-1).int().tolist()


# --- virtual tokens ---------------------------------------------------------------------------------------------------

VIRTUAL = 3
ignoring_position_ids = pytest.mark.filterwarnings("ignore:Position ids are not supported")


def tuned(kind):
    model = tiny_model("llama")
    config = {
        "prompt": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL),
        "prefix": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL),
    }[kind]
    torch.manual_seed(1)
    wrapped = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "prompt_encoder" in name:
                parameter.copy_(torch.randn_like(parameter))
    return wrapped


@ignoring_position_ids
@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_virtual_tokens_shift_no_position(kind):
    model = tuned(kind)
    ids, mask = prompts()
    before = VIRTUAL if kind == "prompt" else 0
    for call in (
        lambda: model(input_ids=ids, attention_mask=mask),
        lambda: model.generate(input_ids=ids, attention_mask=mask, **{**SETTINGS, "max_new_tokens": 1}),
    ):
        for positions in ("all", "prompt"):
            expected = [[0] * before + row for row in mask.tolist()]
            assert touched(model, "layers.0", call, positions=positions) == expected
        for positions in ("last", "generated"):
            assert touched(model, "layers.0", call, positions=positions) == [[0] * (before + 5) + [1]] * 3


@ignoring_position_ids
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prompt_tuned_model_generates_alike_with_and_without_cache(positions):
    # prefix tuning lives in the cache, so PEFT cannot generate without one
    model = tuned("prompt")
    ids, mask = prompts()
    base = model.generate(input_ids=ids, attention_mask=mask, **SETTINGS)
    with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions=positions):
        found = [
            model.generate(input_ids=ids, attention_mask=mask, use_cache=use_cache, **SETTINGS)
            for use_cache in (True, False)
        ]
    assert torch.equal(*found)
    if positions != "last":
        assert not torch.equal(found[0], base)


@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_reading_a_tuned_model_reads_what_it_computes(kind):
    model, tokenizer = tuned(kind), tiny_tokenizer()
    some = texts(5, seed=1)
    found = lm.extract(model, tokenizer, some, progress=False)
    seen = []
    handle = model.get_base_model().model.norm.register_forward_hook(lambda m, a, out: seen.append(out[0, -1]))
    with torch.no_grad():
        for text in some:
            model(**tokenizer(text, return_tensors="pt"))
    handle.remove()
    assert_close(found, torch.stack(seen), rtol=DEPTH)
    bare = lm.extract(model.get_base_model(), tokenizer, some, progress=False)
    assert np.abs(found - bare).max() > 1e3 * DEPTH


@ignoring_position_ids
def test_samples_of_a_prompt_tuned_model_do_not_depend_on_their_batch():
    # prompts of one length: PEFT counts padding between its virtual tokens and a shorter text
    model, tokenizer = tuned("prompt"), tiny_tokenizer()
    options = {"n": 3, "max_new_tokens": 4, "progress": False, "steering": {"final": random_map()}}
    found = [lm.generate(model, tokenizer, ["w1 w2 w3", "w4 w5 w6"], batch_size=size, **options) for size in (1, 6)]
    assert found[0] == found[1]


@ignoring_position_ids
@pytest.mark.parametrize("kind", ["prompt", "prefix"])
def test_tuned_models_are_scored_as_they_compute(kind):
    model, tokenizer = tuned(kind), tiny_tokenizer()
    prompt, continuation = "w1 w2 w3", " w4 w5"
    ids = tokenizer(prompt + continuation, return_tensors="pt").input_ids
    with torch.no_grad():
        log_p = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, -ids.shape[1] :].log_softmax(dim=-1)
    truth = float(log_p[3:5].gather(1, ids[0, 4:6, None]).sum())
    assert float(sum(lm.log_likelihoods(model, tokenizer, [prompt], [continuation], progress=False)[0].values)) == (
        pytest.approx(truth, rel=1e-4)
    )
    (found,) = lm.surprises(model, tokenizer, [prompt], [[continuation]], progress=False)
    assert found[0].nll == pytest.approx(-truth, rel=1e-4)
    with pytest.raises(ParameterError, match="log_likelihoods"):
        lm.document_perplexity(model, tokenizer, ["w1 w2"], {"base": None}, progress=False)


@ignoring_position_ids
def test_states_along_the_texts_of_a_prompt_tuned_model_repeat_its_decisions():
    model, tokenizer = tuned("prompt"), tiny_tokenizer()
    gate = split_gate(model.get_base_model(), "final", *prompts())
    steering = {"final": gated(rs.Translation(np.zeros(WIDTH)), gate)}
    with lm.steer(model, steering, positions="generated") as steered:
        generations = lm.generate(model, tokenizer, ["w1 w2 w3"], n=4, max_new_tokens=4, batch_size=1, progress=False)
    found = gate.codes(np.concatenate(lm.states_along(model, tokenizer, generations, progress=False)))
    assert np.mean(found) == pytest.approx(steered.steered_share["final"])
    assert 0 < np.mean(found) < 1


# --- caches that hold states ------------------------------------------------------------------------------------------

RECURRENT = {
    "mamba": {"state_size": 4, "num_hidden_layers": 2, "hidden_size": WIDTH, "time_step_rank": 2},
    "mamba2": {
        "state_size": 4,
        "num_hidden_layers": 2,
        "hidden_size": WIDTH,
        "num_heads": 4,
        "head_dim": 8,
        "n_groups": 1,
    },
    "rwkv": {"context_length": CONTEXT, "num_hidden_layers": 2, "hidden_size": WIDTH, "attention_hidden_size": WIDTH},
}


def recurrent(family):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        family, vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2, **RECURRENT[family]
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
    return model


@pytest.mark.parametrize("family", list(RECURRENT))
@pytest.mark.parametrize("positions", POSITIONS)
def test_recurrent_models_generate_alike_with_and_without_cache(family, positions):
    model = recurrent(family)
    # a cached step of RWKV mixes the rows of a batch, with and without steering
    ids = torch.tensor([[1, 5, 6, 7, 8, 9], [1, 20, 21, 12, 4, 30]])[: 1 if family == "rwkv" else 2]
    base = model.generate(
        ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True, **SETTINGS
    )
    with lm.steer(model, {"layers.0": random_map(size=2)}, positions=positions):
        found = [
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                use_cache=use_cache,
                output_logits=True,
                return_dict_in_generate=True,
                **SETTINGS,
            )
            for use_cache in (True, False)
        ]
    cached, uncached = (torch.stack(output.logits) for output in found)
    assert_close(cached, uncached, rtol=DEPTH)
    assert (cached - torch.stack(base.logits)).abs().max() > 100 * DEPTH


@pytest.mark.parametrize("family", list(RECURRENT))
def test_padding_of_recurrent_models_is_never_touched(family):
    model = recurrent(family)
    for side in ("left", "right"):
        ids, mask = prompts(side)
        assert touched(model, "final", lambda: model(input_ids=ids, attention_mask=mask)) == mask.tolist()  # noqa: B023


def test_going_on_from_a_recurrent_state_of_unknown_length_is_refused_where_length_matters():
    model = recurrent("rwkv")
    ids = torch.tensor([[1, 5, 6]])
    with torch.no_grad():
        state = model(ids, use_cache=True).state
    with lm.steer(model, {"final": ONES}):
        model.generate(ids[:, -1:], state=state, **SETTINGS)
    with (
        pytest.raises(PassError, match="does not say how many tokens"),
        lm.steer(model, {"final": ONES}, positions="prompt"),
    ):
        model.generate(ids[:, -1:], state=state, **SETTINGS)


# --- models inside other modules --------------------------------------------------------------------------------------


class Scorer(nn.Module):
    """A wrapper whose signature says nothing of masks."""

    def __init__(self, model):
        super().__init__()
        self.backbone = model
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, batch):
        hidden = self.backbone(input_ids=batch["ids"], attention_mask=batch["real"], output_hidden_states=True)
        return self.head(hidden.hidden_states[-1])


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_seen_through_wrappers(side):
    ids, mask = prompts(side)
    model = tiny_model("llama")
    parallel, scorer = nn.DataParallel(model), Scorer(model)
    named = {"input_ids": ids, "attention_mask": mask}
    assert touched(model, "final", lambda: parallel(**named), call_through=parallel) == mask.tolist()
    assert touched(model, "final", lambda: parallel(ids, mask), call_through=parallel) == mask.tolist()
    found = touched(scorer, "backbone.model.norm", lambda: scorer({"ids": ids, "real": mask}))
    assert found == mask.tolist()


def test_a_replaced_forward_hides_no_padding():
    ids, mask = prompts()
    model = tiny_model("llama")
    original = model.forward
    model.forward = lambda *args, **kwargs: original(*args, **kwargs)
    base = model.model
    base.forward = (lambda forward: lambda *args, **kwargs: forward(*args, **kwargs))(base.forward)
    assert touched(model, "final", lambda: model(ids, mask)) == mask.tolist()


class Plain(nn.Module):
    """A model of no library whose mask has a name of its own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, real=None):
        return self.layer(x)


def test_what_may_be_a_mask_with_padding_is_refused():
    model, x = Plain(), torch.randn(2, 3, WIDTH)
    with torch.no_grad(), lm.steer(model, {"layer": ONES}):
        assert torch.equal(
            model(x, torch.ones(2, 3)), nn.functional.linear(x, model.layer.weight, model.layer.bias) + 1
        )
    with pytest.raises(PassError, match="Padding cannot be distinguished"), lm.steer(model, {"layer": ONES}):
        model(x, torch.tensor([[0, 1, 1], [1, 1, 1]]))


def test_a_model_that_keeps_its_cache_inside_is_understood(monkeypatch):
    torch.manual_seed(0)
    config = transformers.RecurrentGemmaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        lru_width=WIDTH, attention_window_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.RecurrentGemmaForCausalLM(config).eval()
    ids = torch.tensor([[1, 5, 6, 7, 8, 9]])
    assert steered_positions(model, ids, "prompt", monkeypatch) == 6
    assert steered_positions(model, ids, "generated", monkeypatch) == 5


def steered_positions(model, ids, positions, monkeypatch):
    """Return how many positions one call of generate asks the steering about."""
    asked = []
    monkeypatch.setattr(Block, "count_rows", lambda self, site, n, steered: asked.append(n))
    with lm.steer(model, {"model.layers.0": ONES}, positions=positions):
        model.generate(ids, attention_mask=torch.ones_like(ids), **SETTINGS)
    return sum(asked)


def test_generate_of_a_model_around_the_steered_one_is_refused_where_its_prompt_matters():
    model = tiny_model("llama")
    ids, mask = prompts()
    with lm.steer(model, {"layers.0": random_map(size=0.6)}, positions="generated"):
        expected = model.generate(ids, attention_mask=mask, **SETTINGS)
    with lm.steer(model.model, {"layers.0": random_map(size=0.6)}, positions="generated"):
        assert torch.equal(model.generate(ids, attention_mask=mask, **SETTINGS), expected)
    for positions in ("prompt", "last"):
        with (
            pytest.raises(PassError, match="outside a call of generate"),
            lm.steer(model.model, {"layers.0": ONES}, positions=positions),
        ):
            model.generate(ids, attention_mask=mask, **SETTINGS)


def test_outside_every_model_only_all_can_be_answered():
    scorer = Scorer(tiny_model("llama"))
    ids, mask = prompts()
    m = rs.Translation(np.ones(1))
    with torch.no_grad(), lm.steer(scorer, {"head": m}):
        found = scorer({"ids": ids, "real": mask})
    assert_close(found.detach(), scorer({"ids": ids, "real": mask}).detach() + 1, rtol=DEPTH)
    with pytest.raises(PassError, match="positions='all'"), lm.steer(scorer, {"head": m}, positions="last"):
        scorer({"ids": ids, "real": mask})


# --- encoder-decoders -------------------------------------------------------------------------------------------------


def two_halves(family):
    torch.manual_seed(0)
    common = {"vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    options = {
        "t5": {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
        "bart": {
            "d_model": WIDTH,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": CONTEXT,
            "init_std": 0.3,
            "forced_eos_token_id": None,
        },
    }[family]
    config = transformers.AutoConfig.for_model(family, **common, **options)
    return transformers.AutoModelForSeq2SeqLM.from_config(config).eval()


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_each_half_is_steered_by_its_own_mask(family):
    model = two_halves(family)
    ids, mask = prompts("right")
    target, real = ids[:, :4].clone(), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]])
    call = lambda: model(  # noqa: E731
        input_ids=ids, attention_mask=mask, decoder_input_ids=target, decoder_attention_mask=real
    )
    for site in lm.site_names(model):
        if site.endswith("embeddings"):
            continue
        expected = (mask if site.startswith("encoder") else real).tolist()
        assert touched(model, site, call) == expected, site
    assert touched(model, "decoder.final", call, positions="last") == [[0, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("family", ["t5", "bart"])
@pytest.mark.parametrize(
    "site", ["encoder.layers.0", "encoder.final", "decoder.embeddings", "decoder.layers.0.mlp", "decoder.final"]
)
@pytest.mark.parametrize("positions", POSITIONS)
def test_encoder_decoders_generate_alike_with_and_without_cache(family, site, positions):
    model = two_halves(family)
    ids, mask = prompts("right")
    options = {"attention_mask": mask, "output_logits": True, "return_dict_in_generate": True, **SETTINGS}
    base = torch.stack(model.generate(ids, **options).logits)
    with lm.steer(model, {site: random_map(size=2)}, positions=positions):
        cached, uncached = (
            torch.stack(model.generate(ids, use_cache=use_cache, **options).logits) for use_cache in (True, False)
        )
    assert_close(cached, uncached, rtol=DEPTH)
    assert (cached - base).abs().max() > 100 * DEPTH


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_both_halves_can_be_read(family):
    model, tokenizer = two_halves(family), tiny_tokenizer()
    some = texts(6, seed=2)
    found = lm.class_moments(
        model, tokenizer, some, [0, 1] * 3, sites=["encoder.final", "decoder.final"], progress=False
    )
    for site in found:
        rows = lm.extract(model, tokenizer, some, site=site, batch_size=1, progress=False)
        assert_close(found[site][0].mean, rows[::2].mean(axis=0), rtol=DEPTH)
    assert np.abs(found["encoder.final"][0].mean - found["decoder.final"][0].mean).max() > 100 * DEPTH


def test_a_site_of_neither_half_is_refused_with_the_names_there_are():
    model = two_halves("t5")
    with pytest.raises(SiteError, match=r'"encoder\." or "decoder\."'):
        lm.resolve_site(model, "layers.0")
    ids, mask = prompts("right")
    with (
        pytest.raises(PassError, match="two sequences"),
        lm.steer(model, {"lm_head": rs.Translation(np.ones(VOCABULARY))}),
    ):
        model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids)


# --- layers that the backward pass runs again -------------------------------------------------------------------------


def gradients(model, ids, mask, *, positions="all", inside=True):
    model.zero_grad()
    with lm.steer(model, {"embeddings": random_map(seed=1), "layers.0": random_map(seed=2)}, positions=positions):
        loss = run_with_gradient(model, ids, mask)
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def run_with_gradient(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    return (logits[mask.bool()] ** 2).mean()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_checkpointing_changes_no_gradient(reentrant, side, positions):
    ids, mask = prompts(side)
    model = tiny_model("llama").train()
    expected = gradients(model, ids, mask, positions=positions)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if reentrant:
        model.enable_input_require_grads()
    found = gradients(model, ids, mask, positions=positions)
    for name, gradient in expected.items():
        assert_close(found[name], gradient, rtol=DEPTH)
    model.zero_grad()
    run_with_gradient(model, ids, mask).backward()
    bare = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert max((bare[name] - gradient).abs().max() for name, gradient in expected.items()) > 1e3 * DEPTH


def test_checkpointing_switched_on_inside_the_block_changes_no_gradient():
    ids, mask = prompts("right")
    model = tiny_model("llama").train()
    expected = gradients(model, ids, mask)
    model.zero_grad()
    with lm.steer(model, {"embeddings": random_map(seed=1), "layers.0": random_map(seed=2)}):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        run_with_gradient(model, ids, mask).backward()
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, expected[name], rtol=DEPTH)


def test_a_backward_pass_outside_the_block_is_refused():
    ids, mask = prompts("right")
    model = tiny_model("llama").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with pytest.raises(PassError, match=r"backward\(\) in the same"):
        gradients(model, ids, mask, inside=False)


def test_a_forward_pass_outside_the_block_is_refused():
    ids, mask = prompts("right")
    model = tiny_model("llama").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    loss = run_with_gradient(model, ids, mask)
    with pytest.raises(PassError, match="forward was made outside"), lm.steer(model, {"embeddings": ONES}):
        loss.backward()


def test_checkpointing_is_left_as_it_was():
    model = tiny_model("llama").train()
    model.gradient_checkpointing_enable()
    before = {name: vars(module).get("_gradient_checkpointing_func") for name, module in model.named_modules()}
    with lm.steer(model, {"final": ONES}):
        run(model, *prompts())
    assert {name: vars(m).get("_gradient_checkpointing_func") for name, m in model.named_modules()} == before
