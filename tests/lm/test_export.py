"""Adapters and control vectors hold the map they were made from, or say what they leave out."""

import builtins
import tempfile

import gguf
import numpy as np
import peft
import pytest
import torch
import transformers

from repsurgery import LEACE, Dense, Diagonal, Identity, LowRank, MeanMatching, Translation, lm
from repsurgery.errors import FoldError, MissingExtraError, ParameterError, ShapeError, SiteError
from tests.lm.folding import CASES, SITES, dense_map, eraser, hooked, labelled_rows, logits, same, translation, width
from tests.lm.tiny_models import LAYERS, WIDTH, tiny_model

pytestmark = [
    # both say that merging into such a layer is not possible or unties it; nothing is merged here unless it may be
    pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed"),
    pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:Input and output embeddings are no longer tied"),
]


@pytest.fixture(autouse=True, scope="module")
def _quiet_and_thrifty():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()


def adapted(family, folder, **options):
    return peft.PeftModel.from_pretrained(tiny_model(family, **options), folder).eval()


@pytest.mark.parametrize(("family", "site"), CASES)
def test_the_adapter_equals_the_hook(family, site, tmp_path):
    model = tiny_model(family)
    m = eraser(width(model, site))
    export = lm.to_lora(model, m, site, tmp_path)
    steered = hooked(model, site, m)
    assert export.exact and export.rank == m.rank and export.constant == "carried"
    assert same(logits(adapted(family, tmp_path)), steered)
    assert not same(logits(model), steered)


def prepared(family, export):
    """Return a base that the adapter merges into, made as `LoraExport` says."""
    model = tiny_model(family)
    if export.bias_switch:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            model = type(model).from_pretrained(folder, **{export.bias_switch: True}).eval()
    if export.tied:
        layer = model.get_submodule(export.target)
        layer.weight = torch.nn.Parameter(layer.weight.detach().clone())
    return model


def merged_logits(base, folder, where):
    merged = peft.PeftModel.from_pretrained(base, folder).eval().merge_and_unload()
    merged.save_pretrained(where)
    again = type(merged).from_pretrained(where).eval()
    assert same(logits(again), logits(merged))
    return logits(merged)


@pytest.mark.parametrize("make", [eraser, translation], ids=["eraser", "translation"])
@pytest.mark.parametrize(("family", "site"), CASES)
def test_the_merged_adapter_equals_the_hook(family, site, make, tmp_path):
    model = tiny_model(family)
    m = make(width(model, site))
    export = lm.to_lora(model, m, site, tmp_path / "adapter", constant="merge")
    steered = hooked(model, site, m)
    assert same(logits(adapted(family, tmp_path / "adapter")), steered)
    if export.place == "adapter":
        with pytest.raises(RuntimeError, match="base layer has no bias"):
            adapted(family, tmp_path / "adapter").merge_and_unload()
        assert not export.mergeable
        return
    merged = merged_logits(prepared(family, export), tmp_path / "adapter", tmp_path / "merged")
    assert same(merged, steered) and not same(merged, logits(model))


def test_every_way_to_merge_occurs(tmp_path):
    ways = {}
    for family, site in [*CASES, ("llama", "layers.0")]:
        model = tiny_model(family)
        m = (translation if site == "layers.0" else eraser)(width(model, site))
        ways[family, site] = lm.to_lora(model, m, site, tmp_path, constant="merge")
    assert ways["gpt2", "layers.0.attn"].mergeable and ways["gpt_neox", "final"].mergeable
    assert ways["gpt2", "final"].place == "norm" and ways["gpt2", "final"].tied
    assert ways["llama", "layers.0"].bias_switch == ways["llama", "layers.1.mlp"].bias_switch == "mlp_bias"
    assert ways["mistral", "layers.0.attn"].place == ways["llama", "final"].place == "adapter"


def test_a_tied_layer_must_be_cloned_before_merging(tmp_path):
    model, m = tiny_model("gpt2"), eraser(WIDTH)
    assert not lm.to_lora(model, m, "final", tmp_path, constant="merge").mergeable
    merged = adapted("gpt2", tmp_path).merge_and_unload()
    assert not same(logits(merged), hooked(model, "final", m))  # the embeddings changed too


@pytest.mark.parametrize("rank", [3, 9])
def test_a_truncated_adapter_carries_its_whole_constant(rank, tmp_path):
    model, m = tiny_model("gpt_neox"), dense_map(WIDTH)
    export = lm.to_lora(model, m, "final", tmp_path, constant="merge", rank=rank)
    assert export.rank == rank + 1 and export.mergeable and not export.exact
    carried = lm.to_lora(model, m, "final", tmp_path / "carried", rank=rank)
    assert carried.place == "adapter" and carried.error == export.error
    assert same(logits(adapted("gpt_neox", tmp_path)), logits(adapted("gpt_neox", tmp_path / "carried")))


