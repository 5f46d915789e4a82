"""Which token stands for a text, and how many directions are kept."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from repsurgery.studies.fairness import ENCODERS, encoders, make_spec
from repsurgery.studies.fairness.encoders import PrincipalAxes, encode_texts, encoder_of
from tests.lm.tiny_models import tiny_model, tiny_tokenizer


def test_the_encoders_of_the_paper_are_read_as_it_reads_them():
    assert (ENCODERS["bert"].pooling, ENCODERS["gpt2"].pooling, ENCODERS["llama2"].pooling) == ("cls", "last", "last")
    assert [ENCODERS[name].components for name in ("bert", "gpt2", "llama2", "llama2-chat")] == [0, 0, 768, 768]
    assert encoder_of(make_spec("bios", encoder="me/mine")).model == "me/mine"


@pytest.mark.parametrize(("family", "pooling"), [("llama", "last"), ("bert", "cls")])
def test_an_unknown_encoder_is_read_where_its_family_has_seen_the_text(family, pooling, monkeypatch, tmp_path):
    model, tokenizer = tiny_model(family), tiny_tokenizer()
    monkeypatch.setattr(encoders.lm, "load", lambda name, **where: (model, tokenizer))
    spec = make_spec("bios", encoder="me/mine", max_length=8)
    rows, facts = encode_texts(spec, ["the cat", "a dog sat"], work=tmp_path, progress=False)
    assert facts["pooling"] == pooling and facts["dim"] == rows.shape[1]
    spec = make_spec("bios", encoder="me/mine", max_length=8, pooling="mean")
    chosen, told = encode_texts(spec, ["the cat", "a dog sat"], work=tmp_path, progress=False)
    assert told["pooling"] == "mean" and told["digest"] != facts["digest"]
    assert not np.allclose(chosen, rows)


def test_principal_rows_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(300, 12)) * np.geomspace(5, 0.1, 12) + 3).astype(np.float32)
    ours, theirs = PrincipalAxes.of(X[:200], 4)(X), PCA(4).fit(X[:200]).transform(X)
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours * signs, theirs, atol=1e-4)
    assert not np.allclose(np.abs(ours), np.abs(PCA(4).fit(X).transform(X)), atol=1e-3)  # other rows, other directions
