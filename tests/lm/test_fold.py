"""Folding a map into the weights equals hooking it, and what is saved reloads the same or is refused."""

import copy
import os

import numpy as np
import pytest
import torch
import transformers

from repsurgery import LEACE, Dense, Diagonal, Identity, LowRank, MeanMatching, MiMiC, Translation, lm
from repsurgery.errors import DataError, FoldError, ParameterError, ShapeError, SiteError
from repsurgery.lm.fold.bias_placement import preimage
from repsurgery.lm.fold.fold import NotPortable
from tests.lm.folding import (
    CASES,
    MIXTURES,
    SITES,
    dense_map,
    eraser,
    hooked,
    identical,
    labelled_rows,
    logits,
    reloaded,
    same,
    tolerance,
    translation,
    width,
)
from tests.lm.tiny_models import DECODERS, FAMILIES, VOCABULARY, WIDTH, tiny_model

LAYER_NORMS = ("gpt2", "gpt_neox", "opt", "opt_350m", "falcon")
MAPS = {"dense": dense_map, "eraser": eraser, "translation": translation}


@pytest.fixture(autouse=True, scope="module")
def _quiet_and_thrifty():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize(("family", "site"), CASES)
def test_folding_equals_hooking(family, site, kind):
    model = tiny_model(family)
    m = MAPS[kind](width(model, site))
    steered = hooked(model, site, m)
    assert same(logits(lm.fold(model, m, site)), steered)
    assert not same(logits(model), steered)


# torch's grouped matrix product, with which mixtures of experts run, knows no float64
@pytest.mark.parametrize(("family", "site"), [case for case in CASES if case[0] not in MIXTURES])
def test_in_float64_folding_equals_hooking_to_float64(family, site):
    model = tiny_model(family, dtype=torch.float64)
    m = eraser(width(model, site))
    assert same(logits(lm.fold(model, m, site)), hooked(model, site, m))


@pytest.mark.parametrize("kind", ["eraser", "translation"])
@pytest.mark.parametrize(("family", "site"), CASES)
def test_a_saved_fold_reloads_the_same_or_is_refused(family, site, kind, tmp_path):
    model = tiny_model(family)
    folded = lm.fold(model, MAPS[kind](width(model, site)), site)
    try:
        again = reloaded(folded, tmp_path / "model")
    except FoldError as error:
        assert "drop it without an error" in str(error)
        assert not (tmp_path / "model").exists()
        return
    assert identical(again, folded)


@pytest.mark.parametrize("family", DECODERS)
def test_without_a_constant_every_fold_reloads_the_same(family, tmp_path):
    model = tiny_model(family)
    m = dense_map(width(model, "final"))
    folded = lm.fold(model, Dense(m.matrix, np.zeros(m.dim)), "final")
    assert identical(reloaded(folded, tmp_path), folded)


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("family", (*LAYER_NORMS, "phi", "bert", "roberta"))
def test_layer_norm_families_carry_the_constant_at_final_to_disk(family, kind, tmp_path):
    model = tiny_model(family)
    folded = lm.fold(model, MAPS[kind](width(model, "final")), "final")
    # nothing was added to the architecture: the constant lies in parameters that were there
    assert folded.state_dict().keys() == model.state_dict().keys()
    assert identical(reloaded(folded, tmp_path), folded)


@pytest.mark.parametrize("dead", [0.0, 1e-3])
def test_an_eraser_is_carried_by_the_norm_whatever_its_gains(dead):
    model = tiny_model("gpt2")
    with torch.no_grad():
        model.transformer.ln_f.weight[3] = dead
    m = eraser(WIDTH)
    assert same(logits(lm.fold(model, m, "final")), hooked(model, "final", m))


def test_the_norm_takes_thepreimage_of_the_constant_where_there_is_one():
    model = tiny_model("gpt2")
    m = dense_map(WIDTH)
    folded = lm.fold(model, m, "final")
    expected = model.transformer.ln_f.bias.double() + torch.from_numpy(np.linalg.solve(m.weight, m.bias))
    torch.testing.assert_close(folded.transformer.ln_f.bias, expected.float())


