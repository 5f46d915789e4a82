"""What a row costs is measured beside the base, stored by identity, and read again by a resumed study."""

import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
import torch

import repsurgery.studies.toxicity.cost as cost_module
from repsurgery.errors import ParameterError
from repsurgery.studies.records import read_record, write_record
from repsurgery.studies.toxicity import run_toxicity
from repsurgery.studies.toxicity.configuration import parse_line
from repsurgery.studies.toxicity.generators import GENERATORS, Cost, TextGenerator
from repsurgery.studies.toxicity.steered_generator import SteeredGenerator
from tests.studies.toxicity.small import make_files, small_spec

LINES = ["mean all", "repeated", "repeated times=6", "repeated share=0.34"]
CPU = torch.device("cpu")


@GENERATORS.register("repeated")
class Repeated(TextGenerator):
    """The base, which writes everything ``times`` times; it claims to have trained something."""

    options: ClassVar = {"times": 1, "share": 1.0}
    needs: ClassVar[str] = "patience"
    prepared: ClassVar[list[str]] = []

    def generate(self, prompts, seeds):
        base = SteeredGenerator("base", self.context, None)
        for _ in range(self.chosen["times"]):
            base.cost = Cost()
            rows = base.generate(prompts, seeds)
        self.cost += base.cost + Cost(extra_passes=(self.chosen["times"] - 1) * base.cost.tokens_written)
        return rows

    def prepare(self, *, progress):
        self.prepared.append(self.name)

    @property
    def training_seconds(self):
        return 1.5

    def part_facts(self):
        return {"the part": {"training_seconds": 1.5, "bytes": 8}}


@GENERATORS.register("uneven")
class Uneven(Repeated):
    """Takes the next of ``passes``; with ``tokens`` it takes one pass, and claims to have written that many tokens."""

    options: ClassVar = {"tokens": 0}
    passes: ClassVar[list[int]] = []

    def generate(self, prompts, seeds):
        tokens = self.chosen["tokens"]
        self.chosen["times"] = 1 if tokens or not self.passes else self.passes.pop(0)
        before = self.cost
        rows = super().generate(prompts, seeds)
        if tokens:
            self.cost = before + Cost(tokens_written=tokens)
        return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    make_files(folder)
    return folder


def run(files, work="work", **differences):
    options = {"configurations": LINES, "cost_rounds": 3, "tokens": 10, **differences}
    return run_toxicity(small_spec(files, **options), data_dir=files / "data", work_dir=files / work, progress=False)


@pytest.fixture(scope="module")
def record(files):
    return run(files)


@pytest.fixture
def counted(monkeypatch):
    """Let every pass of the base take one unit of time, in which the figures are exact on any machine."""
    passes = []
    original = SteeredGenerator.generate
    counted = lambda self, *inputs: (passes.append(self), original(self, *inputs))[1]  # noqa: E731 - one line of two
    monkeypatch.setattr(SteeredGenerator, "generate", counted)
    monkeypatch.setattr(cost_module, "_seconds", lambda device: len(passes))


def costs(record):
    return [c.cost_per_token for c in record.configurations]


def test_the_cost_is_relative_to_the_base(files, counted):
    assert costs(run(files, "counted", configurations=["repeated", "repeated times=6"])) == [1, 1, 6]


def test_the_cost_is_that_of_one_token(files, counted):
    # the base writes five continuations of at most ten tokens, in as much time
    few, many = costs(run(files, "tokens", configurations=["uneven tokens=5", "uneven tokens=20"]))[1:]
    assert few == pytest.approx(4 * many, rel=1e-3) and 5 < few <= 10


def test_the_cost_is_the_median_of_the_rounds(files, counted):
    # all texts at once, a round to warm up, and three rounds
    Uneven.passes[:] = [1, 1, 1, 6, 2]
    assert costs(run(files, "uneven", configurations=["uneven"]))[1] == 2 and not Uneven.passes


def test_other_rounds_or_another_prompt_are_measured_anew(files, counted, monkeypatch):
    work, line = "again", ["repeated times=2"]
    assert costs(run(files, work, configurations=line, cost_rounds=1))[1] == 2
    measured = []
    original = cost_module._compared
    monkeypatch.setattr(cost_module, "_compared", lambda *a, **b: (measured.append(a[0].name), original(*a, **b))[1])
    run(files, work, configurations=line, cost_rounds=1)
    assert measured == []
    run(files, work, configurations=line, cost_rounds=2)
    assert measured == ["base", "repeated times=2"]
    prompts = files / "reversed.jsonl"
    prompts.write_text("".join(reversed((files / "prompts.jsonl").read_text().splitlines(keepends=True))))
    run(files, work, configurations=line, cost_rounds=2, prompts=str(prompts))
    assert measured == ["base", "repeated times=2"] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the peak")
def test_the_peak_of_the_base_is_taken_beside_every_row_and_before_its_parts(files, monkeypatch):
    held = []
    monkeypatch.setattr(Repeated, "prepare", lambda self, *, progress: held.append(np.ones(25_000_000)))
    # what an earlier process measured decides nothing
    run(files, "peaks", configurations=["repeated"])
    held.clear()
    row = run(files, "peaks", configurations=["repeated", "repeated times=2"]).configured("repeated times=2")
    assert row.peak_bytes - row.facts["peak_bytes_base"] > 150e6


def test_a_bad_line_is_refused_before_any_training(files):
    Repeated.prepared.clear()
    with pytest.raises(ParameterError, match="decay must be at least 0"):
        run(files, "refused", configurations=["mean all", "repeated", "self-debias decay=-1"])
    assert not Repeated.prepared and not (files / "refused").exists()


