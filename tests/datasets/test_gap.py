import pytest

from repsurgery.datasets import load_gap
from repsurgery.errors import DataError, LabelError
from tests.datasets.real import real_folder

HEAD = "ID\tText\tPronoun\tPronoun-offset"


def write(folder, **rows):
    for split in ("development", "validation", "test"):
        row = rows.get(split, f'{split}-1\tThe "{split}" text.\tHis\t3')
        (folder / f"gap-{split}.tsv").write_text(f"{HEAD}\n{row}\n")


def test_the_pronoun_in_question_gives_the_concept(tmp_path):
    write(tmp_path, validation="v-1\tHe met her.\thers\t7")
    found = load_gap(tmp_path)
    assert found.texts == ('The "development" text.', "He met her.", 'The "test" text.')
    assert (found.concepts, found.labels) == (("male", "female", "male"), ("all",) * 3)
    assert found.splits == ("train", "dev", "test")


def test_bad_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*gap-development\.tsv.*gap-coreference"):
        load_gap(tmp_path)
    write(tmp_path, test="t-1\tThey met.\tThey\t0")
    with pytest.raises(LabelError, match=r"gap-test\.tsv, line 2: 'They' is not a gendered pronoun"):
        load_gap(tmp_path)
    write(tmp_path, test="t-1\t\tHis\t0")
    with pytest.raises(DataError, match="line 2: the column 'Text' is empty"):
        load_gap(tmp_path)
    (tmp_path / "gap-test.tsv").write_text("ID\tText\n1\ta\n")
    with pytest.raises(DataError, match="no column 'Pronoun'"):
        load_gap(tmp_path)


def test_the_real_passages():
    found = load_gap(real_folder("gap"))
    assert found.counts == {"all": {"female": 2227, "male": 2227}}
    assert [found.splits.count(split) for split in ("train", "dev", "test")] == [2000, 454, 2000]
