"""The last screen of a tuned steering: texts first, then numbers, never larger than a terminal."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from repsurgery.studies.tuned.screen import LINES, WIDTH, summary_lines
from tests.studies.tuned_record import effect, tune_record

pytest.importorskip("jinja2", reason="reports need the extra repsurgery[report]")


def position(lines, start):
    return next(i for i, line in enumerate(lines) if line.startswith(start))


def test_texts_come_first_then_effect_test_judge_price_and_certificate():
    lines = summary_lines(tune_record())
    assert lines[0].startswith("prompt   The clerk looked up")
    assert lines[1].startswith('base     "What do you want now?') and lines[1].endswith("rude .97")
    assert lines[2].startswith('steered  "Good morning') and lines[2].endswith("rude .04")
    order = (
        "Share of continuations judged rude: 63 % → 24 %",
        "Effect: −39 percentage points (95 % interval −45 to −33)",
    )
    order += ("Test: p < .001 by the sign-flip test over 60 confirmation prompts", "Judge: minilm-judge (AUC .97")
    order += ("Price: 0.098 nats per token", "Certificate: The shift is the same")
    places = [position(lines, start) for start in order]
    assert places == sorted(places)
    assert sum(line.startswith("prompt ") for line in lines) == 3


def test_a_missed_budget_is_stated_before_the_effect():
    lines = summary_lines(
        tune_record(budget={"kl": 0.05, "wikitext": None, "met": False}, effect=effect(-0.01, -0.1, 0.08, 0.8))
    )
    assert position(lines, "The budget was not met") < position(lines, "Share of continuations")
    assert position(lines, "The effect is not significant") < position(lines, "Share of continuations")
    assert not any("not met" in line or "not significant" in line for line in summary_lines(tune_record()))


@given(text=st.text(max_size=400), sentences=st.lists(st.text(max_size=400), max_size=6), met=st.booleans())
@example(text="a\nb\r\x1b[31m\x00\x85\u2028" * 30, sentences=["c\n\x1b[0m"], met=False)
def test_the_screen_is_never_too_large(text, sentences, met):
    pair = {"prompt": text, "base": text, "steered": text, "base_score": 0.5, "steered_score": None}
    lines = summary_lines(
        tune_record(
            source=text,
            judge={"name": text},
            pairs=[pair] * 5,
            certificate=sentences,
            effect=effect(0.1, -0.1, 0.3, 0.4),
            budget={"kl": 0.05, "wikitext": 1.0, "met": met},
        )
    )
    assert len(lines) <= LINES
    assert all(len(line) <= WIDTH for line in lines)
    assert not any(c in line for line in lines for c in "\n\r\x1b\x00\x85\u2028")


def test_a_record_without_texts_and_certificate_still_states_the_result():
    lines = summary_lines(tune_record(pairs=[], certificate=[], judge={"name": "minilm", "auc": None}))
    record = tune_record()
    for optional in ("pairs", "certificate", "notes", "candidates"):
        del record[optional]
    assert summary_lines(record)[0] == lines[0]
    assert lines[0] == "Share of continuations judged rude: 63 % → 24 %"
    assert not any("None" in line or line.startswith("Certificate") for line in lines)


def test_a_long_certificate_is_cut_with_dots():
    lines = summary_lines(tune_record(certificate=["word " * 200]))
    assert len(lines) == LINES
    assert lines[-1].endswith("…")
