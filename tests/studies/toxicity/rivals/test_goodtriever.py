"""GOODTRIEVER: the formula by hand, keys from the right place, stores that resume, and one path for every batch."""

import math
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from repsurgery.errors import DataError, MissingExtraError, ParameterError, SiteError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.batching.tokens import pad
from repsurgery.lm.sites.names import last_mlp_input
from repsurgery.studies.toxicity.decoding import datastore
from repsurgery.studies.toxicity.decoding.datastore import SEARCHES, Datastore, collect, exact_search, make_store
from repsurgery.studies.toxicity.decoding.parts import Workshop
from repsurgery.studies.toxicity.rivals.goodtriever import Retrieval, neighbours_of
from tests.lm.tiny_models import DECODERS, VOCABULARY, WIDTH, texts, tiny_model, tiny_tokenizer
from tests.studies.toxicity.rivals.contexts import (
    PROMPTS,
    SEEDS,
    base,
    part_digests,
    rival,
    rows,
    share_of_target,
    taught_context,
    tiny_context,
)


def store(keys, values):
    arrays = {"keys": torch.as_tensor(keys).numpy(), "values": torch.as_tensor(values).numpy()}
    return make_store(Contents("part", {}, arrays), index="exact", device=torch.device("cpu"))


@pytest.fixture
def taught(tmp_path):
    """A context whose two labels have words of their own."""
    return partial(taught_context, work=tmp_path)


def test_two_neighbours_by_hand():
    one, _ = store([[0.0], [1.0], [3.0]], [0, 1, 1])
    # squared distances 0, 1 and 9 from the query; token 2 follows no key and gets the smallest probability
    near = one.log_probabilities(torch.zeros(1, 1), k=2, temperature=1.0, vocabulary=3).exp()
    e = math.exp(-1)
    torch.testing.assert_close(near, torch.tensor([[1.0, e, e]]) / (1 + e))
    every = one.log_probabilities(torch.zeros(1, 1), k=9, temperature=2.0, vocabulary=3).exp()
    both = math.exp(-1 / 2) + math.exp(-9 / 2)
    torch.testing.assert_close(every, torch.tensor([[1.0, both, both]]) / (1 + both))


def test_the_difference_of_two_stores_by_hand():
    wanted, unwanted = store([[0.0], [1.0]], [0, 0]), store([[0.0], [2.0]], [0, 1])
    both = Retrieval(wanted, unwanted, k=2, temperature=4.0)
    # the wanted store knows token 0 alone, so that its floor is log 1 = 0 for all; the other has weights 1 and e^-1
    p = torch.tensor([[1.0, math.exp(-1)]]) / (1 + math.exp(-1))
    torch.testing.assert_close(both.difference(torch.zeros(1, 1), 2), -p.log())


def test_the_floor_of_a_row_is_its_own():
    torch.manual_seed(0)
    one = Datastore(exact_search(torch.randn(50, 4)), torch.randint(9, (50,)))
    queries = torch.stack([torch.zeros(4), 5 * torch.ones(4)])
    options = {"k": 5, "temperature": 1.0, "vocabulary": 20}
    together = one.log_probabilities(queries, **options)
    floors = together.amin(dim=-1)
    assert floors[0] != floors[1] and (together[:, 9:] == floors[:, None]).all()
    for i in range(2):
        torch.testing.assert_close(one.log_probabilities(queries[i : i + 1], **options)[0], together[i])


def test_the_default_temperature_follows_the_scale_of_the_keys():
    torch.manual_seed(0)
    keys, values = torch.randn(2, 300, 8), torch.randint(9, (2, 300))
    query = torch.randn(3, 8)
    found = [
        Retrieval(*(store(c * k, v) for k, v in zip(keys, values, strict=True))).difference(c * query, 9)
        for c in (1.0, 100.0)
    ]
    # squared distances of keys of size 100 are rounded to about 1e-7 of 1e5, and divided by a temperature of about 1e4
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    fixed = [
        Retrieval(*(store(c * k, v) for k, v in zip(keys, values, strict=True)), temperature=1.0).difference(
            c * query, 9
        )
        for c in (1.0, 2.0)
    ]
    assert not torch.allclose(*fixed, rtol=0.1, atol=0.1)


