"""``repsurgery import``: vectors of other programs become steerings of ours, marked until they are certified."""

import re

import numpy as np
import pytest
from safetensors.numpy import save_file

import repsurgery as rs
from repsurgery import lm
from repsurgery.price import Price
from repsurgery.steering.shown import foreign_words
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.strategies import make_concept

gguf = pytest.importorskip("gguf")
FOREIGN = "foreign; not certified until priced and certified"
rng = np.random.default_rng(0)
VECTORS = {i: rng.normal(size=WIDTH).astype(np.float32) for i in (1, 2)}


def write_gguf(path, tensors, *, hint="llama", architecture="controlvector"):
    """Write what repeng's ``ControlVector.export_gguf`` writes."""
    writer = gguf.GGUFWriter(str(path), architecture)
    if hint is not None:
        writer.add_string(f"{architecture}.model_hint", hint)
    writer.add_uint32(f"{architecture}.layer_count", len(tensors))
    for name, vector in tensors.items():
        writer.add_tensor(name, vector)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def shift(path):
    function = rs.load(path)
    (m,) = function.maps.values()
    return function.origin.site, m.bias


def test_an_exported_control_vector_is_imported_as_it_was(run, tmp_path):
    vector = VECTORS[1].astype(np.float64)
    lm.to_gguf(tiny_model("llama"), rs.Translation(vector), "layers.1", tmp_path / "v.gguf")
    for program in ("gguf", "repeng"):
        result = run("import", tmp_path / "v.gguf", "--from", program, "--out", tmp_path / program)
        assert result.exit_code == 0, result.output
        site, found = shift(tmp_path / program)
        assert site == "layers.1" and np.array_equal(found, vector)
    # and back: the counter-check that float32 holds the vector
    lm.to_gguf(tiny_model("llama"), rs.load(tmp_path / "gguf"), None, tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "v.gguf").read_bytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_layer_of_several_is_chosen_and_several_make_several_files(run, tmp_path, dtype):
    tensors = {f"direction.{i}": vector.astype(dtype) for i, vector in {0: VECTORS[1], **VECTORS}.items()}
    file = write_gguf(tmp_path / "v.gguf", tensors)
    result = run("import", file, "--from", "repeng", "--out", tmp_path / "out")
    assert result.exit_code == 1 and not (tmp_path / "out").exists()
    assert "--site is missing" in result.stderr and "layers.0, layers.1, layers.2" in result.stderr
    assert run("import", file, "--from", "repeng", "--site", "layers.2", "--out", tmp_path / "two").exit_code == 0
    assert np.array_equal(shift(tmp_path / "two")[1], VECTORS[2].astype(dtype))
    sites = ("--site", "layers.1", "--site", "layers.2")
    assert run("import", file, "--from", "repeng", *sites, "--out", tmp_path / "all").exit_code == 0
    assert [path.name for path in sorted((tmp_path / "all").iterdir())] == [
        "layers.1.safetensors",
        "layers.2.safetensors",
    ]
    assert shift(tmp_path / "all" / "layers.2.safetensors")[0] == "layers.2"
    # llama.cpp has no control vector for block 0
    refused = run("import", file, "--from", "gguf", "--site", "layers.1", "--out", tmp_path / "no")
    assert refused.exit_code == 1 and "--from repeng reads" in refused.stderr


