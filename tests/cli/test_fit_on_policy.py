from inspect import signature
from typing import get_args

import numpy as np
import pytest
from typer.main import get_command

import repsurgery as rs
from repsurgery import lm
from repsurgery.cli import fit
from repsurgery.cli.app import app
from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.policy import credit
from repsurgery.scorers.base import SCORERS
from repsurgery.studies.toxicity import configuration
from repsurgery.workflows.fit import fit_table
from repsurgery.workflows.on_policy import fit_on_policy
from repsurgery.workflows.prompts import read_prompts
from tests.cli.words import instead
from tests.lm import tools
from tests.lm.test_on_policy import PROMPTS, WordScorer
from tests.lm.tiny_models import WIDTH
from tests.lm.tools import DEPTH, assert_close, prompts, states

HOW = {"samples": 4, "max_new_tokens": 7, "progress": False}


@pytest.fixture
def prompt_file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(["", *PROMPTS, "  ", ""]))
    return path


@pytest.fixture
def _words(monkeypatch):
    """Register the scorer of words for one test."""
    assert "linear" in SCORERS  # the scorers of the package are known before one is added
    monkeypatch.setitem(SCORERS._own, "words", WordScorer)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "cache"))


def test_one_round_is_the_fit_on_the_moments_of_the_own_texts(model_folder, tmp_path):
    found = fit_on_policy(PROMPTS, WordScorer(), model=model_folder, work_dir=tmp_path / "w", **HOW)
    network, tokenizer = lm.load(model_folder)
    moments = lm.on_policy(network, tokenizer, PROMPTS, WordScorer(), **HOW)["final"]
    expected = rs.MeanMatching.from_moments(moments, source="source", target="target", gate="always")
    assert_close(next(iter(found.steering.maps.values())).bias, expected.map_.shift, rtol=DEPTH)
    assert found.steering.certificate == found.rounds[0].estimator.certificate_
    assert found.steering.origin.site == "final"
    assert found.steering.origin.fingerprint == lm.fingerprint(network, ignore_dtype=True)
    found.steering.verify()


@pytest.mark.parametrize("method", ["mean", "trace"])
def test_rounds_compose_as_nested_steering_does(model_folder, tmp_path, method):
    found = fit_on_policy(
        PROMPTS, WordScorer(), method=method, rounds=2, site="layers.0", model=model_folder, work_dir=tmp_path, **HOW
    )
    network, tokenizer = lm.load(model_folder)
    first, second = (one.estimator.steering_ for one in found.rounds)
    ids, mask = prompts()
    with lm.steer(network, {"layers.0": first}), lm.steer(network, {"layers.0": second}):
        nested = tools.run(network, ids, mask)
    with lm.steer(network, found.steering):
        composed = tools.run(network, ids, mask)
    assert_close(composed, nested, rtol=DEPTH)
    with lm.steer(network, {"layers.0": first}):
        assert np.abs(tools.run(network, ids, mask).numpy() - nested.numpy()).max() > 1e-3
    # what the second round was fitted on is what the first had steered, written with other noise
    again = lm.on_policy(
        network, tokenizer, PROMPTS, WordScorer(), sites=["layers.0"], steering={"layers.0": first}, seed=1, **HOW
    )
    assert again.counts == found.rounds[1].counts
    assert_close(found.rounds[1].estimator.moments_["source"].mean, again["layers.0"]["source"].mean, rtol=DEPTH)
    assert found.steering.certificate is None


def test_an_interrupted_fit_resumes_without_writing_again(model_folder, tmp_path):
    how = {"rounds": 2, "model": model_folder, "work_dir": tmp_path, **HOW}
    with pytest.raises(KeyboardInterrupt):
        fit_on_policy(PROMPTS, WordScorer(stop=2), **how)
    found = fit_on_policy(PROMPTS, first := WordScorer(), **how)
    again = fit_on_policy(PROMPTS, second := WordScorer(), **how)
    assert first.calls == 1
    assert second.calls == 0
    assert again.steering.digest() == found.steering.digest()
    assert (
        found.steering.digest()
        == fit_on_policy(PROMPTS, WordScorer(), **{**how, "work_dir": tmp_path / "x"}).steering.digest()
    )


