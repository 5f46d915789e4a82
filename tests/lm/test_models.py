# ruff: noqa: E402 - what follows the skips can only be imported where they pass
import base64
import json
import os
import subprocess
import sys
from importlib import metadata

import pytest

pytest.importorskip("torch", reason="models need the extra repsurgery[lm]")
transformers = pytest.importorskip("transformers", reason="models need the extra repsurgery[lm]")

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from repsurgery.checkpoint import file_digest
from repsurgery.errors import CacheWarning, MissingExtraError, ModelError, ParameterError
from repsurgery.lm import load
from repsurgery.lm.load import wheel as embedded
from repsurgery.lm.load.parts import Part
from repsurgery.lm.load.wheel import EMBEDDED, EmbeddedModel, embedded_folder

torch.set_num_threads(1)
WORDS = ["<eos>", "<unk>", "good", "morning", "to", "you"]


def installed(name):
    return all(part.find() is not None for part in EMBEDDED[name].parts)


def needs_wheel(name):
    return pytest.mark.skipif(not installed(name), reason=f"the wheel is not there: {EMBEDDED[name].command}")


def save_tokenizer(folder, **special):
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", **special).save_pretrained(folder)


def save_decoder(folder):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=len(WORDS),
        bos_token_id=0,
        eos_token_id=0,
        max_position_embeddings=32,
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    save_tokenizer(folder, eos_token="<eos>")
    return model


def save_encoder(folder):
    torch.manual_seed(0)
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    transformers.BertForMaskedLM(transformers.BertConfig(**size, vocab_size=len(WORDS))).save_pretrained(folder)
    save_tokenizer(folder, pad_token="<eos>")


@pytest.fixture
def decoder(tmp_path):
    save_decoder(tmp_path / "decoder")
    return tmp_path / "decoder"


def test_a_folder_gives_back_the_saved_logits_in_eval_mode(tmp_path):
    saved = save_decoder(tmp_path / "m").eval()
    model, tokenizer = load(tmp_path / "m")
    batch = tokenizer("good morning to you", return_tensors="pt")
    assert not model.training
    assert torch.equal(model(batch["input_ids"]).logits, saved(batch["input_ids"]).logits)
    assert tokenizer.pad_token == tokenizer.eos_token == "<eos>"


def test_an_encoder_comes_without_its_head(tmp_path):
    save_encoder(tmp_path / "m")
    model, tokenizer = load(str(tmp_path / "m"))
    assert type(model).__name__ == "BertModel"
    assert model(**tokenizer("good morning", return_tensors="pt")).last_hidden_state.shape == (1, 2, 16)


@pytest.mark.parametrize(
    ("architectures", "name"),
    [(["LlamaForCausalLM"], "LlamaForCausalLM"), (["LlamaModel"], "LlamaModel"), (None, "LlamaModel")],
)
def test_the_architecture_in_the_config_decides_about_the_head(decoder, architectures, name):
    config = json.loads((decoder / "config.json").read_text())
    config["architectures"] = architectures
    (decoder / "config.json").write_text(json.dumps(config))
    assert type(load(decoder)[0]).__name__ == name


