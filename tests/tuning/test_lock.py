import itertools
import json
import shutil
from contextlib import suppress
from dataclasses import replace

import pytest

import repsurgery as rs
from repsurgery.errors import DataError, FileFormatError, IdentityWarning, OutputError, ParameterError
from repsurgery.tuning.lock import _seal, lock_path, read_lock, write_lock
from repsurgery.tuning.plan import Budget
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from tests.tuning.tiny import PROMPTS, LetterScorer, labelled, tiny_tune


@pytest.fixture
def moved(searched, tmp_path):
    """Return a copy of the folder of the search, without its finished work."""
    folder = tmp_path / "moved"
    shutil.copytree(searched.folder, folder, ignore=shutil.ignore_patterns("work"))
    return folder


@pytest.fixture
def edit(moved):
    """Return a function that changes the lock, and gives its path."""

    def change(**fields):
        path = moved / "lower.lock.json"
        stored = json.loads(path.read_text()) | fields
        changed = {name: value for name, value in stored.items() if value is not ... and name != "seal"}
        with suppress(KeyError, TypeError):  # a lock without places has no seal either
            changed["seal"] = _seal(changed)
        path.write_text(json.dumps(changed))
        return path

    return change


@pytest.mark.parametrize("field", [{"strength": 3.7}, {"seed": 5}, {"kl": 0.2}])
def test_a_lock_that_was_changed_by_hand_is_refused(moved, field):
    path = moved / "lower.lock.json"
    assert read_lock(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | field))
    with pytest.raises(FileFormatError, match="was changed after it was written"):
        read_lock(path)


def test_a_lock_makes_the_same_steering(searched, moved, tmp_path, written):
    said = []
    again = rs.tune(lock=moved / "lower.lock.json", work_dir=tmp_path / "fresh", announce=said.append)
    assert again.steering.digest() == searched.tuned.steering.digest()
    assert again.record is None
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == searched.out.read_bytes()
    # nothing was compared or confirmed: only the writing prompts were written on
    assert 0 < sum(written) < 400
    assert not any("race" in line or "confirmation" in line for line in said)


def test_the_file_says_where_it_acts_and_what_it_does(searched):
    loaded, record = rs.load(searched.out), searched.tuned.record
    assert loaded.origin.site == record["chosen"]["site"]
    assert loaded.origin.strength == record["chosen"]["strength"]
    assert loaded.origin.positions == "all"
    assert loaded.outcome == searched.tuned.steering.outcome
    assert loaded.outcome.effect == pytest.approx(record["effect"]["value"])
    assert loaded.outcome.kl == record["price"]["kl"] <= 0.1
    assert loaded.digest() == searched.tuned.lock["digest"] == record["digest"]


def test_paths_are_relative_to_the_lock(searched, moved, tmp_path):
    stored = json.loads((moved / "lower.lock.json").read_text())
    assert (stored["texts"]["path"], stored["prompts"]["path"]) == ("texts.csv", "prompts.txt")
    assert read_lock(moved / "lower.lock.json")["texts"]["path"] == str(moved / "texts.csv")
    # a copy elsewhere names the same files
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write_lock(read_lock(moved / "lower.lock.json"), tmp_path / "deep" / "er" / "l.json")
    path = read_lock(tmp_path / "deep" / "er" / "l.json")["prompts"]["path"]
    assert (tmp_path / "deep" / "er" / path).resolve() == (moved / "prompts.txt").resolve()
    assert lock_path("a/kinder.safetensors").as_posix() == "a/kinder.lock.json"


def test_files_that_moved_can_be_given(searched, moved, tmp_path):
    for name in ("texts.csv", "prompts.txt"):
        (moved / name).rename(tmp_path / name)
    with pytest.raises((ParameterError, DataError, FileNotFoundError)):
        rs.tune(lock=moved / "lower.lock.json", work_dir=tmp_path / "w")
    again = rs.tune(
        tmp_path / "texts.csv",
        prompts=tmp_path / "prompts.txt",
        lock=moved / "lower.lock.json",
        work_dir=tmp_path / "w",
    )
    assert again.steering.outcome is not None


@pytest.mark.parametrize(("name", "what"), [("texts.csv", "texts"), ("prompts.txt", "prompts")])
def test_changed_inputs_are_refused(moved, tmp_path, name, what):
    path = moved / name
    path.write_text(path.read_text().replace("w1", "w2", 1))
    with pytest.raises(DataError, match=rf"The {what} differ from those of the lock .* Give the original {what}, or"):
        rs.tune(lock=moved / "lower.lock.json", work_dir=tmp_path / "w")


def test_another_model_and_another_scorer_are_refused(edit, tmp_path):
    own, other = read_lock(edit())["model"], tmp_path / "other"
    tiny_model("llama", seed=1).save_pretrained(other)
    tiny_tokenizer().save_pretrained(other)
    with pytest.raises(DataError, match="The weights of the model differ from those of the lock"):
        rs.tune(lock=edit(model=str(other)), work_dir=tmp_path / "w")

    class Other(LetterScorer):
        digest = "4" * 64

    with pytest.raises(DataError, match="The scores of the labeller differ from those of the lock"):
        rs.tune(lock=edit(model=own), scorer=Other(), work_dir=tmp_path / "w")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", FileFormatError, "is not a lock file: it is not JSON"),
        ("[1]", FileFormatError, "is not a lock file of `repsurgery tune`"),
        ('{"kind": "tune", "schema": 1}', FileFormatError, "is not a lock file of `repsurgery tune`"),
        ('{"kind": "tune-lock", "schema": 1}', FileFormatError, "is damaged: version, model, .* is missing"),
    ],
)
def test_foreign_and_damaged_files_are_refused(tmp_path, text, error, message):
    path = tmp_path / "l.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        read_lock(path)


