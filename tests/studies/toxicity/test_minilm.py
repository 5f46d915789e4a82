import json
import shutil
from itertools import combinations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from repsurgery.errors import DataError
from repsurgery.files import digest_of, read_file
from repsurgery.scorers.adapted import adapted, read_encoder
from repsurgery.scorers.minilm import fingerprints
from repsurgery.studies.toxicity.data import load_prompts_of, load_texts
from repsurgery.studies.toxicity.minilm import train
from repsurgery.studies.toxicity.minilm.comparison import compare_scorers, comparison_tables
from repsurgery.studies.toxicity.minilm.rows import POLICY_PROMPTS, ScorerRows, scorer_rows
from repsurgery.studies.toxicity.minilm.train import Recipe, train_minilm
from repsurgery.studies.toxicity.spec import make_toxicity_spec
from tests.datasets.real import real_folder
from tests.lm.tiny_models import _COMMON, WORDS, tiny_tokenizer

RECIPE = Recipe(rank=2, hidden=4, max_tokens=16, epochs=3, comment_epochs=2, batch_size=8, learning_rate=0.02)
SMALL = {"fit_rows": 10, "held_out": 8, "prompt_count": 12, "policy_prompts": 30, "validation": 10}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def data(tmp_path):
    """Return a folder with 50 comments and 80 prompts; one continuation repeats another prompt in capitals."""
    jigsaw, prompts = tmp_path / "data" / "jigsaw", tmp_path / "data" / "realtoxicityprompts"
    jigsaw.mkdir(parents=True)
    prompts.mkdir()
    (jigsaw / "test.csv").write_text("".join(f"comment number {i},{i % 2}\n" for i in range(50)))
    lines = [
        {
            "prompt": {"text": f"Prompt number {i}", "toxicity": i / 100},
            "continuation": {"text": f" PROMPT  number {i + 1}" if i % 5 == 0 else f" and so on {i}", "toxicity": 0.9},
        }
        for i in range(80)
    ]
    (prompts / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path / "data"


def marks(texts):
    return set(fingerprints(texts).tolist())


def assert_disjoint(rows):
    for a, b in combinations(rows.parts().values(), 2):
        assert not marks(a) & marks(b)


def test_no_text_of_one_part_is_in_another(data):
    rows = scorer_rows(data, **SMALL)
    assert_disjoint(rows)
    assert min(rows.counts().values()) > 5
    # the counter-check: continuations repeat prompts of other parts
    every = [f"PROMPT number {i + 1}" for i in range(0, 80, 5)]
    assert marks(every) & marks(rows.never_seen)
    assert len(marks(every)) == len(every)


def drawn_texts(data, policy_prompts, **differences):
    spec = make_toxicity_spec(
        "local", policy_prompts=policy_prompts, configurations=("mean all fit=on-policy",), **differences
    )
    study = load_texts(spec, data)
    labelled = [text for part in (study.fitted, study.held_out) for texts in part.values() for text in texts]
    continued = [*study.prompts.texts, *study.training.texts]
    assert len(load_prompts_of(spec, data)) > len(continued)
    return labelled, continued, [text for text in study.training.continuations if text]


def test_the_scorer_trains_on_nothing_that_a_study_draws(data):
    rows = scorer_rows(data, **SMALL)
    options = {key: value for key, value in SMALL.items() if key not in ("policy_prompts", "validation")}
    seen = marks([*rows.archived, *rows.comments, *rows.validation])
    for policy_prompts in (1, 20, 30):  # fewer training prompts are the first of more
        assert not seen & marks([text for part in drawn_texts(data, policy_prompts, **options) for text in part])
    # the counter-check: a study with more training prompts, or another seed, draws others
    assert seen & marks(drawn_texts(data, 40, **options)[1])
    assert seen & marks(drawn_texts(data, 30, seed=1, **options)[1])


def test_the_real_rows_are_free_of_what_the_default_study_draws():
    real_folder("realtoxicityprompts_quark_val", "jigsaw_balanced_12k")
    rows = scorer_rows()
    assert_disjoint(rows)
    labelled, continued, continuations = drawn_texts(None, POLICY_PROMPTS)
    assert (len(labelled), len(continued)) == (9000, 2200)
    assert not marks([*rows.archived, *rows.comments, *rows.validation]) & marks(
        [*labelled, *continued, *continuations]
    )
    assert marks([*continued, *continuations]) >= marks(rows.never_seen) - marks(
        [text for text in load_prompts_of(make_toxicity_spec(), None).continuations if text]
    )
    assert rows.counts() == {"archived": 4953, "comments": 3177, "validation": 598, "never_seen": 4383}


def test_too_few_prompts_for_training_say_what_to_lower(data):
    with pytest.raises(DataError, match="Lower policy_prompts or validation"):
        scorer_rows(data, **{**SMALL, "validation": 70})


@pytest.fixture
def encoder(tmp_path):
    torch.manual_seed(0)
    BertModel(BertConfig(**_COMMON)).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer().save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.fixture
def rows():
    """Return texts that are toxic where they contain the first word."""
    rng = np.random.default_rng(0)
    texts = list(dict.fromkeys(" ".join(rng.choice(WORDS[:6], size=rng.integers(2, 9))) for _ in range(150)))
    labels = {text: 0.95 if WORDS[0] in text.split() else 0.05 for text in texts}
    items = list(labels.items())
    comments = {text: float(label > 0.5) for text, label in items[60:90]}
    return ScorerRows(dict(items[:60]), comments, dict(items[90:100]), dict(items[100:]))


def test_training_teaches_what_is_toxic(rows, encoder, tmp_path):
    recipe = Recipe(rank=4, hidden=8, max_tokens=16, epochs=30, comment_epochs=10, batch_size=8, learning_rate=0.02)
    out = train_minilm(rows, tmp_path / "f", recipe=recipe, work_dir=tmp_path / "w", folder=encoder, progress=False)
    contents = read_file(out)
    weights = {name: array for name, array in contents.arrays.items() if name != "rows"}
    scores = adapted(read_encoder(encoder), weights, max_tokens=16)(list(rows.never_seen))
    toxic = np.array(list(rows.never_seen.values())) > 0.5
    assert scores[toxic].mean() > scores[~toxic].mean() + 0.3
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float16)}
    assert contents.header["counts"] == rows.counts()
    assert contents.header["rows"] == rows.digests()
    assert set(contents.arrays["rows"].tolist()) == marks([*rows.archived, *rows.comments, *rows.validation])


