import pytest
import torch
from transformers import TopPLogitsWarper

from repsurgery.lm.generate.sampling import race


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_the_nucleus_is_that_of_transformers(top_p, scale):
    generator = torch.Generator().manual_seed(0)
    # float64: shares that meet top_p within rounding may fall either way
    scores = scale * torch.randn(200, 500, dtype=torch.float64, generator=generator)
    noise = torch.empty_like(scores).exponential_(generator=generator)
    p = scores.softmax(dim=-1)
    kept = TopPLogitsWarper(top_p)(None, scores.clone())
    expected = (kept.softmax(dim=-1) / noise).argmax(dim=-1)
    before = p.clone(), noise.clone()
    assert torch.equal(race(p, noise, top_p), expected)
    assert torch.equal(p, before[0]) and torch.equal(noise, before[1])
    everywhere = race(p, noise, 1.0)
    assert torch.equal(everywhere, (p / noise).argmax(dim=-1))
    if (scale, top_p) in {(0.1, 0.3), (3.0, 0.3), (0.1, 0.9)}:
        # the race among all tokens often has another winner, so the nucleus was asked
        assert not torch.equal(everywhere, expected)


def test_a_token_without_probability_never_wins():
    p = torch.tensor([[0.0, 1.0, 0.0]])
    assert race(p, torch.full((1, 3), torch.finfo(torch.float32).tiny), 0.9).tolist() == [1]


def test_the_nucleus_ends_where_the_shares_reach_top_p():
    # shares that binary numbers hold exactly: the first token alone is 0.5, and the second would win the race
    p = torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64)
    noise = torch.tensor([[1.0, 0.1, 1.0, 1.0]], dtype=torch.float64)
    kept = TopPLogitsWarper(0.5)(None, p.log())
    assert kept.isfinite().tolist() == [[True, False, False, False]]
    assert race(p, noise, 0.5).tolist() == [0]
    assert race(p, noise, 0.5 + 1e-9).tolist() == [1]
