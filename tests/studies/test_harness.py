import functools
import json
import subprocess
import sys

import lm_eval.evaluator
import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.tasks._yaml_loader import load_yaml
from typer.testing import CliRunner

import repsurgery as rs
from repsurgery import lm
from repsurgery.cli.app import app
from repsurgery.datasets import load_wikitext2
from repsurgery.errors import (
    DataError,
    ModelError,
    OriginWarning,
    ParameterError,
    PassError,
    ShapeError,
    SiteError,
)
from repsurgery.studies import harness
from repsurgery.studies.harness import command
from repsurgery.studies.harness.tasks import LOCAL_TASKS
from tests.lm.tiny_models import CONTEXT, tiny_model, tiny_tokenizer
from tests.lm.tools import gated, random_map, split_gate

PAGES = 3
LENGTH = 11
AGREEMENT = 1e-6
METRICS = ("word_perplexity", "byte_perplexity", "bits_per_byte")
STEERINGS = {
    "base": None,
    "all": ("final", random_map()),
    "gated": ("final", "gate"),
    "inner": ("layers.0", random_map(seed=1)),
    "inner gated": ("layers.1", "gate"),
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder that holds a tiny model and three pages in WikiText's form."""
    folder = tmp_path_factory.mktemp("harness")
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    lines = []
    for page in range(PAGES):
        words = [f"w{(5 * i + page * i * i) % 40}" for i in range(4 + 20 * page)]
        lines += [f" = w{page} é = ", " ", f" {' '.join(words)} , w1 @-@ w2 . ", " = = w7 = = "]
    (folder / "wiki.test.raw").write_text("\n".join(lines), encoding="utf-8")
    return folder


def steering_at(site, m):
    if not isinstance(m, str):
        return m
    model, tokenizer = tiny_model("llama"), tiny_tokenizer()
    ids = torch.tensor([tokenizer.encode(" ".join(f"w{i}" for i in range(40)))])
    return gated(random_map(seed=2), split_gate(model, site, ids, torch.ones_like(ids)))


def file_arguments(folder, name):
    if STEERINGS[name] is None:
        return {"pretrained": str(folder)}
    site, m = STEERINGS[name]
    file = folder / f"{name}.safetensors"
    rs.save(steering_at(site, m), file)
    return {"pretrained": str(folder), "steering": str(file), "site": site}


def tasks(folder, **metadata):
    return harness.TaskManager(include_defaults=False, metadata={"data_dir": str(folder), **metadata})


def evaluate(folder, *, manager=None, task="wikitext2_local", **arguments):
    """Return the harness's three figures."""
    loaded = (manager or tasks(folder)).load([task])
    found = lm_eval.evaluate(harness.SteeredLM(**arguments), loaded, bootstrap_iters=0)
    (results,) = found["results"].values()
    return tuple(results[f"{metric},none"] for metric in METRICS)


def native(folder, steerings, **options):
    documents = load_wikitext2(folder)
    found = lm.document_perplexity(
        *lm.load(folder),
        documents.detokenised,
        steerings,
        words=documents.words,
        bytes=documents.bytes,
        progress=False,
        **options,
    )
    return {name: tuple(getattr(record, metric) for metric in METRICS) for name, record in found.items()}


def test_native_and_harness_agree(folder):
    chosen = {name: what and {what[0]: steering_at(*what)} for name, what in STEERINGS.items()}
    ours = native(folder, chosen, max_length=LENGTH, batch_size=2)
    for name in STEERINGS:
        theirs = evaluate(folder, **file_arguments(folder, name), max_length=LENGTH, batch_size=3)
        assert ours[name] == pytest.approx(theirs, rel=AGREEMENT)
    # steering changes the figure, each its own way
    bits = sorted(figures[2] for figures in ours.values())
    assert np.diff(bits).min() > 1e3 * AGREEMENT * bits[-1]


def test_by_default_both_read_windows_of_the_context(folder):
    model = harness.SteeredLM(str(folder))
    assert model.max_length == CONTEXT
    assert native(folder, {"base": None})["base"] == pytest.approx(
        evaluate(folder, pretrained=str(folder)), rel=AGREEMENT
    )
    shorter = native(folder, {"base": None}, max_length=LENGTH)["base"]
    assert abs(shorter[2] - native(folder, {"base": None})["base"][2]) > 1e3 * AGREEMENT


def test_strength_reaches_the_model(folder):
    arguments = file_arguments(folder, "all")
    base = evaluate(folder, pretrained=str(folder))
    assert evaluate(folder, **arguments, strength=0) == pytest.approx(base, rel=AGREEMENT)
    half = native(folder, {"half": rs.load(arguments["steering"]).interpolate(0.5)})["half"]
    assert evaluate(folder, **arguments, strength=0.5) == pytest.approx(half, rel=AGREEMENT)


@pytest.mark.parametrize("positions", ["all", "generated", "prompt", "last"])
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_continuations_are_scored_at_the_positions_of_generation(folder, tmp_path, site, positions):
    pairs = [("w1 w2 w3", " w4 w5"), ("w6", " w7"), ("w1 w2 w3", " w4"), ("w9 w8", " w1 w2 w3"), ("w3 w1", " w2")]
    file = tmp_path / "mine.safetensors"
    rs.save(rs.SteeringFunction({None: random_map()}).with_origin(site=site, positions=positions), file)
    steered = harness.SteeredLM(str(folder), steering=str(file), batch_size=2, add_bos_token=True)
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    found = [value for value, _ in steered.loglikelihood(asked, disable_tqdm=True)]
    prompts, texts = map(list, zip(*pairs, strict=True))
    model, tokenizer = lm.load(folder)
    how = {"progress": False}
    ours = lm.log_likelihoods(model, tokenizer, prompts, texts, steering=rs.load(file), **how)
    assert found == pytest.approx([one.total for one in ours], rel=1e-5)
    base = lm.log_likelihoods(model, tokenizer, prompts, texts, **how)
    assert all(abs(a.total - b.total) > 1e-3 for a, b in zip(ours, base, strict=True))


def test_a_steering_of_generated_tokens_is_priced_on_documents_alike(folder, tmp_path):
    files = {}
    for positions in ("generated", "last"):
        files[positions] = str(tmp_path / f"{positions}.safetensors")
        function = rs.SteeringFunction({None: random_map()}).with_origin(site="layers.0", positions=positions)
        rs.save(function, files[positions])
    ours = native(folder, {"generated": rs.load(files["generated"])}, max_length=LENGTH, batch_size=2)["generated"]
    theirs = evaluate(folder, pretrained=str(folder), steering=files["generated"], max_length=LENGTH, batch_size=3)
    assert ours == pytest.approx(theirs, rel=AGREEMENT)
    with pytest.raises(PassError, match="A document has no prompt"):
        evaluate(folder, pretrained=str(folder), steering=files["last"], max_length=LENGTH)


def test_the_file_says_where_and_how(folder, tmp_path):
    file = tmp_path / "inner.safetensors"
    known = rs.SteeringFunction({None: STEERINGS["inner"][1]})
    rs.save(known.with_origin(site="layers.0", strength=0.5), file)
    told = evaluate(folder, pretrained=str(folder), steering=str(file))
    assert told == evaluate(folder, **file_arguments(folder, "inner"), strength=0.5)
    model = harness.SteeredLM(str(folder), steering=str(file), strength=1.0, positions="last")
    assert model.surgery["site"] == "layers.0"
    assert (model.surgery["strength"], model.surgery["positions"]) == (1.0, "last")
    with pytest.warns(OriginWarning, match=r"fitted at 'layers\.0'"):
        harness.SteeredLM(str(folder), steering=str(file), site="final")


def test_another_model_s_weights_are_a_warning(folder, tmp_path):
    file = tmp_path / "known.safetensors"
    network, _ = lm.load(folder)
    known = rs.SteeringFunction({None: random_map()}, origin=lm.origin_of(network, site="final"))
    rs.save(known, file)
    harness.SteeredLM(str(folder), steering=str(file), dtype="bfloat16")
    with torch.no_grad():
        network.model.norm.weight[0] += 1
    for part in (network, tiny_tokenizer()):
        part.save_pretrained(tmp_path / folder.name)
    with pytest.warns(OriginWarning, match="has different weights"):
        harness.SteeredLM(str(tmp_path / folder.name), steering=str(file))


def test_the_local_task_is_the_harness_s_on_local_pages(folder):
    manager = tasks(folder)
    theirs = load_yaml(lm_eval.tasks.__path__[0] + "/wikitext/wikitext.yaml", resolve_func=True)
    ours = load_yaml(LOCAL_TASKS / "wikitext2_local.yaml", resolve_func=True)
    for key in ("dataset_path", "dataset_name", "training_split", "validation_split"):
        del theirs[key]
    theirs |= {"task": "theirs", "custom_dataset": ours["custom_dataset"], "metadata": {"data_dir": str(folder)}}
    assert evaluate(folder, manager=manager, task=theirs, pretrained=str(folder)) == evaluate(
        folder, manager=manager, pretrained=str(folder)
    )


def test_a_stated_number_of_documents_is_read(folder):
    (task,) = tasks(folder, documents=2).load(["wikitext2_local"])["tasks"].values()
    assert [doc["page"] for doc in task.test_docs()] == list(load_wikitext2(folder).first(2).texts)
    with pytest.raises(ParameterError, match="holds 3 documents"):
        tasks(folder, documents=4).load(["wikitext2_local"])
    with pytest.raises(DataError, match=r"no file .*wiki\.test\.raw"):
        tasks(folder / "elsewhere").load(["wikitext2_local"])


def test_further_folders_of_tasks_stay_possible(folder, tmp_path):
    text = (LOCAL_TASKS / "wikitext2_local.yaml").read_text().replace("wikitext2_local", "mine")
    (tmp_path / "mine.yaml").write_text(text)
    for path in (str(tmp_path), [tmp_path]):
        manager = harness.TaskManager(include_defaults=False, include_path=path)
        assert manager.all_tasks == ["mine", "wikitext2_local"]


def test_the_harness_finds_the_model_type_and_writes_down_what_steered_it(folder, monkeypatch):
    monkeypatch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
    arguments = file_arguments(folder, "inner")
    found = lm_eval.simple_evaluate(
        model="repsurgery",
        model_args={**arguments, "strength": 0.5, "device": "cuda:0", "dtype": "auto"},
        tasks=["wikitext2_local"],
        task_manager=tasks(folder),
        bootstrap_iters=0,
    )
    assert found["config"]["repsurgery"] == {
        "model": str(folder),
        "steering": arguments["steering"],
        "steering_digest": rs.SteeringFunction({None: STEERINGS["inner"][1]}).digest(),
        "site": "layers.0",
        "strength": 0.5,
        "positions": "all",
    }


def test_bad_arguments_are_refused(folder, tmp_path):
    with pytest.raises(ParameterError, match=r"got peft, trust_remote_code; .* it takes add_bos_token"):
        harness.SteeredLM(str(folder), peft="adapter", trust_remote_code=True)
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors does not exist"):
        harness.SteeredLM(str(folder), steering=str(tmp_path / "none.safetensors"))
    narrow = tmp_path / "narrow.safetensors"
    rs.save(random_map(5), narrow)
    with pytest.raises(ShapeError, match="has 5 features"):
        harness.SteeredLM(str(folder), steering=str(narrow))
    with pytest.raises(SiteError, match=r"layers\.9"):
        harness.SteeredLM(**{**file_arguments(folder, "all"), "site": "layers.9"})
    with pytest.raises(ParameterError, match="positions is 'some'"):
        harness.SteeredLM(**file_arguments(folder, "all"), positions="some")
    encoder = tmp_path / "encoder"
    tiny_model("bert").save_pretrained(encoder)
    tiny_tokenizer().save_pretrained(encoder)
    with pytest.raises(ModelError, match="causal language model"):
        harness.SteeredLM(str(encoder))


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--model", "repsurgery", "--model_args", "pretrained=a,steering=b", "--tasks", "x", "--limit", "2"],
        ["--model", "hf", "-t", "x", "y"],
        ["--help"],
        ["ls", "tasks", "-h"],
        [],
    ],
)
def test_the_harness_gets_the_arguments_untouched(words, monkeypatch):
    seen = []

    def cli_evaluate():
        seen.append((sys.argv, lm_eval.tasks.TaskManager))

    before = (sys.argv, lm_eval.tasks.TaskManager)
    monkeypatch.setattr(command, "cli_evaluate", cli_evaluate)
    result = CliRunner().invoke(app, ["lm-eval", *words])
    assert result.exit_code == 0, result.output
    assert seen == [(["lm-eval", *words], harness.TaskManager)]
    assert (sys.argv, lm_eval.tasks.TaskManager) == before


