import pytest

from repsurgery.datasets import load_winobias
from repsurgery.errors import DataError, LabelError
from tests.datasets.real import real_folder

SENTENCE = "[The CEO] met the nurse because [{}] had time."
PATIENT = "12 The nurse asked [the construction worker] and thanked [{}]."


def write(folder, **lines):
    (folder / "female_occupations.txt").write_text("nurse\n")
    (folder / "male_occupations.txt").write_text("construction worker\nCEO")
    for way, subject, patient in (("pro", "he", "him"), ("anti", "she", "her")):
        for part in ("dev", "test"):
            (folder / f"{way}_stereotyped_type1.txt.{part}").write_text(f"1 {SENTENCE.format(subject)}\n")
            (folder / f"{way}_stereotyped_type2.txt.{part}").write_text(f"{PATIENT.format(patient)}\n")
    for name, line in lines.items():
        (folder / f"pro_stereotyped_{name}.txt.dev").write_text(f"1 {SENTENCE.format('he')}\n{line}\n")


def test_brackets_give_occupation_and_gender(tmp_path):
    write(tmp_path)
    found = load_winobias(tmp_path)
    assert found.texts[:2] == (
        "The CEO met the nurse because he had time.",
        "The nurse asked the construction worker and thanked him.",
    )
    assert found.labels == ("CEO", "construction worker") * 4
    assert found.concepts == ("male", "male", "female", "female") * 2
    assert found.splits == ("train",) * 2 + ("dev",) * 2 + ("test-pro",) * 2 + ("test-anti",) * 2


@pytest.mark.parametrize(
    ("line", "text", "label"),
    [
        ("2 He told the [the CEO] that [he] won.", "He told the CEO that he won.", "CEO"),
        ("2 Go see the [ nurse] and [her] cat.", "Go see the nurse and her cat.", "nurse"),
        ("2 [A nurse] cut [her] hair [herself].", "A nurse cut her hair herself.", "nurse"),
    ],
)
def test_odd_brackets_are_read(tmp_path, line, text, label):
    write(tmp_path, type1=line)
    found = load_winobias(tmp_path)
    assert (found.texts[1], found.labels[1]) == (text, label)


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("2 The CEO met [her].", DataError, r"type1\.txt\.dev, line 2: needs an occupation and a pronoun"),
        ("2 [The CEO met [her].", DataError, "line 2: needs an occupation"),
        ("2 [The CEO] met [her.", DataError, "line 2: needs an occupation"),
        ("2 [The pilot] lost [her] way.", LabelError, "line 2: 'pilot' is in neither list"),
        ("2 [The CEO] lost [the] way.", LabelError, "line 2: needs pronouns of one gender in brackets, got the"),
        ("2 [The CEO] lost [his] way to [her].", LabelError, "got his, her"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path, line, error, message):
    write(tmp_path, type1=line)
    with pytest.raises(error, match=message):
        load_winobias(tmp_path)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*female_occupations\.txt.*uclanlp/corefBias"):
        load_winobias(tmp_path)
    write(tmp_path)
    (tmp_path / "anti_stereotyped_type2.txt.test").write_text("")
    with pytest.raises(DataError, match=r"type2\.txt\.test holds no lines"):
        load_winobias(tmp_path)


def test_the_real_sentences_balance_gender_over_pro_and_anti():
    folder = real_folder("winobias")
    found = load_winobias(folder)
    female = (folder / "female_occupations.txt").read_text().split()
    assert len(found) == 3168
    assert len(found.counts) == 40
    for split in ("train", "dev", "test-pro", "test-anti"):
        part = found.where([name == split for name in found.splits])
        as_listed = [(y in female) == (z == "female") for y, z in zip(part.labels, part.concepts, strict=True)]
        assert len(part) == 792
        assert set(as_listed) == {split in ("train", "test-pro")}
    both = found.where([name in ("train", "dev") for name in found.splits])
    assert all(cell["female"] == cell["male"] for cell in both.counts.values())
    assert not any("[" in text or "  " in text or "the the" in text.lower() for text in found.texts)
