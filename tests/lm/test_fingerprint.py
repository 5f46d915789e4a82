"""Identity is content: whatever changes what a model computes changes its fingerprint, and nothing else does."""

import copy
import functools
import json
import sys

import numpy as np
import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from torch import nn
from torch.ao.nn.quantized.dynamic import Linear as QuantisedLinear
from transformers import AutoModelForCausalLM, ByT5Tokenizer

from repsurgery import lm
from repsurgery.errors import IdentityWarning
from repsurgery.lm.load.fingerprint import fingerprint, tokenizer_fingerprint
from repsurgery.lm.read import resuming
from repsurgery.lm.read.hook_content import hook_content
from tests.lm.tiny_models import FAMILIES, WIDTH, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import prompts, random_map, run

SOME = texts(6, seed=1)


def adapted(*names, config=None, seed=0):
    """Return a tiny model with an adapter of each name, the first one active, all of them with an effect."""
    config = config or LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(seed)
    model = get_peft_model(tiny_model("llama"), config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    return model.eval()


@torch.no_grad()
def in_place(model):
    model.model.layers[1].mlp.down_proj.weight.add_(0.5)


def by_data(model):
    model.model.layers[0].mlp.up_proj.weight.data[3, 5] += 1.0


def by_loading(model):
    state = copy.deepcopy(model.state_dict())
    state["model.norm.weight"][7] += 1.0
    model.load_state_dict(state)


def by_replacing(model):
    q = model.model.layers[0].self_attn.q_proj
    q.weight = nn.Parameter(q.weight.detach() * 1.5)


def embedding_row(model):
    model.get_input_embeddings().weight.data[40] += 1.0


def norm_epsilon(model):
    model.model.norm.variance_epsilon = 0.5


def rope_theta(model):
    model.config.rope_parameters["rope_theta"] = 100.0
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)


def rope_buffer(model):
    model.model.rotary_emb.inv_freq.data[1] *= 3


def activation(model):
    model.model.layers[0].mlp.act_fn = nn.GELU()


def attention_scale(model):
    model.model.layers[1].self_attn.scaling *= 2


CHANGES = [
    in_place,
    by_data,
    by_loading,
    by_replacing,
    embedding_row,
    norm_epsilon,
    rope_theta,
    rope_buffer,
    activation,
    attention_scale,
]


