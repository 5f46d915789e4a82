import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from tests.lm.tiny_models import WIDTH


@pytest.fixture
def map_file(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "map"
    rs.save(rs.Dense(np.eye(WIDTH) + 0.1 * rng.normal(size=(WIDTH, WIDTH)), np.zeros(WIDTH)), path)
    return path


def test_the_folded_folder_says_what_the_steered_model_says(run, map_file, model_folder, tmp_path):
    result = run("fold", map_file, "--model", model_folder, "--site", "final", "--out", tmp_path / "folded")
    assert result.exit_code == 0, result.output
    model, tokenizer = lm.load(model_folder)
    folded, _ = lm.load(tmp_path / "folded")
    batch = tokenizer(["w1 w2 w3"], return_tensors="pt")["input_ids"]
    with torch.no_grad(), lm.steer(model, {"final": rs.load(map_file)}):
        steered = model(batch).logits
    with torch.no_grad():
        torch.testing.assert_close(folded(batch).logits, steered, atol=1e-4, rtol=1e-4)


def test_a_gate_does_not_fold_into_weights(run, fitted, model_folder, tmp_path):
    result = run("fold", fitted, "--model", model_folder, "--out", tmp_path / "folded")
    assert result.exit_code == 1
    assert not (tmp_path / "folded").exists()


def test_a_folder_in_use_is_left_alone(run, map_file, model_folder):
    result = run("fold", map_file, "--model", model_folder, "--out", model_folder)
    assert result.exit_code == 1
    assert "not empty" in result.stderr
