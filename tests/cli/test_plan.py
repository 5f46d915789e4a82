from dataclasses import replace

import pytest

from repsurgery import lm
from repsurgery.lm.load import memory
from repsurgery.scale import DEFAULT_RATES


def test_a_plan_is_printed_for_one_and_many_workers(run):
    result = run("plan", "--rows", "1e8", "--width", 4096, "--storage", "float16")
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for words in (
        "819 GB to read",
        "1.68e+15 operations",
        "256 parts of 268 MB",
        "68.7 GB of disk",
        "1.07 GB",
        "Assumed",
    ):
        assert words in text
    lines = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    assert [line for line in lines if line.isdigit()][:3] == ["1", "8", "64"]


def test_a_plan_by_what_was_measured(run, tmp_path, monkeypatch):
    monkeypatch.setattr("repsurgery.scale.rates.FILE_BYTES", 8 * 2**20)
    result = run("plan", "--rows", 1000, "--width", 16, "--shards", 4, "--workers", 3, "--measure", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Measured" in result.stdout
    rates = replace(DEFAULT_RATES, multiply=16 * 16 * 250.0)
    monkeypatch.setattr("repsurgery.scale.measure_rates", lambda *args, **options: rates)
    result = run("plan", "--rows", 1000, "--width", 16, "--shards", 4, "--workers", 1, "--measure", tmp_path)
    row = next(line for line in result.stdout.splitlines() if line.startswith("│"))
    assert row.split("│")[4].strip() == "4 s"


@pytest.mark.parametrize("rows", ["10.5", "nan", "inf"])
def test_a_plan_of_half_a_row_is_refused(run, rows):
    result = run("plan", "--rows", rows, "--width", 16)
    assert result.exit_code == 1
    assert "whole number" in result.stderr


def test_the_memory_of_a_model_is_shown_beside_what_is_free(run, model_folder, monkeypatch):
    words = ("plan", "--model", model_folder, "--batch", 4, "--tokens", 32, "--dtype", "float32")
    result = run(*words)
    assert result.exit_code == 0, result.output
    plan = lm.plan_memory(model_folder, batch=4, tokens=32)
    assert f"{plan.parameters:,} parameters in float32" in result.stdout
    shown = " ".join(result.stdout.split())
    assert "batch 4, 32 tokens" in shown and "It fits: it needs about 500 MB of" in shown
    monkeypatch.setattr(memory, "free_on_cpu", lambda: plan.total - 1)
    assert "It does not fit" in (short := run(*words).stdout)
    assert "With --dtype bfloat16 it needs about 500 MB and fits." in short
    monkeypatch.setattr(memory, "free_on_cpu", lambda: 10**6)
    assert "Choose a smaller model or fewer --tokens" in run(*words).stdout


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ((), "Pass either --model, or both --rows and --width"),
        (("--rows", 10), "needs both --rows and --width"),
        (("--width", 10), "needs both --rows and --width"),
        (("--rows", 10, "--width", 2, "--model", "minilm"), "Pass either --model"),
        (("--rows", 10, "--width", 2, "--batch", 3), "--batch is for a plan of --model"),
        (("--model", "no/such folder"), "not a hub id"),
    ],
)
def test_a_plan_of_neither_or_both_is_refused(run, words, remedy):
    result = run("plan", *words)
    assert result.exit_code == (1 if "hub id" in remedy else 2) and remedy in result.stderr, result.output