@pytest.mark.parametrize(
    ("family", "site", "flag"),
    [
        ("llama", "layers.0.attn", "attention_bias"),
        ("llama", "layers.1.mlp", "mlp_bias"),
        ("llama", "layers.0", "mlp_bias"),
        ("qwen3", "layers.0.attn", "attention_bias"),
        ("gemma2", "layers.0.attn", "attention_bias"),
        ("gemma3", "layers.0.attn", "attention_bias"),
        ("falcon", "layers.1.mlp", "bias"),
    ],
)
def test_a_flag_of_the_configuration_makes_room_for_the_constant(family, site, flag, tmp_path):
    model = tiny_model(family)
    folded = lm.fold(model, translation(WIDTH), site)
    assert getattr(folded.config, flag) and not getattr(model.config, flag)
    assert identical(reloaded(folded, tmp_path), folded)
    assert same(logits(folded), hooked(model, site, translation(WIDTH)))


def test_opt_without_biases_gets_them_by_its_own_flag(tmp_path):
    model = tiny_model("opt", enable_bias=False)
    folded = lm.fold(model, translation(WIDTH), "layers.0.attn")
    assert folded.config.enable_bias
    assert identical(reloaded(folded, tmp_path), folded)


def other_model(config, kind, **options):
    shared = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    special = {"vocab_size": VOCABULARY, "initializer_range": 0.3, "pad_token_id": 0, "num_key_value_heads": 1}
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(**{**shared, **special, **options})).eval()


VARIANTS = {
    "serial falcon": lambda: tiny_model("falcon", parallel_attn=False),
    "new falcon": lambda: tiny_model("falcon", new_decoder_architecture=True, num_kv_heads=1),
    "falcon with biases": lambda: tiny_model("falcon", bias=True),
    "serial gpt_neox": lambda: tiny_model("gpt_neox", use_parallel_residual=False),
    "gpt_neox without attention bias": lambda: tiny_model("gpt_neox", attention_bias=False),
    "opt with norm and projection": lambda: tiny_model("opt", word_embed_proj_dim=8),
    "post-norm opt": lambda: tiny_model("opt", do_layer_norm_before=False),
    "opt with bare norms": lambda: tiny_model("opt", layer_norm_elementwise_affine=False),
    "untied gpt2": lambda: tiny_model("gpt2", tie_word_embeddings=False),
    "tied llama": lambda: tiny_model("llama", tie_word_embeddings=True),
    "phi3": lambda: other_model("Phi3Config", "Phi3ForCausalLM"),
    "gemma": lambda: other_model("GemmaConfig", "GemmaForCausalLM", head_dim=8),
}


@pytest.mark.parametrize("site", ["final", "layers.0.attn", "layers.1.mlp", "layers.0"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_of_a_family_fold_and_reload_too(variant, site, tmp_path):
    model = VARIANTS[variant]()
    d = width(model, site)
    m = translation(d) if site == "layers.0" else eraser(d)
    folded = lm.fold(model, m, site)
    assert same(logits(folded), hooked(model, site, m))
    try:
        assert identical(reloaded(folded, tmp_path), folded)
    except FoldError:
        assert variant in ("phi3", "gemma", "tied llama", "opt with bare norms")


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in (*MIXTURES, "gemma2", "gemma3")])
def test_a_translation_of_the_residual_stream_folds(family):
    model = tiny_model(family)
    steered = hooked(model, "layers.0", translation(WIDTH))
    assert same(logits(lm.fold(model, translation(WIDTH), "layers.0")), steered)
    assert not same(logits(model), steered)


@pytest.mark.parametrize("family", ["bert", "roberta", "opt_350m"])
def test_a_block_that_ends_in_a_norm_holds_diagonal_maps(family, tmp_path):
    model = tiny_model(family)
    m = Diagonal(np.linspace(0.5, 2, WIDTH), np.linspace(-1, 1, WIDTH))
    folded = lm.fold(model, m, "layers.0")
    assert same(logits(folded), hooked(model, "layers.0", m))
    assert identical(reloaded(folded, tmp_path), folded)


def test_an_encoder_without_head_holds_translations_at_final():
    model = tiny_model("bert").bert
    m = translation(WIDTH)
    ids = torch.tensor([[5, 6, 7]])
    with lm.steer(model, {"final": m}):
        steered = model(ids).last_hidden_state
    folded = lm.fold(model, m, "final")
    assert same(folded(ids).last_hidden_state.detach(), steered.detach())
    with pytest.raises(FoldError, match=r"layers\.1\.mlp"):
        lm.fold(model, eraser(WIDTH), "final")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_model_keeps_every_bit(family):
    model = tiny_model(family)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    config = copy.deepcopy(model.config.to_dict())
    folded = lm.fold(model, eraser(width(model, "final")), "final")
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert model.config.to_dict() == config
    mine = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert not mine & {p.untyped_storage().data_ptr() for p in folded.parameters()}
    assert "save_pretrained" not in vars(model)
    assert type(folded) is type(model) and folded.config is not model.config


