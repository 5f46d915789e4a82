"""A steering acts where, how strongly and at which positions its origin says, unless the caller says otherwise."""

import warnings
from typing import get_args

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import OriginWarning, ParameterError, ShapeError
from repsurgery.lm.load.origin import architecture, model_name, plain_model_name
from repsurgery.lm.load.wheel import EMBEDDED
from repsurgery.lm.steer.placing import compare_weights, placements
from repsurgery.lm.steer.positions import Positions
from repsurgery.origin import POSITIONS
from tests.lm.tiny_models import WIDTH, tiny_model
from tests.lm.tools import prompts, random_map, run

IDS, MASK = prompts()
TEXTS = ["w1 w2 w3", "w4 w5"]


def function(**facts):
    return rs.SteeringFunction({None: random_map()}, origin=rs.Origin(**facts))


def logits(model, sites, **how):
    with lm.steer(model, sites, **how):
        return run(model, IDS, MASK)


def test_the_two_lists_of_positions_are_one():
    assert get_args(Positions) == POSITIONS


def test_a_steering_acts_where_its_origin_says(model):
    known = function(site="layers.0", strength=0.5, positions="last")
    meant = logits(model, {"layers.0": random_map()}, strength=0.5, positions="last")
    assert torch.equal(logits(model, known), meant)
    assert torch.equal(logits(model, {"layers.0": known}), meant)
    # where and how it acts matters
    for other in ({"final": random_map()}, {"layers.0": random_map()}):
        assert not torch.equal(logits(model, other), meant)


def test_an_estimator_acts_where_its_origin_says(model):
    X = np.random.default_rng(0).normal(size=(60, WIDTH))
    est = rs.MeanMatching(source="a", target="b", gate="always").fit(X, np.repeat(["a", "b"], 30))
    told = est.with_origin(lm.origin_of(model, site="layers.1", strength=0.25))
    assert torch.equal(logits(model, told), logits(model, {"layers.1": est}, strength=0.25))


def test_the_caller_replaces_what_the_origin_says(model):
    known = function(site="layers.0", strength=0.5, positions="last")
    for how in ({"strength": 1.0}, {"positions": "all"}, {"strength": 0.0}, {"strength": 0.75, "positions": "prompt"}):
        meant = logits(model, {"layers.0": random_map()}, **{"strength": 0.5, "positions": "last", **how})
        assert torch.equal(logits(model, known, **how), meant)
        assert torch.equal(logits(model, {"layers.0": known}, **how), meant)


def test_each_of_several_sites_keeps_its_own(model):
    known = {"layers.0": function(strength=0.5), "layers.1": function(positions="last"), "final": random_map()}
    found = placements(model, known, strength=None, positions=None)
    assert [(p.site, p.strength, p.positions) for p in found] == [
        ("layers.0", 0.5, "all"),
        ("layers.1", 1.0, "last"),
        ("final", 1.0, "all"),
    ]
    with lm.steer(model, {"layers.0": random_map()}, strength=0.5):
        expected = logits(model, {"layers.1": random_map()}, positions="last")
    assert torch.equal(logits(model, {name: known[name] for name in ("layers.0", "layers.1")}), expected)


@pytest.mark.parametrize("value", [random_map(), function(strength=0.5)])
def test_what_knows_no_site_is_refused_with_the_way_out(model, value):
    with pytest.raises(ParameterError, match=r"names no site.*\{'final': steering\}"), lm.steer(model, value):
        pass


def test_generating_and_scoring_follow_the_origin(model, tokenizer):
    known, how = function(site="layers.0", strength=0.5), {"strength": 0.5, "progress": False}
    meant, quiet = {"layers.0": random_map()}, {"progress": False}
    sampled = {"n": 2, "max_new_tokens": 4}
    assert lm.generate(model, tokenizer, TEXTS, steering=known, **sampled, **quiet) == lm.generate(
        model, tokenizer, TEXTS, steering=meant, **sampled, **how
    )
    assert lm.kl_divergence(model, tokenizer, TEXTS, known, **quiet) == lm.kl_divergence(
        model, tokenizer, TEXTS, meant, **how
    )
    after = ["w7 w8", "w9"]
    assert lm.log_likelihoods(model, tokenizer, TEXTS, after, steering=known, **quiet) == lm.log_likelihoods(
        model, tokenizer, TEXTS, after, steering=meant, **how
    )
    assert lm.generate(model, tokenizer, TEXTS, steering=known, strength=0, **sampled, **quiet) == lm.generate(
        model, tokenizer, TEXTS, **sampled, **quiet
    )


@pytest.mark.parametrize("facts", [{"site": "final"}, {"site": "layers.0"}])
def test_documents_are_read_as_the_origin_says(model, tokenizer, facts):
    known = function(strength=0.5, **facts)
    options = {"max_length": 8, "progress": False}
    found = lm.document_perplexity(model, tokenizer, TEXTS, {"base": None, "known": known}, **options)
    with lm.steer(model, known):
        meant = lm.document_perplexity(model, tokenizer, TEXTS, {"base": None}, **options)
    assert found["known"].log_likelihood == pytest.approx(meant["base"].log_likelihood, rel=1e-6)
    assert found["known"].log_likelihood != pytest.approx(found["base"].log_likelihood, rel=1e-4)


