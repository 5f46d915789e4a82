"""Commands use a file where it was fitted, and say so where they cannot."""

import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

import repsurgery as rs
from repsurgery import lm
from repsurgery.datasets import hold_out, read_table
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

PROMPTS = [f"w{i} w{i + 20}" for i in range(8)]
SAMPLED = {"n": 1, "seed": 3, "max_new_tokens": 6, "progress": False}


@pytest.fixture
def fit(run, table, model_folder, tmp_path):
    """Return a function that fits a file at a layer by the command line."""

    def fit(*words, out="inner.safetensors", method="mimic", target=("--target", "b")):
        return tmp_path / out, run(
            *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
            *("--method", method, *target, "--site", "layers.0", "--out", tmp_path / out, *words),
        )

    return fit


@pytest.fixture
def inner(fit):
    file, result = fit("--shrinkage", "oas", "--gate", "always", "--source", "a")
    assert result.exit_code == 0, result.output
    return file


def texts(folder, steering, **how):
    model, tokenizer = lm.load(folder)
    return [g.text.strip() for g in lm.generate(model, tokenizer, PROMPTS, steering=steering, **how, **SAMPLED)]


def generate(run, file, folder, *words):
    prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    result = run("generate", file, "--model", folder, *prompts, "--seed", 3, "--max-new-tokens", 6, *words)
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    return [row[2].strip() for row in rows], result


def bare(file):
    return next(iter(rs.load(file).maps.values()))


def test_a_file_steers_where_it_was_fitted(run, inner, model_folder):
    found, result = generate(run, inner, model_folder)
    assert found == texts(model_folder, {"layers.0": bare(inner)})
    assert found != texts(model_folder, {"final": bare(inner)})
    assert "inner: at layers.0, strength 1, positions all" in result.stdout
    assert "Warning" not in result.stderr


def test_the_file_says_on_what_it_was_fitted(inner, table, model_folder):
    origin = rs.load(inner).origin
    model, _ = lm.load(model_folder)
    assert origin == lm.origin_of(
        model,
        site="layers.0",
        pooling="last",
        data=hold_out(read_table(table, text="sentence", label="tone"))[0].digest,
    )
    assert (origin.model, origin.dtype) == (model_folder.name, "float32")
    assert (origin.strength, origin.positions, origin.licence) == (None, None, None)
    assert str(model_folder.parent).encode() not in inner.read_bytes()
    assert rs.load(inner).certificate is not None
    rs.verify(rs.load(inner))


@pytest.mark.parametrize("pooling", ["mean", "all"])
def test_what_is_asked_for_is_noted_and_the_map_stays_at_strength_1(run, fit, model_folder, inner, pooling):
    told = ("--strength", 0.5, "--positions", "generated", "--licence", "CC0", "--pooling", pooling, "--keep-moments")
    same = ("--shrinkage", "oas", "--gate", "always", "--source", "a")
    file, result = fit(*same, *told, out="told.safetensors")
    assert result.exit_code == 0, result.output
    est = rs.load(file)
    origin = est.origin
    assert (origin.strength, origin.positions, origin.licence, origin.pooling) == (0.5, "generated", "CC0", pooling)
    assert est.steering_.origin == origin
    plain, _ = fit(*same, "--pooling", pooling, out="plain.safetensors")
    assert rs.load(plain).digest() == est.steering_.digest()
    found, result = generate(run, file, model_folder)
    sites = {"layers.0": est.map_}
    assert found == texts(model_folder, sites, strength=0.5, positions="generated")
    assert "at layers.0, strength 0.5, positions generated" in result.stdout
    # what the caller says replaces what the file says
    noted = found
    found, result = generate(run, file, model_folder, "--strength", 1, "--positions", "all")
    assert found == texts(model_folder, sites)
    assert found != noted != texts(model_folder, None) != found
    assert "at layers.0, strength 1, positions all" in result.stdout


def test_a_file_without_a_site_is_used_at_final_and_the_command_says_so(run, model_folder, tmp_path):
    rs.save(rs.Translation(np.ones(WIDTH)), tmp_path / "shift")
    found, result = generate(run, tmp_path / "shift", model_folder)
    assert found == texts(model_folder, {"final": rs.Translation(np.ones(WIDTH))})
    assert "at final (the file names no site)" in result.stdout
    assert "names no site" not in generate(run, tmp_path / "shift", model_folder, "--site", "final")[1].stdout


def test_another_site_is_a_line_of_warning(run, inner, model_folder):
    found, result = generate(run, inner, model_folder, "--site", "final")
    assert found == texts(model_folder, {"final": bare(inner)})
    assert result.stderr.count("Warning: This steering was fitted at 'layers.0' and is used at 'final'") == 1


