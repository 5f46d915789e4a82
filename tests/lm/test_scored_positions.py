"""Scoring a text steers the positions that generation steers; the oracle is a pass of plain transformers per step."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ParameterError, PassError
from repsurgery.lm.price.positions import reading_of
from tests.lm.chats import LONGER, QUESTION, chatty
from tests.lm.test_passes import tuned
from tests.lm.tiny_models import VOCABULARY, WIDTH, tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close, random_map

PROMPTS = ["w1 w2 w3 w4 w5", "w6", "w7 w8"]
KNOWN = ["all", "generated", "prompt", "last"]
PARTLY = KNOWN[1:]
QUIET = {"progress": False}
MAPS = {"final": random_map(), "layers.0": random_map(seed=1), "layers.1": random_map(seed=2)}


def steered(positions, prompt, read):
    """Return the positions that generation has steered once it has read so many tokens, by the words of its guide."""
    return {
        "all": range(read),
        "prompt": range(prompt),
        "last": [prompt - 1],
        "generated": range(prompt - 1, read),
    }[positions]


def module_at(model, site):
    return {"final": model.model.norm, "layers.0": model.model.layers[0], "layers.1": model.model.layers[1]}[site]


def last_logits(model, tokens, prompt, steerings):
    """Return the logits (vocabulary,) after ``tokens`` without cache; steerings: (site, map, strength, positions)."""

    def hook(m, strength, index):
        W, b = (torch.from_numpy(np.array(x)) for x in (m.weight, m.bias))

        def act(module, args, output):
            states = output[0] if isinstance(output, tuple) else output
            h = states[0, index].double()
            moved = states.clone()
            moved[0, index] = (h + strength * (h @ W.T + b - h)).to(states.dtype)
            return (moved, *output[1:]) if isinstance(output, tuple) else moved

        return act

    handles = [
        module_at(model, site).register_forward_hook(
            hook(m, s, torch.tensor(list(steered(where, prompt, len(tokens)))))
        )
        for site, m, s, where in steerings
    ]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].double()
    for handle in handles:
        handle.remove()
    return logits


def kl(p, q):
    log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
    return float((log_p.exp() * (log_p - log_q)).sum())


def own_divergences(model, generation, steerings, *, outer=(), direction="steered-base"):
    """Return the divergence of each step, a cache-free pass each, as the text grows."""
    prompt, values = list(generation.prompt_tokens), []
    for step in range(len(generation.tokens) + generation.finished):
        tokens = [*prompt, *generation.tokens[:step]]
        base = last_logits(model, tokens, len(prompt), outer)
        other = last_logits(model, tokens, len(prompt), [*outer, *steerings])
        values.append(kl(other, base) if direction == "steered-base" else kl(base, other))
    return values


def written(model, tokenizer, prompts=PROMPTS, **how):
    return lm.generate(model, tokenizer, prompts, **{"n": 2, "max_new_tokens": 5, **QUIET, **how})


def assert_priced(model, tokenizer, some, expected, *args, batch_size=4, **how):
    """Compare with the oracle's steerings in both directions, and return the number of steps that changed."""
    for direction in ("steered-base", "base-steered"):
        found = lm.kl_divergence(
            model, tokenizer, some, *args, direction=direction, batch_size=batch_size, **QUIET, **how
        )
        values = [value for one in found for value in one.values]
        wanted = [v for g in some for v in own_divergences(model, g, expected, direction=direction)]
        assert_close(values, wanted, rtol=DEPTH)
    return sum(value > 1e-4 for value in wanted)


@pytest.mark.parametrize("positions", KNOWN)
@pytest.mark.parametrize("site", MAPS)
def test_positions_are_those_that_generation_steers(model, tokenizer, site, positions):
    some, m = written(model, tokenizer), MAPS[site]
    changed = assert_priced(model, tokenizer, some, [(site, m, 1.0, positions)], {site: m}, positions=positions)
    assert changed >= len(some)
    if site == "final" and positions in ("prompt", "last"):
        assert changed == len(some)  # of the steps only the first reads a state of the prompt


