import csv
import sys

import pytest

from repsurgery.datasets import load_jigsaw
from repsurgery.datasets.jigsaw import REPOSITORY
from repsurgery.errors import DataError, LabelError, MissingExtraError
from tests.datasets.hub_cache import run_offline, write_snapshot
from tests.datasets.real import real_folder

KAGGLE = (
    "id,comment_text,toxic,severe_toxic,obscene,threat,insult,identity_hate\n"
    '0a,"You, ""friend"", are\nwrong. ",1,0,0,0,1,0\n'
    "0b,  Thanks.,0,0,0,0,0,0\n"
    "0c,   ,1,0,0,0,0,0\n"
    "0d,  Thanks.,1,0,0,0,0,0\n"
    "0e,Thanks.,0,0,1,0,0,0\n"
)
TEXTS = ('You, "friend", are\nwrong. ', "  Thanks.", "Thanks.")
LABELS = ("toxic", "non-toxic", "non-toxic")
BARE = '"You, ""friend"", are\nwrong. ",1\n  Thanks.,0\n   ,1\n  Thanks.,1\nThanks.,0\n'


def write_parquet(path):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra repsurgery[data]")
    import pyarrow.parquet

    table = pa.table({"comment_text": [TEXTS[0], TEXTS[1], " ", None, TEXTS[1], TEXTS[2]], "toxic": [1, 0, 1, 1, 1, 0]})
    pyarrow.parquet.write_table(table, path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("train.csv", lambda path: path.write_text(KAGGLE)),
        ("test.csv", lambda path: path.write_text(BARE)),
        ("train.parquet", write_parquet),
    ],
)
def test_every_form_gives_each_text_once_unchanged_and_in_order(tmp_path, name, write):
    write(tmp_path / name)
    found = load_jigsaw(tmp_path)
    assert (found.texts, found.labels) == (TEXTS, LABELS)
    assert found.source == f"Jigsaw 2018, {tmp_path.name}/{name}"
    assert load_jigsaw(tmp_path / name) == found


def test_the_column_toxic_decides_and_no_other(tmp_path):
    (tmp_path / "train.csv").write_text("insult,toxic,comment_text\n1,0,a\n0,1,b\n")
    assert load_jigsaw(tmp_path).labels == ("non-toxic", "toxic")


def test_kaggles_training_set_comes_before_its_test_set(tmp_path):
    (tmp_path / "train.csv").write_text(KAGGLE)
    (tmp_path / "test.csv").write_text("id,comment_text\n1,a\n")
    assert load_jigsaw(tmp_path).texts == TEXTS


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("a,1\nb,2\n", LabelError, r"t\.csv, line 2: the label '2' is neither 0 nor 1"),
        ("a,1\nb,\n", LabelError, "line 2: the label '' is neither"),
        ("a,1\nb\n", DataError, "line 2: 1 cells. Write a text and its label"),
        ('a,1\n"b,1\n', DataError, "line 2: .*Correct the quoting"),
        ("a,1\n\xe9".encode("latin-1"), DataError, "line 2: byte 4 is not UTF-8"),
        ("id,comment_text,toxic\n1,a,-1\n", LabelError, "line 2: the label '-1'"),
        ("id,comment_text\n1,a\n", DataError, r"no column 'toxic'; found: id, comment_text\. Pass Kaggle's train\.csv"),
        ("comment_text,toxic\n", DataError, "holds no rows"),
        (" ,1\n", DataError, r"holds no comments.*kaggle\.com"),
        ("", DataError, "found: none"),
    ],
)
def test_an_unusable_file_says_where_and_what_to_do(tmp_path, content, error, message):
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error, match=message):
        load_jigsaw(tmp_path / "t.csv")


def test_nothing_to_read_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"holds no train\.csv or .*kaggle\.com"):
        load_jigsaw(tmp_path)
    with pytest.raises(DataError, match="There is no file"):
        load_jigsaw(tmp_path / "none.csv")


def test_the_data_folder_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[data\]'.*REPSURGERY_DATA.*'jigsaw'"):
        load_jigsaw()
    for folder, name in (("jigsaw_balanced_12k", "test.csv"), ("jigsaw", "train.csv")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(f"comment_text,toxic\n{folder},1\n")
        assert load_jigsaw().texts == (folder,)


SCRIPT = f"""
from repsurgery.datasets import load_jigsaw
found = load_jigsaw()
assert found.texts == {TEXTS!r}, found.texts
assert found.source == "Jigsaw 2018, {REPOSITORY} at 0123456", found.source
"""


def test_the_hubs_copy_is_read_from_its_cache(tmp_path):
    pytest.importorskip("huggingface_hub", reason="the hub needs the extra repsurgery[data]")
    write_snapshot(tmp_path / "full", REPOSITORY, {"train.csv": KAGGLE, "test.csv": "id,comment_text\n1,a\n"})
    done = run_offline(SCRIPT, tmp_path / "full")
    assert done.returncode == 0, done.stderr
    (tmp_path / "empty").mkdir()
    missed = run_offline(SCRIPT, tmp_path / "empty")
    assert f"DataError: {REPOSITORY} could not be downloaded" in missed.stderr
    assert "Pass a folder of its files" in missed.stderr


def test_the_real_comments():
    folder = real_folder("jigsaw_balanced_12k")
    found = load_jigsaw(folder)
    assert found.counts == {"non-toxic": 6088, "toxic": 6089}
    first = {}
    with (folder / "test.csv").open(encoding="utf-8", newline="") as stream:
        for text, label in csv.reader(stream):
            if text.strip():
                first.setdefault(text, {"0": "non-toxic", "1": "toxic"}[label])
    assert (found.texts, found.labels) == (tuple(first), tuple(first.values()))
