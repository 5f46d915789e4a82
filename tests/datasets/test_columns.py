"""Columns are found by what they hold, prompts are read from any file, and rows with holes may be left out."""

import json

import pytest

from repsurgery.datasets import read_study, read_table
from repsurgery.datasets.columns import find_label_column, find_text_column, read_columns
from repsurgery.datasets.own_prompts import read_own_prompts
from repsurgery.errors import DataError, LabelError, ParameterError

TEXTS = [f"this is comment number {i}" for i in range(12)]
COLUMNS = {"id": [str(i) for i in range(12)], "said": TEXTS, "bad": ["0", "1"] * 6}


def csv_of(path, columns):
    rows = zip(*columns.values(), strict=True)
    path.write_text("\n".join(map(",".join, [tuple(columns), *rows])) + "\n")
    return path


@pytest.mark.parametrize("order", [("id", "said", "bad"), ("bad", "said", "id"), ("said", "bad", "id")])
def test_the_order_of_columns_does_not_matter(tmp_path, order):
    columns = read_columns(csv_of(tmp_path / "t.csv", {name: COLUMNS[name] for name in order}))
    assert find_text_column(tmp_path, columns) == "said"
    assert find_label_column(tmp_path, columns, text="said") == "bad"


def test_columns_that_could_both_hold_labels_are_not_guessed(tmp_path):
    with pytest.raises(DataError, match=r"bad and worse could hold them.*--set label=bad"):
        find_label_column(tmp_path, {**COLUMNS, "worse": ["x", "y", "z"] * 4}, text="said")
    with pytest.raises(DataError, match=r"id, said, and none of them.*--set label="):
        find_label_column(tmp_path, {name: COLUMNS[name] for name in ("id", "said")}, text="said")
    with pytest.raises(DataError, match=r"looks like texts; its columns are id, bad.*--set text="):
        find_text_column(tmp_path, {name: COLUMNS[name] for name in ("id", "bad")})


def test_parquet_has_the_same_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({**COLUMNS, "bad": [0, 1] * 6}).to_parquet(tmp_path / "t.parquet")
    assert read_columns(tmp_path / "t.parquet") == COLUMNS


@pytest.mark.parametrize("name", ["p.txt", "p.prompts", "p.csv", "p.jsonl", "q.csv", "q.jsonl", "two.csv"])
def test_prompts_are_the_same_from_every_file(tmp_path, name):
    prompts = ["You are", 'He said: "no', "You are", "Why, then"]
    column = "prompt" if name.startswith("p") else "my question"
    if name.endswith("csv"):
        quoted = ['"' + prompt.replace('"', '""') + '"' for prompt in prompts]
        rows = [f"{i},{prompt}" for i, prompt in enumerate(quoted)] if name == "two.csv" else quoted
        lines = [f"id,{column}" if name == "two.csv" else column, *rows]
    elif name.endswith("jsonl"):
        lines = [json.dumps({column: prompt}) for prompt in prompts]
    else:
        lines = [*prompts, "", "  "]
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    found = read_own_prompts(tmp_path / name)
    assert found.texts == ("You are", 'He said: "no', "Why, then")
    assert found.name == tmp_path.joinpath(name).stem and found.source == name


def test_prompts_in_a_named_column(tmp_path):
    csv_of(tmp_path / "p.csv", {"text": ["long long text"] * 3, "q": ["a b", "", "c"]})
    assert read_own_prompts(tmp_path / "p.csv", column="q").texts == ("a b", "c")
    assert read_own_prompts(tmp_path / "p.csv").texts == ("long long text",)
    with pytest.raises(DataError, match=r"its columns are text, q\. Name one of them with --set prompt_column="):
        read_own_prompts(tmp_path / "p.csv", column="prompts")
    with pytest.raises(DataError, match="one prompt per line"):
        read_own_prompts(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError, match="holds no prompts"):
        read_own_prompts(tmp_path / "empty.txt")


def test_rows_with_holes_are_refused_or_left_out(tmp_path):
    path = csv_of(tmp_path / "t.csv", {"text": ["a b", "", "c d", "e f"], "label": ["x", "y", "", "y"]})
    with pytest.raises(DataError, match="line 3"):
        read_table(path)
    kept = read_table(path, missing="drop")
    assert kept.texts == ("a b", "e f") and kept.labels == ("x", "y")
    assert kept.cautions == ("2 of 4 rows lack one of text, label and were left out (line 3, line 4).",)
    csv_of(path, {"text": ["a b", "c d"], "label": ["x", "y"], "concept": ["", "m"]})
    with pytest.raises(LabelError, match="line 2"):
        read_study(path)
    study = read_study(path, missing="drop")
    assert study.concepts == ("m",) and study.cautions[0].startswith("1 of 2 row")
    with pytest.raises(ParameterError, match="'raise' or 'drop'"):
        read_table(path, missing="skip")
    csv_of(path, {"text": ["", " "], "label": ["x", "y"]})
    with pytest.raises(DataError, match="None of the 2 rows"):
        read_table(path, missing="drop")
