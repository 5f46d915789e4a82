"""Text that grows token by token shows whole characters only, and nothing from a stop on."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from repsurgery.lm.generate.generate import continuation_text
from repsurgery.serve.text import GrowingText, Stops
from tests.lm.tiny_models import tiny_tokenizer

SENTENCE = "Grüße, 你好 🙂🧑‍🚀 it 's done ."


def fast(backend, **options):
    """Return a tokenizer with two special tokens, which decoding hides."""
    options = {"clean_up_tokenization_spaces": False, **options}
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", **options)


def byte_level():
    """Return a tokenizer of single bytes, whose characters take up to four tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return fast(backend)


PIECES = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁it", "▁done", "G", "r", "s", "▁'", "."]


def byte_fallback():
    """Return a tokenizer as Llama's: leading spaces as a mark, and bytes for what it does not know."""
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(PIECES)}, [], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return fast(backend, unk_token="<unk>")


def metaspace():
    """Return a tokenizer whose decoder drops the space of the first token."""
    pieces = ["<unk>", "▁", "▁it", "▁done", "G", "s", "▁▁", "."]
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return fast(backend, unk_token="<unk>")


def cleaning():
    """Return a word tokenizer that removes the space before a full stop once it comes."""
    words = ["<unk>", "it", "'s", "done", ".", ",", "n't", "do", "'", "!", "n", "t", "'v", "e", "know"]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return fast(backend, unk_token="<unk>", clean_up_tokenization_spaces=True)


def cleaning_pieces():
    """Return a tokenizer of single characters that cleans up spaces, so that these may come in any number."""
    characters = ["<unk>", *" .,'ntsveax"]
    backend = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    return fast(backend, unk_token="<unk>", clean_up_tokenization_spaces=True)


def word_pieces():
    pieces = ["[UNK]", "it", "##s", "don", "##e", ".", "##r", "g"]
    backend = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    return fast(backend, unk_token="[UNK]")


def word_ends():
    """Return a tokenizer whose last token is decoded in another way than the others."""
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(["<unk>", "it</w>", "do", "ne</w>", "."])}, []))
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    return fast(backend, unk_token="<unk>")


TOKENIZERS = {
    "byte level": byte_level(),
    "byte fallback": byte_fallback(),
    "metaspace": metaspace(),
    "cleaning": cleaning(),
    "cleaning pieces": cleaning_pieces(),
    "word pieces": word_pieces(),
    "word ends": word_ends(),
    "words": tiny_tokenizer(),
}


def stream(tokenizer, prompt, new):
    """Yield the shown text after every token, then the final one."""
    text = GrowingText(tokenizer, prompt)
    for token in new:
        text.append(token)
        yield text.stable()
    yield text.final()


def token_lists(tokenizer):
    """Draw tokens: any, long runs of one hidden token, and long texts of which every character takes several bytes."""
    token = st.integers(0, len(tokenizer) - 1)
    any_tokens = st.lists(token, max_size=12)
    hidden = st.lists(st.sampled_from(tokenizer.all_special_ids), min_size=1, max_size=40)
    characters = st.text("你é🙂", min_size=1, max_size=20)
    spelt = characters.map(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])
    cut = st.tuples(spelt, st.integers(0, 3)).map(lambda one: one[0][one[1] :])
    run = st.tuples(token, st.integers(1, 40)).map(lambda one: [one[0]] * one[1])
    return st.lists(any_tokens | hidden | spelt | cut | run, max_size=6).map(lambda parts: [*chain(*parts)])


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
def test_pieces_concatenate_to_the_text_of_generate(name, data):
    tokenizer = TOKENIZERS[name]
    prompt, new = data.draw(token_lists(tokenizer)), data.draw(token_lists(tokenizer))
    prompt = tokenizer(SENTENCE)["input_ids"] if data.draw(st.booleans()) else prompt
    texts = list(stream(tokenizer, prompt, new))
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
    assert texts[-1] == continuation_text(tokenizer, prompt, new)


