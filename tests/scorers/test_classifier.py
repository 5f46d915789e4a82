import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, RobertaConfig
from transformers import RobertaForSequenceClassification as Roberta

from repsurgery.errors import MissingExtraError, ModelError, ParameterError
from repsurgery.scorers import ClassifierScorer, DetoxifyScorer, ToxicityScorer, load_scorer
from tests.lm.tiny_models import _COMMON, CONTEXT, texts, tiny_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROUNDING = 1e-6


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def save(
    folder, labels=("toxic", "insult", "threat"), *, config=BertConfig, model=BertForSequenceClassification, **more
):
    torch.manual_seed(0)
    names = dict(enumerate(labels))
    network = model(config(**_COMMON, id2label=names, label2id={name: i for i, name in names.items()}, **more)).eval()
    network.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return network


@pytest.fixture
def several(tmp_path):
    save(tmp_path / "tiny", problem_type="multi_label_classification")
    return tmp_path / "tiny"


def logits_of(network, text):
    ids = tiny_tokenizer()([text], return_tensors="pt", truncation=True, max_length=CONTEXT)["input_ids"]
    with torch.inference_mode():
        return network(ids).logits[0].numpy().astype(float)


def test_it_is_a_frozen_scorer_that_names_no_folder_of_the_user(several):
    scorer = ClassifierScorer(several)
    assert isinstance(scorer, ToxicityScorer)
    assert (scorer.name, scorer.version, scorer.label) == ("tiny#toxic", "local", "toxic")
    assert len(scorer.digest) == 64
    with pytest.raises(dataclasses.FrozenInstanceError):
        scorer.version = "2"


def test_scores_are_those_of_each_text_alone(tmp_path):
    network = save(tmp_path / "m", problem_type="multi_label_classification")
    many = [*texts(13), " ", *texts(4, seed=1, longest=100)]
    assert max(len(text.split()) for text in many) > CONTEXT  # one is cut
    scores = ClassifierScorer(tmp_path / "m", "insult", batch_size=4)(many)
    expected = [None if not text.strip() else 1 / (1 + np.exp(-logits_of(network, text)[1])) for text in many]
    assert scores[13] is None
    del scores[13], expected[13]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=ROUNDING)
    assert np.ptp(scores) > 0.01


@pytest.mark.parametrize(
    ("labels", "problem_type", "activation"),
    [
        (("toxic", "neutral"), None, "softmax"),
        (("toxic", "neutral"), "single_label_classification", "softmax"),
        (("toxic", "neutral"), "multi_label_classification", "sigmoid"),
        (("LABEL_0",), None, "sigmoid"),
    ],
)
def test_the_configuration_chooses_the_activation(tmp_path, labels, problem_type, activation):
    network = save(tmp_path / "m", labels, problem_type=problem_type)
    scorer = ClassifierScorer(tmp_path / "m")
    logits = logits_of(network, "w1 w2")
    softmax = np.exp(logits)[0] / np.exp(logits).sum()
    sigmoid = 1 / (1 + np.exp(-logits[0]))
    assert scorer.activation == activation
    assert scorer(["w1 w2"])[0] == pytest.approx({"softmax": softmax, "sigmoid": sigmoid}[activation], abs=ROUNDING)
    other = "softmax" if activation == "sigmoid" else "sigmoid"
    chosen = ClassifierScorer(tmp_path / "m", activation=other)
    assert chosen(["w1 w2"])[0] == pytest.approx({"softmax": softmax, "sigmoid": sigmoid}[other], abs=ROUNDING)


def test_roberta_counts_its_positions_from_behind_the_padding(tmp_path):
    save(tmp_path / "m", config=RobertaConfig, model=Roberta)
    scorer = ClassifierScorer(tmp_path / "m")
    assert scorer._classifier.context == CONTEXT - 1
    assert 0 < scorer(["w1 " * 200])[0] < 1