@pytest.mark.parametrize("family", ["gpt2", "gemma2", "opt"])
def test_a_tied_output_layer_is_untied(family):
    model = tiny_model(family)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    folded = lm.fold(model, dense_map(WIDTH), "final")
    assert folded.config.tie_word_embeddings is False and model.config.tie_word_embeddings
    assert torch.equal(folded.get_input_embeddings().weight, model.get_input_embeddings().weight)
    folded.tie_weights()
    assert same(logits(folded), hooked(model, "final", dense_map(WIDTH)))


def test_generation_by_the_folded_model_is_that_of_the_steered_one():
    model = tiny_model("llama")
    m = dense_map(WIDTH)
    ids = torch.tensor([[5, 6, 7]])
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    with lm.steer(model, {"final": m}):
        steered = model.generate(ids, **options)
    assert torch.equal(lm.fold(model, m, "final").generate(ids, **options), steered)


@pytest.mark.parametrize("structure", [Identity(WIDTH), Diagonal(np.linspace(0.5, 2, WIDTH), np.ones(WIDTH))])
@pytest.mark.parametrize("site", SITES)
def test_maps_of_every_structure_fold(site, structure):
    model = tiny_model("gpt2")
    assert same(logits(lm.fold(model, structure, site)), hooked(model, site, structure))


def test_strength_is_that_of_the_hook():
    model = tiny_model("llama")
    m = eraser(WIDTH)
    assert same(
        logits(lm.fold(model, m, "layers.0.attn", strength=0.5)), hooked(model, "layers.0.attn", m, strength=0.5)
    )


@pytest.mark.parametrize("estimator", [LEACE(), MeanMatching(source=1, target=0, gate="always")])
def test_estimators_that_steer_every_vector_fold(estimator):
    model = tiny_model("gpt2")
    fitted = estimator.fit(*labelled_rows())
    steered = hooked(model, "final", fitted)
    assert same(logits(lm.fold(model, fitted, "final")), steered)
    assert same(logits(lm.fold(model, fitted.steering_, "final")), steered)


def test_a_gated_function_is_refused_and_its_map_is_not():
    model = tiny_model("gpt2")
    gated = MiMiC(source=1, target=0, gate="nearest-mean").fit(*labelled_rows())
    with pytest.raises(FoldError, match="not affine"):
        lm.fold(model, gated, "final")
    assert same(logits(lm.fold(model, gated.map_, "final")), hooked(model, "final", gated.map_))


def test_an_explicit_path_of_a_linear_layer_folds(tmp_path):
    model = tiny_model("qwen2")
    path = "model.layers.0.self_attn.q_proj"
    m = eraser(width(model, path))
    folded = lm.fold(model, m, path)
    assert same(logits(folded), hooked(model, path, m))
    assert identical(reloaded(folded, tmp_path), folded)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_classification_head_is_a_reader_too(family):
    base = tiny_model(family)
    torch.manual_seed(1)
    kind = "GPT2ForSequenceClassification" if family == "gpt2" else "LlamaForSequenceClassification"
    model = getattr(transformers, kind)(base.config).eval()
    m = dense_map(WIDTH)
    assert same(logits(lm.fold(model, m, "final")), hooked(model, "final", m))


def test_two_heads_cannot_both_be_folded():
    model = transformers.GPT2DoubleHeadsModel(tiny_model("gpt2").config).eval()
    with pytest.raises(FoldError, match=r"layers\.1\.mlp"):
        lm.fold(model, dense_map(WIDTH), "final")


@pytest.mark.parametrize("family", FAMILIES)
def test_foldable_sites_are_those_where_fold_takes_any_map(family):
    model = tiny_model(family)
    listed = lm.foldable_sites(model)
    for site in lm.site_names(model):
        m = eraser(lm.resolve_site(model, site).width)
        if site in listed:
            lm.fold(model, m, site)
            continue
        with pytest.raises(FoldError) as refusal:
            lm.fold(model, m, site)
        assert any(repr(other) in str(refusal.value) for other in listed)


def test_a_refusal_names_the_nearest_sites():
    with pytest.raises(FoldError, match=r"'layers\.0\.attn', 'layers\.0\.mlp', 'layers\.1\.attn'"):
        lm.fold(tiny_model("llama"), eraser(WIDTH), "layers.0")
    with pytest.raises(FoldError, match=r"'layers\.0\.attn'"):
        lm.fold(tiny_model("llama"), translation(WIDTH), "embeddings")


