"""The committed records of large runs say what the pages quote of them."""

import json
from pathlib import Path

import pytest

from repsurgery.scale import plan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")


def record(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def test_every_engine_counted_a_million_rows_alike():
    found = record("scale_equality")
    assert (found["rows"], found["width"], found["shards"]) == (1_000_000, 768, 64)
    assert set(found["engines"]) == {"one process", "local x 2", "ray x 2", "dask x 2", "torchrun x 2"}
    assert found["engines_equal_to_the_bit"]
    for run in found["engines"].values():
        assert run["counts_equal"] and run["difference"] <= 1e-12
        assert sum(run["counts"].values()) == 1_000_000


def test_ten_million_rows_were_streamed_in_little_memory():
    found = record("scale_stream")
    assert (found["rows"], found["width"]) == (10_000_000, 768)
    assert found["counts_equal"] and found["difference"] <= 1e-12
    assert found["peak_mib"] * 2**20 < found["bytes"] / 100


@pytest.mark.parametrize(
    ("rows", "shards", "workers", "kind", "run"),
    [
        ("1,000,000", 64, 1, "1", record("scale_equality")["engines"]["one process"]),
        ("1,000,000", 64, 2, "2, local", record("scale_equality")["engines"]["local x 2"]),
        ("10,000,000", 160, 1, "1", record("scale_stream")),
    ],
)
def test_plans_on_the_page_stand_beside_what_was_recorded(rows, shards, workers, kind, run):
    planned = plan(int(rows.replace(",", "")), 768, 2, workers, shards=shards).seconds
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {rows} ") and f"| {kind} |" in line)
    assert line.endswith(f"| {planned:.3g} s | {run['seconds']:.3g} s | {run['peak_mib']:.0f} MiB |")


def test_the_pages_of_planning_quote_the_benchmark():
    lines = {line["what"]: line for line in _lines(record("scale"))}
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.count(" | ") == 5 and " × " in line]
    quoted = [row for row in rows if row[1].isdigit()]
    assert len(quoted) == 6
    for size, shards, measured, time, _, memory in quoted:
        case = f"{size.replace(',', '').replace('×', 'x')} float32 in {shards} shards: predicted / measured"
        assert time == f"{lines[f'{case} CPU seconds']['value']:.2f}"
        assert lines[f"{case} CPU seconds"]["note"] == f"{measured} measured"
        assert memory == f"{lines[f'{case} peak memory']['value']:.2f}"


def _lines(found):
    if isinstance(found, dict):
        return [found] if "what" in found else [line for part in found.values() for line in _lines(part)]
    return [line for part in found for line in _lines(part)] if isinstance(found, list) else []
