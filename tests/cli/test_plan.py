from dataclasses import replace

import pytest

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
