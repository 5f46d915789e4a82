"""``--scale`` on the command line, and exports that belong to their model and keep its path to themselves."""

import json

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.price import Price
from tests.certificates.test_outcome import outcome
from tests.lm.folding import dense_map, logits, same, translation
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

SITE = "layers.1"


@pytest.fixture
def save(tmp_path):
    """Return a function that saves a steering with its site."""

    def save(m=None, *, outcome=None, price=None, site=SITE, **origin):
        file = tmp_path / "kinder.safetensors"
        function = rs.SteeringFunction({None: translation(WIDTH) if m is None else m})
        rs.save(function.with_origin(site=site, **origin).with_outcome(outcome).with_price(price), file)
        return file

    return save


def generated(run, file, model_folder, *words):
    result = run("generate", file, "--model", model_folder, "--prompt", "w1 w2", "-n", 3, "--json", *words)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    return [text["steered"] for text in document["texts"]], document["steerings"][0]["strength"], result.stderr


@pytest.mark.parametrize("scale", [0, -1, 0.5, 2])
@pytest.mark.parametrize(("own", "words"), [(None, ()), (0.4, ()), (0.4, ("--strength", 0.25))])
def test_generate_multiplies_the_strength_in_force(run, save, model_folder, own, words, scale):
    in_force = (own or 1.0) if not words else 0.25
    file = save(strength=own)
    texts, strength, _ = generated(run, file, model_folder, *words, "--scale", scale)
    assert strength == pytest.approx(in_force * scale)
    assert texts == generated(run, file, model_folder, "--strength", in_force * scale)[0]


@pytest.mark.parametrize("verb", ["folder", "lora", "gguf", "fold"])
def test_exports_multiply_the_strength_in_force(run, save, model_folder, tmp_path, verb):
    m = dense_map(WIDTH) if verb == "fold" else translation(WIDTH)
    file = save(m, strength=0.4, site="layers.0.mlp" if verb == "fold" else SITE)
    command = ("fold",) if verb == "fold" else ("export", "--to", verb)
    written = {}
    for name, words in {"scaled": ("--scale", 1.5), "given": ("--strength", 0.6), "half": ("--scale", 0.5)}.items():
        out = tmp_path / name
        words = (file, "--model", model_folder, "--out", out, *words)
        words += ("--custom-code",) if verb in ("fold", "folder") else ()
        result = run(*command, *words)
        assert result.exit_code == 0, result.output
        assert f"strength {0.2 if name == 'half' else 0.6:g}" in result.stdout
        files = [out] if verb == "gguf" else sorted(out.glob("*.safetensors"))
        written[name] = b"".join(one.read_bytes() for one in files)
    if verb == "gguf":
        assert written["scaled"] == written["given"]
    else:
        models = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in written.values()]
        assert torch.equal(models[0], models[1])
    assert written["half"] != written["scaled"]


@pytest.mark.parametrize("words", [("--scale", 2.5), ("--strength", 0.5), ("--strength", 0.2, "--scale", -2)])
def test_one_sentence_says_that_a_strength_is_far_above_the_measured_one(run, save, model_folder, tmp_path, words):
    file = save(strength=0.18, outcome=outcome())
    said = generated(run, file, model_folder, *words)[2]
    exported = run("export", file, "--to", "gguf", "--model", model_folder, "--out", tmp_path / "v.gguf", *words)
    assert exported.exit_code == 0
    for text in (said, exported.stderr):
        assert text.count("Warning:") == 1 and text.count("more than twice 0.18") == 1
    for near in (("--scale", 2), ("--scale", -1), ("--strength", 0.3), ()):
        assert "Warning" not in generated(run, file, model_folder, *near)[2]


@pytest.mark.parametrize("positions", ["all", "generated"])
def test_near_a_strength_that_was_measured_beyond_the_map_nothing_is_said(run, save, model_folder, positions):
    """However the strength is written; a search chose 1.951 for the zoo's ``courteous``."""
    file = save(strength=1.951, outcome=outcome())
    for strength, far in {1.2: 0, 1.9: 0, 1.951: 0, 3.9: 0, 3.91: 1, -0.5: 0}.items():
        for words in (("--strength", strength), ("--scale", strength / 1.951)):
            said = generated(run, file, model_folder, *words, "--positions", positions)[2]
            assert said.count("Warning:") == far == said.count("more than twice 1.95"), (words, said)


