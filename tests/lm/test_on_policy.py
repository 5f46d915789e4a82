import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import CacheWarning, DataError, IdentityWarning, ParameterError, SiteError, TextError
from repsurgery.files import Contents, digest_of, read_file, write_file
from repsurgery.lm.policy import reading, scores, writing
from repsurgery.moments.by_class import to_contents
from tests.lm.test_extract import Interrupting
from tests.lm.tiny_models import WORDS, texts, tiny_model, tiny_tokenizer
from tests.lm.tools import DEPTH, assert_close, random_map

PROMPTS = texts(12, seed=5)
SITES = ["layers.0", "layers.1.mlp", "final"]
BAD = set(WORDS[:4])
OPTIONS = {"sites": SITES, "samples": 3, "max_new_tokens": 7, "batch_size": 8, "progress": False}


class WordScorer:
    """The toxicity of a text: .6 if it has a bad word, .3 more for another one, None without a visible character."""

    name, version, digest = "words", "1", "0" * 64

    def __init__(self, stop=None):
        self.seen, self.calls, self._stop = [], 0, stop

    def __call__(self, some):
        self.calls += 1
        if self.calls == self._stop:
            raise KeyboardInterrupt
        self.seen += some
        return [score(text) if text.strip() else None for text in some]


def score(text):
    bad = sum(word in BAD for word in text.split())
    return 0.05 if bad == 0 else min(1.0, 0.3 + 0.3 * bad)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(writing, "AT_ONCE", 9)
    monkeypatch.setattr(scores, "AT_ONCE", 10)
    monkeypatch.setattr(reading, "BLOCK_STEPS", 60)


def assert_identical(found, expected):
    assert found.generations == expected.generations
    assert found.scores == expected.scores
    assert found.counts == expected.counts
    assert list(found) == list(expected)
    for site in expected:
        a, b = to_contents(found[site]), to_contents(expected[site])
        assert digest_of(a.arrays, a.header) == digest_of(b.arrays, b.header)
    for a, b in zip(found.credits, expected.credits, strict=True):
        np.testing.assert_array_equal(a, b)


def labelled_states(model, tokenizer, found, site, codes):
    """Return the states of the steps that have a code, their classes and their texts."""
    states = lm.states_along(model, tokenizer, found.generations, site=site, progress=False)
    X = np.concatenate([rows[np.array(code) >= 0] for rows, code in zip(states, codes, strict=True)])
    z = [["source", "target"][c] for code in codes for c in code if c >= 0]
    return X, z, [i for i, code in enumerate(codes) for c in code if c >= 0]


def codes_by_text(found):
    def code(value):
        return 0 if value is not None and value >= 0.5 else 1 if value is not None and value <= 0.1 else -1

    return [
        [code(value)] * (len(g.tokens) + g.finished) for g, value in zip(found.generations, found.scores, strict=True)
    ]


def codes_by_step(found, tokenizer, *, step_at, target_at):
    """Assign each step by the words of the text before and after its token, without the package's own prefixes."""
    codes = []
    for g in found.generations:
        words = [tokenizer.decode([token], skip_special_tokens=True) for token in g.tokens]
        after = [score(" ".join(words[: t + 1])) if "".join(words[: t + 1]) else 0.0 for t in range(len(words))]
        after += after[-1:] or [0.0] if g.finished else []
        credit = np.diff([0.0, *after])
        codes.append(
            [0 if c >= step_at else 1 if abs(c) < step_at and s <= target_at else -1 for c, s in zip(credit, after)]  # noqa: B905
        )
    return codes


def test_the_texts_are_those_of_generate(model, tokenizer, small_parts):
    repeated = [*PROMPTS, PROMPTS[3], PROMPTS[0], PROMPTS[3]]
    found = lm.on_policy(model, tokenizer, repeated, WordScorer(), **OPTIONS)
    expected = lm.generate(model, tokenizer, repeated, n=3, max_new_tokens=7, progress=False)
    assert found.generations == expected
    assert found.scores == WordScorer()([g.text for g in expected])
    by_occurrence = [[g.tokens for g in expected if g.index == i] for i in (3, 12, 14)]
    assert by_occurrence[0] != by_occurrence[1] != by_occurrence[2]


