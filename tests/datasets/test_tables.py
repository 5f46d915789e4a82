import json
import sys
import warnings

import pytest

from repsurgery.datasets import LabelledTexts, read_study, read_table
from repsurgery.errors import DataError, LabelError, MissingExtraError, ParameterError, TableWarning

TEXTS, LABELS = ("Go, away.", 'She said "hello".', "Grüße aus Köln"), ("rude", "kind", "kind")


def write(folder, suffix, *, text="text", label="label"):
    path = folder / f"table{suffix}"
    if suffix == ".csv":
        quoted = [
            f'{row},"{t.replace(chr(34), chr(34) * 2)}",{z}'
            for row, (t, z) in enumerate(zip(TEXTS, LABELS, strict=True))
        ]
        path.write_text("\n".join([f"id,{text},{label}", *quoted]) + "\n", encoding="utf-8")
    elif suffix == ".tsv":
        path.write_text(
            "\n".join([f"{label}\t{text}", *(f"{z}\t{t}" for t, z in zip(TEXTS, LABELS, strict=True))]),
            encoding="utf-8",
        )
    elif suffix in (".jsonl", ".ndjson"):
        lines = [json.dumps({text: t, label: z, "extra": [1]}) for t, z in zip(TEXTS, LABELS, strict=True)]
        path.write_text("\n\n".join(lines), encoding="utf-8")
    else:
        pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra repsurgery[data]")
        import pyarrow.parquet

        pyarrow.parquet.write_table(pa.table({text: list(TEXTS), label: list(LABELS), "n": [1, 2, 3]}), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq"])
def test_every_format_gives_the_same_texts_and_labels(tmp_path, suffix):
    table = read_table(write(tmp_path, suffix))
    assert (table.texts, table.labels) == (TEXTS, LABELS)
    assert table.digest == LabelledTexts(TEXTS, LABELS, name="other", source="elsewhere").digest
    assert (table.name, table.source) == ("table", f"table{suffix}")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_columns_may_have_other_names_and_a_missing_one_lists_those_found(tmp_path, suffix):
    path = write(tmp_path, suffix, text="sentence", label="tone")
    assert read_table(path, text="sentence", label="tone").texts == TEXTS
    with pytest.raises(DataError, match=r"no column 'text' and 'label'; found: .*sentence.*Name yours with text="):
        read_table(path)


def test_white_space_around_texts_labels_and_headings_is_dropped(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbf text , label\r\n  Good day.  , kind \r\n")
    table = read_table(path)
    assert (table.texts, table.labels) == (("Good day.",), ("kind",))


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("t.csv", b"text,label\nfine,kind\n   ,rude\n", DataError, "line 3: the column 'text' is empty"),
        ("t.csv", b"text,label\nfine,kind\nhello\n", LabelError, "line 3: the column 'label' is empty"),
        ("t.csv", b"text,label\nfine,kind,more\n", DataError, "line 2: more cells than columns"),
        ("t.csv", b'text,label\n"open,kind\n', DataError, "line 2: .*Correct the quoting"),
        ("t.csv", b"text,label\n", DataError, "holds no rows"),
        ("t.csv", b"", DataError, "found: none"),
        # bytes that are UTF-8 elsewhere in the file, bytes that Windows-1252 does not define, and no text at all
        ("t.csv", b"text,label\nGr\xc3\xbc\xc3\x9fe,kind\ncaf\xe9,kind\n", DataError, "line 3: byte 27 is not UTF-8"),
        ("t.csv", b"text,label\nfine,kind\ncaf\x81,kind\n", DataError, "line 3: byte 24 is not UTF-8. Save"),
        ("t.csv", b"text,label\nfine,k\0nd\ncaf\xe9,kind\n", DataError, "line 3: byte 24 is not UTF-8. Save"),
        ("t.csv", b"\xff\xfet\0e", DataError, "is not UTF-16. Save the file as UTF-8"),
        ("t.jsonl", b'{"text": "caf\xe9", "label": "b"}', DataError, "line 1: byte 13 is not UTF-8. Save"),
        ("t.csv", b"a;b;c\n1;2;3\n", DataError, "no column 'text' and 'label'; found: a, b, c"),
        ("t.csv", b"text,label\nfine,0,5\n", DataError, "line 2: more cells than columns. Quote or remove separators"),
        ("t.jsonl", b'{"text": "a", "label": "b"}\n{oops\n', DataError, "line 2: .*one JSON object per line"),
        ("t.jsonl", b"[1]\n", DataError, "line 1: a list"),
        ("t.jsonl", b'{"text": "a", "label": "b"}\n{"text": "a"}\n', LabelError, "line 2: the column 'label' is empty"),
        ("t.jsonl", b'{"text": "a", "label": NaN}\n', LabelError, "line 1: the column 'label' is empty"),
        ("t.csv", b"text,label,text\na,b,c\n", DataError, "columns 1 and 3 are called 'text'. Rename or remove"),
        ("t.tsv", b"text\tlabel\t label\na\tb\tc\n", DataError, "columns 2 and 3 are called 'label'"),
        (
            "t.jsonl",
            b'{"text": "a", "label": "b"}\n{"text": "a", "label": "b", "label": "c"}\n',
            DataError,
            "line 2: the key 'label' occurs more than once in an object. Rename or remove all but one",
        ),
        (
            "t.jsonl",
            b'{"text": "a", "label": "b", "x": {"y": 1, "y": 1}}',
            DataError,
            "line 1: the key 'y' occurs more",
        ),
        ("t.jsonl", b'{"text": ["a"], "label": "b"}', DataError, "line 1: the column 'text' holds a list, not a text"),
        ("t.jsonl", b'{"text": "a", "label": {"b": 1}}', DataError, "line 1: the column 'label' holds a dict"),
        ("t.parquet", b"not parquet", DataError, "cannot be read as Parquet"),
        ("t.xlsx", b"", DataError, r"ends in '.xlsx'; tables that can be read: \.csv"),
    ],
)
def test_an_unusable_table_says_where_and_what_to_do(tmp_path, name, content, error, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow", reason="Parquet needs the extra repsurgery[data]")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        read_table(tmp_path / name)


EXCEL = {
    "semicolons": (";", "utf-8", "separated by semicolons"),
    "tabs": ("\t", "utf-8-sig", "separated by tabs"),
    "Windows-1252": (",", "cp1252", "in Windows-1252"),
    "both": (";", "cp1252", "in Windows-1252 and separated by semicolons"),
    "UTF-16": (",", "utf-16", None),
}


@pytest.mark.parametrize("form", EXCEL)
def test_every_form_of_excel_gives_the_same_cells(tmp_path, form):
    separator, encoding, said = EXCEL[form]
    cells = [["id", "text", "label"], ["1", 'Grüße – sie sagte ""hallo""', "very kind"], ["2", "a; b, c\td", "0,5"]]
    lines = [separator.join(f'"{cell}"' for cell in row) for row in cells]
    (tmp_path / "t.csv").write_bytes("\r\n".join(lines).encode(encoding))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        table = read_table(tmp_path / "t.csv")
    assert table.texts == ('Grüße – sie sagte "hallo"', "a; b, c\td") and table.labels == ("very kind", "0,5")
    assert [str(one.message) for one in told] == (
        [f"{tmp_path / 't.csv'} was read as a table {said}. If this is wrong, save it as UTF-8 with commas."]
        if said
        else []
    )


def test_commas_win_where_they_give_the_columns(tmp_path):
    (tmp_path / "t.csv").write_text("text,label,a;b\nx,y,z\n")
    assert read_table(tmp_path / "t.csv").texts == ("x",)


def test_a_first_line_may_state_the_separator(tmp_path):
    (tmp_path / "t.csv").write_text("sep=|\ntext|label\nx|y\n")
    assert read_table(tmp_path / "t.csv").labels == ("y",)


def test_labels_that_become_equal_are_told(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,very kind \nb,very kind\nc, rude\n")
    with pytest.warns(TableWarning, match="different spellings became 'very kind'."):
        assert read_table(tmp_path / "t.csv").labels == ("very kind", "very kind", "rude")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        read_table(tmp_path / "none.csv")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[data\]'"):
        read_table(tmp_path / "t.parquet")


def test_numbers_as_labels_become_their_text(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "label": 0}\n{"text": "b", "label": 1}')
    assert read_table(tmp_path / "t.jsonl").labels == ("0", "1")


STUDY = "text,label,concept,fold\n Hello. , nurse ,f ,train\nBye.,judge,m,test\n"


def test_a_study_reads_label_concept_and_split(tmp_path):
    (tmp_path / "own.csv").write_text(STUDY)
    found = read_study(tmp_path / "own.csv", split="fold")
    assert (found.texts, found.labels) == (("Hello.", "Bye."), ("nurse", "judge"))
    assert (found.concepts, found.splits) == (("f", "m"), ("train", "test"))
    assert (found.name, found.source) == ("own", "own.csv")
    assert read_study(tmp_path / "own.csv").splits == ()


def test_a_study_without_a_task_has_one_label(tmp_path):
    (tmp_path / "own.csv").write_text(STUDY)
    found = read_study(tmp_path / "own.csv", label=None, concept="label")
    assert (found.labels, found.concepts) == (("all", "all"), ("nurse", "judge"))


def test_a_folder_names_the_splits_whatever_its_formats(tmp_path):
    (tmp_path / "test.jsonl").write_text('{"text": "c", "label": 0, "concept": 1}')
    (tmp_path / "validation.tsv").write_text("text\tlabel\tconcept\nb\t1\t1\n")
    (tmp_path / "train-00001-of-00002.csv").write_text("text,label,concept\na2,1,0\n")
    (tmp_path / "train-00000-of-00002.csv").write_text("text,label,concept\na1,1,0\n")
    (tmp_path / "notes.csv").write_text("no table of texts")
    found = read_study(tmp_path)
    assert found.texts == ("a1", "a2", "b", "c")
    assert found.splits == ("train", "train", "dev", "test")


def test_an_unusable_study_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="no table named train, dev, validation or test"):
        read_study(tmp_path)
    (tmp_path / "train.csv").write_text(STUDY)
    with pytest.raises(ParameterError, match="Leave split= out"):
        read_study(tmp_path, split="fold")
    with pytest.raises(DataError, match=r"no column 'gender'; found: .*Name yours with text=, concept=, label=\."):
        read_study(tmp_path, concept="gender")
    (tmp_path / "train.tsv").write_text("text\tlabel\tconcept\nb\t1\t1\n")
    with pytest.raises(DataError, match=r"'train' more than once: train\.csv, train\.tsv"):
        read_study(tmp_path)
    (tmp_path / "hole.csv").write_text("text,label,concept\na,b,\n")
    with pytest.raises(LabelError, match="line 2: the column 'concept' is empty"):
        read_study(tmp_path / "hole.csv")
    with pytest.raises(DataError, match="There is no file"):
        read_study(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["1", '"1"'], ['number 1 (line 1) and the text "1" (line 2)']),
        (["1", "true"], ["number 1 (line 1) and the truth value true (line 2)"]),
        (["1", "1.0"], ["number 1 (line 1) and the number 1.0 (line 2)"]),
        (["false", '"a"'], ['truth value false (line 1) and the text "a" (line 2)']),
        (['"a"', "null", '"b"', "2.5"], ['text "a" (line 1) and the number 2.5 (line 4)']),
        (["1.0", "2.0", "1"], ["number 1.0 (line 1) and the number 1 (line 3)"]),
    ],
)
def test_labels_of_several_types_are_refused_and_named(tmp_path, labels, named):
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(f'{{"text": "t", "label": {label}}}' for label in labels))
    for read in (read_table, lambda path: read_study(path, concept="label", label=None)):
        with pytest.raises(LabelError) as error:
            read(path)
        assert all(f"the {words}" in str(error.value) for words in named)
        assert str(error.value).endswith("Write every label in one way, for example as text.")


