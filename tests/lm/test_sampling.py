import pytest
import torch
from transformers import TopPLogitsWarper

from repsurgery.lm import sampling


@pytest.mark.parametrize("candidates", [1, 3, 64, 1024])
@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_the_nucleus_is_that_of_transformers(monkeypatch, candidates, top_p, scale):
    monkeypatch.setattr(sampling, "CANDIDATES", candidates)
    # float64: shares that meet top_p within rounding may fall either way
    scores = scale * torch.randn(7, 500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before = scores.clone()
    expected = TopPLogitsWarper(top_p)(None, scores)
    assert torch.equal(sampling.nucleus(scores, top_p), expected)
    assert torch.equal(scores, before)
