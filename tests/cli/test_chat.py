"""``--chat``, ``--device`` and ``--dtype`` on the commands that load a model."""

import json

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import DataError
from repsurgery.lm.chat import ChatText
from repsurgery.workflows.on_policy import fit_on_policy
from repsurgery.workflows.prompts import in_chat, read_prompts
from tests.lm.chats import DIALOGUE, QUESTION, RAISES, chatty
from tests.lm.test_on_policy import PROMPTS, WordScorer
from tests.lm.tiny_models import WIDTH, WORDS, tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close

PUSH = rs.SteeringFunction({0: rs.Translation(np.full(WIDTH, 0.3))})


def folder_with(tmp_path, tokenizer, family="llama"):
    folder = tmp_path / f"{family}-model"
    tiny_model(family).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def chat_folder(tmp_path):
    return folder_with(tmp_path, chatty())


@pytest.fixture
def answers(tmp_path):
    """Return a table of prompts and answers, and what is in it."""
    rows = [(f"w{i % 5} w{i % 3}", f"{WORDS[i % 11]} {WORDS[20 * (i % 2) + i % 5]}", "ab"[i % 2]) for i in range(40)]
    path = tmp_path / "answers.csv"
    path.write_text("\n".join(["ask,text,label", *(",".join(row) for row in rows)]))
    return path, rows


@pytest.fixture
def pushed(tmp_path):
    rs.save(PUSH, tmp_path / "push.safetensors")
    return tmp_path / "push.safetensors"


def said(*messages):
    return [{"role": role, "content": text} for role, text in messages]


def test_a_prompt_in_a_chat_is_a_users_message(run, chat_folder, pushed, tmp_path):
    lines = tmp_path / "talks.jsonl"
    lines.write_text("\n".join(json.dumps(one) for one in ({"messages": DIALOGUE}, DIALOGUE, {"prompt": "w5"}, "w7")))
    words = ("generate", pushed, "--model", chat_folder, "--prompt", "w1 w2", "--prompts-file", lines, "--chat")
    result = run(*words, "--positions", "assistant")
    assert result.exit_code == 0, result.output
    network, tokenizer = lm.load(chat_folder)
    talks = [QUESTION, DIALOGUE, DIALOGUE, said(("user", "w5")), said(("user", "w7"))]
    steering = {"final": PUSH}
    for expected in (
        lm.generate(network, tokenizer, talks, n=1, progress=False),
        lm.generate(network, tokenizer, talks, n=1, steering=steering, positions="assistant", progress=False),
    ):
        shown = " ".join(result.stdout.replace("│", " ").split())
        assert all(word in shown for g in expected for word in g.text.split())
    assert "assistant: w3 w4 w5" in result.stdout
    # without --chat, plain prompts stay plain and messages are still a conversation
    mixed = run(*words[:-1])
    assert mixed.exit_code == 0 and mixed.stdout != result.stdout


def test_fit_reads_texts_as_answers_or_as_questions(run, chat_folder, answers, tmp_path, as_json):
    table, rows = answers
    network, tokenizer = lm.load(chat_folder)
    how = ("fit", table, "--model", chat_folder, "--method", "mean", "--source", "a", "--target", "b", "--held-out", 0)
    talks = {
        "answers": [said(("user", ask), ("assistant", text)) for ask, text, _ in rows],
        "questions": [said(("user", text)) for _, text, _ in rows],
        "texts": [text for _, text, _ in rows],
    }
    flags = {"answers": ("--chat", "--prompt-column", "ask"), "questions": ("--chat",), "texts": ()}
    sentences = {"answers": "the assistant's answer to its prompt", "questions": "as a user's message", "texts": ""}
    shifts = {}
    for kind, some in talks.items():
        for pooling in ("last", "all"):
            out = tmp_path / f"{kind}-{pooling}.safetensors"
            result = run(*how, *flags[kind], "--pooling", pooling, "--gate", "always", "--out", out)
            assert result.exit_code == 0, result.output
            assert sentences[kind] in " ".join(result.stdout.split())
            labels = [label for *_, label in rows]
            moments = lm.class_moments(
                network, tokenizer, some, labels, sites=["final"], pooling=pooling, progress=False
            )["final"]
            shift = next(iter(rs.load(out).maps.values())).shift
            assert_close(shift, moments["b"].mean - moments["a"].mean, rtol=DEPTH)
            shifts[kind, pooling] = shift
            assert rs.load(out).origin.in_chat is (kind != "texts")
            assert as_json(out)["origin"]["pooling"] == (pooling if kind == "texts" else f"{pooling} in chat")
    assert len({tuple(np.round(shift, 4)) for shift in shifts.values()}) == 6