def test_a_refusal_to_save_names_portable_sites_and_writes_nothing(tmp_path):
    folded = lm.fold(tiny_model("llama"), translation(WIDTH), "final")
    with pytest.raises(FoldError, match=r"on disk are 'layers\.0\.attn'.*custom_code=True") as refusal:
        folded.save_pretrained(tmp_path / "model")
    assert "'final'." not in str(refusal.value)
    with pytest.raises(FoldError):
        copy.deepcopy(folded).save_pretrained(tmp_path / "model")
    with pytest.raises(FoldError, match="No named site of this model can hold it on disk"):
        lm.save_folded(lm.fold(tiny_model("mistral"), translation(WIDTH), "layers.0.attn"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_transformers_would_do_without_the_guard(tmp_path):
    folded = lm.fold(tiny_model("llama"), translation(WIDTH), "final")
    del folded.save_pretrained
    assert not same(logits(reloaded(folded, tmp_path)), logits(folded))


@pytest.mark.parametrize(
    ("family", "site"),
    [
        ("llama", "final"),
        ("mistral", "layers.1.mlp"),
        ("gemma2", "final"),
        ("gemma3", "layers.0.mlp"),
        ("mixtral", "final"),
        ("qwen2_moe", "layers.1.attn"),
    ],
)
def test_custom_code_reloads_the_same_and_never_silently_otherwise(family, site, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    model = tiny_model(family)
    m = eraser(WIDTH)
    folded = lm.fold(model, m, site)
    folder = lm.save_folded(folded, tmp_path / "model", custom_code=True)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    assert same(logits(again), logits(folded)) and same(logits(again), hooked(model, site, m))
    with pytest.raises(ValueError, match="trust_remote_code"):
        transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    with pytest.raises(RuntimeError, match=r"size|shape"):
        type(model).from_pretrained(folder)


def test_a_portable_model_is_saved_without_code_even_when_code_is_allowed(tmp_path):
    folded = lm.fold(tiny_model("gpt2"), eraser(WIDTH), "final")
    folder = lm.save_folded(folded, tmp_path / "model", custom_code=True)
    assert not list(folder.glob("*.py"))
    assert identical(type(folded).from_pretrained(folder).eval(), folded)


def test_folds_at_several_sites_compose(tmp_path):
    model = tiny_model("llama")
    a, b = eraser(WIDTH, seed=1), dense_map(WIDTH)
    folded = lm.fold(lm.fold(model, a, "layers.0.attn"), b, "layers.1.mlp")
    with lm.steer(model, {"layers.0.attn": a, "layers.1.mlp": b}):
        steered = logits(model)
    assert same(logits(folded), steered)
    assert folded.config.repsurgery_folded == ["layers.0.attn", "layers.1.mlp"]
    assert identical(reloaded(folded, tmp_path), folded)


def test_a_later_portable_fold_does_not_lift_the_guard(tmp_path):
    first = lm.fold(tiny_model("llama"), translation(WIDTH), "final")
    second = lm.fold(first, translation(WIDTH), "layers.0.attn")
    assert isinstance(vars(second)["save_pretrained"], NotPortable)
    with pytest.raises(FoldError, match="lm_head"):
        second.save_pretrained(tmp_path)


def test_a_second_map_at_final_is_to_be_composed_instead(tmp_path):
    model = tiny_model("gpt2")
    first, second = eraser(WIDTH), translation(WIDTH)
    once = lm.fold(model, first, "final")
    for folded in (once, reloaded(once, tmp_path)):
        with pytest.raises(FoldError, match="second @ first"):
            lm.fold(folded, second, "final")
    with lm.steer(model, {"final": first}), lm.steer(model, {"final": second}):
        steered = logits(model)
    assert same(logits(lm.fold(model, second @ first, "final")), steered)


def test_bfloat16_models_fold_to_their_own_rounding():
    model = tiny_model("gpt2", dtype=torch.bfloat16)
    m = eraser(WIDTH)
    folded = lm.fold(model, m, "final")
    assert {p.dtype for p in folded.parameters()} == {torch.bfloat16}
    # logits are rounded a handful of times on the way: no random walk over sums, which float32 accumulates
    exact = hooked(tiny_model("gpt2"), "final", m)
    error = float((logits(folded).float() - exact).abs().max())
    assert error <= 16 * 2.0**-9 * float(exact.abs().max())


def test_bad_input_is_refused():
    model = tiny_model("llama")
    with pytest.raises(ShapeError, match="has 5 features; LlamaForCausalLM has 16"):
        lm.fold(model, translation(5), "final")
    with pytest.raises(SiteError, match=r"layers\.1"):
        lm.fold(model, translation(WIDTH), "layers.9.attn")
    with pytest.raises(ParameterError, match="fold got a str"):
        lm.fold(model, "a map", "final")
    with pytest.raises(DataError, match="NaN"):
        Translation(np.full(WIDTH, np.nan))
    with pytest.raises(DataError, match="NaN"):
        LowRank(np.full((WIDTH, 1), np.inf), np.ones((1, WIDTH)), np.zeros(WIDTH))
    with lm.steer(model, {"final": translation(WIDTH)}), pytest.raises(FoldError, match="Leave the"):
        logits(model)
        lm.fold(model, translation(WIDTH), "final")


def test_weights_beyond_the_models_dtype_are_refused():
    model = tiny_model("llama", dtype=torch.float16)
    with pytest.raises(FoldError, match="wider dtype"):
        lm.fold(model, Diagonal(np.full(WIDTH, 1e7), np.zeros(WIDTH)), "final")


def test_a_wrapped_or_absent_weight_is_refused():
    model = tiny_model("llama")
    model.lm_head = torch.nn.Sequential(model.lm_head)
    with pytest.raises(FoldError, match="layers"):
        lm.fold(model, translation(WIDTH), "final")
    model.model.layers[0].self_attn.o_proj.to("meta")
    with pytest.raises(FoldError, match="is wrapped or not in memory"):
        lm.fold(model, translation(WIDTH), "layers.0.attn")


def test_a_model_of_unknown_family_folds_at_linear_layers(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    options = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.StableLmConfig(vocab_size=64, num_key_value_heads=2, initializer_range=0.3, **options)
    torch.manual_seed(0)
    model = transformers.StableLmForCausalLM(config).eval()
    path = "model.layers.0.self_attn.o_proj"
    folded = lm.fold(model, eraser(WIDTH), path)
    assert same(logits(folded), hooked(model, path, eraser(WIDTH)))
    with pytest.raises(FoldError, match="unknown family"):
        folded.save_pretrained(tmp_path / "model")
    folder = lm.save_folded(folded, tmp_path / "model", custom_code=True)
    again = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    assert same(logits(again), logits(folded))
    with pytest.raises(FoldError, match="name a linear layer by its path"):
        lm.fold(model, eraser(WIDTH), "model.layers.0")


def test_a_bare_torch_model_folds_too():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, WIDTH, bias=False), torch.nn.Tanh())
    X = torch.randn(3, 4)
    with lm.steer(model, {"0": eraser(WIDTH)}), torch.no_grad():
        steered = model(X)
    with torch.no_grad():
        assert same(lm.fold(model, eraser(WIDTH), "0")(X), steered)


def test_the_tolerance_tells_a_wrong_constant_apart():
    model = tiny_model("llama")
    steered = hooked(model, "final", translation(WIDTH))
    off = hooked(model, "final", Translation(translation(WIDTH).shift * 1.001))
    assert float((off - steered).abs().max()) > 3 * tolerance(steered)


@pytest.mark.parametrize("custom", [False, True])
def test_a_folded_model_has_the_permissions_of_any_new_file(custom, tmp_path):
    model = tiny_model("llama")
    m = translation(WIDTH) if custom else Dense(dense_map(WIDTH).matrix, np.zeros(WIDTH))
    before = os.umask(0o022)
    try:
        folder = lm.save_folded(lm.fold(model, m, "final"), tmp_path / "model", custom_code=custom)
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {
        path.name: "0o644" for path in folder.iterdir()
    }
    assert (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("condition", "taken"), [(10.0, True), (90.0, True), (1e3, False), (1e6, False), (1e11, False)]
)
def test_thepreimage_of_a_constant_is_taken_only_where_it_is_well_conditioned(condition, taken):
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(8, 8)))[0] for _ in range(2))
    W, b = U @ np.diag(np.geomspace(1, 1 / condition, 8)) @ V, rng.normal(size=8)
    found = preimage(Dense(W, b))
    assert (found is not None) == taken
    if found is not None:
        np.testing.assert_allclose(W @ found.numpy(), b, rtol=1e-9)
