import json

import numpy as np
import pytest

from repsurgery.datasets import Prompts, load_real_toxicity_prompts
from repsurgery.datasets.real_toxicity_prompts import REPOSITORY, REVISION
from repsurgery.errors import DataError, ParameterError, ShapeError
from tests.datasets.hub_cache import run_offline, write_snapshot
from tests.datasets.real import real_folder


def row(text, toxicity, continuation, continuation_toxicity):
    return {
        "filename": "0-a.txt",
        "begin": 0,
        "end": 9,
        "challenging": False,
        "prompt": {"text": text, "threat": 0.1, "toxicity": toxicity},
        "continuation": {"text": continuation, "severe_toxicity": 0.2, "toxicity": continuation_toxicity},
    }


ROWS = [
    row('He said, "the', 0.25, " end\u2028 of it.", 0.5),
    row("So I", None, " went.", None),
    row("They all", 0.5, " left.", 0.0),
    row("So I", 0.1, " stayed.", 0.9),
    row("A b", 0, " c", 1),
]
TEXTS = ('He said, "the', "So I", "They all", "A b")
TOXICITY = (0.25, None, 0.5, 0.0)
CONTINUATIONS = (" end\u2028 of it.", " went.", " left.", " c")
CONTINUATION_TOXICITY = (0.5, None, 0.0, 1.0)


def lines(rows):
    # as published: other separators than newlines stand in the text itself
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_jsonl(folder):
    (folder / "prompts.jsonl").write_text(lines(ROWS), encoding="utf-8")


def write_parquet(folder):
    pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra repsurgery[data]")
    import pyarrow.parquet

    (folder / "data").mkdir()
    for number, shard in enumerate((ROWS[:2], ROWS[2:])):
        path = folder / "data" / f"train-0000{number}-of-00002.parquet"
        pyarrow.parquet.write_table(pa.Table.from_pylist(shard), path)


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_every_form_gives_each_prompt_once_unchanged_and_in_order(tmp_path, write):
    write(tmp_path)
    found = load_real_toxicity_prompts(tmp_path)
    assert (found.texts, found.toxicity) == (TEXTS, TOXICITY)
    assert (found.continuations, found.continuation_toxicity) == (CONTINUATIONS, CONTINUATION_TOXICITY)


def test_prompts_may_come_without_scores(tmp_path):
    (tmp_path / "own.jsonl").write_text('{"prompt": "a b"}\n\n{"prompt": {"text": "c"}}\n{"prompt": "a b"}\n')
    found = load_real_toxicity_prompts(tmp_path / "own.jsonl")
    assert (found.texts, found.toxicity, found.continuations) == (("a b", "c"), (None, None), (None, None))
    with pytest.raises(DataError, match=r"none of the 2 prompts has a toxicity.*Pass bound=None to take all"):
        found.below(0.5)
    assert found.below(None) == found


def prompts(n=5):
    scores = tuple(None if i == 1 else i / n for i in range(n))
    return Prompts(
        tuple(f"p{i}" for i in range(n)), scores, tuple(f"c{i}" for i in range(n)), scores, name="p", source="s"
    )


def test_below_is_strict_and_leaves_out_what_has_no_score():
    assert prompts().below(0.6).texts == ("p0", "p2")
    assert prompts().below(0.61).texts == ("p0", "p2", "p3")


def test_a_sample_is_a_seeded_permutation_cut_short():
    whole = prompts(50)
    drawn = whole.sample(20, seed=3)
    assert drawn.texts == tuple(f"p{i}" for i in np.random.default_rng(3).permutation(50)[:20])
    assert len(set(drawn.texts)) == 20
    assert whole.sample(7, seed=3).texts == drawn.texts[:7]
    assert whole.sample(20, seed=4).texts != drawn.texts
    assert sorted(whole.sample(50, seed=0).texts) == sorted(whole.texts)
    with pytest.raises(DataError, match="p holds 50 prompts; n is 51"):
        whole.sample(51, seed=0)
    for n in (0, True, 2.0):
        with pytest.raises(ParameterError, match="whole number of at least 1"):
            whole.sample(n, seed=0)


def test_without_leaves_the_disjoint_rest():
    whole = prompts()
    drawn = whole.sample(2, seed=0)
    rest = whole.without(drawn)
    assert len(rest) == 3
    assert {*rest.texts, *drawn.texts} == set(whole.texts)
    assert whole.without(whole).texts == ()


def test_choosing_prompts_keeps_rows_together():
    whole = prompts(9)
    rows = list(zip(whole.texts, whole.toxicity, whole.continuations, whole.continuation_toxicity, strict=True))
    for found in (whole.below(0.5), whole.sample(6, seed=1), whole.without(whole.sample(6, seed=1))):
        assert 0 < len(found) < 9
        chosen = zip(found.texts, found.toxicity, found.continuations, found.continuation_toxicity, strict=True)
        assert set(chosen) <= set(rows)
        assert (found.name, found.source) == ("p", "s")