def test_dtype_and_device_are_kept_or_chosen(decoder):
    assert load(decoder)[0].dtype == torch.float32
    assert load(decoder, dtype="bfloat16")[0].dtype == torch.bfloat16
    assert load(decoder, dtype=torch.float16, device="cpu")[0].dtype == torch.float16
    assert load(decoder, device="cpu")[0].device == torch.device("cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8' is not one of float32"),
        ({"dtype": 16}, "dtype=16"),
        ({"device": "abacus"}, "device='abacus' cannot be used here"),
        ({"revision": "main"}, "revision='main' is for hub ids"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_read(decoder, options, message):
    with pytest.raises(ParameterError, match=message):
        load(decoder, **options)


def without_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def truncate(folder):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weight, "lacks 1 weights of LlamaForCausalLM, which would stay random: model.layers.1.mlp.up_proj"),
        (truncate, "cannot be loaded: .*Write the folder again"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be loaded: .*model.safetensors"),
        (lambda f: (f / "config.json").unlink(), "has no config.json; it contains: generation_config.json"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be loaded: .*JSON"),
        (lambda f: (f / "config.json").write_text('{"model_type": "abacus"}'), "cannot be loaded: .*abacus"),
        (lambda f: (f / "config.json").write_text('{"model_type": "t5"}'), "is an encoder-decoder .t5."),
        (
            lambda f: [(f / n).unlink() for n in ("tokenizer.json", "tokenizer_config.json")],
            "contains no readable tokenizer",
        ),
    ],
)
def test_a_damaged_folder_is_refused_with_its_reason(decoder, damage, message):
    damage(decoder)
    with pytest.raises(ModelError, match=message):
        load(decoder)


def test_a_tokenizer_that_knows_no_words_is_refused(tmp_path):
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=9, bos_token_id=0, eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"contains no tokenizer, only the model.*tokenizer\.save_pretrained"):
        load(tmp_path)


def test_code_in_a_model_folder_is_never_run(decoder, tmp_path):
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}
    (decoder / "config.json").write_text(json.dumps(config))
    (decoder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ModelError, match="custom code"):
        load(decoder)
    assert not (tmp_path / "ran").exists()


