import pytest
import torch

from repsurgery.errors import ParameterError, PassError
from repsurgery.lm.steer.passes import call_of, forward_of
from repsurgery.lm.steer.positions import Forward, check_positions

LEFT = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])


def chosen(positions, **facts):
    forward = Forward(**{"batch": 2, "length": 4, "offset": 0, "prompt": None, "mask": LEFT, **facts})
    wanted = forward.selected(positions)
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


def test_a_pass_without_tokens_answers_only_what_needs_none():
    unknown = forward_of({"attention_mask": torch.ones(2, 4)})
    assert unknown.selected("all") is True
    with pytest.raises(PassError, match="input_ids"):
        unknown.selected("last")
    with pytest.raises(PassError, match="padding"):
        forward_of({"attention_mask": LEFT}).selected("all")


def test_the_diagonal_starts_behind_the_cache():
    # queries 2 and 3 of a static cache of six keys; the second row's query 3 is padding, its key 1 is not
    keys = torch.tensor([[0, 0, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]]).bool()
    allowed = torch.ones(4, 6).tril().bool()[2:] & keys[:, None, None, :]
    assert chosen("all", mask=allowed, length=2, offset=2) == [[1, 1], [1, 0]]


def test_a_mask_of_another_size_is_refused_unless_it_hides_nothing():
    assert chosen("all", mask=torch.ones(2, 9), offset=1) is True
    with pytest.raises(PassError, match=r"\(2, 9\).*\(2, 5\)"):
        chosen("all", mask=torch.cat([LEFT, torch.ones(2, 5).long()], dim=1), offset=1)


def test_virtual_tokens_are_left_alone_and_counted_out():
    # prompt tuning: three virtual tokens before four of text, in one pass
    first = {"length": 7, "virtual": 3, "mask": torch.cat([torch.ones(2, 3), LEFT], dim=1)}
    assert chosen("all", **first) == [[0, 0, 0, *row] for row in LEFT.tolist()]
    assert chosen("last", **first, prompt=4) == [[0] * 6 + [1]] * 2
    # prefix tuning: they are in the cache
    assert chosen("last", virtual=3, offset=3, prompt=4, mask=None) == [[0, 0, 0, 1]] * 2
    step = {"length": 1, "virtual": 3, "offset": 7, "prompt": 4, "mask": None}
    assert chosen("generated", **step) is True
    assert chosen("prompt", **step) is False


def test_padding_of_a_short_prompt_is_seen_behind_virtual_tokens():
    # the prompt is read in chunks: two of its tokens lie behind three virtual ones and two others
    mask = torch.cat([torch.ones(2, 3).long(), LEFT.flip(1)], dim=1)
    assert chosen("all", length=2, offset=5, virtual=3, prompt=4, mask=mask) == [[0, 0], [1, 1]]


def test_a_static_cache_may_have_room_for_no_more_than_the_prompt():
    allowed = torch.ones(4, 4).tril().bool() & LEFT.bool()[:, None, None, :]
    assert chosen("all", mask=allowed, offset=2) == LEFT.tolist()


def test_a_pass_that_continues_a_cache_outside_generate_has_no_prompt():
    step = {"length": 1, "offset": 4, "prompt": None, "mask": None}
    assert chosen("all", **step) is True
    assert chosen("generated", **step) is True
    for positions in ("prompt", "last"):
        with pytest.raises(PassError, match="outside a call of generate"):
            chosen(positions, **step)


def test_the_prompt_of_a_call_is_its_longest_input():
    ids, mask = torch.ones(2, 1).long(), torch.ones(2, 7).long()
    assert call_of({"input_ids": ids, "attention_mask": mask}).prompt == 7
    assert call_of({"inputs": ids, "attention_mask": torch.ones(2, 3, 4, 4)}).prompt == 1
    assert call_of({}).prompt == 1
    assert call_of({"pixel_values": torch.ones(2, 3, 8, 8)}).prompt is None


def test_a_cache_that_does_not_count_is_refused_where_counting_matters():
    step = {"length": 1, "offset": None, "prompt": 4, "mask": None}
    assert chosen("all", **step) is True
    with pytest.raises(PassError, match="does not say how many tokens"):
        chosen("prompt", **step)


def test_unknown_positions_are_refused_with_the_list():
    with pytest.raises(ParameterError, match="'all', 'generated', 'prompt', 'last'"):
        check_positions("everywhere")