@pytest.mark.parametrize("family", ["gpt2", "llama", "falcon"])
def test_a_translation_of_the_residual_stream_is_an_adapter(family, tmp_path):
    model = tiny_model(family)
    export = lm.to_lora(model, translation(WIDTH), "layers.0", tmp_path)
    assert export.rank == 1 and export.exact
    assert same(logits(adapted(family, tmp_path)), hooked(model, "layers.0", translation(WIDTH)))


@pytest.mark.parametrize("estimator", [LEACE(), MeanMatching(source=1, target=0, gate="always")])
def test_low_rank_methods_export(estimator, tmp_path):
    model = tiny_model("llama")
    fitted = estimator.fit(*labelled_rows())
    assert lm.to_lora(model, fitted, "layers.1.mlp", tmp_path).exact
    assert same(logits(adapted("llama", tmp_path)), hooked(model, "layers.1.mlp", fitted))


def test_a_dense_map_that_differs_from_the_identity_in_few_directions_is_exact(tmp_path):
    model = tiny_model("llama")
    low = eraser(WIDTH, rank=3)
    for m in (Dense(low.weight, low.bias), Diagonal(np.r_[0.5, np.ones(WIDTH - 1)], np.zeros(WIDTH))):
        export = lm.to_lora(model, m, "layers.0.attn", tmp_path)
        assert export.exact and export.rank == (3 if isinstance(m, Dense) else 1)
        assert same(logits(adapted("llama", tmp_path)), hooked(model, "layers.0.attn", m))