@pytest.mark.parametrize("name", ["1", "layers.1", "layer_1", "direction.1", "layer_activations.1"])
def test_a_layer_is_named_in_many_ways(run, tmp_path, name):
    save_file({name: VECTORS[1][None]}, tmp_path / "v.safetensors")
    result = run("import", tmp_path / "v.safetensors", "--from", "steering-vectors", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert shift(tmp_path / "out")[0] == "layers.1"


def test_the_layer_type_of_steering_vectors_names_the_part_of_the_block(run, tmp_path):
    save_file({"1": VECTORS[1]}, tmp_path / "v", metadata={"layer_type": "mlp"})
    assert run("import", tmp_path / "v", "--from", "steering-vectors", "--out", tmp_path / "out").exit_code == 0
    assert shift(tmp_path / "out")[0] == "layers.1.mlp"
    save_file({"1": VECTORS[1]}, tmp_path / "v", metadata={"layer_type": "input_layernorm"})
    result = run("import", tmp_path / "v", "--from", "steering-vectors", "--out", tmp_path / "other")
    assert result.exit_code == 1 and "'input_layernorm'" in result.stderr


def test_bfloat16_is_read_without_rounding(run, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_tensors

    vector = torch.tensor([1.5, -2.25, 0.0, 3e-3]).to(torch.bfloat16)
    save_tensors({"v": vector}, tmp_path / "v")
    words = ("--from", "safetensors", "--site", "final", "--out", tmp_path / "out")
    assert run("import", tmp_path / "v", *words).exit_code == 0
    assert np.array_equal(shift(tmp_path / "out")[1], vector.double().numpy())


def test_an_imported_steering_is_marked_until_it_is_priced_and_certified(run, tmp_path):
    save_file({"1": VECTORS[1][:4]}, tmp_path / "v")
    result = run("import", tmp_path / "v", "--from", "safetensors", "--out", tmp_path / "out")
    assert FOREIGN in result.stdout
    assert FOREIGN in run("inspect", tmp_path / "out").stdout
    function = rs.load(tmp_path / "out")
    assert FOREIGN in repr(function) and function.origin.foreign
    assert function.certificate is function.price is function.outcome is None
    priced = function.with_price(Price(rs.Fisher(9, np.eye(4)), site="layers.1"))
    certified = rs.MeanMatching(source=0, target=1).fit(*make_concept(0)).certificate_
    assert FOREIGN in repr(priced)
    assert not foreign_words(priced.sealed(certified)) and foreign_words(function.sealed(certified))
    ours = rs.SteeringFunction(dict(function.maps), origin=rs.Origin(site="layers.1", data="digest"))
    assert FOREIGN not in repr(ours)


def test_a_model_must_have_the_site_and_the_width(run, model_folder, tmp_path):
    save_file({"1": VECTORS[1]}, tmp_path / "fits")
    words = ("--from", "safetensors", "--model", model_folder)
    assert run("import", tmp_path / "fits", *words, "--out", tmp_path / "out").exit_code == 0
    assert rs.load(tmp_path / "out").origin.model == model_folder.name
    save_file({"1": VECTORS[1][:-1]}, tmp_path / "narrow")
    save_file({"99": VECTORS[1]}, tmp_path / "deep")
    for name, message in (("narrow", f"has {WIDTH - 1} features"), ("deep", "layers.99")):
        result = run("import", tmp_path / name, *words, "--out", tmp_path / f"{name}-out")
        assert result.exit_code == 1 and re.search(message, result.stderr), result.stderr
        assert not (tmp_path / f"{name}-out").exists()


def test_a_control_vector_of_another_model_is_refused(run, model_folder, tmp_path):
    file = write_gguf(tmp_path / "v.gguf", {"direction.1": VECTORS[1]}, hint="gpt2")
    words = ("import", file, "--from", "gguf", "--model", model_folder, "--out", tmp_path / "out")
    result = run(*words)
    assert result.exit_code == 1 and "'gpt2'" in result.stderr and "--other-model" in result.stderr
    assert run(*words, "--other-model").exit_code == 0
    mistral = write_gguf(tmp_path / "m.gguf", {"direction.1": VECTORS[1]}, hint="llama")
    assert run("import", mistral, *words[2:]).exit_code == 0


NAN = np.where(np.arange(WIDTH) == 3, np.nan, VECTORS[1])


@pytest.mark.parametrize(
    ("program", "write", "message"),
    [
        ("safetensors", lambda p: save_file({"vector": VECTORS[1]}, p), "--site is missing.*does not say where"),
        ("safetensors", lambda p: save_file({"a": VECTORS[1], "b": VECTORS[2]}, p), "'a, b', which name no layer"),
        ("safetensors", lambda p: save_file({"1": NAN}, p), "NaN or infinity in 1"),
        ("safetensors", lambda p: save_file({"1": np.ones((2, 3))}, p), r"of shape \(2, 3\)"),
        ("safetensors", lambda p: save_file({"1": np.arange(3)}, p), "number format I64"),
        ("safetensors", lambda p: save_file({"1": VECTORS[1], "layer_1": VECTORS[1]}, p), "several vectors for one"),
        ("safetensors", lambda p: rs.save(rs.Translation(np.ones(3)), p), "needs no import"),
        ("safetensors", lambda p: p.write_bytes(b"short"), "truncated or is not a safetensors file"),
        ("gguf", lambda p: write_gguf(p, {"direction.1": NAN.astype(np.float32)}), "NaN or infinity in direction.1"),
        ("gguf", lambda p: write_gguf(p, {"token_embd.weight": VECTORS[1]}), "'token_embd.weight'"),
        ("gguf", lambda p: write_gguf(p, {"direction.x": VECTORS[1]}), "'direction.x'"),
        ("gguf", lambda p: write_gguf(p, {"a": VECTORS[1]}, architecture="llama"), "'llama', not a control vector"),
        ("gguf", lambda p: p.write_bytes(b"GGUF" + bytes(40)), "truncated or is not a GGUF file"),
        ("repeng", lambda p: p.write_bytes(b"GGUF\xff"), "truncated or is not a GGUF file"),
        ("gguf", lambda p: p.mkdir(), "is not a file"),
    ],
)
def test_what_is_no_vector_is_one_line_and_leaves_nothing(run, tmp_path, program, write, message):
    write(tmp_path / "in")
    result = run("import", tmp_path / "in", "--from", program, "--out", tmp_path / "out")
    assert result.exit_code == 1 and len(result.stderr.strip().splitlines()) == 1, result.output
    assert re.search(message, result.stderr), result.stderr
    assert not (tmp_path / "out").exists()


def test_a_pickle_is_refused_with_what_to_do(run, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({1: torch.ones(3)}, tmp_path / "zip.pt")
    torch.save({1: torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for file in ("zip.pt", "old.pt"):
        for program in ("repeng", "steering-vectors", "gguf", "safetensors"):
            result = run("import", tmp_path / file, "--from", program, "--out", tmp_path / "out")
            assert result.exit_code == 1 and "safetensors.torch.save_file" in result.stderr, result.output


def test_an_unknown_site_or_program_is_refused(run, tmp_path):
    save_file({"1": VECTORS[1]}, tmp_path / "v")
    result = run("import", tmp_path / "v", "--from", "safetensors", "--site", "layers.3", "--out", tmp_path / "out")
    assert result.exit_code == 1 and "--site is 'layers.3'" in result.stderr and "layers.1" in result.stderr
    result = run("import", tmp_path / "v", "--from", "magic", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "'repeng', 'steering-vectors', 'gguf', 'safetensors'" in result.stderr
    result = run("import", tmp_path / "v", "--from", "safetensors", "--out", tmp_path / "v")
    assert result.exit_code == 1 and "would be overwritten" in result.stderr