def test_the_default_temperature_by_hand():
    # four keys at 0, 1, 3 and 7 in both stores: the second neighbours beside the key itself lie 3, 2, 3 and 6 apart
    both = [store([[0.0], [1.0], [3.0], [7.0]], [0, 1, 2, 3])] * 2
    squares = sorted([9.0, 4.0, 9.0, 36.0])
    assert Retrieval(*both, k=2).temperature == pytest.approx(squares[1] / 10)
    assert Retrieval(*both, k=2, temperature=7.0).temperature == 7.0


def test_the_default_number_of_neighbours():
    assert [neighbours_of(n) for n in (10, 500, 20_000, 10**7)] == [10, 64, 200, 1024]


def test_distances_are_those_of_the_definition():
    torch.manual_seed(0)
    keys, queries = torch.randn(200, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    distances, index = exact_search(keys)(queries, 7)
    expected = torch.cdist(queries, keys).square()
    torch.testing.assert_close(distances, expected.sort(dim=-1).values[:, :7])
    torch.testing.assert_close(expected.gather(1, index), distances)


@pytest.mark.parametrize("family", DECODERS)
def test_strength_zero_is_the_base(taught, family):
    context = taught(family)
    expected = rows(base(context))
    assert rows(rival("goodtriever alpha=0 tokens=200", context)) == expected
    assert rows(rival("goodtriever alpha=4 tokens=200", context)) != expected


def test_more_alpha_gives_more_of_the_target(taught):
    context = taught(top_p=1.0)
    shares = [share_of_target(rival(f"goodtriever tokens=400 alpha={a}", context)) for a in (-1, 0, 0.5, 1, 2)]
    assert shares == sorted(shares) and shares[-1] > shares[0] + 0.3


def test_a_batch_writes_what_its_rows_write_alone(taught):
    context = taught()
    line = "goodtriever tokens=200"
    alone = [[rows(rival(line, context), [prompt], [seed])[0][0] for seed in SEEDS] for prompt in PROMPTS]
    assert rows(rival(line, context)) == alone


@pytest.mark.parametrize("family", ["llama", "opt", "gemma3"])
def test_logits_with_a_cache_are_the_formula_without_one(taught, family):
    context = taught(family, top_p=1.0)
    one = rival("goodtriever tokens=200", context)
    prompts, new = [p for p in one.encode(PROMPTS) for _ in range(2)], torch.tensor([[9, 8, 7, 6, 5, 4], [5] * 6])
    model = context.model
    with torch.no_grad(), one.applied():
        decoder = one.decoder()
        found = [decoder.read(*pad(prompts, token=0, side="left")), *(decoder.step(tokens) for tokens in new)]
        for step, logits in enumerate(found):
            for i, prompt in enumerate(prompts):
                plain = model(torch.tensor([[*prompt, *new[:step, i].tolist()]])).logits[:, -1]
                query = one._tap.keys(1)[:, -1]
                expected = plain + 2 * one.retrieval.difference(query, VOCABULARY)
                # rounding of a pass in float32, divided by the temperature of the neighbours' weights
                torch.testing.assert_close(logits[i : i + 1], expected, rtol=1e-3, atol=1e-3)


def test_the_nucleus_is_that_of_the_base(taught):
    context = taught(top_p=0.5, temperature=0.7)
    one = rival("goodtriever tokens=200", context)
    one.prepare(progress=False)
    ids, mask = pad(one.encode(PROMPTS), token=0, side="left")
    with torch.no_grad(), one.applied():
        found = one.decoder().read(ids, mask)
        query = one._tap.keys(len(ids))[:, -1]
        plain = context.model(input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    total = plain[:, -1] + 2 * one.retrieval.difference(query, VOCABULARY)
    for row, logits, combined in zip(found, plain[:, -1], total, strict=True):
        kept, of_the_sum = most_likely(logits), most_likely(combined)
        assert set(row.isfinite().nonzero()[:, 0].tolist()) == kept != of_the_sum
        torch.testing.assert_close(row[list(kept)], combined[list(kept)], rtol=1e-3, atol=1e-3)


def most_likely(logits):
    """Return the tokens before which less than half of the mass lies, at the temperature 0.7."""
    p, kept, mass = (logits / 0.7).softmax(-1), set(), 0.0
    for token in p.argsort(descending=True).tolist():
        if mass < 0.5:
            kept.add(token)
        mass += p[token].item()
    return kept


def test_labels_and_tokens_decide_a_store_and_the_search_does_not(taught):
    of = partial(part_digests, context=taught())
    stores, more = of("goodtriever tokens=200"), of("goodtriever tokens=201")
    assert of("goodtriever tokens=200 alpha=1 k=3 temperature=2") == stores
    assert more.keys() == stores.keys() == {"target", "source"} and stores["target"] != stores["source"]
    assert all(more[name] != stores[name] for name in stores)


def collected(model, lines, *, tokens, work, label="a store"):
    workshop = Workshop(work / "state", progress=False)
    return collect(model, tiny_tokenizer(), lines, tokens=tokens, max_length=16, workshop=workshop, label=label)


@pytest.mark.parametrize(
    ("family", "norm"),
    [
        ("llama", "model.layers.1.post_attention_layernorm"),
        ("gpt2", "transformer.h.1.ln_2"),
        ("gemma3", "model.layers.1.pre_feedforward_layernorm"),
        ("opt", "model.decoder.layers.1.final_layer_norm"),
    ],
)
def test_keys_are_the_normed_inputs_of_the_last_mlp_and_values_the_next_tokens(family, norm, tmp_path):
    model, lines = tiny_model(family), ["w1 w2 w3", "w4 w5"]
    facts, arrays = collected(model, lines, tokens=100, work=tmp_path)
    normed = []
    handle = model.get_submodule(norm).register_forward_hook(lambda *call: normed.append(call[2]))
    ids = [tiny_tokenizer()(line)["input_ids"] for line in lines]
    with torch.no_grad():
        for row in ids:
            model(torch.tensor([row]))
    handle.remove()
    # shorter texts come first
    expected = torch.cat([state.reshape(-1, WIDTH)[:-1] for state in reversed(normed)])
    torch.testing.assert_close(torch.from_numpy(arrays["keys"]), expected, rtol=1e-5, atol=1e-5)
    assert arrays["values"].tolist() == [*ids[1][1:], *ids[0][1:]]
    assert facts["tokens"] == 5 and facts["texts"] == 2


def test_a_store_has_the_first_tokens(tmp_path):
    lines = texts(30, seed=3)
    facts, arrays = collected(tiny_model("llama"), lines, tokens=17, work=tmp_path)
    assert facts["tokens"] == 17 == len(arrays["keys"]) == len(arrays["values"])
    assert collected(tiny_model("llama"), lines, tokens=10**6, work=tmp_path)[0]["texts"] == 30


def test_an_interrupted_collection_continues(tmp_path, monkeypatch):
    lines, model = texts(60, seed=3), tiny_model("llama")
    _, expected = collected(model, lines, tokens=500, work=tmp_path)
    read, calls = datastore.Tap.keys, []

    def keys(tap, count):
        calls.append(count)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read(tap, count)

    monkeypatch.setattr(datastore.Tap, "keys", keys)
    with pytest.raises(KeyboardInterrupt):
        collected(model, lines, tokens=500, work=tmp_path)
    first = sum(calls[:2])
    _, arrays = collected(model, lines, tokens=500, work=tmp_path)
    assert sum(calls[3:]) == 60 - first > 0
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)


def interrupted_at(line, count):
    """Return a trace that sends Ctrl-C before ``line`` of the reading of a batch runs for the ``count``th time."""
    seen = []

    def trace(frame, event, argument):
        if frame.f_code.co_name != "read" or frame.f_code.co_filename != datastore.__file__:
            return trace
        if event == "line" and frame.f_lineno == line:
            seen.append(line)
            if len(seen) == count:
                signal.raise_signal(signal.SIGINT)
        return trace

    return trace


def test_an_interruption_between_two_lines_leaves_whole_texts(tmp_path):
    lines, model = texts(60, seed=3), tiny_model("llama")
    _, expected = collected(model, lines, tokens=500, work=tmp_path)
    source = Path(datastore.__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(source, 1) if "finished.append(batch)" in text)
    before = sys.gettrace()
    # a shell lets its background jobs ignore Ctrl-C
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.settrace(interrupted_at(line, 2))  # the keys of the second batch are there, and its texts are not counted yet
    try:
        with pytest.raises(KeyboardInterrupt):
            collected(model, lines, tokens=500, work=tmp_path)
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGINT, handler)
    assert read_file(tmp_path / "state", kind=datastore.KIND).header["texts"] == 32
    _, arrays = collected(model, lines, tokens=500, work=tmp_path)
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)