def test_long_runs_of_bytes_and_of_hidden_tokens_keep_their_text():
    tokenizer = byte_fallback()
    it, done, hidden = tokenizer.convert_tokens_to_ids(["▁it", "▁done", "<s>"])
    run = tokenizer("你" * 10, add_special_tokens=False)["input_ids"][1:]
    assert list(stream(tokenizer, [it], [*run, done, it]))[-2:] == ["你" * 10 + " done it"] * 2
    assert list(stream(tokenizer, [it], [*run[:7], hidden, *run[7:], done]))[-2:] == ["你" * 10 + " done"] * 2
    for name in ("words", "metaspace", "byte fallback"):
        tokenizer = TOKENIZERS[name]
        word, other = (t for t in range(len(tokenizer)) if tokenizer.decode([t]) in ("w1", "w2", "it", "done"))
        hidden = [tokenizer.bos_token_id] * 40
        first, second = tokenizer.decode([word]), tokenizer.decode([other])
        assert list(stream(tokenizer, [word], [*hidden, other, word]))[-2:] == [f" {second} {first}"] * 2


def test_nothing_is_kept_back_but_open_characters_and_bytes():
    for name, token in {"byte level": 65, "words": 7, "metaspace": 2, "byte fallback": 258, "word pieces": 3}.items():
        text = GrowingText(TOKENIZERS[name], [token])
        for _ in range(40):
            text.append(token)
            assert text.stable() == text.final() != ""


@pytest.mark.parametrize("name", ["byte level", "byte fallback"])
def test_no_part_of_a_character_is_shown(name):
    tokenizer = TOKENIZERS[name]
    new = tokenizer(" " + SENTENCE, add_special_tokens=False)["input_ids"]
    prompt = tokenizer("it", add_special_tokens=False)["input_ids"]
    texts = list(stream(tokenizer, prompt, new))
    assert not any("\ufffd" in text for text in texts)
    assert texts[-1].endswith(SENTENCE)
    # decoding token by token does show parts of characters
    assert any("\ufffd" in tokenizer.decode([token]) for token in new)
    # a run of byte tokens is shown when it has ended
    assert len(set(texts)) > (10 if name == "byte level" else 6)


def test_a_long_answer_is_not_decoded_from_its_beginning():
    tokenizer, longest = byte_level(), 0
    decode = tokenizer.decode

    def counted(tokens, **how):
        nonlocal longest
        longest = max(longest, len(tokens))
        return decode(tokens, **how)

    tokenizer.decode = counted
    text = GrowingText(tokenizer, [65] * 500)
    for _ in range(500):
        text.append(66)
        assert text.stable()
    assert longest < 50
    assert len(text.final()) == 500


letters = st.text("ab ", max_size=40)


@given(st.lists(letters, max_size=10), st.lists(st.text("ab ", min_size=1, max_size=4), max_size=4))
def test_nothing_after_a_stop_is_released(pieces, stops):
    cutter, text, released = Stops(stops), "", ""
    for i, piece in enumerate([*pieces, ""]):
        text += piece
        shown, stopped = cutter.cut(text, final=i == len(pieces))
        assert shown.startswith(released) and text.startswith(shown)
        released = shown
        assert not any(stop in released for stop in stops)
        if stopped:
            assert any(text.startswith(stop, len(released)) for stop in stops)
            return
    assert released == text and not any(stop in text for stop in stops)


def test_a_stop_is_found_across_tokens_and_its_beginning_is_kept_back():
    cutter = Stops(["END."])
    assert cutter.cut("one E") == ("one ", False)
    assert cutter.cut("one EN") == ("one ", False)
    assert cutter.cut("one ENTER") == ("one ENTER", False)
    assert cutter.cut("one ENTER END") == ("one ENTER ", False)
    assert cutter.cut("one ENTER END. more") == ("one ENTER ", True)
