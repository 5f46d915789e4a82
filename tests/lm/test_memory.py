"""The memory of a model is known before it is loaded: weights and cache exactly, the total nearly."""

import json
import subprocess
import sys

import pytest
import torch

from repsurgery import lm
from repsurgery.errors import MissingExtraError, ModelError, ParameterError
from repsurgery.lm.load import memory
from tests.lm.tiny_models import FAMILIES, tiny_model, tiny_tokenizer


def saved(folder, family, **changes):
    model = tiny_model(family, **changes)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_and_cache_are_exact_to_the_byte(family, dtype, tmp_path):
    saved(tmp_path, family)
    plan = lm.plan_memory(tmp_path, dtype=dtype, batch=3, tokens=20)
    model, _ = lm.load(tmp_path, dtype=dtype)
    assert plan.parameters == sum(p.numel() for p in model.parameters())
    assert plan.weights == sum(p.numel() * p.element_size() for p in model.parameters())
    assert plan.dtype == ("float32" if dtype is None else dtype)
    if not FAMILIES[family].decodes:
        assert plan.cache == plan.logits == 0
        return
    with torch.no_grad():
        cache = model(torch.full((3, 20), 5), use_cache=True).past_key_values
    # the elements that are seen; some sliding windows are views of a larger tensor
    held = sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
    assert plan.cache == held
    assert plan.total == plan.weights + plan.cache + plan.logits + plan.working + memory.PROGRAM


def test_nothing_but_the_configuration_is_needed(tmp_path):
    saved(tmp_path, "llama", dtype=torch.bfloat16)
    whole = lm.plan_memory(tmp_path)
    assert whole.dtype == "bfloat16" and whole.tokens == 64
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    assert lm.plan_memory(tmp_path).total == whole.total


def test_the_headers_name_the_dtype_where_the_configuration_does_not(tmp_path):
    saved(tmp_path, "llama", dtype=torch.float16)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if "dtype" not in k}))
    assert lm.plan_memory(tmp_path).dtype == "float16" == str(lm.load(tmp_path)[0].dtype).removeprefix("torch.")


def test_a_quantised_model_has_the_size_of_its_files(tmp_path):
    model = saved(tmp_path, "llama")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert lm.plan_memory(tmp_path).weights == sum(p.numel() * 4 for p in model.parameters())
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelError, match="Pass the folder of the downloaded model"):
        lm.plan_memory(tmp_path)


def test_bad_sizes_and_places_are_refused(tmp_path):
    saved(tmp_path, "llama")
    for how, remedy in (
        ({"batch": 0}, "batch"),
        ({"tokens": 1.5}, "tokens"),
        ({"dtype": "int3"}, "float32"),
        ({"device": "abacus"}, "This machine has cpu"),
    ):
        with pytest.raises(ParameterError, match=remedy):
            lm.plan_memory(tmp_path, **how)
    with pytest.raises(ModelError, match=r"no config\.json"):
        (tmp_path / "empty").mkdir()
        lm.plan_memory(tmp_path / "empty")


PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from repsurgery import lm
dtype, batch, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model, tokenizer = lm.load("smollm2-135m", dtype=dtype)
ids = torch.randint(100, 2000, (batch, tokens - 4))
mask = torch.ones_like(ids)
mask[:, 0] = 0
with torch.no_grad():
    model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, eos_token_id=None)
if sys.platform == "linux":  # where ru_maxrss is at least that of the process which started this one
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) * 1024)
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the peak of a process is measured on Unix")
@pytest.mark.parametrize(("batch", "tokens"), [(1, 64), (8, 512)])
def test_the_total_is_near_the_measured_peak(batch, tokens):
    try:
        plan = lm.plan_memory("smollm2-135m", dtype="float32", batch=batch, tokens=tokens)
    except MissingExtraError:
        pytest.skip("needs the package of smollm2-135m")
    words = [sys.executable, "-c", PEAK, "float32", str(batch), str(tokens)]
    peak = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert 0.7 < peak / plan.total < 1.3