def test_folding_follows_the_origin(model):
    known = function(site="layers.0.mlp", strength=0.5)
    folded = run(lm.fold(model, known), IDS, MASK)
    assert torch.equal(folded, run(lm.fold(model, random_map(), "layers.0.mlp", strength=0.5), IDS, MASK))
    whole = run(lm.fold(model, known, strength=1.0), IDS, MASK)
    assert torch.equal(whole, run(lm.fold(model, random_map(), "layers.0.mlp"), IDS, MASK))
    with pytest.raises(ParameterError, match="names no site"):
        lm.fold(model, function())
    with pytest.warns(OriginWarning, match="every position"):
        lm.fold(model, function(site="layers.0.mlp", positions="generated"))


def test_exports_follow_the_origin(model, tmp_path):
    gguf = pytest.importorskip("gguf", reason="control vectors need gguf")
    pytest.importorskip("peft", reason="adapters need peft")
    shift = rs.Translation(np.arange(WIDTH, dtype=float))
    known = rs.SteeringFunction({None: shift}, origin=rs.Origin(site="layers.1", strength=0.5))
    lm.to_gguf(model, known, None, tmp_path / "v.gguf")
    (tensor,) = gguf.GGUFReader(tmp_path / "v.gguf").tensors
    assert tensor.name == "direction.1"
    assert tensor.data.tolist() == (shift.shift / 2).tolist()
    export = lm.to_lora(model, known.with_origin(site="layers.1.mlp"), None, tmp_path / "lora")
    assert export.site == "layers.1.mlp"
    assert export.constant_norm == pytest.approx(np.linalg.norm(shift.shift) / 2)


def test_another_site_is_a_warning_and_its_other_name_is_none(model):
    known = function(site="layers.0")
    with pytest.warns(OriginWarning, match=r"fitted at 'layers\.0' and is used at 'final'"):
        logits(model, {"final": known})
    # what the caller asked for is done nevertheless
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OriginWarning)
        assert torch.equal(logits(model, {"final": known}), logits(model, {"final": random_map()}))
    logits(model, {"model.layers.0": known})
    with pytest.warns(OriginWarning, match=r"layers\.7"):
        logits(model, {"final": function(site="layers.7")})


def saved(folder):
    tiny_model("llama").save_pretrained(folder)
    return type(tiny_model("llama")).from_pretrained(folder).eval()


def test_another_model_or_configuration_is_a_warning(tmp_path):
    first = saved(tmp_path / "first")
    known = rs.SteeringFunction({None: random_map()}, origin=lm.origin_of(first, site="layers.0"))
    assert known.origin.model == "first"
    assert str(tmp_path) not in str(known.origin)
    logits(first, known)
    renamed = saved(tmp_path / "second")
    with pytest.warns(OriginWarning, match="fitted on 'first'; 'second' is a different model"):
        logits(renamed, known)
    other = saved(tmp_path / "elsewhere" / "first")
    logits(other, known)  # of the same name and configuration: lm.steer looks no further
    other.config.rms_norm_eps = 0.5
    with pytest.warns(OriginWarning, match="another configuration"):
        logits(other, known)
    # neither dtype nor a name that is not there tells models apart
    logits(first.double(), known)
    logits(tiny_model("llama"), known)


def test_another_width_is_an_error_and_not_a_warning(model):
    narrow = rs.SteeringFunction({None: random_map(5)}, origin=rs.Origin(model="other", site="layers.0"))
    for sites in (narrow, {"final": narrow}):
        with pytest.raises(ShapeError, match="5 features"), lm.steer(model, sites):
            pass


def test_weights_are_compared_whatever_their_dtype_and_name(tmp_path):
    first = saved(tmp_path / "first")
    known = rs.SteeringFunction({None: random_map()}, origin=lm.origin_of(first, site="layers.0"))
    moved = saved(tmp_path / "second")
    for model in (first, moved, saved(tmp_path / "third").to(torch.bfloat16), saved(tmp_path / "fourth").double()):
        (sure,) = compare_weights(model, [lm.Placement(known, "layers.0")])
        logits(model, sure)  # and its name is not asked for again
    renormed = saved(tmp_path / "first")
    renormed.config.rms_norm_eps = 0.5
    (sure,) = compare_weights(renormed, [lm.Placement(known, "layers.0")])
    with pytest.warns(OriginWarning, match="another configuration"):
        logits(renormed, sure)
    with torch.no_grad():
        moved.model.layers[1].mlp.down_proj.weight[3, 2] += 1
    with pytest.warns(OriginWarning, match="'first'; 'second' has different weights"):
        (warned,) = compare_weights(moved, [lm.Placement(known, "layers.0")])
    logits(moved, warned)  # once is enough
    # rounding to float16 hides the weights from this comparison; the name still tells
    half = saved(tmp_path / "fifth").half()
    (unsure,) = compare_weights(half, [lm.Placement(known, "layers.0")])
    with pytest.warns(OriginWarning, match="'fifth' is a different model"):
        logits(half, unsure)


def test_names_of_models_are_no_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert plain_model_name(tmp_path / "models" / "mine") == "mine"
    assert plain_model_name("models/mine") == "mine"
    assert plain_model_name("/gone/mine") == "mine"
    assert plain_model_name(".") == tmp_path.name
    assert plain_model_name("openai-community/gpt2") == "openai-community/gpt2"
    for name, model in EMBEDDED.items():
        assert plain_model_name(name) == name
        assert plain_model_name(f"/cache/{name}-{model.digest[:12]}") == name
    assert plain_model_name(f"/site-packages/{EMBEDDED['minilm'].file.rsplit('/', 1)[0]}") == "minilm"


def test_a_model_without_name_or_configuration_has_none(model):
    assert model_name(model) is None
    assert model_name(torch.nn.Linear(2, 2)) is None
    assert architecture(torch.nn.Linear(2, 2)) is None