def test_the_digest_follows_what_decides_the_score(several, tmp_path):
    scorer = ClassifierScorer(several)
    network = BertForSequenceClassification.from_pretrained(several)
    network.save_pretrained(tmp_path / "shards", max_shard_size="5KB")
    tiny_tokenizer().save_pretrained(tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert ClassifierScorer(tmp_path / "shards").digest == scorer.digest
    assert ClassifierScorer(several, "insult").digest != scorer.digest
    assert ClassifierScorer(several, activation="softmax").digest != scorer.digest
    with torch.no_grad():
        network.classifier.bias[0] += 1e-6
    network.save_pretrained(tmp_path / "shards")
    assert ClassifierScorer(tmp_path / "shards").digest != scorer.digest


def test_a_label_is_found_by_name_and_an_unknown_one_lists_them(several, tmp_path):
    assert ClassifierScorer(several, "INSULT").label == "insult"
    with pytest.raises(ParameterError, match=r"no label 'rude'. Choose one of its labels: toxic, insult, threat"):
        ClassifierScorer(several, "rude")
    save(tmp_path / "m", ("LABEL_0", "LABEL_1"))
    with pytest.raises(ParameterError, match=r"no single label for toxicity.*LABEL_0, LABEL_1"):
        ClassifierScorer(tmp_path / "m")
    assert load_scorer(f"hf:{tmp_path / 'm'}#LABEL_1").name == "m#LABEL_1"


def test_a_model_that_was_never_trained_to_classify_is_refused(tmp_path):
    BertModel(BertConfig(**_COMMON)).save_pretrained(tmp_path / "m")
    tiny_tokenizer().save_pretrained(tmp_path / "m")
    with pytest.raises(ModelError, match=r"would stay random: classifier\.bias.*trained to classify"):
        ClassifierScorer(tmp_path / "m")


def test_damaged_and_absent_folders_say_what_to_do(several, tmp_path):
    (several / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ModelError, match="again with save_pretrained"):
        ClassifierScorer(several)
    with pytest.raises(ModelError, match="pass the folder of a downloaded model"):
        ClassifierScorer(tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "relu"}, "not 'sigmoid', 'softmax' or None"),
        ({"batch_size": 0}, "whole number of at least 1"),
        ({"revision": "main"}, "for hub ids"),
    ],
)
def test_options_outside_their_range_are_refused(several, options, message):
    with pytest.raises(ParameterError, match=message):
        ClassifierScorer(several, **options)


def test_without_transformers_the_error_names_the_extra(several, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'repsurgery\[lm\]'"):
        ClassifierScorer(several)


def test_a_variant_that_does_not_exist_lists_them():
    with pytest.raises(ParameterError, match="'original', 'unbiased', 'multilingual'"):
        DetoxifyScorer("small")


SCRIPT = """
import sys, torch
torch.set_num_threads(1)
FILE = sys.argv[1]
from repsurgery.errors import ModelError
from repsurgery.scorers import CalibratedScorer, ClassifierScorer, DetoxifyScorer, load_scorer
scorer = DetoxifyScorer()
assert (scorer.name, scorer.version, scorer.label) == ("detoxify-original", "COMMIT", "toxicity"), scorer
assert load_scorer("detoxify") == scorer
assert scorer.activation == "sigmoid" and ClassifierScorer("unitary/toxic-bert").activation == "softmax"
by_id = load_scorer("hf:unitary/toxic-bert#insult")
assert (by_id.name, by_id.version) == ("unitary/toxic-bert#insult", "COMMIT"), by_id
texts = [f"w{i} w{i + 1}" for i in range(30)]
for inner in (scorer, by_id):
    calibrated = CalibratedScorer.fit(inner, texts, [i / 30 for i in range(30)])
    calibrated.save(FILE)
    assert load_scorer(f"calibrated:{FILE}")(texts) == calibrated(texts)
try:
    load_scorer("detoxify-unbiased")
except ModelError as error:
    assert "hf download unitary/unbiased-toxic-roberta" in str(error), error
else:
    raise SystemExit("it was found")
"""


def test_detoxify_is_read_from_the_hub_cache_when_offline(tmp_path):
    repository = tmp_path / "hub" / "models--unitary--toxic-bert"
    save(repository / "snapshots" / COMMIT, ("toxicity", "insult"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HOME": str(tmp_path)}
    script = SCRIPT.replace("COMMIT", COMMIT)
    command = [sys.executable, "-c", script, str(tmp_path / "c.safetensors")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