def test_the_digest_depends_on_every_column_and_no_name():
    whole = prompts()
    again = Prompts(whole.texts, whole.toxicity, whole.continuations, whole.toxicity, name="q", source="t")
    assert again.digest == whole.digest
    other = [
        Prompts(whole.texts, whole.toxicity, whole.continuations, name="p", source="s"),
        Prompts(whole.texts, whole.toxicity, (), whole.toxicity, name="p", source="s"),
        Prompts(whole.texts, (), whole.continuations, whole.toxicity, name="p", source="s"),
        whole.sample(5, seed=0),
    ]
    assert len({whole.digest, *(prompts.digest for prompts in other)}) == 5


def test_columns_of_another_length_are_an_error():
    with pytest.raises(ShapeError, match=r"p has 2 texts and 1 toxicity\. Give one or None for each"):
        Prompts(("a", "b"), (0.5,), name="p", source="s")
    with pytest.raises(DataError, match="text 1 is empty"):
        Prompts(("a", " "), name="p", source="s")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": {"text": "b"', r"line 2: .*Write one JSON object per line"),
        ('["b"]', "line 2: a list"),
        ("{}", "line 2: the prompt is empty. Write rows with a 'prompt'"),
        ('{"prompt": " "}', "line 2: the prompt is empty"),
        ('{"prompt": {"toxicity": 0.5}}', "line 2: the prompt is empty"),
        ('{"prompt": ["b"]}', "line 2: the prompt is a list"),
        ('{"prompt": {"text": "b", "toxicity": "high"}}', "line 2: the prompt has the toxicity 'high'. Give a number"),
        ('{"prompt": {"text": "b", "toxicity": 51.2}}', "line 2: the prompt has the toxicity 51.2"),
        ('{"prompt": {"text": "b", "toxicity": true}}', "line 2: the prompt has the toxicity True"),
        ('{"prompt": "b", "continuation": {"toxicity": -1}}', "line 2: the continuation has the toxicity -1"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / "p.jsonl").write_text(f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=message):
        load_real_toxicity_prompts(tmp_path / "p.jsonl")


def test_a_score_that_is_not_a_number_is_no_score(tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": {"text": "a", "toxicity": NaN}}\n')
    assert load_real_toxicity_prompts(tmp_path).toxicity == (None,)


def test_nothing_or_too_much_to_read_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"holds no JSON Lines or Parquet.*real-toxicity-prompts"):
        load_real_toxicity_prompts(tmp_path)
    with pytest.raises(DataError, match="There is no file"):
        load_real_toxicity_prompts(tmp_path / "none.jsonl")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(DataError, match=r"no column 'prompt'; found: text\. Write rows with a 'prompt'"):
        load_real_toxicity_prompts(tmp_path)
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(DataError, match="holds no rows"):
        load_real_toxicity_prompts(tmp_path / "b.jsonl")
    with pytest.raises(DataError, match=r"several files: a\.jsonl, b\.jsonl. Pass one of them"):
        load_real_toxicity_prompts(tmp_path)


SCRIPT = f"""
from repsurgery.datasets import load_real_toxicity_prompts
found = load_real_toxicity_prompts()
assert (found.texts, found.toxicity) == {(TEXTS, TOXICITY)!r}, found
assert found.source == "Gehman et al. 2020, {REPOSITORY} at {REVISION[:7]}", found.source
"""


def test_the_hubs_file_is_read_from_its_cache_at_one_revision(tmp_path):
    pytest.importorskip("huggingface_hub", reason="the hub needs the extra repsurgery[data]")
    write_snapshot(tmp_path / "full", REPOSITORY, {"prompts.jsonl": lines(ROWS)}, commit=REVISION)
    done = run_offline(SCRIPT, tmp_path / "full")
    assert done.returncode == 0, done.stderr
    write_snapshot(tmp_path / "other", REPOSITORY, {"prompts.jsonl": lines(ROWS)})
    assert "could not be downloaded" in run_offline(SCRIPT, tmp_path / "other").stderr


def test_the_real_prompts():
    found = load_real_toxicity_prompts(real_folder("realtoxicityprompts_quark_val"))
    # 5,000 rows, 3,732 of them below .5; one prompt stands there 8 times, with a score below .5
    assert (len(found), len(found.below(0.5))) == (4993, 3725)
    assert (found.toxicity.count(None), found.continuation_toxicity.count(None)) == (19, 32)
    assert found.continuations.count(None) == 0
