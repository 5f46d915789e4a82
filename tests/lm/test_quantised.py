"""Quantised layers are steered by hooks, and never changed.

bitsandbytes, GPTQ and AWQ are not installed with the tests, so layers with the same attributes stand in for theirs;
the quantised layers of torch itself are real.
"""

import warnings

import pytest
import torch
from torch import nn

from repsurgery import lm
from repsurgery.errors import FoldError
from tests.lm.folding import dense_map, hooked, logits, same, translation
from tests.lm.tiny_models import WIDTH, tiny_model


class Packed(nn.Parameter):
    """Like bitsandbytes' Params4bit: a parameter of a class of its own."""

    def __new__(cls, data):
        return torch.Tensor._make_subclass(cls, data, False)


class Rounded(nn.Linear):
    """Like bitsandbytes' Linear8bitLt: rows of integers in place of the weight, and a scale per row."""

    def __init__(self, linear, dtype=torch.int8):
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.bias = linear.bias
        self.scale = (linear.weight.detach().abs().amax(1, keepdim=True) / 100).clone()
        values = linear.weight.detach() / self.scale
        self.weight = nn.Parameter(values.round().to(dtype), requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight.float() * self.scale, self.bias)


class Subclassed(Rounded):
    """Like torchao's and bitsandbytes' weights before they are moved: floating point, in a class of their own."""

    def __init__(self, linear):
        super().__init__(linear, torch.float32)
        self.weight = Packed(self.weight.data)


class Buffered(nn.Module):
    """Like a GPTQ or AWQ layer: no weight at all, integers in a buffer."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        rounded = Rounded(linear)
        self.scale, self.bias = rounded.scale, linear.bias
        self.register_buffer("qweight", rounded.weight.data.to(torch.int32))

    def forward(self, x):
        return nn.functional.linear(x, self.qweight.float() * self.scale, self.bias)


def float8(linear):
    return Rounded(linear, torch.float8_e4m3fn)


def torch_dynamic(linear):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces that these layers will move to torchao
        whole = torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, dtype=torch.qint8)
    return whole[0]


KINDS = {kind.__name__: kind for kind in (Rounded, Subclassed, Buffered, float8, torch_dynamic)}


def quantised(kind, family="llama"):
    model = tiny_model(family)
    linears = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name in linears:
        model.set_submodule(name, KINDS[kind](model.get_submodule(name)))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_quantised_layer_is_steered_by_hooks_and_never_folded(kind, tmp_path):
    model, m = quantised(kind), translation(WIDTH)
    plain = logits(model)
    for site in ("layers.0", "layers.0.attn", "final"):
        assert not same(hooked(model, site, m), plain)
        for write in (lm.fold, lambda *args: lm.to_lora(*args, tmp_path / "adapter")):
            with pytest.raises(FoldError, match=r"is quantised.*Steer with hooks.*without quantisation"):
                write(model, m, site)
    assert same(logits(model), plain)
    assert lm.to_gguf(model, m, "layers.1", tmp_path / "v.gguf").exists()  # only sizes are read
    assert [path.name for path in tmp_path.iterdir()] == ["v.gguf"]
    # the same calls on the model before it was quantised
    whole = tiny_model("llama")
    assert same(logits(lm.fold(whole, m, "layers.0")), hooked(whole, "layers.0", m))


def test_a_model_with_quantised_layers_is_not_saved(tmp_path):
    model = quantised("Rounded")
    model.lm_head = tiny_model("llama").lm_head
    m = dense_map(WIDTH)
    folded = lm.fold(model, m, "final")  # the output layer is a plain matrix
    assert same(logits(folded), hooked(model, "final", m))
    with pytest.raises(FoldError, match=r"has quantised layers .*plain weights.*without quantisation"):
        lm.save_folded(folded, tmp_path / "model", custom_code=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:MatMul8bitLt")
@pytest.mark.parametrize("how", ["load_in_8bit", "load_in_4bit"])
def test_bitsandbytes_is_steered_by_hooks_and_never_folded(how, tmp_path):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    sizes = {"hidden_size": 64, "intermediate_size": 128}  # its kernels need multiples of 32
    whole, m = tiny_model("llama", **sizes), translation(64)
    whole.save_pretrained(tmp_path / "whole")
    options = {"quantization_config": BitsAndBytesConfig(**{how: True}), "device_map": "cpu"}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "whole", **options).eval()
    plain, steered = logits(model), hooked(model, "layers.0", m)
    shift = torch.tensor(m.shift.tolist())
    handle = model.model.layers[0].register_forward_hook(lambda module, args, out: out + shift)
    assert same(steered, logits(model)) and not same(steered, plain)
    handle.remove()
    assert len(lm.fingerprint(model)) == 64
    for site in ("layers.0", "layers.0.attn"):
        for write in (lm.fold, lambda *args: lm.to_lora(*args, tmp_path / "adapter")):
            with pytest.raises(FoldError, match=r"is quantised.*Steer with hooks"):
                write(model, m, site)
    with pytest.raises(FoldError, match="has quantised layers"):
        lm.save_folded(lm.fold(model, dense_map(64), "final"), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
