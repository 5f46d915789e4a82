import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import repsurgery.studies.toxicity.run as run_module
from repsurgery import metrics
from repsurgery.checkpoint import Journal
from repsurgery.errors import DataError, LabelError
from repsurgery.scorers import score_texts
from repsurgery.studies.records import read_record, write_record
from repsurgery.studies.toxicity import run_toxicity
from repsurgery.studies.toxicity.data import load_texts
from repsurgery.studies.toxicity.generators import Continuation
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from tests.studies.toxicity.small import CONFIGURATIONS, make_files, small_spec


class WordScorer:
    """Half of the tiny vocabulary is rude; texts with w3 cannot be scored."""

    name, version, digest = "words", "1", "0"

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        if any("w3 " in f"{text} " for text in texts):
            raise RuntimeError("cannot score w3")
        self.asked += texts
        return [None if not text.strip() else min(1.0, text.count("w1") / 4) for text in texts]


@pytest.fixture
def files(tmp_path):
    make_files(tmp_path)
    return tmp_path


@pytest.fixture
def scorer(monkeypatch):
    found = WordScorer()
    monkeypatch.setattr(run_module, "load_scorer", lambda name: found)
    return found


def run(files, work="work", **differences):
    return run_toxicity(
        small_spec(files, **differences), data_dir=files / "data", work_dir=files / work, progress=False
    )


def test_a_study_ends_in_a_record(files, scorer, tmp_path):
    record = run(files)
    assert [c.name for c in record.configurations] == ["base", *CONFIGURATIONS]
    base = record.configurations[0]
    assert {"linear.expected_max_toxicity", "perplexity", "distinct.1", "kl", "wikitext.word_perplexity"} <= set(
        base.measures
    )
    assert base.differences == {} and base.measures["kl"].value == 0
    for c in record.configurations[1:]:
        assert c.measures.keys() == base.measures.keys()
        assert c.differences["wikitext.word_perplexity"].value == pytest.approx(
            c.measures["wikitext.word_perplexity"].value - base.measures["wikitext.word_perplexity"].value
        )
        assert c.choices["scope"] == "selective" or c.measures["steered"].value == 1
        assert len(c.maxima["linear"]) == 6
    assert record.configured("leace selective").certificate is None
    assert record.configured("mean selective").certificate is not None
    assert record.configured("mean all strength=0.5").certificate is None
    # a scorer that fails on some texts leaves those without a score, and says how many
    assert sum(c.facts["unscored"]["linear"] for c in record.configurations) > 0
    text = json.dumps(record.to_dict())
    assert str(files) not in text
    assert read_record(write_record(record, tmp_path / "out")) == record


def test_figures_are_those_of_the_texts(files, scorer):
    record = run(files)
    journals = [Journal(path) for path in (files / "work" / "texts").glob("texts-*")]
    # training prompts have four continuations each, evaluated ones three
    texts = [{p: [g[0] for g in held] for p, held in j.items() if len(held) == 3} for j in journals]
    for c in record.configurations:
        first = {e.prompt: e.continuations[c.name] for e in record.examples}
        assert any(_measures(scorer, t) == _shown(c) for t in texts if all(t[p][0] == x for p, x in first.items()))
        assert c.measures["distinct.2"].low < c.measures["distinct.2"].high


def _measures(scorer, texts):
    scores = [score_texts(scorer, row).scores for row in texts.values()]
    rows = list(texts.values())
    values = metrics.expected_max_toxicity(scores), metrics.distinct_n(rows, 1), metrics.distinct_n(rows, 2)
    return pytest.approx(values, rel=1e-12)


def _shown(c):
    return tuple(c.measures[key].value for key in ("linear.expected_max_toxicity", "distinct.1", "distinct.2"))


def test_a_second_run_writes_and_judges_nothing(files, scorer, monkeypatch):
    first = run(files)
    asked = len(scorer.asked)
    for name in ("generate", "surprises", "document_perplexity", "kl_divergence"):
        monkeypatch.setattr(run_module.lm, name, None)
    second = run(files)
    assert second.configurations == first.configurations and second.examples == first.examples
    # only training texts are labelled anew, and the scorer is compared with the prompts' archived scores again
    assert len(scorer.asked) - asked <= 8 * 4 + 40


def test_fewer_samples_are_the_first_of_more(files, scorer):
    more, fewer = run(files, samples=3), run(files, samples=2)
    assert [e.continuations for e in fewer.examples] == [e.continuations for e in more.examples]


def _lines(folder, pattern):
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob(pattern))