def test_keys_that_do_not_belong_to_their_texts_are_refused(tmp_path):
    keys = np.zeros((7, WIDTH), dtype=np.float32)
    write_file(tmp_path / "state", Contents(datastore.KIND, {"texts": 1, "seconds": 0.0}, {"keys": keys}))
    with pytest.raises(DataError, match=r"7 keys for 2 next tokens of 1 texts.*Delete"):
        collected(tiny_model("llama"), ["w1 w2 w3", "w4 w5"], tokens=100, work=tmp_path)


def test_a_collection_saves_by_the_clock(tmp_path, monkeypatch):
    # the clock runs, but the process computes nothing
    monkeypatch.setattr(datastore.time, "process_time", lambda: 0.0)
    times = iter(range(0, 10**6, 31))
    monkeypatch.setattr(datastore.time, "monotonic", lambda: float(next(times)))
    saved = []
    monkeypatch.setattr(datastore, "write_file", lambda path, contents: saved.append(contents.header["texts"]))
    collected(tiny_model("llama"), texts(60, seed=3), tokens=500, work=tmp_path)
    assert saved and saved[0] == 16


@pytest.mark.parametrize(("lines", "tokens"), [([], 100), (["w1 w2"], 0), (["  "], 100)])
def test_an_empty_store_is_refused(lines, tokens, tmp_path):
    with pytest.raises(DataError, match=r"make an empty store.*at least one text with two tokens"):
        collected(tiny_model("llama"), lines, tokens=tokens, work=tmp_path)