def rows(model, **options):
    return lm.extract(model, tiny_tokenizer(), SOME, progress=False, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_model_changes_its_fingerprint(change):
    model = tiny_model("llama")
    before, states = fingerprint(model), rows(model)
    change(model)
    assert not np.allclose(rows(model), states)  # the change is one that matters
    assert fingerprint(model) != before


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_read_anew(change, tmp_path):
    model = tiny_model("llama")
    rows(model, work_dir=tmp_path)
    change(model)
    assert np.array_equal(rows(model, work_dir=tmp_path), rows(model))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_gives_its_own_moments(change, tmp_path):
    model, labels = tiny_model("llama"), ["a", "b"] * 3
    options = {"sites": ["final"], "progress": False}
    lm.class_moments(model, tiny_tokenizer(), SOME, labels, work_dir=tmp_path, **options)
    change(model)
    kept = lm.class_moments(model, tiny_tokenizer(), SOME, labels, work_dir=tmp_path, **options)
    fresh = lm.class_moments(model, tiny_tokenizer(), SOME, labels, **options)
    assert np.array_equal(kept["final"]["a"].mean, fresh["final"]["a"].mean)


def test_the_adapter_that_acts_is_part_of_the_identity(tmp_path):
    model = adapted("one", "two")
    states, found = {}, {}

    def note(name):
        states[name] = rows(model, work_dir=tmp_path)
        found[name] = fingerprint(model), fingerprint(model, ignore_dtype=True)
        assert np.array_equal(states[name], rows(model))

    note("one")
    model.set_adapter("two")
    note("two")
    with model.disable_adapter():
        note("none")
    model.base_model.model.model.layers[0].self_attn.q_proj.scaling["two"] *= 3
    note("stronger")
    model.merge_adapter()
    note("merged")
    for one in (0, 1):
        assert len({pair[one] for pair in found.values()}) == 5
    model.unmerge_adapter()
    model.base_model.model.model.layers[0].self_attn.q_proj.scaling["two"] /= 3
    model.set_adapter("one")
    # merging adds and subtracts in floating point; only what was never merged comes back to the bit
    assert not np.allclose(states["one"], states["two"]) and not np.allclose(states["one"], states["none"])


def test_switching_back_brings_the_identity_back():
    model = adapted("one", "two")
    before = fingerprint(model)
    with model.disable_adapter():
        assert fingerprint(model) != before
    assert fingerprint(model) == before
    model.set_adapter("two")
    assert fingerprint(model) != before
    model.set_adapter("one")
    assert fingerprint(model) == before


def test_adapters_without_a_wrapper_count_too(tmp_path):
    model = tiny_model("llama")
    plain = rows(model, work_dir=tmp_path)
    torch.manual_seed(0)
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    model.eval()
    active = rows(model, work_dir=tmp_path)
    enabled = fingerprint(model), fingerprint(model, ignore_dtype=True)
    assert not np.allclose(active, plain)
    model.disable_adapters()
    assert not set(enabled) & {fingerprint(model), fingerprint(model, ignore_dtype=True)}
    assert np.array_equal(rows(model, work_dir=tmp_path), plain)


@pytest.mark.parametrize("kind", [PromptTuningConfig, PrefixTuningConfig])
@pytest.mark.parametrize("ignore_dtype", [False, True])
def test_virtual_tokens_are_part_of_the_identity(kind, ignore_dtype):
    model = adapted("one", "two", config=kind(num_virtual_tokens=3, task_type="CAUSAL_LM"))
    found = [fingerprint(model, ignore_dtype=ignore_dtype)]
    model.set_adapter("two")
    found.append(fingerprint(model, ignore_dtype=ignore_dtype))
    with model.disable_adapter():
        found.append(fingerprint(model, ignore_dtype=ignore_dtype))
    assert fingerprint(model, ignore_dtype=ignore_dtype) == found[1]
    next(model.prompt_encoder["two"].parameters()).data[0] += 1.0
    found.append(fingerprint(model, ignore_dtype=ignore_dtype))
    assert len(set(found)) == 4


@pytest.mark.parametrize("family", FAMILIES)
def test_running_a_model_leaves_its_fingerprint_alone(family):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    before = fingerprint(model), fingerprint(model, ignore_dtype=True)
    assert fingerprint(tiny_model(family)) == before[0] != fingerprint(tiny_model(family, seed=1))
    lm.extract(model, tokenizer, SOME, progress=False)
    if FAMILIES[family].decodes:
        lm.generate(model, tokenizer, SOME[:2], n=2, max_new_tokens=3, progress=False)
    if model.supports_gradient_checkpointing:
        model.gradient_checkpointing_enable()
    model.train()
    model.requires_grad_(requires_grad=False)
    assert (fingerprint(model), fingerprint(model, ignore_dtype=True)) == before


def test_where_a_model_lies_is_no_part_of_it(tmp_path):
    model = tiny_model("llama", tie_word_embeddings=True)
    found = []
    for name in ("here", "there"):
        model.save_pretrained(tmp_path / name)
        found.append(AutoModelForCausalLM.from_pretrained(tmp_path / name))
    assert fingerprint(found[0]) == fingerprint(found[1])
    assert fingerprint(found[0], ignore_dtype=True) == fingerprint(model, ignore_dtype=True)


def test_steering_and_compiling_leave_the_fingerprint_alone():
    model = tiny_model("llama")
    before = fingerprint(model)
    assert fingerprint(torch.compile(model)) == before
    with lm.steer(model, {"final": random_map()}) as steered:
        run(steered, *prompts())
        assert fingerprint(model) == fingerprint(steered) == before


@pytest.mark.parametrize("family", FAMILIES)
def test_the_weights_agree_in_float32_and_bfloat16(family, tmp_path):
    whole = tiny_model(family)
    whole.save_pretrained(tmp_path)
    half = type(whole).from_pretrained(tmp_path, dtype=torch.bfloat16)
    cast = copy.deepcopy(whole).to(torch.bfloat16)
    assert len({fingerprint(model) for model in (whole, half)}) == 2
    assert len({fingerprint(model, ignore_dtype=True) for model in (whole, half, cast)}) == 1
    with torch.no_grad():
        next(half.parameters()).view(-1)[-1] *= 1.01
    assert fingerprint(half, ignore_dtype=True) != fingerprint(whole, ignore_dtype=True)


def test_bfloat16_weights_agree_in_float16_where_they_survive_it():
    whole = tiny_model("llama", dtype=torch.bfloat16).to(torch.float32)
    small = [p.abs() < 2**-14 for p in whole.parameters()]
    with torch.no_grad():
        for parameter, tiny in zip(whole.parameters(), small, strict=True):
            parameter[tiny] = 0.0
    half = copy.deepcopy(whole).to(torch.float16)
    assert fingerprint(half, ignore_dtype=True) == fingerprint(whole, ignore_dtype=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.complex64])