def test_moments_are_those_of_the_states_along_the_texts(model, tokenizer, small_parts):
    found = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **OPTIONS)
    codes = codes_by_text(found)
    for site in SITES:
        X, z, g = labelled_states(model, tokenizer, found, site, codes)
        expected = rs.ClassMoments.of(X, z, groups=g)
        assert found[site].labels == ["source", "target"]
        for label in expected:
            assert found[site][label].count == expected[label].count == found.counts[label]["steps"]
            assert_close(found[site][label].mean, expected[label].mean, rtol=DEPTH)
            assert_close(found[site][label].covariance, expected[label].covariance, rtol=DEPTH)
            assert_close(found[site][label].effective_count, expected[label].effective_count, rtol=DEPTH)
            assert found[site][label].effective_count < 0.9 * found[site][label].count
        assert np.abs(found[site]["source"].mean - expected["target"].mean).max() > 0.01
    assert found.counts["source"]["texts"] == sum(0 in row for row in codes)
    assert found.counts["target"]["texts"] == sum(1 in row for row in codes)


def test_a_step_has_the_class_of_its_own_credit(model, tokenizer):
    # a second bad word changes the score by .3 only, so that three kinds of steps are left out
    found = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), credit="step", step_at=0.4, **OPTIONS)
    codes = codes_by_step(found, tokenizer, step_at=0.4, target_at=0.1)
    assert {c for row in codes for c in row} == {-1, 0, 1}
    assert any({0, 1} <= set(row) for row in codes)
    for site in SITES:
        X, z, g = labelled_states(model, tokenizer, found, site, codes)
        expected = rs.ClassMoments.of(X, z, groups=g)
        for label in expected:
            assert found[site][label].count == expected[label].count == found.counts[label]["steps"]
            assert_close(found[site][label].mean, expected[label].mean, rtol=DEPTH)
    by_text = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **OPTIONS)
    assert by_text.counts["source"]["steps"] > found.counts["source"]["steps"]


def test_credits_sum_to_the_score_and_each_distinct_text_is_scored_once(model, tokenizer):
    scorer = WordScorer()
    found = lm.on_policy(model, tokenizer, PROMPTS, scorer, **OPTIONS)
    assert len(scorer.seen) == len({g.text for g in found.generations})  # prefixes are not scored before they are read
    for g, value, credit in zip(found.generations, found.scores, found.credits, strict=True):
        assert credit.shape == (len(g.tokens),)
        np.testing.assert_allclose(credit.sum(), value or 0.0, atol=1e-12)
    assert len(set(scorer.seen)) == len(scorer.seen)
    assert any(np.count_nonzero(credit) > 1 for credit in found.credits)
    prefix = found.generations[0].tokens[:3]
    assert tokenizer.decode(prefix, skip_special_tokens=True) in {text.strip() for text in scorer.seen}
    assert found.credits is found.credits


def test_one_pass_serves_every_site(model, tokenizer, tmp_path):
    lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **{**OPTIONS, "sites": ["final"]}, work_dir=tmp_path)
    passes = Interrupting(model, stop=None)
    found = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **OPTIONS, work_dir=tmp_path)
    read = sum(1 for row in codes_by_text(found) if row[0] >= 0)
    assert passes.passes == -(-read // OPTIONS["batch_size"])


@pytest.mark.parametrize("credit", ["text", "step"])
def test_an_interrupted_call_resumes_bit_for_bit(model, tokenizer, tmp_path, small_parts, credit):
    options = {**OPTIONS, "credit": credit}
    passes, scorer = Interrupting(model, stop=None), WordScorer()
    expected = lm.on_policy(model, tokenizer, PROMPTS, scorer, **options)
    passes.remove()
    calls = scorer.calls
    expected.credits  # noqa: B018
    assert passes.passes > 20
    assert calls > 3
    for stop in range(1, passes.passes + 1, 3):
        interrupting = Interrupting(model, stop=stop)
        work = tmp_path / f"pass-{stop}"
        with pytest.raises(KeyboardInterrupt):
            lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), work_dir=work, **options)
        interrupting.remove()
        remaining = Interrupting(model, stop=None)
        assert_identical(lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), work_dir=work, **options), expected)
        remaining.remove()
        # the part in which the interruption fell is repeated, and nothing else: 9 texts of 7 tokens, 8 texts at once
        assert remaining.passes <= passes.passes - stop + 1 + 2 * (1 + 7)
    for stop in range(1, calls + 1):
        work = tmp_path / f"score-{stop}"
        cut, again = WordScorer(stop), WordScorer()
        with pytest.raises(KeyboardInterrupt):
            lm.on_policy(model, tokenizer, PROMPTS, cut, work_dir=work, **options)
        assert_identical(lm.on_policy(model, tokenizer, PROMPTS, again, work_dir=work, **options), expected)
        assert sorted(cut.seen + again.seen) == sorted(scorer.seen)
    finished, silent = Interrupting(model, stop=1), WordScorer(stop=1)
    assert_identical(lm.on_policy(model, tokenizer, PROMPTS, silent, work_dir=work, **options), expected)
    finished.remove()