@pytest.mark.parametrize("positions", KNOWN)
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_the_divergence_is_that_of_the_logits_of_generate(model, tokenizer, site, positions):
    # what generate itself computes, step by step, with its cache
    logits = []
    handle = model.lm_head.register_forward_hook(lambda module, args, output: logits.append(output[0, -1].double()))
    (g,) = written(model, tokenizer, ["w9 w3 w1"], n=1, steering={site: MAPS[site]}, positions=positions)
    handle.remove()
    steps = len(g.tokens) + g.finished
    base = [last_logits(model, [*g.prompt_tokens, *g.tokens[:t]], len(g.prompt_tokens), []) for t in range(steps)]
    found = lm.kl_divergence(model, tokenizer, [g], {site: MAPS[site]}, positions=positions, **QUIET)[0]
    assert steps >= 3
    assert_close(found.values, [kl(p, q) for p, q in zip(logits[:steps], base, strict=True)], rtol=DEPTH)


WAYS = {}


def way(function):
    WAYS[function.__name__.removeprefix("_").replace("_", " ")] = function
    return function


@way
def _origin(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer)
    own = rs.SteeringFunction({None: MAPS[site]}).with_origin(site=site, positions=positions)
    return some, [(site, MAPS[site], 1.0, positions)], own, {}


@way
def _file(model, tokenizer, site, positions, tmp_path):
    some, file = written(model, tokenizer), tmp_path / "mine.safetensors"
    rs.save(rs.SteeringFunction({None: MAPS[site]}).with_origin(site=site, positions=positions, strength=0.7), file)
    return some, [(site, MAPS[site], 0.7, positions)], rs.load(file), {}


@way
def _argument_over_origin(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer)
    other = "all" if positions == "generated" else "generated"
    own = rs.SteeringFunction({None: MAPS[site]}).with_origin(site=site, positions=other)
    return some, [(site, MAPS[site], 1.0, positions)], {site: own}, {"positions": positions}


@way
def _several_sites(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer)
    return some, [(at, m, 1.0, positions) for at, m in MAPS.items()], dict(MAPS), {"positions": positions}


@way
def _sites_with_positions_of_their_own(model, tokenizer, site, positions, tmp_path):
    some, where = written(model, tokenizer), dict(zip(MAPS, itertools.cycle([positions, "all"]), strict=False))
    own = {at: rs.SteeringFunction({None: m}).with_origin(site=at, positions=where[at]) for at, m in MAPS.items()}
    return some, [(at, m, 1.0, where[at]) for at, m in MAPS.items()], own, {}


@way
def _strength(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer)
    return some, [(site, MAPS[site], 0.4, positions)], {site: MAPS[site]}, {"positions": positions, "strength": 0.4}


@way
def _one_text_at_a_time(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer)
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions, "batch_size": 1}


@way
def _chat(model, tokenizer, site, positions, tmp_path):
    some = written(model, chatty(), [QUESTION, LONGER])
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions}


@way
def _prompts_of_one_token(model, tokenizer, site, positions, tmp_path):
    some = [replace(g, prompt="", prompt_tokens=g.prompt_tokens[:1]) for g in written(model, tokenizer)]
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions}


@way
def _nothing_written(model, tokenizer, site, positions, tmp_path):
    some = [replace(g, text="", tokens=(), finished=True) for g in written(model, tokenizer, n=1)]
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions}


@way
def _a_prompt_that_was_cut(model, tokenizer, site, positions, tmp_path):
    some = written(model, tokenizer, max_length=3)
    assert len(some[0].prompt_tokens) == 3
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions}


@way
def _a_choice_for_each_prompt(model, tokenizer, site, positions, tmp_path):
    choices = [lm.Choice({site: MAPS[site]}, positions=positions) for _ in PROMPTS]
    some = written(model, tokenizer, steering=choices)
    assert [g.tokens for g in some] == [
        g.tokens for g in written(model, tokenizer, steering={site: MAPS[site]}, positions=positions)
    ]
    return some, [(site, MAPS[site], 1.0, positions)], {site: MAPS[site]}, {"positions": positions}


@pytest.mark.parametrize("positions", PARTLY)
@pytest.mark.parametrize("site", ["final", "layers.0"])
@pytest.mark.parametrize("name", WAYS)
def test_every_way_to_name_positions_means_the_same(model, tokenizer, tmp_path, name, site, positions):
    some, expected, steering, how = WAYS[name](model, tokenizer, site, positions, tmp_path)
    assert assert_priced(model, tokenizer, some, expected, steering, **how) >= len(some)