def test_a_map_of_full_rank_is_refused_naming_methods_of_low_rank(tmp_path):
    scaled = LowRank(np.zeros((WIDTH, 0)), np.zeros((0, WIDTH)), np.zeros(WIDTH), 2.0)
    for m in (dense_map(WIDTH), scaled):
        with pytest.raises(FoldError, match="LEACE, MidSteer"):
            lm.to_lora(tiny_model("llama"), m, "layers.0.attn", tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


@pytest.mark.parametrize("site", SITES)
def test_a_truncated_adapter_states_its_error(site, tmp_path):
    model = tiny_model("llama")
    m = dense_map(WIDTH)
    path = "lm_head" if site == "final" else lm.resolve_site(model, site).writer
    W = model.get_submodule(path).weight.detach().double().numpy()
    delta = W @ (m.weight - np.eye(WIDTH)) if site == "final" else (m.weight - np.eye(WIDTH)) @ W
    errors = []
    for rank in (2, 8, WIDTH):
        export = lm.to_lora(model, m, site, tmp_path, rank=rank)
        lora = adapted("llama", tmp_path).base_model.model.get_submodule(path)
        held = (lora.lora_B["default"].weight @ lora.lora_A["default"].weight).detach().double().numpy()
        error = np.linalg.norm(delta - held) / np.linalg.norm(delta)
        # the stated error is that of the factors before they are rounded to float32
        assert export.rank == rank and abs(export.error - error) < 1e-6
        errors.append(export.error)
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-6
    assert same(logits(adapted("llama", tmp_path)), hooked(model, site, m))


def test_a_constant_can_be_left_out_and_is_stated(tmp_path):
    model = tiny_model("llama")
    m = eraser(WIDTH)
    export = lm.to_lora(model, m, "layers.0.attn", tmp_path, constant="omit")
    assert export.constant == "omitted" and not export.exact and export.mergeable
    assert export.constant_norm == pytest.approx(np.linalg.norm(m.bias))
    without = LowRank(m.left, m.right, np.zeros(WIDTH))
    assert same(logits(adapted("llama", tmp_path)), hooked(model, "layers.0.attn", without))
    assert lm.to_lora(model, without, "layers.0.attn", tmp_path).constant == "none"


def test_writing_an_adapter_leaves_the_model_alone(tmp_path):
    model = tiny_model("gpt2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    lm.to_lora(model, eraser(WIDTH), "layers.0.attn", tmp_path)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_adapters_refuse_what_they_cannot_hold(tmp_path):
    model = tiny_model("llama")
    gated = MeanMatching(source=1, target=0, gate="nearest-mean").fit(*labelled_rows())
    with pytest.raises(FoldError, match="not affine"):
        lm.to_lora(model, gated, "layers.0.attn", tmp_path)
    with pytest.raises(FoldError, match=r"'layers\.0\.attn'"):
        lm.to_lora(model, eraser(WIDTH), "layers.0", tmp_path)
    with pytest.raises(FoldError, match="PEFT adapters cannot change"):
        lm.to_lora(tiny_model("bert"), translation(WIDTH), "layers.0", tmp_path)
    with pytest.raises(ShapeError, match="has 5 features"):
        lm.to_lora(model, translation(5), "final", tmp_path)
    with pytest.raises(ParameterError, match="positive whole number"):
        lm.to_lora(model, dense_map(WIDTH), "final", tmp_path, rank=0)
    with pytest.raises(ParameterError, match="'carry', 'merge' or 'omit'"):
        lm.to_lora(model, eraser(WIDTH), "final", tmp_path, constant="drop")


def test_a_model_with_adapters_is_to_be_merged_first(tmp_path):
    lm.to_lora(tiny_model("gpt2"), eraser(WIDTH), "layers.0.attn", tmp_path)
    model = adapted("gpt2", tmp_path)
    for act in (lm.fold, lambda *args: lm.to_lora(*args, tmp_path)):
        with pytest.raises(FoldError, match="merge_and_unload"):
            act(model, eraser(WIDTH), "final")
    merged = model.merge_and_unload()
    assert same(logits(lm.fold(merged, eraser(WIDTH), "final")), hooked(merged, "final", eraser(WIDTH)))


@pytest.mark.parametrize("strength", [1.0, 0.25])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2", "mixtral"])
def test_the_control_vector_reads_back(family, strength, tmp_path):
    shift = translation(WIDTH)
    path = lm.to_gguf(tiny_model(family), shift, "layers.1", tmp_path / "v.gguf", strength=strength)
    reader = gguf.GGUFReader(path)
    read = {name: reader.fields[name].contents() for name in reader.fields if not name.startswith("GGUF")}
    assert read == {
        "general.architecture": "controlvector",
        "controlvector.model_hint": family,
        "controlvector.layer_count": 1,
    }
    (tensor,) = reader.tensors
    assert tensor.name == "direction.1" and tensor.tensor_type == gguf.GGMLQuantizationType.F32
    np.testing.assert_array_equal(np.array(tensor.data), (strength * shift.shift).astype(np.float32))


def test_the_direction_added_after_its_block_is_the_hook(tmp_path):
    model = tiny_model("llama")
    fitted = MeanMatching(source=1, target=0, gate="always").fit(*labelled_rows())
    (tensor,) = gguf.GGUFReader(lm.to_gguf(model, fitted, "layers.1", tmp_path / "v.gguf")).tensors
    # what llama.cpp does: after block N, counted from 0, add direction.N
    block = model.model.layers[int(tensor.name.removeprefix("direction."))]
    direction = torch.from_numpy(np.array(tensor.data))
    handle = block.register_forward_hook(lambda module, args, out: out + direction)
    added = logits(model)
    handle.remove()
    assert same(added, hooked(model, "layers.1", fitted))


def test_control_vectors_refuse_what_they_cannot_hold(tmp_path):
    model, path = tiny_model("llama"), tmp_path / "v.gguf"
    for m in (eraser(WIDTH), dense_map(WIDTH), Diagonal(np.full(WIDTH, 2.0), np.zeros(WIDTH)), Identity(WIDTH)):
        with pytest.raises(FoldError, match="can only add a vector"):
            lm.to_gguf(model, m, "layers.1", path)
    for site in ("layers.0", "final", "layers.1.attn", f"layers.{LAYERS}", "embeddings"):
        with pytest.raises(FoldError, match=r"so .* cannot be exported"):
            lm.to_gguf(model, translation(WIDTH), site, path)
    with pytest.raises(FoldError, match="not affine"):
        lm.to_gguf(model, MeanMatching(source=1, target=0, gate="nearest-mean").fit(*labelled_rows()), "layers.1", path)
    with pytest.raises(ShapeError, match="has 5 features"):
        lm.to_gguf(model, translation(5), "layers.1", path)
    with pytest.raises(FoldError, match="encoders"):
        lm.to_gguf(tiny_model("bert"), translation(WIDTH), "layers.1", path)
    with pytest.raises(SiteError):
        lm.to_gguf(torch.nn.Linear(2, 2), translation(WIDTH), "layers.1", path)
    assert not path.exists()


@pytest.mark.parametrize("write", [lm.to_lora, lm.to_gguf])
def test_a_failed_export_leaves_nothing_behind(write, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(peft.LoraConfig, "save_pretrained", full)
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    with pytest.raises(OSError, match="No space"):
        write(tiny_model("llama"), translation(WIDTH), "layers.1", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:strength 1e")
@pytest.mark.parametrize("write", [lm.to_lora, lm.to_gguf])
def test_a_strength_beyond_float32_is_refused(write, tmp_path):
    with pytest.raises(FoldError, match="at a lower strength"):
        write(tiny_model("llama"), translation(WIDTH), "layers.1", tmp_path / "out", strength=1e39)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["peft", "gguf"])
def test_a_missing_package_names_its_extra(package, tmp_path, monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == package:
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    write = lm.to_lora if package == "peft" else lm.to_gguf
    with pytest.raises(MissingExtraError, match=r"repsurgery\[export\]"):
        write(tiny_model("llama"), Translation(np.ones(WIDTH)), "layers.1", tmp_path / "out")