def test_a_budget_far_above_the_measured_strength_is_said_too(run, save, model_folder):
    fisher = rs.Fisher(1, 1e-5 * np.eye(WIDTH))
    file = save(strength=0.18, outcome=outcome(), price=Price(fisher, site=SITE))
    assert generated(run, file, model_folder, "--kl-budget", 0.1)[2].count("more than twice 0.18") == 1


@pytest.mark.parametrize("verb", ["generate", "export", "fold"])
@pytest.mark.parametrize("scale", ["nan", "inf", "-inf", "1e400", "true", "strong", "1,5"])
def test_a_scale_that_is_no_number_is_one_line(run, save, model_folder, tmp_path, verb, scale):
    words = {
        "generate": ("--prompt", "w1"),
        "export": ("--to", "gguf", "--out", tmp_path / "out"),
        "fold": ("--out", tmp_path / "out"),
    }[verb]
    result = run(verb, save(), "--model", model_folder, *words, f"--scale={scale}")
    assert result.exit_code in (1, 2) and scale.split("e")[0][:3] in result.stderr
    assert "scale" in result.stderr and "Traceback" not in result.output and not (tmp_path / "out").exists()


def test_a_scale_and_a_budget_contradict_each_other(run, save, model_folder):
    file = save(price=Price(rs.Fisher(1, np.eye(WIDTH)), site=SITE))
    words = (file, "--model", model_folder, "--prompt", "w1", "--kl-budget", 0.1)
    result = run("generate", *words, "--scale", 2)
    assert result.exit_code == 2 and "--scale 2.0 and --kl-budget 0.1" in result.stderr
    assert run("generate", *words, "--scale", 1).exit_code == 0


@pytest.mark.parametrize("positions", ["last", "prompt"])
def test_positions_without_a_price_and_a_budget_contradict_each_other(run, save, model_folder, positions):
    file = save(price=Price(rs.Fisher(1, np.eye(WIDTH)), site=SITE))
    words = ("generate", file, "--model", model_folder, "--prompt", "w1", "--kl-budget", 0.1)
    result = run(*words, "--positions", positions)
    assert result.exit_code == 2 and "steering every position that predicts a token" in result.stderr
    assert run(*words, "--positions", "all").exit_code == 0


@pytest.mark.parametrize("target", ["folder", "lora", "gguf", "fold"])
@pytest.mark.parametrize("changed", ["weights", "configuration"])
def test_a_file_of_another_model_is_not_exported(run, save, model_folder, tmp_path, target, changed):
    model, _ = lm.load(model_folder)
    file = save(**{k: v for k, v in lm.origin_of(model).known().items() if k != "site"})
    if changed == "weights":
        with torch.no_grad():
            model.model.layers[0].mlp.down_proj.weight[0, 0] += 1
    else:
        model.config.rms_norm_eps *= 2
    other = tmp_path / "other"
    model.save_pretrained(other)
    tiny_tokenizer().save_pretrained(other)
    command = ("fold", "--custom-code") if target == "fold" else ("export", "--to", target)
    command += ("--custom-code",) if target == "folder" else ()
    for folder, allowed in ((other, False), (other, True), (model_folder, False)):
        out = tmp_path / f"out-{folder.name}-{allowed}"
        words = ("--other-model",) if allowed else ()
        result = run(*command, file, "--model", folder, "--out", out, *words)
        assert result.exit_code == int(folder is other and not allowed), result.output
        assert out.exists() == (result.exit_code == 0)
        assert ("Add --other-model" in result.stderr) == (result.exit_code == 1)
        assert ("Warning" in result.stderr) == allowed


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize("target", ["folder", "lora", "gguf"])
def test_no_export_holds_a_local_path(run, save, tmp_path, target):
    home = tmp_path / "a-secret-folder" / "models" / "base"
    tiny_model("llama").save_pretrained(home)
    tiny_tokenizer().save_pretrained(home)
    out = tmp_path / "out"
    words = ("--custom-code",) if target == "folder" else ()
    result = run("export", save(), "--to", target, "--model", home, "--out", out, *words)
    assert result.exit_code == 0, result.output
    files = [out] if target == "gguf" else [one for one in out.rglob("*") if one.is_file()]
    assert files and not any(b"a-secret-folder" in one.read_bytes() for one in files)
    if target == "lora":
        assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "base"
        import peft

        attached = peft.PeftModel.from_pretrained(tiny_model("llama"), out).eval()
        with lm.steer(model := tiny_model("llama"), {SITE: translation(WIDTH)}):
            assert same(logits(attached), logits(model))