def test_files_that_are_not_text_or_do_not_exist_are_refused(tmp_path):
    (tmp_path / "l.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not a lock file"):
        read_lock(tmp_path / "l.json")
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ParameterError, match="There is no lock file"):
            read_lock(path)


def test_another_layout_is_refused_with_its_version(edit):
    with pytest.raises(
        FileFormatError, match=r"has the lock format 99; this repsurgery reads 1\. Use the version 7\.0"
    ):
        read_lock(edit(schema=99, version="7.0"))


@pytest.mark.parametrize("name", ["fingerprint", "prompts", "plan", "seed", "candidate", "strength", "digest"])
@pytest.mark.parametrize("wrong", [None, ...])
def test_every_damaged_field_is_named(edit, name, wrong):
    with pytest.raises(FileFormatError, match=f"is damaged: {name} is missing or has another type"):
        read_lock(edit(**{name: wrong}))


@pytest.mark.parametrize(
    "damage",
    [
        {"candidate": {"site": "final"}},
        {"candidate": {"site": "final", "method": "magic", "fit": "texts"}},
        {"candidate": {"site": "final", "method": "mean", "fit": "texts", "price": "x", "sky": 1}},
        {"plan": {"writing": 20}},
        {"plan": {"writing": "many", "search": 8, "confirmation": 14, "writing_samples": 6, "samples": 3}},
        {"outcome": {}},
        {"outcome": {"judge": 3}},
        {"prompts": {}},
        {"texts": {"path": 3}},
    ],
)
def test_damaged_parts_are_refused_in_words(edit, tmp_path, damage):
    with pytest.raises((FileFormatError, DataError), match=r"Write it again|is damaged|Measure it again"):
        rs.tune(lock=edit(**damage), work_dir=tmp_path / "w")


def test_another_digest_is_a_warning_and_leaves_no_outcome(edit, tmp_path):
    with pytest.warns(IdentityWarning, match="It has no measured effect: run tune without --lock"):
        again = rs.tune(lock=edit(digest="0" * 64), work_dir=tmp_path / "w")
    assert again.steering.outcome is None
    assert again.steering.origin.site is not None


def test_a_lock_beside_a_steering_is_its_own(searched, tmp_path):
    """Whatever lies there before: a steering that differs from its lock never gets one, nor loses one silently."""
    own = searched.tuned
    other = replace(own, steering=own.steering.with_origin(site="final").interpolate(0.5), record=None)
    for tuned, foreign in itertools.product((own, other), (None, "a lock of something else")):
        out, place = tmp_path / "s.safetensors", tmp_path / "s.lock.json"
        for path in (out, place):
            path.unlink(missing_ok=True)
        if foreign is not None:
            place.write_text(foreign)
        if tuned is other and foreign is not None:
            with pytest.raises(OutputError, match=r"is the lock of another steering .* under another name"):
                tuned.save(out)
            assert place.read_text() == foreign and not out.exists()
            continue
        written = tuned.save(out)
        assert (written == place and place.is_file()) if tuned is own else (written is None and not place.exists())
        assert rs.load(out).digest() == tuned.steering.digest()
        assert written is None or read_lock(written)["digest"] == tuned.steering.digest()


@pytest.mark.parametrize(
    ("name", "locked"),
    [("prompts", "prompts"), ("weights of the model", "fingerprint"), ("scores of the labeller", "labeller")],
)
def test_every_digest_of_a_lock_is_compared(edit, tmp_path, name, locked):
    """Each digest that a lock states belongs to something that is found again; another one is refused by its name."""
    wrong = "5" * 64
    if locked == "prompts":
        path = edit()
        stored = json.loads(path.read_text())["prompts"]
        lock = edit(prompts={**stored, "digest": wrong})
    else:
        lock = edit(**{locked: wrong})
    with pytest.raises(DataError, match=f"The {name} differ from those of the lock .digest .* instead of 555555555555"):
        rs.tune(lock=lock, work_dir=tmp_path / "w")


def test_inputs_that_were_never_files_must_be_given_again(model_folder, tmp_path):
    tuned = tiny_tune(model_folder, tmp_path / "work")
    lock = tuned.save(tmp_path / "own.safetensors")
    with pytest.raises(ParameterError, match="texts"):
        rs.tune(prompts=PROMPTS, scorer=LetterScorer(), lock=lock, work_dir=tmp_path / "w")
    with pytest.raises(ParameterError, match="prompts"):
        rs.tune(labelled(), scorer=LetterScorer(), lock=lock, work_dir=tmp_path / "w")
    again = rs.tune(labelled(), prompts=PROMPTS, scorer=LetterScorer(), lock=lock, work_dir=tmp_path / "w")
    assert again.steering.outcome == tuned.steering.outcome


def test_a_limit_in_whole_numbers_can_be_locked(searched, tmp_path):
    stored = write_lock({**searched.tuned.lock, "wikitext": Budget(0.1, 2).wikitext}, tmp_path / "l.json")
    assert read_lock(stored)["wikitext"] == 2.0