def test_held_out_turns_are_measured(run, chat_folder, answers, tmp_path):
    table, _ = answers
    words = ("fit", table, "--model", chat_folder, "--method", "mean", "--source", "a", "--target", "b", "--chat")
    result = run(
        *words,
        "--prompt-column",
        "ask",
        "--pooling",
        "all",
        "--gate",
        "always",
        "--out",
        tmp_path / "f",
        "--store-fisher",
    )
    assert result.exit_code == 0, result.output
    assert "held out" in result.stdout


def test_use_in_another_setting_than_the_fit_is_a_warning(run, chat_folder, answers, tmp_path):
    table, _ = answers
    how = ("fit", table, "--model", chat_folder, "--method", "mean", "--source", "a", "--target", "b")
    assert run(*how, "--chat", "--out", tmp_path / "chat").exit_code == 0
    assert run(*how, "--out", tmp_path / "plain").exit_code == 0
    use = ("--model", chat_folder, "--prompt", "w1")
    assert "fitted in a chat and is used without one: add --chat" in run("generate", tmp_path / "chat", *use).stderr
    assert "fitted on plain texts and is used in a chat" in run("generate", tmp_path / "plain", *use, "--chat").stderr
    for file, flags in (("chat", ("--chat",)), ("plain", ())):
        assert "fitted" not in run("generate", tmp_path / file, *use, *flags).stderr


def test_on_policy_in_a_chat_answers_the_prompts(run, chat_folder, tmp_path, monkeypatch):
    from repsurgery.scorers.base import SCORERS

    assert "linear" in SCORERS
    monkeypatch.setitem(SCORERS._own, "words", WordScorer)
    monkeypatch.setenv("REPSURGERY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "prompts.txt").write_text("\n".join(PROMPTS))
    words = ("fit", "--on-policy", "--prompts", tmp_path / "prompts.txt", "--scorer", "words", "--method", "mean")
    result = run(*words, "--chat", "--store-fisher", "--model", chat_folder, "--out", tmp_path / "own")
    assert result.exit_code == 0, result.output
    loaded = rs.load(tmp_path / "own")
    assert loaded.origin.pooling == "generated in chat" and loaded.price is not None
    how = {"method": "mean", "model": chat_folder, "progress": False}
    talks = [said(("user", prompt)) for prompt in PROMPTS]
    expected = fit_on_policy(talks, WordScorer(), work_dir=tmp_path / "work", **how)
    assert loaded.digest() == expected.steering.digest()
    plain = fit_on_policy(PROMPTS, WordScorer(), work_dir=tmp_path / "work", **how)
    assert loaded.digest() != plain.steering.digest()


def test_files_of_prompts_hold_conversations(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "w1"}]}\n\n"w2"\n')
    first, second = read_prompts(file)
    assert isinstance(first, ChatText) and first.messages[0]["content"] == "w1"
    assert second == "w2" and not isinstance(second, ChatText)
    assert in_chat([first, second]) == ["user: w1", "user: w2"]
    for line, remedy in (
        ("{", "line 1 is not JSON"),
        ("3", "line 1 holds no prompt"),
        ('{"text": "w1"}', "an object with messages or prompt"),
        ('[{"role": "bot", "content": "w1"}]', "line 1: Message 0 has the role 'bot'"),
        ('""', "holds no prompt"),
    ):
        file.write_text(line)
        with pytest.raises(DataError, match=remedy):
            read_prompts(file)