def test_what_rounds_cannot_do_is_refused(model_folder, tmp_path):
    how = {"model": model_folder, "work_dir": tmp_path, **HOW}
    with pytest.raises(ParameterError, match="gate='always', or one round"):
        fit_on_policy(PROMPTS, WordScorer(), rounds=2, params={"gate": "nearest-mean"}, **how)
    assert fit_on_policy(PROMPTS, WordScorer(), params={"gate": "nearest-mean"}, **how).steering.gate.kind == "linear"
    with pytest.raises(ParameterError, match="Leave it out"):
        fit_on_policy(PROMPTS, WordScorer(), params={"target": "clean"}, **how)
    with pytest.raises(ParameterError, match="rounds is 0"):
        fit_on_policy(PROMPTS, WordScorer(), rounds=0, **how)
    with pytest.raises(ParameterError, match="takes no rank"):
        fit_on_policy(PROMPTS, WordScorer(), params={"rank": 3}, **how)

    class Satisfied(WordScorer):
        def __call__(self, some):
            scores = super().__call__(some)
            return scores if self.calls == 1 else [0.0] * len(some)

    with pytest.raises(DataError, match=r"Round 2 of 3: .* 0 in 'source'.* Or stop before it: rounds=1"):
        fit_on_policy(PROMPTS, Satisfied(), rounds=3, model=model_folder, work_dir=tmp_path / "s", **HOW)


@pytest.mark.usefixtures("_words")
def test_the_command_writes_what_the_workflow_fits(run, prompt_file, model_folder, tmp_path):
    out = tmp_path / "own.safetensors"
    words = ("--on-policy", "--prompts", prompt_file, "--scorer", "words", "--samples", 4, "--method", "mean")
    result = run("fit", *words, "--model", model_folder, "--rounds", 2, "--credit", "step", "--out", out)
    assert result.exit_code == 0, result.output
    assert "Round 2: " in result.stdout
    assert "composition of all rounds and no certificate" in result.stdout
    found = rs.load(out)
    expected = fit_on_policy(
        PROMPTS, WordScorer(), rounds=2, credit="step", model=model_folder, samples=4, progress=False
    ).steering
    assert found.digest() == expected.digest()
    assert found.origin == expected.origin
    assert found.dim == WIDTH
    network, _ = lm.load(model_folder)
    ids, mask = prompts()
    with lm.steer(network, found):
        assert_close(states(network, "final", ids, mask)[0, -1], found(states_of(network, ids, mask))[0], rtol=DEPTH)


def states_of(network, ids, mask):
    """Return the unsteered state of the last token of the first prompt, (1, d)."""
    plain, _ = lm.load(network.config.name_or_path)
    return states(plain, "final", ids, mask)[0, -1:].numpy()


@pytest.mark.usefixtures("_words")
def test_one_round_prints_its_certificate_and_keeps_its_moments(run, prompt_file, model_folder, tmp_path):
    out = tmp_path / "own.safetensors"
    words = ("--on-policy", "--prompts", prompt_file, "--scorer", "words", "--samples", 4, "--method", "mean")
    result = run("fit", *words, "--model", model_folder, "--keep-moments", "--out", out)
    assert result.exit_code == 0, result.output
    assert "MeanMatching claims equal means" in result.stdout
    assert rs.load(out).moments_.labels == ["source", "target"]


@pytest.mark.usefixtures("_words")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table.csv"], "Leave out a table"),
        (["--source", "a"], "Leave out --source"),
        (["--pooling", "last"], "Leave out --pooling"),
        (["--held-out", "0.2"], "Leave out --held-out"),
        (["--text-column", "text"], "Leave out --text-column"),
        (["--label-column", "label"], "Leave out --label-column"),
        (["--prompts", "absent.txt"], "There is no file of prompts"),
        (["--prompts", "empty.txt"], "holds no prompts"),
        (["--scorer", "nobody"], "There is no scorer 'nobody'"),
        (["--rounds", "2", "--gate", "lda"], "Choose --gate always, or one round"),
        (["--rounds", "2", "--keep-moments"], "--rounds 1"),
        (["--source-at", "0.05"], "--target-at must not be the larger"),
    ],
)
def test_bad_flags_are_refused(run, prompt_file, model_folder, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("text,label\na,b\n")
    (tmp_path / "empty.txt").write_text("\n \n")
    base = ["fit", "--on-policy", "--prompts", prompt_file, "--scorer", "words", "--method", "mean"]
    result = run(*instead(base, *words), "--model", model_folder, "--out", tmp_path / "f")
    contradictory = "Leave out" in message or "--rounds" in words
    assert result.exit_code == (2 if contradictory else 1)
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "f").exists()


