import json
import pickle
import sys
from types import SimpleNamespace

import pytest

from repsurgery.datasets import load_bios
from repsurgery.datasets.bios import PROFESSIONS
from repsurgery.errors import DataError, LabelError, MissingExtraError
from tests.datasets.real import real_folder

ROWS = [("She teaches yoga .", 27, 1), ("He audits , daily .", 0, 0), ("She operates .", 25, 1)]
LABELS, CONCEPTS = ("yoga_teacher", "accountant", "surgeon"), ("female", "male", "female")
SPLITS = ("train", "dev", "test")


def write_parquet(folder):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra repsurgery[data]")
    import pyarrow.parquet

    for split, (text, profession, gender) in zip(SPLITS, ROWS, strict=True):
        table = pa.table({"hard_text": [text], "profession": [profession], "gender": [gender]})
        pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001-0ab1.parquet")


def write_pickles(folder):
    for split, (text, profession, gender) in zip(SPLITS, ROWS, strict=True):
        row = {"g": "mf"[gender], "p": PROFESSIONS[profession], "hard_text": text, "text": "x", "start": 7}
        (folder / f"{split}.pickle").write_bytes(pickle.dumps([row]))


def write_jsonl(folder):
    for split, (text, profession, gender) in zip(SPLITS, ROWS, strict=True):
        row = {
            "hard_text": f" {text} ",
            "profession": PROFESSIONS[profession].upper(),
            "gender": ["Male", "F "][gender],
        }
        (folder / f"{split}.jsonl").write_text(json.dumps(row))


@pytest.mark.parametrize("write", [write_parquet, write_pickles, write_jsonl])
def test_every_form_gives_the_same_biographies(tmp_path, write):
    write(tmp_path)
    found = load_bios(tmp_path)
    assert found.texts == tuple(text for text, *_ in ROWS)
    assert (found.labels, found.concepts, found.splits) == (LABELS, CONCEPTS, SPLITS)
    assert found.cautions[0].startswith("25 of the 28 professions do not occur: architect")


def test_the_28_professions_are_numbered_by_the_alphabet():
    assert len(PROFESSIONS) == 28
    assert sorted(PROFESSIONS) == list(PROFESSIONS)


def write_csv(path, *rows):
    path.write_text("\n".join(["hard_text,profession,gender", *rows]) + "\n", encoding="utf-8")


def test_files_by_profession_count_a_repeated_row_once(tmp_path):
    write_csv(tmp_path / "nurse.csv", '"He cares, a lot.",nurse,Male', "She cares.,nurse,Female")
    write_csv(tmp_path / "nurse_complete.csv", "She cares.,nurse,Female", "She cares.,nurse,Male", "They,nurse,F")
    found = load_bios(tmp_path)
    assert found.texts == ("He cares, a lot.", "She cares.", "She cares.", "They")
    assert found.concepts == ("male", "female", "male", "female")
    assert found.splits == ()
    assert len(load_bios(tmp_path / "nurse_complete.csv")) == 3


def test_a_repeated_row_within_named_splits_is_kept(tmp_path):
    write_csv(tmp_path / "train.csv", "She cares.,nurse,f", "She cares.,nurse,f")
    write_csv(tmp_path / "test.csv", "She cares.,nurse,f")
    assert load_bios(tmp_path).splits == ("train", "train", "test")


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        (
            "Text.,astronaut,f",
            LabelError,
            r"b\.csv, line 3: the profession 'astronaut' is unknown; it must be one of accountant",
        ),
        ("Text.,28,f", LabelError, "the profession '28' is unknown"),
        ("Text.,nurse,x", LabelError, r"b\.csv, line 3: the gender 'x' is unknown; it must be one of 0, m"),
        ("Text.,nurse,", LabelError, "the column 'gender' is empty"),
        ("Text.,,f", LabelError, "the column 'profession' is empty"),
        (" ,nurse,f", DataError, "the column 'hard_text' is empty"),
    ],
)
def test_a_bad_row_is_named_with_its_value(tmp_path, row, error, message):
    write_csv(tmp_path / "b.csv", "Fine.,nurse,f", row)
    with pytest.raises(error, match=message):
        load_bios(tmp_path)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (
            [{"g": "f", "p": "nurse", "hard_text": "a"}, {"g": "q", "p": "nurse", "hard_text": "a"}],
            LabelError,
            "row 1: .*'q'",
        ),
        ([{"g": "f", "hard_text": "a"}], LabelError, "row 0: 'p' or 'g' is empty or missing"),
        ([{"g": "f", "p": "nurse", "hard_text": None}], DataError, "row 0: 'hard_text' is empty or missing"),
        ([["f"]], DataError, "row 0: a list"),
        ({}, DataError, "holds a dict, not a filled list"),
        ([], DataError, "holds a list, not a filled list"),
    ],
)
def test_a_bad_pickle_is_named_with_its_row(tmp_path, rows, error, message):
    (tmp_path / "train.pickle").write_bytes(pickle.dumps(rows))
    with pytest.raises(error, match=message):
        load_bios(tmp_path)


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no biographies"):
        load_bios(tmp_path)
    with pytest.raises(DataError, match="There is no file"):
        load_bios(tmp_path / "none.csv")
    (tmp_path / "train.csv").write_text("text,profession\na,b\n")
    with pytest.raises(DataError, match="no column 'hard_text' and 'gender'; found: text, profession"):
        load_bios(tmp_path)


def test_damaged_parquet_is_an_error(tmp_path):
    write_parquet(tmp_path)
    file = next(tmp_path.glob("train*"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        load_bios(tmp_path)


def test_the_data_folder_comes_before_the_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("REPSURGERY_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[data\]'.*REPSURGERY_DATA"):
        load_bios()
    for name in ("bias_in_bios_samples", "bias_in_bios"):
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "b.csv", f"{name},nurse,f")
        assert load_bios().texts == (name,)


def test_the_hub_gives_its_parquet_files_at_one_revision(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data")
    calls = []

    def snapshot_download(repository, **options):
        calls.append((repository, options))
        return str(tmp_path)

    monkeypatch.delenv("REPSURGERY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    found = load_bios()
    assert found.labels == LABELS
    assert "LabHC/bias_in_bios at 052f01d" in found.source
    ((repository, options),) = calls
    assert repository == "LabHC/bias_in_bios"
    assert options["repo_type"] == "dataset"
    assert len(options["revision"]) == 40


def test_a_failed_download_says_how_to_go_on(monkeypatch):
    def snapshot_download(*_, **__):
        raise FileNotFoundError("no network")

    monkeypatch.delenv("REPSURGERY_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    with pytest.raises(DataError, match=r"could not be downloaded .*no network.*Pass a folder"):
        load_bios()


def test_the_real_samples():
    folder = real_folder("bias_in_bios_samples")
    found = load_bios(folder)
    assert (len(found), len(found.counts), found.cautions) == (1278, 28, ())
    assert load_bios(folder / "accountant_complete.csv").counts == {"accountant": {"female": 366, "male": 634}}