def test_tensors_of_every_kind_are_read(dtype):
    module = nn.Module()
    module.weight = nn.Parameter(torch.ones(3, 4).to(dtype), requires_grad=False)
    module.register_buffer("scalar", torch.tensor(2.0), persistent=False)
    module.register_buffer("empty", torch.zeros(0))
    module.loose = torch.arange(12.0).view(3, 4).T
    before = fingerprint(module)
    module.loose[0, 0] += 1
    changed = fingerprint(module)
    module.scalar += 1
    assert len({before, changed, fingerprint(module)}) == 3
    half = module.weight.view(torch.uint8)
    half[-1, -1] += 1
    assert fingerprint(module) != changed


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_modules_are_told_apart_by_their_packed_weights():
    def quantised(last):
        linear = nn.Linear(4, 2)
        with torch.no_grad():
            linear.weight.copy_(torch.arange(8.0).view(2, 4))
            linear.bias.zero_()
            linear.weight[0, 0] = last
        linear.qconfig = torch.ao.quantization.default_dynamic_qconfig
        return nn.Sequential(QuantisedLinear.from_float(linear))

    assert fingerprint(quantised(0.0)) == fingerprint(quantised(0.0)) != fingerprint(quantised(3.0))


def test_tied_weights_are_read_once(monkeypatch):
    module, read = sys.modules[fingerprint.__module__], []
    original = module._bytes_digest
    monkeypatch.setattr(module, "_bytes_digest", lambda tensor: read.append(tensor.numel()) or original(tensor))
    model = tiny_model("llama", tie_word_embeddings=True)
    fingerprint(model)
    tensors = [*model.parameters(), *model.buffers()]
    assert sum(read) == sum(t.numel() for t in tensors)


def test_without_a_work_folder_nothing_is_read(monkeypatch):
    def fail(model):
        raise AssertionError("there is nothing to keep")

    monkeypatch.setattr(resuming, "fingerprint", fail)
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    rows(model)
    with lm.steer(model, {"final": random_map()}):
        lm.generate(model, tokenizer, SOME[:1], n=1, max_new_tokens=2, progress=False)


def test_work_of_a_model_without_weights_in_memory_is_not_kept(tmp_path):
    class Offloaded(nn.Module):
        """A layer whose weights come from elsewhere when it runs."""

        def __init__(self, inner):
            super().__init__()
            self.weight = nn.Parameter(inner.weight.detach().to("meta"))
            self._held = [inner.weight.detach()]

        def forward(self, x):
            return nn.functional.linear(x, self._held[0])

    model = tiny_model("llama")
    expected = rows(model)
    mlp = model.model.layers[0].mlp
    mlp.down_proj = Offloaded(mlp.down_proj)
    assert fingerprint(model) == fingerprint(model)
    with pytest.warns(IdentityWarning, match="Load the model into memory"):
        found = rows(model, work_dir=tmp_path)
    assert np.array_equal(found, expected)
    assert list(tmp_path.iterdir()) == []