def test_the_command_runs_the_harness(folder, monkeypatch):
    # without the thousands of tasks that the harness would look through, and without asking pip what is installed
    monkeypatch.setattr(command, "TaskManager", functools.partial(harness.TaskManager, include_defaults=False))
    monkeypatch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
    monkeypatch.setattr("lm_eval.__main__.setup_logging", lambda: None)
    arguments = ",".join(f"{key}={value}" for key, value in file_arguments(folder, "gated").items())
    words = ["--model", "repsurgery", "--model_args", arguments, "--tasks", "wikitext2_local"]
    result = CliRunner().invoke(app, ["lm-eval", "run", *words, "--metadata", f"data_dir={folder}", "--limit", "2"])
    assert result.exit_code == 0, result.output
    documents = load_wikitext2(folder).first(2)
    record = lm.document_perplexity(
        *lm.load(folder),
        documents.detokenised,
        {"gated": rs.load(folder / "gated.safetensors")},
        words=documents.words,
        bytes=documents.bytes,
        progress=False,
    )["gated"]
    assert f"|{record.word_perplexity:7.4f}|" in result.stdout
    words_of_both = ["lm-eval", "run", *words, "--metadata", f"data_dir={folder}", "--limit", "2"]
    document = json.loads(CliRunner().invoke(app, ["--json", *words_of_both]).stdout)
    assert document["results"]["wikitext2_local"]["word_perplexity,none"] == pytest.approx(record.word_perplexity)
    missing = CliRunner().invoke(app, ["lm-eval", "run", *words[:3], "steering=no.file", *words[4:]])
    assert missing.exit_code == 1
    assert "no.file does not exist" in missing.stderr


def test_without_its_extra_the_harness_says_what_to_install():
    code = "import sys; sys.modules['lm_eval'] = None\nfrom repsurgery.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code, "lm-eval", "ls"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'repsurgery[evaluation]'" in done.stderr