def test_weights_are_compared_not_names(run, inner, model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "renamed")
    assert "Warning" not in generate(run, inner, tmp_path / "renamed")[1].stderr
    model, tokenizer = lm.load(model_folder)
    model.to(torch.bfloat16).save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    assert "Warning" not in generate(run, inner, tmp_path / "half")[1].stderr
    model, _ = lm.load(model_folder)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] += 1
    changed = tmp_path / "changed" / model_folder.name
    model.save_pretrained(changed)
    tokenizer.save_pretrained(changed)
    result = generate(run, inner, changed)[1]
    assert result.stderr.count("Warning:") == 1
    assert "has different weights" in result.stderr


@pytest.mark.parametrize("verb", ["generate", "fold"])
def test_another_width_is_an_error(run, inner, tmp_path, verb):
    config = tiny_model("llama").config
    config.hidden_size, config.head_dim = 2 * WIDTH, WIDTH
    LlamaForCausalLM(config).save_pretrained(tmp_path / "wide")
    tiny_tokenizer().save_pretrained(tmp_path / "wide")
    words = ("--prompt", "w1") if verb == "generate" else ("--site", "layers.0.mlp", "--out", tmp_path / "folded")
    result = run(verb, inner, "--model", tmp_path / "wide", *words)
    assert result.exit_code == 1
    assert f"{WIDTH} features" in result.stderr


def test_fold_takes_site_and_strength_from_the_file(run, model_folder, tmp_path):
    rng = np.random.default_rng(0)
    m = rs.Dense(np.eye(WIDTH) + 0.1 * rng.normal(size=(WIDTH, WIDTH)), np.zeros(WIDTH))
    rs.save(rs.SteeringFunction({None: m}, origin=rs.Origin(site="layers.0.mlp", strength=0.5)), tmp_path / "m")
    model, _ = lm.load(model_folder)
    ids = torch.tensor([[1, 5, 6, 7]])
    for words, strength in (((), 0.5), (("--strength", 0.25), 0.25), (("--every-vector",), 0.5)):
        out = tmp_path / f"folded{len(words)}{strength}"
        result = run("fold", tmp_path / "m", "--model", model_folder, "--out", out, *words)
        assert result.exit_code == 0, result.output
        assert f"Exported at layers.0.mlp, strength {strength}" in result.stdout
        folded, _ = lm.load(out)
        with torch.no_grad(), lm.steer(model, {"layers.0.mlp": m}, strength=strength):
            torch.testing.assert_close(folded(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-4)


def test_inspect_shows_the_origin(run, as_json, inner, model_folder, tmp_path):
    assert as_json(inner)["origin"] == rs.load(inner).origin.to_dict()
    shown = run("inspect", inner).stdout
    for words in (("origin.site", "layers.0"), ("origin.model", model_folder.name), ("origin.strength", "unknown")):
        assert any(all(word in line for word in words) for line in shown.splitlines())


@pytest.mark.parametrize("method", ["mean", "mimic", "trace", "diagonal", "midsteer"])
def test_steering_needs_a_target_and_the_error_lists_the_labels(run, table, tmp_path, method):
    # there is no such model: the labels are asked about before it is loaded
    words = ("--text-column", "sentence", "--label-column", "tone", "--model", "no/such/model")
    result = run("fit", table, *words, "--method", method, "--out", tmp_path / "f")
    assert result.exit_code == 1
    assert "a (30), b (30)" in result.stderr
    assert "--target" in result.stderr
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("method", ["leace", "barycenter"])
def test_erasing_needs_no_target(fit, method):
    file, result = fit("--shrinkage", "oas", method=method, target=())
    assert result.exit_code == 0, result.output
    assert rs.load(file).origin.site == "layers.0"


def test_moments_are_told_where_they_were_taken(run, model_folder, tmp_path):
    rng = np.random.default_rng(0)
    moments = rs.ClassMoments.of(rng.normal(size=(60, WIDTH)), np.repeat(["a", "b"], 30))
    moments.save(tmp_path / "m")
    words = ("fit", "--moments", tmp_path / "m", "--out", tmp_path / "f")
    refused = run(*words)
    assert refused.exit_code == 1
    assert "a (30), b (30)" in refused.stderr
    assert run(*words, "--target", "b").exit_code == 0
    origin = rs.load(tmp_path / "f").origin
    assert origin == rs.Origin(data=origin.data)
    assert origin.data is not None
    told = run(*words, "--target", "b", "--site", "layers.1", "--model", model_folder, "--pooling", "all")
    assert told.exit_code == 0, told.output
    assert f"site layers.1 of {model_folder.name}" in told.stdout
    assert rs.load(tmp_path / "f").origin == rs.Origin(
        model=model_folder.name, site="layers.1", pooling="all", data=origin.data
    )