def test_flags_of_on_policy_need_it_and_it_needs_them(run, prompt_file, table, tmp_path):
    result = run("fit", table, "--target", "b", "--scorer", "linear", "--out", tmp_path / "f")
    assert "Add --on-policy" in result.output
    result = run("fit", "--on-policy", "--prompts", prompt_file, "--out", tmp_path / "f")
    assert "--prompts FILE --scorer linear" in result.output


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *(("--samples", 8), ("--rounds", 1), ("--credit", "text")),
        *(("--source-at", 0.5), ("--target-at", 0.1), ("--step-at", 0.1)),
    ],
)
def test_a_table_refuses_the_flags_of_on_policy_though_they_are_the_defaults(run, table, tmp_path, flag, value):
    result = run("fit", table, "--target", "b", flag, value, "--out", tmp_path / "f")
    assert result.exit_code == 2
    assert f"Only --on-policy uses {flag}. Add --on-policy, or leave it out." in result.output


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--text-column", "text"), ("--label-column", "label"), ("--held-out", 0.2), ("--seed", 0), ("--max-length", 9)],
)
def test_moments_refuse_the_flags_of_texts(run, tmp_path, flag, value):
    X = np.random.default_rng(0).normal(size=(40, 3))
    rs.ClassMoments.of(X, np.repeat(["a", "b"], 20)).save(tmp_path / "m")
    result = run("fit", "--moments", tmp_path / "m", "--target", "b", flag, value, "--out", tmp_path / "f")
    assert result.exit_code == 2
    assert f"--moments reads no texts, which need {flag}. Leave it out." in result.output


def test_the_help_shows_the_defaults_that_the_functions_use(run):
    shown = {p.name: p.show_default for p in get_command(app).get_command(None, "fit").params}
    used = {**signature(fit_table).parameters, **signature(lm.on_policy).parameters}
    used |= {"rounds": signature(fit_on_policy).parameters["rounds"]}
    for name in ("held_out", "seed", "samples", "rounds", "credit", "source_at", "target_at", "step_at"):
        assert shown[name] == str(used[name].default)
    assert (shown["text_column"], shown["label_column"]) == (used["text"].default, used["label"].default)


def test_the_command_line_and_the_study_know_the_kinds_of_credit():
    # they are written down there too, because neither may import torch
    assert get_args(fit.Credit) == get_args(configuration.Credit) == get_args(credit.Credit)


@pytest.mark.parametrize("stop", [1, 2])
def test_ctrl_c_says_that_the_same_command_resumes(run, prompt_file, model_folder, tmp_path, monkeypatch, stop):
    assert "linear" in SCORERS
    monkeypatch.setitem(SCORERS._own, "words", lambda: WordScorer(stop=stop))
    words = ("--on-policy", "--prompts", prompt_file, "--scorer", "words", "--method", "mean", "--rounds", 2)
    result = run("fit", *words, "--model", model_folder, "--out", tmp_path / "f")
    assert result.exit_code == 130
    assert "fit stopped; run again to resume." in result.stderr


def test_prompts_are_the_lines_of_a_file(prompt_file, tmp_path):
    assert read_prompts(prompt_file) == PROMPTS
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    with pytest.raises(DataError, match="line 1: byte 0 is not UTF-8"):
        read_prompts(tmp_path / "latin")


@pytest.mark.usefixtures("_words")
def test_a_stored_fisher_matrix_lets_the_file_take_a_budget(run, prompt_file, model_folder, tmp_path):
    words = ["fit", "--on-policy", "--prompts", prompt_file, "--scorer", "words", "--model", model_folder]
    words += ["--method", "mean", "--samples", "4"]
    words += ["--store-fisher", "--out", tmp_path / "f.safetensors"]
    result = run(*map(str, words))
    assert result.exit_code == 0, result.output
    function = rs.load(tmp_path / "f.safetensors")
    assert function.price is not None
    model, tokenizer = lm.load(model_folder)
    with lm.steer(model, function, kl_budget=0.01) as steered:
        steered(**tokenizer("w1 w2", return_tensors="pt"))
    kept = run(*map(str, [*words[:-1], tmp_path / "g.safetensors", "--keep-moments"]))
    assert kept.exit_code == 0, kept.output
    estimator = rs.load(tmp_path / "g.safetensors")
    assert estimator.moments_.labels == ["source", "target"]
    assert (estimator.steering_.price.fisher.matrix == function.price.fisher.matrix).all()
    with lm.steer(model, estimator, kl_budget=0.01) as steered:
        steered(**tokenizer("w1 w2", return_tensors="pt"))