KILLED = """
import os, signal, sys
from repsurgery import lm
from repsurgery.lm.policy import scores, writing
from tests.lm.test_on_policy import OPTIONS, PROMPTS, WordScorer
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
writing.AT_ONCE, scores.AT_ONCE = 9, 10
class Killing(WordScorer):
    def __call__(self, some):
        if self.calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(some)
lm.on_policy(tiny_model("llama"), tiny_tokenizer(), PROMPTS, Killing(), work_dir=sys.argv[1], **OPTIONS)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_a_killed_process_loses_nothing_that_was_stored(model, tokenizer, tmp_path, small_parts):
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    scorer, passes = WordScorer(), Interrupting(model, stop=None)
    found = lm.on_policy(model, tokenizer, PROMPTS, scorer, work_dir=tmp_path, **OPTIONS)
    passes.remove()
    assert len(scorer.seen) == len({g.text for g in found.generations}) - 20
    assert passes.passes == -(-sum(1 for row in codes_by_text(found) if row[0] >= 0) // OPTIONS["batch_size"])
    assert_identical(found, lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **OPTIONS))


def test_other_jobs_use_what_they_share_and_nothing_else(model, tokenizer, tmp_path):
    options = {**OPTIONS, "work_dir": tmp_path}
    first = WordScorer()
    lm.on_policy(model, tokenizer, PROMPTS, first, **options)
    more = lm.on_policy(model, tokenizer, [*PROMPTS, "w1 w2"], second := WordScorer(), **options)
    assert len(second.seen) <= 3
    assert more.generations == lm.generate(model, tokenizer, [*PROMPTS, "w1 w2"], n=3, max_new_tokens=7, progress=False)
    seeded = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), seed=1, **options)
    assert seeded.generations != more.generations[: len(seeded.generations)]
    harsh = WordScorer()
    harsh.digest = "1" * 64
    lm.on_policy(model, tokenizer, PROMPTS, harsh, **options)
    assert sorted(harsh.seen) == sorted(first.seen)
    other = tiny_model("llama", seed=1)
    changed = lm.on_policy(other, tokenizer, PROMPTS, WordScorer(), **options)
    assert changed.generations == lm.generate(other, tokenizer, PROMPTS, n=3, max_new_tokens=7, progress=False)


def prefixing_tokenizer():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Prepend(f"{WORDS[9]} ")
    return tokenizer


@pytest.mark.parametrize(
    "change",
    [
        *({"seed": 1}, {"top_p": 0.6}, {"temperature": 0.7}, {"max_new_tokens": 4}, {"max_length": 2}),
        {"tokenizer": prefixing_tokenizer()},
    ],
)
def test_texts_of_other_settings_are_not_taken_for_these(model, tokenizer, tmp_path, change):
    options = {**OPTIONS, "sites": ["final"]}
    first = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **options, work_dir=tmp_path)
    settings = {**options, **change}
    other = settings.pop("tokenizer", tokenizer)
    found = lm.on_policy(model, other, PROMPTS, WordScorer(), **settings, work_dir=tmp_path)
    assert found.generations == lm.on_policy(model, other, PROMPTS, WordScorer(), **settings).generations
    assert found.generations != first.generations


def test_under_a_steering_the_steered_states_are_read(model, tokenizer, tmp_path):
    first = random_map(seed=3)
    options = {**OPTIONS, "sites": ["layers.0", "final"], "work_dir": tmp_path}
    plain = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **options)
    found = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), steering={"final": first}, **options)
    how = {"n": 3, "max_new_tokens": 7, "progress": False}
    assert found.generations == lm.generate(model, tokenizer, PROMPTS, steering={"final": first}, **how)
    assert found.generations != plain.generations
    X, z, _ = labelled_states(model, tokenizer, found, "final", codes_by_text(found))
    moved, unmoved = rs.ClassMoments.of(first(X), z), rs.ClassMoments.of(X, z)
    for label in moved:
        assert_close(found["final"][label].mean, moved[label].mean, rtol=DEPTH)
        assert np.abs(moved[label].mean - unmoved[label].mean).max() > 0.1
    found.credits  # noqa: B018
    # again, now from the work folder alone
    again = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(stop=1), steering={"final": first}, **options)
    assert_identical(again, found)
    half = rs.SteeringFunction({None: first}).with_origin(site="final", strength=0.5)
    weaker = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), steering=half, **options)
    assert weaker.generations == lm.generate(model, tokenizer, PROMPTS, steering=half, **how)
    assert weaker.generations != found.generations


def test_texts_are_read_at_the_positions_at_which_they_were_steered(model, tokenizer):
    options = {**OPTIONS, "sites": ["final"]}
    for positions in ("all", "generated", "last"):
        own = rs.SteeringFunction({None: random_map(seed=3)}).with_origin(site="layers.0", positions=positions)
        found = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), steering=own, **options)
        with lm.steer(model, own):
            X, z, _ = labelled_states(model, tokenizer, found, "final", codes_by_text(found))
        for label, moments in rs.ClassMoments.of(X, z).items():
            assert_close(found["final"][label].mean, moments.mean, rtol=DEPTH)
        # the first step of each text, as the hook of generate sees it
        seen = []
        handle = model.model.norm.register_forward_hook(lambda module, args, output, seen=seen: seen.append(output))
        lm.generate(model, tokenizer, PROMPTS[:1], steering=own, n=1, max_new_tokens=1, progress=False)
        handle.remove()
        with lm.steer(model, own):
            row = lm.states_along(model, tokenizer, found.generations[:1], progress=False)[0][0]
        assert_close(row, seen[0][0, -1].detach(), rtol=DEPTH)


def test_a_steering_of_earlier_answers_is_refused(model, tokenizer):
    steering = rs.SteeringFunction({None: random_map()}).with_origin(site="final", positions="assistant")
    with pytest.raises(ParameterError, match=r"with_origin\(positions='generated'\)"):
        lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), steering=steering, **OPTIONS)


def test_a_scorer_without_a_digest_is_asked_again(model, tokenizer, tmp_path):
    asked = []

    def nameless(some):
        asked.extend(some)
        return [score(text) if text.strip() else None for text in some]

    for _ in range(2):
        with pytest.warns(IdentityWarning, match="nameless are not kept.*name, version and digest"):
            found = lm.on_policy(model, tokenizer, PROMPTS, nameless, work_dir=tmp_path, **OPTIONS)
    assert len(asked) == 2 * len({g.text for g in found.generations})
    assert not list(tmp_path.glob("scores-*"))


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda some: [0.0] * len(some), "puts 0 in 'source' .score from 0.5 on.*raise samples, or move source_at"),
        (lambda some: [0.9] * len(some), "0 in 'target' .score up to 0.1.*scores reach from 0.9 to 0.9"),
        (lambda some: [None] * len(some), "no text has a score, and 36 have nothing to score"),
        (lambda some: [0.9, *[0.0] * (len(some) - 1)], "puts 1 in 'source'.*at least 2 texts"),
        (lambda some: [0.5] * (len(some) - 1), "scores for [0-9]+ texts. Return one score per text"),
        (lambda some: [float("nan")] * len(some), "gave the score nan for .*finite number"),
        (lambda some: ["0.5"] * len(some), "gave the score '0.5'"),
    ],
)
def test_a_scorer_that_cannot_label_is_refused(model, tokenizer, answer, match):
    with pytest.raises(DataError, match=match):
        lm.on_policy(model, tokenizer, PROMPTS, answer, **OPTIONS)


def test_steps_that_never_raise_the_score_are_refused(model, tokenizer):
    with pytest.raises(DataError, match=r"a step of credit 0\.1 or more.*move step_at and target_at"):
        lm.on_policy(model, tokenizer, PROMPTS, lambda some: [0.0] * len(some), credit="step", **OPTIONS)


def test_texts_without_tokens_are_left_out(model, tokenizer):
    ends = tiny_model("llama")
    ends.lm_head.weight.data[:] = 0
    ends.lm_head.weight.data[2] = 1.0  # the end token or any other, by the sign of the sum of the state
    found = lm.generate(ends, tokenizer, PROMPTS, n=3, max_new_tokens=7, progress=False)
    empty = sum(not g.text for g in found)
    assert 0 < empty < len(found)
    asked = lm.on_policy(ends, tokenizer, PROMPTS, WordScorer(), **OPTIONS)
    assert [g for g, s in zip(asked.generations, asked.scores, strict=True) if s is None] == [
        g for g in found if not g.text
    ]
    steps = sum(len(row) for row in codes_by_text(asked) if row[0] >= 0)
    assert sum(m.count for m in asked["final"].values()) == steps
    assert all(len(credit) == 0 for g, credit in zip(asked.generations, asked.credits, strict=True) if not g.tokens)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"credit": "token"}, ParameterError, "'text', 'step'"),
        ({"source_at": 0.1, "target_at": 0.2}, ParameterError, "target_at must not be the larger"),
        ({"step_at": 0.0}, ParameterError, "above 0"),
        ({"target_at": float("nan")}, ParameterError, "finite number"),
        ({"samples": 0}, ParameterError, "samples is 0"),
        ({"batch_size": 0}, ParameterError, "batch_size is 0"),
        ({"sites": "final"}, ParameterError, r"on_policy got sites='final'"),
        ({"sites": ["layers.9"]}, SiteError, "layers.9"),
        ({"top_p": 0.0}, ParameterError, "top_p"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_written(model, tokenizer, change, error, match):
    passes = Interrupting(model, stop=None)
    with pytest.raises(error, match=match):
        lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **{**OPTIONS, **change})
    assert passes.passes == 0


def test_bad_prompts_and_scorers_are_refused(model, tokenizer):
    with pytest.raises(TextError, match="no texts"):
        lm.on_policy(model, tokenizer, [], WordScorer(), **OPTIONS)
    with pytest.raises(TextError, match="empty text at index 1"):
        lm.on_policy(model, tokenizer, ["w1", " "], WordScorer(), **OPTIONS)
    with pytest.raises(ParameterError, match="function that takes a list of texts"):
        lm.on_policy(model, tokenizer, PROMPTS, "linear", **OPTIONS)
    with pytest.raises(ParameterError, match=r"'layers\.1' was not read"):
        lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), **OPTIONS)["layers.1"]


@pytest.mark.parametrize("header", [{}, {"blocks": 99}, {"blocks": "1"}])
def test_forged_progress_is_read_anew(model, tokenizer, tmp_path, header):
    expected = lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), work_dir=tmp_path, **OPTIONS)
    [path] = tmp_path.rglob("progress.safetensors")
    write_file(path, Contents(read_file(path).kind, header, {}))
    with pytest.warns(CacheWarning, match="read anew"):
        assert_identical(lm.on_policy(model, tokenizer, PROMPTS, WordScorer(), work_dir=tmp_path, **OPTIONS), expected)


def test_on_policy_moments_fit_an_estimator_that_moves_the_texts(model, tokenizer):
    found = lm.on_policy(tiny_model("llama"), tiny_tokenizer(), PROMPTS, WordScorer(), **OPTIONS)["final"]
    estimator = rs.MeanMatching.from_moments(found, source="source", target="target")
    assert_close(estimator.map_.shift, found["target"].mean - found["source"].mean, rtol=DEPTH)