def test_half_a_character_is_trained_on_as_it_is_scored(rows, encoder):
    _, tokenizer = read_encoder(encoder)
    halved = ScorerRows({**rows.archived, f"{WORDS[0]} \ud83d": 0.9}, {}, {}, {})
    whole = ScorerRows({**rows.archived, f"{WORDS[0]} \ufffd": 0.9}, {}, {}, {})
    assert train._examples(halved, tokenizer, RECIPE).ids == train._examples(whole, tokenizer, RECIPE).ids


def test_a_resumed_training_writes_the_same_file(rows, encoder, tmp_path, monkeypatch):
    def trained(name, recipe=RECIPE):
        path = tmp_path / f"{name}.safetensors"
        options = {"work_dir": tmp_path / name, "folder": encoder, "progress": False}
        contents = read_file(train_minilm(rows, path, recipe=recipe, **options))
        return digest_of(contents.arrays, contents.header)

    whole = trained("whole")
    epochs = []

    def interrupted(self, epoch, *rest):
        epochs.append(epoch)
        if epoch == 2 and epochs.count(2) == 1:
            raise KeyboardInterrupt
        return real_epoch(self, epoch, *rest)

    real_epoch = train._Training._epoch
    monkeypatch.setattr(train._Training, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained("stopped")
    assert not (tmp_path / "stopped.safetensors").exists()
    assert trained("stopped") == whole
    assert epochs == [0, 1, 2, 2]
    # a damaged epoch is trained again from the one before
    (folder,) = (tmp_path / "stopped").iterdir()
    (folder / "epoch-2.safetensors").write_bytes(b"cut")
    assert trained("stopped") == whole
    assert epochs == [0, 1, 2, 2, 2]
    # the counter-checks: finished work is not repeated, and belongs to its recipe
    assert trained("stopped") == whole
    assert len(epochs) == 5
    assert trained("stopped", Recipe(**{**{k: getattr(RECIPE, k) for k in RECIPE.__slots__}, "seed": 1})) != whole
    assert epochs[5:] == [0, 1, 2]


def test_training_leaves_the_callers_random_numbers_alone(rows, encoder, tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    train_minilm(rows, tmp_path / "f", recipe=RECIPE, work_dir=tmp_path / "w", folder=encoder, progress=False)
    assert torch.equal(torch.rand(2), expected)
    shutil.rmtree(tmp_path / "w")


def test_scorers_are_compared_on_the_same_texts(tmp_path):
    archive = tmp_path / "a.jsonl"
    rows = {f"text {i}": i / 10 for i in range(10)}
    archive.write_text("\n".join(json.dumps({"prompt": {"text": t, "toxicity": 1 - s}}) for t, s in rows.items()))
    name = f"replay:{archive}"
    record = json.loads(json.dumps(compare_scorers([name, "linear"], rows)))
    assert record["rows"]["texts"] == 10
    assert record["rows"]["toxic"] == 5
    assert (record["scorers"][name]["auc"], record["scorers"][name]["spearman"]) == (0, pytest.approx(-1))
    # the linear scorer does not know these words, so that its scores are constant
    assert record["pairs"] == {f"{name}, linear": None}
    assert record["scorers"]["linear"]["spearman"] is None
    agreement, pairs = comparison_tables(record)
    assert [row[0] for row in agreement.rows] == [name, "linear"]
    assert pairs.rows == ((f"{name}, linear", "–"),)
    assert agreement.rows[0][1:3] == ("0.000", "-1.000")
    with pytest.raises(DataError, match="has no score for 'unknown'"):
        compare_scorers([name], {"unknown": 0.5})
    with pytest.raises(DataError, match="no texts"):
        compare_scorers([name], {})