def test_a_model_without_an_mlp_is_refused(tmp_path):
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=2)
    model = transformers.MambaForCausalLM(config)
    with pytest.raises(SiteError, match="has no site 'the input of the last MLP'"):
        last_mlp_input(model)
    with pytest.raises(SiteError):
        collected(model, ["w1 w2"], tokens=10, work=tmp_path)


@pytest.mark.parametrize("option", ["alpha=nan", "k=-1", "temperature=-1", "index=annoy"])
def test_options_that_mean_nothing_are_refused(option):
    with pytest.raises(ParameterError, match=r"0 or more, and index one of exact, faiss"):
        rival(f"goodtriever {option}", tiny_context())


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"repsurgery\[rivals\]"):
        SEARCHES["faiss"](torch.randn(5, 3))


def test_faiss_finds_the_neighbours_of_the_exact_search():
    pytest.importorskip("faiss", reason="index=faiss needs the extra repsurgery[rivals]")
    torch.manual_seed(0)
    keys, queries = torch.randn(600, 6), torch.randn(5, 6)
    # all clusters are read, so that nothing is missed
    (found, near), (exact, index) = (SEARCHES[name](keys)(queries, 7) for name in ("faiss", "exact"))
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)
    assert torch.equal(near, index)


def test_with_faiss_the_texts_are_those_of_the_exact_search(taught):
    pytest.importorskip("faiss", reason="index=faiss needs the extra repsurgery[rivals]")
    context = taught()
    exact, by_faiss = (rows(rival(f"goodtriever tokens=200 index={index}", context)) for index in ("exact", "faiss"))
    assert exact == by_faiss
