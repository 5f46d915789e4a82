"""A record is written once, comes back as it was, and is refused when anything about it changed."""

import json
from pathlib import Path

import numpy as np
import pytest

from repsurgery.errors import RecordError
from repsurgery.studies import records as store
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.fairness.record import CosineThumbnail, MethodResult, Setting, StudyRecord
from repsurgery.studies.records import read_record, read_records, write_record

COMMITTED = sorted((Path(__file__).parents[2] / "experiments" / "results").glob("*.json"))


def record(**changes):
    base = MethodResult(
        "base",
        measures={"test.accuracy": Estimate(0.8, 0.78, 0.82)},
        gaps={"nurse": 0.25, "surgeon": None},
        neighbours={"8": Estimate(0.7)},
        cosine=CosineThumbnail.of(np.eye(4), 0.5, 0.1),
        certificate={"method": "MiMiC", "mean_gap": 1e-14},
        supported=True,
        facts={"iterations": 31},
    )
    setting = Setting(0.5, {"train": 6, "test": 4}, {"test.accuracy": 0.9}, 0.5, (base,))
    fields = {
        "experiment": "dialect",
        "created": "2026-01-01",
        "spec": {"preset": "paper", "ratios": [0.5]},
        "data": {"name": "tweets of São Paulo", "digest": "ab"},
        "encoder": {"name": "minilm", "dim": 384},
        "environment": {"python": "3.11"},
        "seconds": {"encode": 1.5},
        "settings": (setting,),
        "notes": ("one",),
    }
    return StudyRecord(**{**fields, **changes})


def test_a_record_comes_back_as_it_was(tmp_path):
    path = write_record(record(), tmp_path / "results")
    assert read_record(path) == record()
    assert np.allclose(read_record(path).settings[0].methods[0].cosine.matrix(), np.eye(4))


def test_the_same_record_is_one_file_and_another_record_another(tmp_path):
    first = write_record(record(), tmp_path)
    assert write_record(record(), tmp_path) == first
    later = record(created="2026-01-02", seconds={"encode": 9.0})
    assert write_record(later, tmp_path) == first and read_record(first) == record()  # the first stays as it is
    assert write_record(record(notes=("two",)), tmp_path) != first
    assert len(list(tmp_path.iterdir())) == 2
    assert len(read_records([tmp_path])) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda held: held["record"]["settings"][0].update(chance=0.4), "altered"),
        (lambda held: held.update(schema=2), "layout 2"),
        (lambda held: held.pop("schema"), "not a record"),
    ],
)
def test_an_altered_or_foreign_record_is_refused(tmp_path, change, words):
    path = write_record(record(), tmp_path)
    held = json.loads(path.read_text())
    change(held)
    path.write_text(json.dumps(held))
    with pytest.raises(RecordError, match=words):
        read_record(path)


def test_what_is_no_record_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(RecordError, match="not a record"):
        read_record(tmp_path / "a.json")
    with pytest.raises(RecordError, match="There is no record"):
        read_record(tmp_path / "b.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordError, match="no records to read"):
        read_records([tmp_path / "empty"])


def test_numbers_that_are_none_never_enter_a_record(tmp_path):
    bad = record(seconds={"encode": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        write_record(bad, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["settings"][0]["methods"][0]["measures"]["test.accuracy"].update(value="hello"),
        lambda body: body["settings"][0]["methods"][0]["measures"]["test.accuracy"].update(value=float("nan")),
        lambda body: body["settings"][0]["methods"][0]["cosine"].update(values="AAAA"),
        lambda body: body["settings"][0].update(methods=[]),
        lambda body: body.update(settings=[]),
        lambda body: body.update(surprise=1),
    ],
)
def test_contents_that_no_report_could_show_are_refused(tmp_path, change):
    path = write_record(record(), tmp_path)
    held = json.loads(path.read_text())
    change(held["record"])
    held["digest"] = store._digest(held["record"])
    path.write_text(json.dumps(held))
    with pytest.raises(RecordError, match=r"does not fit a record of 'dialect': .*Run the study again"):
        read_record(path)


def test_an_altered_record_is_not_taken_for_the_same_study(tmp_path):
    path = write_record(record(), tmp_path)
    path.write_text(path.read_text().replace('"chance": 0.5', '"chance": 0.4'))
    with pytest.raises(RecordError, match="altered"):
        write_record(record(), tmp_path)


@pytest.mark.parametrize("experiment", ["weather", None, ["bios"]])
def test_a_record_of_an_unknown_study_is_refused(tmp_path, experiment):
    path = write_record(record(), tmp_path)
    held = json.loads(path.read_text())
    held["record"]["experiment"] = experiment
    held["digest"] = store._digest(held["record"])
    path.write_text(json.dumps(held))
    with pytest.raises(RecordError, match=r"reads bios, dialect, toxicity\. Open it with the version that wrote it"):
        read_record(path)


def test_every_wrong_part_of_a_record_is_named(tmp_path):
    path = write_record(record(), tmp_path)
    held = json.loads(path.read_text())
    held["record"]["settings"][0].update(chance="half", surprise=1)
    held["record"]["settings"][0]["methods"][0].pop("measures")
    held["digest"] = store._digest(held["record"])
    path.write_text(json.dumps(held))
    with pytest.raises(RecordError) as caught:
        read_record(path)
    for words in (
        "settings[0].chance is 'half'; it must be a valid number.",
        "There is no field 'settings[0].surprise'.",
        "settings[0].methods[0]: measures is missing.",
    ):
        assert words in str(caught.value)


def as_stored(written, stored):
    """Return ``written`` without the fields that an older file does not have yet; they must be None."""
    match stored:
        case dict():
            assert all(value is None for name, value in written.items() if name not in stored)
            return {name: as_stored(value, stored[name]) for name, value in written.items() if name in stored}
        case list():
            return [as_stored(*pair) for pair in zip(written, stored, strict=True)]
    return written


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_record_is_written_again_as_it_stands(tmp_path, path):
    again = write_record(read_record(path), tmp_path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    body = as_stored(json.loads(again.read_text(encoding="utf-8"))["record"], stored["record"])
    assert store._digest(body) == stored["digest"]
    text = json.dumps({"schema": 1, "digest": stored["digest"], "record": body}, indent=1, ensure_ascii=False) + "\n"
    assert text == path.read_text(encoding="utf-8")
    assert write_record(read_record(again), tmp_path / "twice").read_bytes() == again.read_bytes()