def test_a_hook_that_may_change_states_is_part_of_the_job(tmp_path):
    model = tiny_model("llama")
    plain = rows(model, work_dir=tmp_path)
    handle = model.model.layers[0].register_forward_hook(lambda module, args, output: output + 1.0)
    moved = rows(model, work_dir=tmp_path)
    handle.remove()
    assert not np.allclose(moved, plain)

    def watching(module, args, output):
        seen.append(output.shape)

    # a hook that returns nothing changes nothing
    seen = []
    handle = model.model.layers[0].register_forward_hook(watching)
    assert np.array_equal(rows(model, work_dir=tmp_path), plain) and seen == []
    handle.remove()


class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, module, args, output):
        return output + self.by

    def method(self, module, args, output):
        return output + self.by


def closure(by):
    return lambda module, args, output: output + by


def nested(by):
    def inner(output):
        return output + by

    return lambda module, args, output: inner(output)


def default(by):
    return eval("lambda module, args, output, by=by: output + by", {"by": by})


def constant(by):
    return eval(f"lambda module, args, output: output + {float(by)}")


def in_globals(by):
    return eval("lambda module, args, output: output + BY", {"BY": by})


def partial_of(by):
    return functools.partial(lambda by, module, args, output: output + by, by)


def of_layer(by):
    layer = torch.nn.Linear(16, 16)
    torch.nn.init.constant_(layer.weight, 0.0)
    torch.nn.init.constant_(layer.bias, float(by if isinstance(by, float) else by.sum()))
    return lambda module, args, output: output + layer(output)


@pytest.mark.parametrize("value", [float, lambda by: torch.full((16,), float(by)), lambda by: {"by": [by]}])
@pytest.mark.parametrize(
    "make", [Shift, lambda by: Shift(by).method, closure, nested, default, constant, in_globals, partial_of, of_layer]
)
def test_hooks_of_one_name_are_told_apart_by_their_values(make, value):
    if make in (constant, of_layer) and value is not float:
        value = float
    one, same, other = (hook_content(make(value(by))) for by in (1.0, 1.0, 2.0))
    assert one == same != other
    assert json.loads(json.dumps(one)) == json.loads(json.dumps(same))


def test_two_closures_of_one_name_do_not_share_a_work_folder(tmp_path):
    model, found = tiny_model("llama"), []
    for by in (1.0, 1.0, torch.arange(16.0)):
        handle = model.model.layers[0].register_forward_hook(closure(by))
        found.append((rows(model, work_dir=tmp_path), rows(model)))
        handle.remove()
    assert all(np.array_equal(kept, fresh) for kept, fresh in found)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_hook_that_reaches_itself_has_a_content():
    held = {}
    held["hook"] = hook = Shift(held)
    assert hook_content(hook) == hook_content(hook)


def test_tokenizers_are_told_apart_by_what_they_do():
    tokenizer = tiny_tokenizer()
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(SOME, truncation=True, max_length=2, padding=True)
    assert tokenizer_fingerprint(tokenizer) == before == tokenizer_fingerprint(tiny_tokenizer(padding_side="left"))
    assert tokenizer_fingerprint(tiny_tokenizer(pad="w1")) != before
    tokenizer.truncation_side = "left"
    assert tokenizer_fingerprint(tokenizer) != before
    other = tiny_tokenizer()
    other.add_tokens(["w99"])
    assert tokenizer_fingerprint(other) != before


def test_tokenizers_without_a_fast_backend_have_an_identity():
    plain, more = ByT5Tokenizer(), ByT5Tokenizer(extra_ids=10)
    assert tokenizer_fingerprint(plain) == tokenizer_fingerprint(ByT5Tokenizer()) != tokenizer_fingerprint(more)


def test_the_width_of_the_digest_is_that_of_sha256():
    assert len(fingerprint(nn.Linear(WIDTH, 1))) == 64
