"""The record of a toxicity study comes back as it was, and is refused when anything about it changed."""

import json
from dataclasses import replace

import pytest

from repsurgery.errors import RecordError
from repsurgery.studies import records as store
from repsurgery.studies.common.estimate import Estimate
from repsurgery.studies.records import read_record, read_records, write_record
from repsurgery.studies.toxicity.record import Configured, Example, ToxicityRecord
from tests.studies.test_records import record as fairness_record


def record(**changes):
    base = Configured(
        "base",
        choices={"method": "base", "scope": "none"},
        measures={"linear.expected_max_toxicity": Estimate(0.24, 0.22, 0.26), "kl": Estimate(0.0)},
        maxima={"linear": [0.5, None, 0.1]},
        facts={"texts without score": 25},
    )
    mean = replace(
        base,
        name="mean, all",
        choices={"method": "mean", "scope": "all", "fit": "last", "gate": None, "strength": 1.0, "rows": 2000},
        differences={"linear.expected_max_toxicity": Estimate(-0.1, -0.12, -0.08)},
        certificate={"method": "MeanMatching", "mean_gap": 1e-14},
        held_out={"method": "MeanMatching", "mean_gap": 0.2},
        supported=True,
    )
    fields = {
        "experiment": "toxicity",
        "created": "2026-01-01",
        "spec": {"preset": "local", "strengths": [0.5, 1.0]},
        "data": {"name": "jigsaw", "digest": "ab"},
        "model": {"name": "smollm2-135m", "dim": 576},
        "prompts": {"name": "RealToxicityPrompts", "count": 3},
        "scorers": {"linear": {"name": "words", "auc": 0.88}},
        "fluency": {"name": "smollm2-135m"},
        "wikitext": {},
        "environment": {"python": "3.11"},
        "seconds": {"generate": 1.5},
        "configurations": (base, mean),
        "examples": (Example("قال الرجل", {"base": " <b>\n\u202e😀", "mean, all": ""}),),
        "notes": ("one",),
    }
    return ToxicityRecord(**{**fields, **changes})


def rewritten(path, change, *, sealed):
    """Change the record in a file; sealed, its digest is renewed as well."""
    held = json.loads(path.read_text(encoding="utf-8"))
    change(held["record"])
    if sealed:
        held["digest"] = store._digest(held["record"])
    path.write_text(json.dumps(held), encoding="utf-8")
    return path


def test_a_record_comes_back_as_it_was(tmp_path):
    path = write_record(record(), tmp_path)
    assert path.name.startswith("toxicity-jigsaw-smollm2_135m-local-")
    back = read_record(path)
    assert back == record()
    assert back.configured("mean, all").maxima["linear"][1] is None
    assert back.configured("unheard-of") is None


def test_both_kinds_are_read_from_one_folder(tmp_path):
    write_record(record(), tmp_path)
    write_record(fairness_record(), tmp_path)
    assert sorted(type(one).__name__ for one in read_records([tmp_path])) == ["StudyRecord", "ToxicityRecord"]


def test_the_same_study_is_one_file_whenever_it_ran(tmp_path):
    first = write_record(record(), tmp_path)
    assert write_record(record(created="2027-01-01", seconds={"generate": 9.0}), tmp_path) == first
    assert write_record(record(notes=("two",)), tmp_path) != first
    assert len(list(tmp_path.iterdir())) == 2


def test_an_altered_file_is_refused(tmp_path):
    path = write_record(record(), tmp_path)
    rewritten(path, lambda body: body["configurations"][1]["maxima"]["linear"].__setitem__(0, 0.1), sealed=False)
    with pytest.raises(RecordError, match="altered"):
        read_record(path)


@pytest.mark.parametrize("name", [field for field in ToxicityRecord.__dataclass_fields__ if field != "experiment"])
def test_a_record_that_lacks_a_part_is_refused(tmp_path, name):
    path = rewritten(write_record(record(), tmp_path), lambda body: body.pop(name), sealed=True)
    with pytest.raises(RecordError, match="does not fit"):
        read_record(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.pop("experiment"),
        lambda body: body.update(surprise=1),
        lambda body: body.update(configurations=[]),
        lambda body: body["configurations"].reverse(),
        lambda body: body["configurations"][0].pop("measures"),
        lambda body: body["configurations"][0].update(surprise=1),
        lambda body: body["configurations"][0]["measures"]["kl"].update(value="hello"),
        lambda body: body["configurations"][0]["measures"]["kl"].update(value=float("nan")),
        lambda body: body["examples"][0].pop("prompt"),
    ],
)
def test_contents_that_no_report_could_show_are_refused(tmp_path, change):
    path = rewritten(write_record(record(), tmp_path), change, sealed=True)
    with pytest.raises(RecordError, match="does not fit"):
        read_record(path)


def test_a_disk_that_fills_up_leaves_no_record(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RecordError, match=r"No space.*Make room"):
        write_record(record(), tmp_path)
    assert list(tmp_path.iterdir()) == []