@pytest.mark.parametrize(
    ("tokenizer", "remedy"),
    [(tiny_tokenizer(), "has no chat template"), (chatty(RAISES), "roles must alternate")],
)
def test_a_model_that_cannot_chat_says_so(run, answers, pushed, tmp_path, tokenizer, remedy):
    folder = folder_with(tmp_path, tokenizer)
    for words in (
        ("generate", pushed, "--prompt", "w1"),
        ("fit", answers[0], "--method", "mean", "--target", "b", "--out", tmp_path / "f"),
    ):
        result = run(*words, "--model", folder, "--chat")
        assert result.exit_code == 1 and remedy in result.stderr, result.output
        assert "Traceback" not in result.output


def test_an_encoder_has_neither_a_chat_nor_a_continuation(run, answers, pushed, tmp_path):
    folder = folder_with(tmp_path, tiny_tokenizer(), "bert")
    for words, remedy in (
        (("generate", pushed, "--prompt", "w1"), "is an encoder and writes no text. Load a decoder."),
        (("fit", answers[0], "--method", "mean", "--target", "b", "--out", tmp_path / "f"), "no chat template"),
    ):
        result = run(*words, "--model", folder, "--chat")
        assert result.exit_code == 1 and remedy in result.stderr, result.output


def test_flags_of_a_chat_that_do_not_fit_are_refused(run, answers, pushed, chat_folder, tmp_path):
    out = ("--model", chat_folder, "--out", tmp_path / "f")
    for words, remedy in (
        (("fit", answers[0], "--target", "b", "--prompt-column", "ask", *out), "Add --chat, or leave it out"),
        (("fit", answers[0], "--target", "b", "--prompt-column", "where", "--chat", *out), "where"),
        (("fit", "--moments", answers[0], "--chat", *out), "--moments reads no texts, which need --chat"),
        (("fit", "--moments", answers[0], "--dtype", "float32", *out), "--dtype"),
        (("generate", pushed, "--chat", "--prompt", " ", "--model", chat_folder), "has no text"),
        (("generate", pushed, "--prompt", "w1", "--positions", "assistant", "--model", chat_folder), "Add --chat"),
        (("generate", pushed, "--chat", "--prompt", "w1 " * 90, "--model", chat_folder), "its oldest messages"),
    ):
        result = run(*words)
        code = 2 if any(word in remedy for word in ("Add --chat", "--moments", "--dtype")) else 1
        assert result.exit_code == code and remedy in result.stderr, result.output


def test_device_and_dtype_reach_the_model(run, chat_folder, answers, pushed, tmp_path):
    how = ("--model", chat_folder, "--device", "cpu", "--dtype")
    fit = ("fit", answers[0], "--method", "mean", "--source", "a", "--target", "b", "--gate", "always")
    for dtype in ("float32", "bfloat16"):
        result = run(*fit, *how, dtype, "--out", tmp_path / dtype)
        assert result.exit_code == 0, result.output
        assert rs.load(tmp_path / dtype).origin.dtype == dtype
        assert run("generate", pushed, "--prompt", "w1", *how, dtype).exit_code == 0
        folded = run("fold", tmp_path / dtype, *how, dtype, "--custom-code", "--out", tmp_path / f"folded-{dtype}")
        assert folded.exit_code == 0, folded.output
        config = json.loads((tmp_path / f"folded-{dtype}" / "config.json").read_text())
        assert config.get("dtype", config.get("torch_dtype")) == dtype
    shifts = [next(iter(rs.load(tmp_path / dtype).maps.values())).shift for dtype in ("float32", "bfloat16")]
    assert not np.array_equal(*shifts) and np.allclose(*shifts, atol=0.1)


VERBS = {
    "fit": ("t.csv", "--out", "f"),
    "generate": ("f", "--prompt", "w1"),
    "tune": (),
    "fold": ("f", "--out", "o"),
    "export": ("f", "--to", "folder", "--out", "o"),
    "demo": (),
    "reproduce": ("toxicity",),
    "rivals": ("train", "dexperts"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_bad_device_or_dtype_is_refused_before_anything_is_read(run, verb):
    # none of the files that the words name exists
    for flag, value, remedy in (
        ("--device", "abacus", "This machine has cpu"),
        ("--device", "cuda:99", "This machine has cpu"),
        ("--device", "meta", "holds no numbers"),
        ("--dtype", "int3", "bfloat16"),
    ):
        result = run(verb, *VERBS[verb], flag, value)
        assert result.exit_code == 2 and remedy in " ".join(result.stderr.replace("│", " ").split()), result.output