@pytest.mark.parametrize("positions", PARTLY)
def test_an_older_generation_has_the_tokens_of_its_prompt(model, tokenizer, positions):
    some = written(model, tokenizer)
    older = [replace(g, prompt_tokens=()) for g in some]
    one, other = (
        lm.kl_divergence(model, tokenizer, rows, {"layers.0": MAPS["layers.0"]}, positions=positions, **QUIET)
        for rows in (some, older)
    )
    assert [d.values for d in one] == [d.values for d in other]


@pytest.mark.parametrize("positions", PARTLY)
@pytest.mark.parametrize("site", ["final", "layers.1"])
def test_an_open_block_steers_its_own_positions_of_the_base_too(model, tokenizer, site, positions):
    some, outer = written(model, tokenizer), ("layers.0", MAPS["layers.0"], 0.5, positions)
    inner = (site, MAPS[site], 1.0, "generated")
    with lm.steer(model, {"layers.0": outer[1]}, strength=0.5, positions=positions):
        found = lm.kl_divergence(model, tokenizer, some, {site: MAPS[site]}, positions="generated", **QUIET)
    wanted = [value for g in some for value in own_divergences(model, g, [inner], outer=[outer])]
    assert_close([value for one in found for value in one.values], wanted, rtol=DEPTH)