def test_a_name_that_is_nothing_lists_the_offline_ways(tmp_path):
    with pytest.raises(ModelError, match=r"no folder.*embedded name: 'smollm2-135m', 'minilm'"):
        load(tmp_path / "none")
    with pytest.raises(ModelError, match="not a hub id"):
        load("not a name")
    (tmp_path / "file.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match="is a file"):
        load(tmp_path / "file.gguf")


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
from repsurgery import lm
from repsurgery.errors import ModelError
model, tokenizer = lm.load("org/tiny")
assert type(model).__name__ == "LlamaForCausalLM" and tokenizer("good morning")["input_ids"] == [2, 3]
assert lm.load("org/tiny", revision="v1")[0].dtype == torch.float32
for name, revision in [("org/absent", None), ("org/tiny", "v2")]:
    try:
        lm.load(name, revision=revision)
    except ModelError as error:
        assert f"'{name}' cannot be loaded" in str(error) and "'smollm2-135m', 'minilm'" in str(error), error
    else:
        sys.exit(f"{name} {revision} was found")
"""


def test_a_hub_id_is_read_from_the_hub_cache_when_offline(tmp_path):
    repository, commit = tmp_path / "hub" / "models--org--tiny", "0123456789abcdef0123456789abcdef01234567"
    save_decoder(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    for name in ("main", "v1"):
        (repository / "refs" / name).write_text(commit)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["smollm2-135m", "minilm"])
def test_without_the_wheel_one_command_mends_it(name, monkeypatch, tmp_path):
    def absent(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path))
    monkeypatch.setattr(metadata, "files", absent)
    with pytest.raises(MissingExtraError, match="Run: pip install --no-deps ") as caught:
        load(name)
    assert str(caught.value).endswith(f"pip install --no-deps {EMBEDDED[name].requirement}")
    assert str(caught.value).count("pip install") == 1


class FakeFile:
    def __init__(self, path, name):
        self.path, self.name = path, name

    def as_posix(self):
        return self.name

    def locate(self):
        return self.path


@pytest.fixture
def fake_wheel(tmp_path, monkeypatch):
    """A stand-in wheel whose GGUF is a few bytes, converted by copying a tiny decoder."""
    source = tmp_path / "tiny.gguf"
    source.write_bytes(b"GGUF stand-in")
    part = Part("tiny-wheel==1.0", "w/tiny.gguf", file_digest(source))
    model = EmbeddedModel("tiny", "tiny, Q4_1 dequantised", "none", (part,), part.file, part.digest)
    monkeypatch.setattr(embedded, "EMBEDDED", {"tiny": model})
    monkeypatch.setattr(metadata, "files", lambda package: [FakeFile(source, "w/tiny.gguf")])
    monkeypatch.setattr(embedded, "convert_gguf", lambda source, folder: save_decoder(folder))
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "cache"))
    return source


def test_a_source_with_another_digest_is_never_converted(fake_wheel, tmp_path):
    fake_wheel.write_bytes(b"GGUF altered")
    with pytest.raises(ModelError, match=r"SHA-256 is .*expected .*--force-reinstall --no-deps tiny-wheel==1.0"):
        embedded_folder("tiny")
    assert not (tmp_path / "cache").exists()


def test_a_kept_conversion_serves_without_its_wheel(fake_wheel):
    folder = embedded_folder("tiny")
    fake_wheel.unlink()
    assert embedded_folder("tiny") == folder
    assert type(load(folder)[0]).__name__ == "LlamaForCausalLM"


def test_a_corrupted_conversion_is_made_again(fake_wheel):
    folder = embedded_folder("tiny")
    good = file_digest(folder / "model.safetensors")
    truncate(folder)
    with pytest.warns(CacheWarning, match="model.safetensors does not match its digest"):
        embedded_folder("tiny")
    assert file_digest(folder / "model.safetensors") == good


def test_a_corrupted_conversion_without_its_wheel_names_the_command(fake_wheel):
    truncate(embedded_folder("tiny"))
    fake_wheel.unlink()
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps tiny-wheel==1\.0"):
        embedded_folder("tiny")


@pytest.fixture(scope="module")
def smollm2():
    """The embedded default, converted into the user's cache if no earlier run did."""
    return load("smollm2-135m")


@needs_wheel("smollm2-135m")
def test_the_embedded_default_is_a_language_model(smollm2):
    model, tokenizer = smollm2
    assert (model.config.num_hidden_layers, model.config.hidden_size, model.dtype) == (30, 576, torch.float32)
    assert tokenizer.model_max_length == 8192
    batch = tokenizer("The capital of France is", return_tensors="pt")
    assert tokenizer.decode(model(**batch).logits[0, -1].argmax()) == " Paris"
    assert "Q4_1 dequantised" in EMBEDDED["smollm2-135m"].description


@needs_wheel("smollm2-135m")
def test_the_conversion_has_the_logits_and_tokens_of_the_gguf(smollm2):
    model, tokenizer = smollm2
    source = EMBEDDED["smollm2-135m"].parts[0].find()
    original = transformers.AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.float32
    ).eval()
    reader = transformers.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    text = "Dear  neighbour,\n\tit's 10:45 – could you, déjà vu, turn it down?\ndef f(x): return x**2"
    batch = tokenizer(text, return_tensors="pt")
    assert batch["input_ids"].tolist() == [reader(text)["input_ids"]]
    with torch.no_grad():
        assert torch.equal(model(**batch).logits, original(**batch).logits)


@needs_wheel("minilm")
def test_the_embedded_encoder_puts_like_near_like():
    model, tokenizer = load("minilm")
    assert (type(model).__name__, model.config.hidden_size, model.training) == ("BertModel", 384, False)
    texts = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose in March."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1))
    cat, kitten, rates = means
    assert cat @ kitten > 0.5 > 0.2 > cat @ rates


@pytest.mark.parametrize("name", sorted(name for name, m in EMBEDDED.items() if m.parts[0].registry == "pypi"))
def test_the_expected_digest_is_the_one_the_wheel_records(name):
    if not installed(name):
        pytest.skip(f"the wheel is not there: {EMBEDDED[name].command}")
    for part in EMBEDDED[name].parts:
        (file,) = [file for file in metadata.files(part.package) if file.as_posix() == part.file]
        assert base64.urlsafe_b64decode(file.hash.value + "=").hex() == part.digest
