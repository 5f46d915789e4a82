import pytest
import torch

from repsurgery.errors import ParameterError
from repsurgery.lm.positions import Forward, check_positions, forward_of

LEFT = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


def chosen(positions, **facts):
    forward = Forward(**{"batch": 2, "length": 4, "offset": 0, "prompt": None, "mask": LEFT, **facts})
    wanted = forward.wanted(positions)
    if isinstance(wanted, bool):
        return wanted
    return wanted.int().tolist()


def test_a_plain_forward_is_all_prompt():
    assert chosen("all") == chosen("prompt") == LEFT.tolist()
    assert chosen("last") == chosen("generated") == [[0, 0, 0, 1], [0, 0, 0, 1]]


def test_the_last_position_of_a_right_padded_text_is_its_last_token():
    assert chosen("last", mask=LEFT.flip(1)) == [[0, 1, 0, 0], [0, 0, 0, 1]]


def test_without_padding_no_mask_is_made():
    assert chosen("all", mask=None) is True
    assert chosen("all", mask=torch.ones(2, 4)) is True


def test_the_first_pass_of_generate_holds_the_prompt():
    assert chosen("prompt", prompt=4) == LEFT.tolist()
    assert chosen("last", prompt=4) == chosen("generated", prompt=4) == [[0, 0, 0, 1], [0, 0, 0, 1]]


def test_a_cached_step_holds_one_new_position():
    step = {"length": 1, "offset": 6, "prompt": 4, "mask": torch.cat([LEFT, torch.ones(2, 3).long()], dim=1)}
    assert chosen("generated", **step) is chosen("all", **step) is True
    assert chosen("prompt", **step) is chosen("last", **step) is False


def test_an_uncached_step_holds_prompt_and_new_positions():
    step = {"length": 6, "prompt": 4, "mask": torch.cat([LEFT, torch.ones(2, 2).long()], dim=1)}
    assert chosen("generated", **step) == [[0, 0, 0, 1, 1, 1]] * 2
    assert chosen("last", **step) == [[0, 0, 0, 1, 0, 0]] * 2
    assert chosen("prompt", **step) == [[0, 0, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0]]


def test_a_prompt_read_in_chunks_has_one_last_position():
    first = {"length": 2, "offset": 0, "prompt": 4, "mask": LEFT[:, :2]}
    second = {"length": 2, "offset": 2, "prompt": 4, "mask": LEFT}
    assert chosen("last", **first) is chosen("generated", **first) is False
    assert chosen("last", **second) == [[0, 1], [0, 1]]


def test_padding_is_read_off_a_four_dimensional_mask():
    keys = torch.cat([LEFT, torch.zeros(2, 2).long()], dim=1).bool()  # a static cache has room for six
    causal = torch.ones(4, 6).tril().bool()
    allowed = causal & keys[:, None, None, :]
    assert chosen("all", mask=allowed) == LEFT.tolist()
    assert chosen("all", mask=torch.where(allowed, 0.0, -1e9)) == LEFT.tolist()
    assert chosen("all", mask={"full_attention": allowed}) == LEFT.tolist()


def test_a_mask_that_cannot_be_read_is_refused():
    with pytest.raises(ParameterError, match="sdpa"):
        chosen("all", mask="blocks")


def test_a_call_without_tokens_is_no_pass():
    assert forward_of({"attention_mask": LEFT}, None) is None


def test_unknown_positions_are_refused_with_the_list():
    with pytest.raises(ParameterError, match="'all', 'generated', 'prompt', 'last'"):
        check_positions("everywhere")