@pytest.mark.parametrize("positions", KNOWN)
@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_log_likelihoods_are_those_of_the_steps_that_generation_steers(model, tokenizer, site, positions):
    continuations, m = [" w7 w8", " w9 w4 w4 w2", " w3"], MAPS[site]
    how = {"positions": positions, **QUIET}
    found = lm.log_likelihoods(model, tokenizer, PROMPTS, continuations, steering={site: m}, batch_size=2, **how)
    with lm.steer(model, {site: m}, positions=positions):
        assert lm.log_likelihoods(model, tokenizer, PROMPTS, continuations, batch_size=2, **QUIET) == found
        both = lm.surprises(model, tokenizer, PROMPTS, [[text, " w1"] for text in continuations], **QUIET)
    for record, prompt, pair in zip(found, PROMPTS, both, strict=True):
        tokens = tokenizer(prompt)["input_ids"]
        wanted = []
        for step, token in enumerate(record.tokens):
            read = [*tokens, *record.tokens[:step]]
            wanted.append(
                float(last_logits(model, read, len(tokens), [(site, m, 1.0, positions)]).log_softmax(-1)[token])
            )
        assert_close(record.values, wanted, rtol=DEPTH)
        assert_close(pair[0].nll, -sum(wanted), rtol=DEPTH)


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_in_documents_every_token_but_the_first_counts_as_generated(model, tokenizer, site):
    texts, m = ["w1 w2 w3 w4 w5 w6 w7", "w8 w9"], MAPS[site]
    own = {
        where: rs.SteeringFunction({None: m}).with_origin(site=site, positions=where) for where in ("all", "generated")
    }
    found = lm.document_perplexity(model, tokenizer, texts, {"base": None, **own}, max_length=4, batch_size=2, **QUIET)
    for text, value in zip(texts, found["generated"].log_likelihoods, strict=True):
        # windows of four tokens after the prefix, the last of them full
        tokens = tokenizer(text)["input_ids"]
        read, wanted = [tokenizer.bos_token_id, *tokens], 0.0
        for end in range(1, len(read)):
            last = min(-(-end // 4) * 4, len(tokens))
            window = read[max(last - 4, 0) : end]
            wanted += float(last_logits(model, window, 1, [(site, m, 1.0, "generated")]).log_softmax(-1)[read[end]])
        assert value == pytest.approx(wanted, rel=DEPTH)
    assert found["generated"].log_likelihoods == found["all"].log_likelihoods != found["base"].log_likelihoods
    assert "but the first" in found["generated"].note
    assert found["all"].note == found["base"].note == ""


def test_a_steering_of_prompts_has_no_price_on_documents(model, tokenizer):
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    for positions in ("prompt", "last", "assistant"):
        own = rs.SteeringFunction({None: random_map()}).with_origin(site="layers.0", positions=positions)
        with pytest.raises(PassError, match=r"A document has no prompt.*log_likelihoods"):
            lm.document_perplexity(model, tokenizer, ["w1 w2"], {"mine": own}, **QUIET)


@pytest.mark.parametrize("positions", [*PARTLY, "assistant"])
@pytest.mark.parametrize("site", ["final", "layers.0", "lm_head"])
def test_where_nothing_is_known_of_prompts_partial_positions_are_refused(model, tokenizer, site, positions):
    shift = rs.Translation(np.ones(VOCABULARY if site == "lm_head" else WIDTH))
    own = rs.SteeringFunction({None: shift}).with_origin(site=site, positions=positions)
    # an open block reads plain texts, too
    with lm.steer(model, own):
        with pytest.raises(PassError, match=r"unknown in this pass.*where its prompt ends"):
            lm.kl_divergence(model, tokenizer, PROMPTS, {"final": random_map()}, **QUIET)
        with pytest.raises(ParameterError, match="needs generations"):
            reading_of(model, tokenizer, PROMPTS, max_length=None, shifted="generated", caller="fisher")
        # a pass of the caller's own is a prompt, as lm.steer says
        if positions != "assistant":
            model(torch.tensor([[1, 5, 6]]))
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    for steering, how in ((own, {}), ({site: shift}, {"positions": positions})):
        with pytest.raises(PassError, match=r"cannot tell positions=.*lm.generate returns"):
            lm.kl_divergence(model, tokenizer, PROMPTS, steering, **how, **QUIET)


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_the_turns_of_a_generation_are_unknown(model, tokenizer, site):
    some = written(model, tokenizer)
    with pytest.raises(PassError, match=r"'assistant'.*positions='generated'"):
        lm.kl_divergence(model, tokenizer, some, {site: MAPS[site]}, positions="assistant", **QUIET)


def test_what_is_stated_ends_with_the_call(model, tokenizer):
    logits = []
    ids = torch.tensor([[1, 5, 6, 7]])
    with lm.steer(model, {"layers.0": MAPS["layers.0"]}, positions="last"):
        for _ in range(2):
            logits.append(model(ids).logits)
            lm.log_likelihoods(model, tokenizer, PROMPTS, [" w1"] * 3, **QUIET)
            with pytest.raises(PassError):
                lm.kl_divergence(model, tokenizer, PROMPTS, {"final": random_map()}, **QUIET)
    assert torch.equal(*logits)


def test_steps_along_a_text_are_read_as_generation_steers_them(model, tokenizer):
    # layers.1 follows the steered layers.0, so its states depend on which positions were steered
    some, m = written(model, tokenizer, n=1), MAPS["layers.0"]
    for positions in KNOWN:
        with lm.steer(model, {"layers.0": m}, positions=positions):
            rows = lm.states_along(model, tokenizer, some, site="final", progress=False)
        for g, states in zip(some, rows, strict=True):
            prompt = list(g.prompt_tokens)
            for step, state in enumerate(states):
                logits = last_logits(model, [*prompt, *g.tokens[:step]], len(prompt), [("layers.0", m, 1.0, positions)])
                own = torch.from_numpy(state) @ model.lm_head.weight.detach().T
                assert_close(own, logits, rtol=DEPTH)


@pytest.mark.filterwarnings("ignore:Position ids are not supported")  # by PEFT, which computes its own
def test_prompt_tuning_counts_its_virtual_tokens_out():
    model, tokenizer = tuned("prompt"), tiny_tokenizer()
    some = written(tiny_model("llama"), tokenizer, PROMPTS[:2], n=1)
    for positions in PARTLY:
        (first, *_) = lm.kl_divergence(
            model, tokenizer, some, {"layers.0": MAPS["layers.0"]}, positions=positions, **QUIET
        )
        logits = {}
        for steering in (None, {"layers.0": MAPS["layers.0"]}):
            rows = []
            handle = model.get_base_model().lm_head.register_forward_hook(
                lambda module, args, output, rows=rows: rows.append(output[0, -1].double())
            )
            ids = torch.tensor([some[0].prompt_tokens])
            settings = {"max_new_tokens": 1, "do_sample": False}
            if steering is None:
                model.generate(input_ids=ids, **settings)
            else:
                with lm.steer(model, steering, positions=positions):
                    model.generate(input_ids=ids, **settings)
            handle.remove()
            logits[steering is None] = rows[0]
        assert first.values[0] == pytest.approx(kl(logits[False], logits[True]), rel=DEPTH)
