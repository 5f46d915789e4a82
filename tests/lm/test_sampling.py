import pytest
import torch
from transformers import TopPLogitsWarper

from repsurgery.lm.generate.sampling import draw, race, sample_key


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


def test_rows_with_their_own_settings_draw_what_they_draw_alone():
    scores = torch.randn(5, 300, generator=torch.Generator().manual_seed(1))
    keys = [sample_key(i, "prompt", 0, i) for i in range(5)]
    steps, masses, heats = [0, 7, 7, 2, 30], [1.0, 0.9, 0.2, 1e-6, 0.5], [1.0, 0.7, 2.0, 1.3, 0.1]
    together = draw(scores, keys, steps, top_p=masses, temperature=heats)
    settings = list(zip(scores, keys, steps, masses, heats, strict=True))
    alone = [int(draw(s[None], [k], at, top_p=p, temperature=t)) for s, k, at, p, t in settings]
    assert together.tolist() == alone
    # each of the three settings matters here, so none may come from another row
    assert together.tolist() != draw(scores, keys, 0, top_p=masses, temperature=heats).tolist()
    assert together.tolist() != draw(scores, keys, steps, top_p=1.0, temperature=heats).tolist()
    assert together.tolist() != draw(scores, keys, steps, top_p=masses, temperature=1.0).tolist()