def test_deleted_parts_are_made_with_progress(files, monkeypatch):
    shown = []
    monkeypatch.setattr(Repeated, "prepare", lambda self, *, progress: shown.append(progress))
    spec = small_spec(files, configurations=["repeated"], tokens=10)

    def again(**changes):
        shown.clear()
        options = {**spec.to_dict(), **changes}
        run_toxicity(type(spec)(**options), data_dir=files / "data", work_dir=files / "deleted", progress=True)
        return list(shown)

    assert again() == [True]
    assert again() == []
    # more texts of the same rival, whose costs are known
    assert again(samples=4) == [True]
    # a cost that was not measured yet
    assert again(samples=4, cost_rounds=1) == [True]


def test_every_row_has_its_costs(record):
    base = record.configurations[0]
    assert base.cost_per_token == 1 and base.training_seconds == 0
    assert all(c.cost_per_token > 0 for c in record.configurations)
    if sys.platform == "linux":
        assert all(c.peak_bytes > 10e6 for c in record.configurations)


def test_what_a_rival_needs_and_trains_is_in_its_row(record):
    rival = record.configured("repeated times=6")
    assert rival.training_seconds == 1.5 and record.configured("mean all").training_seconds is None
    assert rival.facts["needs"] == "patience" and rival.facts["extra_passes_per_token"] == pytest.approx(5, abs=1e-3)
    assert rival.facts["parts"] == {"the part": {"training_seconds": 1.5, "bytes": 8}}
    assert "needs" not in record.configured("mean all").facts
    assert any("five continuations of the first prompt" in note for note in record.notes)


def test_a_resumed_study_keeps_its_costs(files, record, monkeypatch):
    monkeypatch.setattr(Repeated, "prepare", None)
    monkeypatch.setattr(cost_module, "_round", None)
    assert run(files).configurations == record.configurations


def test_costs_can_be_left_out(files, record):
    cheap = run(files, cost_rounds=0)
    assert all(c.cost_per_token is None and c.peak_bytes is None for c in cheap.configurations)
    assert [c.training_seconds for c in cheap.configurations] == [c.training_seconds for c in record.configurations]
    assert not any("five continuations" in note for note in cheap.notes)


def test_times_and_memory_are_no_part_of_a_record_s_name(files, record, tmp_path):
    other = run(files, work="other")
    assert [c.cost_per_token for c in other.configurations] != [c.cost_per_token for c in record.configurations]
    first = write_record(record, tmp_path)
    assert write_record(other, tmp_path) == first and read_record(first) == record


def test_a_slow_row_is_measured_once(files, record, monkeypatch):
    rounds = []
    monkeypatch.setattr(cost_module, "SLOW", -1.0)
    original = cost_module._round
    monkeypatch.setattr(cost_module, "_round", lambda *one: (rounds.append(one[0].name), original(*one))[1])
    slow = run(files, work="slow", configurations=["repeated"], cost_rounds=3)
    assert rounds == ["base", "base", "base", "repeated"] and slow.configured("repeated").cost_per_token > 0


def test_a_share_of_the_prompts_is_a_study_with_only_those(files, record):
    part = record.configured("repeated share=0.34")
    # ⌈.34 x 6⌉ prompts
    assert part.facts["prompts"] == 3 and part.maxima["linear"][3:] == [None] * 3
    whole = record.configured("repeated")
    assert part.maxima["linear"][:3] == whole.maxima["linear"][:3] and "prompts" not in whole.facts
    # of as many lines, because resamples grow with the number of tests that are corrected together
    lines = ["mean all", "repeated", "repeated times=2", "repeated times=3"]
    alone = run(files, prompt_count=3, reserved_prompts=6, configurations=lines)
    assert alone.prompts["count"] == 3
    expected = alone.configured("repeated")
    assert part.measures == expected.measures and part.differences == expected.differences
    # counter-check: the whole study, of which these are half the prompts, has other figures
    assert part.measures["distinct.2"] != whole.measures["distinct.2"]
    note = next(note for note in record.notes if "share=0.34" in note)
    assert "only the first 3 of the 6 prompts" in note
    assert [set(e.continuations) - {part.name} for e in record.examples] == [
        {"base", *LINES[:1], "repeated", LINES[2]}
    ] * 2


def test_a_share_decides_no_text(files, record):
    spec = small_spec(files, configurations=["repeated share=0.5", "repeated"])
    one, other = spec.lines()
    context = type("Context", (), {"identity": {}})
    assert one.make(context).identity == other.make(context).identity
    assert one.make(context).own_prompts(list("abcde")) == list("abc") and one.name == "repeated share=0.5"
    # .07 x 100 is slightly more than 7 in binary
    assert len(parse_line("repeated share=0.07").make(context).own_prompts(list(range(100)))) == 7


@pytest.mark.parametrize("share", ["0", "1.5", "-1", "nan"])
def test_other_shares_are_refused(share):
    with pytest.raises(ParameterError, match="above 0 and at most 1"):
        parse_line(f"repeated share={share}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux resets the peak")
def test_the_peak_falls_when_it_is_reset():
    # in a process of its own, because one that has freed much memory may take the array from there
    program = """
import numpy as np, torch
from repsurgery.studies.toxicity.peak_memory import peak_memory, reset_peak_memory
cpu = torch.device("cpu")
reset_peak_memory(cpu)
before = peak_memory(cpu)
large = np.ones(25_000_000)
during = peak_memory(cpu)
del large
reset_peak_memory(cpu)
print(before, during, peak_memory(cpu))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    before, during, after = map(int, said.split())
    assert during - before > 150e6 and during - after > 150e6