@pytest.mark.parametrize(
    "labels", [["1", "2"], ["1", "2.5"], ["true", "false"], ['"1"', '"1.0"', '"true"'], ["1.0", "1.0"]]
)
def test_labels_of_one_type_are_read(tmp_path, labels):
    """Counter-check: whole and other numbers are one type, as ratings are."""
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(f'{{"text": "t", "label": {label}}}' for label in labels))
    assert list(read_table(path).labels) == [str(json.loads(label)) for label in labels]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_the_lines_of_a_file_of_mixed_encodings_are_named(tmp_path, suffix):
    wrong = [3, 5, *range(20, 30)]
    line = {".csv": "{},a", ".tsv": "{}\ta", ".jsonl": '{{"text": "{}", "label": "a"}}'}[suffix]
    header = [] if suffix == ".jsonl" else [{".csv": "text,label", ".tsv": "text\tlabel"}[suffix]]
    rows = [*header, *(line.format("café") for _ in range(40))]
    data = [row.encode("cp1252" if number in wrong else "utf-8") for number, row in enumerate(rows, start=1)]
    (tmp_path / f"t{suffix}").write_bytes(b"\n".join(data))
    first = 1 if suffix == ".jsonl" else 2
    said = (
        r"line 3: byte \d+ is not UTF-8, and neither are lines 5, 20, 21, 22, 23, 24, 25, 26 and 3 more, but line "
        rf"{first} is: the file mixes encodings\. Write these lines again as UTF-8\."
    )
    with pytest.raises(DataError, match=said):
        read_table(tmp_path / f"t{suffix}")