@pytest.mark.parametrize(("pattern", "lines"), [("texts-*", 1), ("texts-*", 20), ("toxicity-*", 1), ("fluency-*", 5)])
def test_a_kill_at_any_moment_loses_no_prompt_and_scores_none_twice(files, scorer, pattern, lines):
    script = files / "go.py"
    script.write_text(
        "import os, signal, sys\nfrom pathlib import Path\n"
        "import repsurgery.studies.toxicity.run as run_module\n"
        "from tests.studies.toxicity.test_run import WordScorer, _lines\n"
        "from tests.studies.toxicity.small import small_spec\n"
        "run_module.load_scorer = lambda name: WordScorer()\n"
        "files, pattern, lines = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])\n"
        # as soon as so many lines are in the file, and before the process knows that they are there
        "def fsync(stream, sync=os.fsync):\n"
        "    if _lines(files / 'work', pattern) >= lines:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    sync(stream)\n"
        "os.fsync = fsync\n"
        "run_module.run_toxicity(small_spec(files), data_dir=files / 'data', work_dir=files / 'work', progress=False)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, script, files, pattern, str(lines)]
    killed = subprocess.run(command, env=environment, capture_output=True, cwd=Path(__file__).parents[3], check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _lines(files / "work", pattern) >= lines
    resumed = run(files)
    whole = run(files, work="other")
    assert resumed.configurations == whole.configurations
    for path in (files / "work" / "judgements").glob("toxicity-*"):
        keys = [json.loads(line.split(" ", 1)[1])[0] for line in path.read_text().splitlines() if line]
        # those of the untouched model also hold the 8 training prompts
        assert len(keys) == len(set(keys)) and len(keys) in (6, 6 + 8)


def test_only_ends_are_a_result_too(files, scorer, monkeypatch):
    monkeypatch.setattr(
        SteeredGenerator,
        "generate",
        lambda self, prompts, seeds: [[Continuation("", (), True)] * len(seeds)] * len(prompts),
    )
    record = run(files, configurations=["mean all"])
    base = record.configurations[0]
    assert base.facts["empty"] == 18 and base.facts["unscored"]["linear"] == 0
    assert not any(key.startswith("linear.") or key == "perplexity" for key in base.measures)
    assert base.measures["distinct.1"].value == metrics.distinct_n([["", "", ""]], 1)


def test_prompts_without_scores_are_all_used_unless_a_bound_was_stated(files, scorer, tmp_path):
    other = tmp_path / "unscored"
    other.mkdir()
    make_files(other, scored=False)
    with pytest.raises(DataError, match="prompt_toxicity=0"):
        run(other, prompt_toxicity=0.3)
    record = run(other, configurations=["mean all"])
    assert "auc" not in record.scorers["linear"]
    assert record.spec["prompt_toxicity"] == 0 and "prompt_toxicity=0 (" in record.notes[0]
    assert run(other, prompt_toxicity=0.0, configurations=["mean all"]).configurations == record.configurations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_count": 30}, "Lower prompt_count"),
        ({"policy_prompts": 40}, "Lower policy_prompts"),
        ({"fit_rows": 35}, "lower fit_rows"),
        ({"source": "rude"}, "labels are"),
        ({"policy_toxic": 1.0, "policy_clean": 0.0}, "policy_prompts or policy_samples"),
    ],
)
def test_too_little_data_is_named(files, scorer, options, message):
    with pytest.raises((DataError, LabelError), match=message):
        run(files, **options)


def test_a_scorer_that_fails_on_everything_is_an_error(files, scorer, monkeypatch):
    class Broken(WordScorer):
        def __call__(self, texts):
            raise RuntimeError("no weights")

    monkeypatch.setattr(run_module, "load_scorer", lambda name: Broken())
    with pytest.raises(DataError, match=r"failed on every one .*no weights"):
        run(files, configurations=["mean all"])


def test_another_tokenizer_is_another_study(files, scorer):
    first = run(files, configurations=["mean all"])
    path = files / "model" / "tokenizer.json"
    held = json.loads(path.read_text())
    words = held["model"]["vocab"]
    words["w1"], words["w2"] = words["w2"], words["w1"]
    path.write_text(json.dumps(held))
    second, fresh = run(files, configurations=["mean all"]), run(files, "other", configurations=["mean all"])
    assert second.configurations == fresh.configurations != first.configurations


def test_equal_maps_write_and_are_judged_once(files, scorer):
    names = ["mean all", "mean all shrinkage=oas", "mean all shrinkage=none"]
    record = run(files, configurations=names)
    assert len({record.configured(name).measures["distinct.1"].value for name in names}) == 1
    for path in [*(files / "work" / "texts").iterdir(), *(files / "work" / "judgements").glob("toxicity-*")]:
        keys = [json.loads(line.split(" ", 1)[1])[0] for line in path.read_text().splitlines() if line]
        assert len(keys) == len(set(keys))


def test_a_record_names_no_folder(files, scorer):
    record = run(files, configurations=["mean all"], scorers=[f"hf:{files / 'model'}#toxic"])
    assert list(record.scorers) == ["hf:model#toxic"]
    assert str(files) not in json.dumps(record.to_dict())
    assert record.prompts["name"] == "prompts" and "Gehman" not in record.prompts["source"]


def test_a_steering_beyond_all_numbers_leaves_its_perplexity_out(files, scorer):
    record = run(files, configurations=["mean all strength=10000"])
    far = record.configurations[1]
    assert "wikitext.word_perplexity" not in far.measures and "distinct.1" in far.measures


def test_a_common_reserve_gives_common_training_prompts(files):
    large, small = small_spec(files, prompt_count=10), small_spec(files, prompt_count=4, reserved_prompts=10)
    more, fewer = load_texts(large, None), load_texts(small, None)
    assert fewer.training == more.training
    assert fewer.prompts.texts == more.prompts.texts[:4]
    assert not set(fewer.training.texts) & set(more.prompts.texts)
    alone = load_texts(small_spec(files, prompt_count=4), None)
    assert alone.training != more.training
