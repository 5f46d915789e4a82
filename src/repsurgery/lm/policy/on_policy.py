"""`on_policy`: class moments of what a model itself writes, labelled by a scorer."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import nn

from repsurgery.arrays import Vector, check_integer
from repsurgery.errors import DataError, ParameterError
from repsurgery.lm.batching.tokens import check_texts, encode
from repsurgery.lm.chat import Conversation
from repsurgery.lm.generate.generate import Generation, predicting_positions
from repsurgery.lm.load.fingerprint import tokenizer_fingerprint
from repsurgery.lm.policy.credit import CLASSES, Codes, Credit, Rule, prefix_scores
from repsurgery.lm.policy.reading import BLOCK_STEPS, read_steps
from repsurgery.lm.policy.scores import Scorer, Scores
from repsurgery.lm.policy.thresholds import Threshold, settle
from repsurgery.lm.policy.writing import write
from repsurgery.lm.read.class_moments import check_sites
from repsurgery.lm.read.resuming import folder_of
from repsurgery.lm.read.states import reader
from repsurgery.lm.sites.names import resolve_site
from repsurgery.lm.sites.wrappers import unwrapped
from repsurgery.lm.steer.forward_context import excuse_blocks
from repsurgery.lm.steer.placing import placements, sites_of
from repsurgery.lm.steer.steer import optional_steer
from repsurgery.moments import ClassMoments

__all__ = ["OnPolicy", "on_policy"]

LEAST_TEXTS = 2
"""Texts that each class needs: the steps of a single text say nothing about other texts."""


@dataclass(frozen=True, eq=False)
class OnPolicy(Mapping[str, ClassMoments]):
    """What a model wrote, and its states by class: a mapping of site to `ClassMoments`.

    Attributes
    ----------
    moments : mapping of site to ClassMoments
        With the labels "source" and "target"; the steps of one text in one class are one group, so that
        ``effective_count`` counts texts rather than steps.
    generations : list of Generation
        Every text, in order of prompt and sample, including those of neither class.
    scores : list of float or None
        One per generation; None where the scorer found nothing to score.
    counts : mapping of "source" and "target" to a mapping of "texts" and "steps" to int
        How many texts have a step in each class, and how many steps there are.
    credits : list of float arrays
        See `credits`.
    """

    moments: Mapping[str, ClassMoments] = field(repr=False)
    generations: list[Generation] = field(repr=False)
    scores: list[float | None] = field(repr=False)
    counts: Mapping[str, Mapping[str, int]]
    _prefixes: "_Prefixes" = field(repr=False)

    @cached_property
    def credits(self) -> list[Vector]:
        """One array (T,) per generation: how much each of its T tokens changed the score of the text.

        The credit of a token is the score of the text up to and including it, less the score of the text before it,
        where None counts as 0. The end token, which adds nothing to the text, is not included. The credits of a text
        sum to its score less that of the empty text.

        They are computed when they are first read, unless ``credit="step"`` has needed them: every prefix of every
        text is then scored, about ``max_new_tokens`` times the texts. The scores are stored in the work folder.
        """
        return [np.diff(row) for row in self._prefixes.scores]

    def __getitem__(self, site: str) -> ClassMoments:
        try:
            return self.moments[site]
        except KeyError:
            raise ParameterError(f"The site {site!r} was not read; the sites are {list(self.moments)}.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)


@dataclass(frozen=True, eq=False)
class _Prefixes:
    """The scores of all prefixes of the generations, computed when they are needed."""

    source: Scores
    tokenizer: Any
    generations: list[Generation]
    progress: bool

    @cached_property
    def scores(self) -> list[Vector]:
        return prefix_scores(self.source, self.tokenizer, self.generations, progress=self.progress)


def on_policy(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[str | Conversation],
    scorer: Scorer,
    *,
    sites: Sequence[str] = ("final",),
    samples: int = 8,
    max_new_tokens: int = 20,
    top_p: float = 0.9,
    temperature: float = 1.0,
    seed: int = 0,
    credit: Credit = "text",
    source_at: Threshold = 0.5,
    target_at: Threshold = 0.1,
    step_at: float = 0.1,
    steering: Any = None,
    max_length: int | None = None,
    batch_size: int = 32,
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
) -> OnPolicy:
    """Let ``model`` continue ``prompts``, score the texts, and return the class moments of the steps that wrote them.

    A step is the prediction of one token, including the end token. Its state is the one from which the token was
    drawn. A map that is fitted on these moments is applied to the very vectors that it will meet while the model
    writes.

    Parameters
    ----------
    model, tokenizer
        A transformers decoder and its tokenizer; neither is changed.
    prompts : sequence of str or conversations
        See `generate`. A prompt that occurs several times gets different continuations each time.
    scorer : function of a list of texts
        Returns one finite score per text, or None where there is nothing to score. It gets the continuation alone,
        without its prompt. Any scorer of `repsurgery.scorers` will do.
    sites : sequence of str
        All of them are read in the same pass; see `resolve_site`.
    samples : int
        Continuations of each prompt.
    max_new_tokens, top_p, temperature, seed, max_length
        As in `generate`.
    credit : {"text", "step"}
        ``text``: every step of a text with a score of at least ``source_at`` is in the class "source", every step of a
        text with a score of at most ``target_at`` is in the class "target", and other texts are left out.
        ``step``: a step whose credit (see `OnPolicy.credits`) is at least ``step_at`` is in the class "source". A step
        whose credit is smaller than ``step_at`` in absolute value is in the class "target" if the text up to and
        including its token has a score of at most ``target_at``. Other steps are left out, and ``source_at`` has no
        effect. The steps of one text may then be in both classes.
    source_at, target_at : float or "auto"
        "auto" chooses them from the scores of the texts, which must be probabilities; see `settle`.
    step_at : float
    steering : None, a mapping of site to steering, or one steering for the site of its origin, else "final"
        Write under this steering, and read the steered states: a map T₂ that is fitted on them continues the steering
        T₁ as h ↦ T₂(T₁(h)). See `steer`; positions "assistant" are refused.
    batch_size : int
        Texts per pass; halved, with a warning, if memory is exhausted.
    progress : bool
    work_dir : path or None
        Store texts, scores and sums there; the same call resumes after an interruption. Texts are identified by the
        content of the model, its steering and the sampling, and used again by calls with other prompts, scorers or
        sites. Scores are identified by the ``name``, ``version`` and ``digest`` of the scorer, and are not stored, with
        an `IdentityWarning`, for a scorer without a digest.

    Returns
    -------
    OnPolicy
        A mapping of site to `ClassMoments` with the labels "source" and "target", which also holds the generations,
        their scores and the credits of their steps.

    Raises
    ------
    DataError
        Fewer than two texts have a step in one of the classes; or the scorer returns a wrong number of scores, or one
        that is not finite.

    Guarantees
    ----------
    The texts are those of `generate` (test_the_texts_are_those_of_generate).
    The moments are those of the states along the texts (test_moments_are_those_of_the_states_along_the_texts).
    An interrupted call resumes with the same result, bit for bit (test_an_interrupted_call_resumes_bit_for_bit).
    Under a steering the steered states are read (test_under_a_steering_the_steered_states_are_read).
    """
    # a wrong threshold is found before anything is written
    Rule(credit, *settle(source_at, target_at, []), step_at)
    prompts = check_texts(prompts, caller="on_policy", tokenizer=tokenizer)
    samples, room = check_integer("samples", samples), check_integer("max_new_tokens", max_new_tokens)
    batch_size = check_integer("batch_size", batch_size)
    names = check_sites(sites, caller="on_policy")
    for name in names:
        resolve_site(unwrapped(model), name)
    # a prompt that is too long is found before anything is written
    encode(model, tokenizer, prompts, max_length=max_length, room=room, caller="on_policy")
    scores = Scores(scorer, work_dir)
    steering = _located(model, steering)
    sampling = {"max_new_tokens": room, "top_p": top_p, "temperature": temperature, "seed": seed}
    how: dict[str, Any] = {**sampling, "max_length": max_length}
    # the scorer runs outside of the blocks that steer, because it may use the same model
    with optional_steer(model, steering, strength=None, positions=None):
        settings = {"job": "on-policy-texts", "tokenizer": tokenizer_fingerprint(tokenizer), **how}
        how |= {"folder": folder_of(work_dir, model, [], settings), "batch_size": batch_size, "progress": progress}
        written = write(model, tokenizer, prompts, samples, **how)
    found = scores.of([g.text for g in written], progress=progress)
    rule = Rule(credit, *settle(source_at, target_at, found), step_at)
    prefixes = _Prefixes(scores, tokenizer, written, progress)
    codes = _codes(rule, written, found, prefixes)
    counts = _counts(codes)
    _require_both(counts, rule, scores.name, found)
    chosen = [i for i, row in enumerate(codes) if (row >= 0).any()]
    texts, classes = [written[i] for i in chosen], [codes[i] for i in chosen]
    with optional_steer(model, steering, strength=None, positions=None):
        # a pass may end before the site of the steering, and sums may have been stored
        excuse_blocks(unwrapped(model))
        options: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "work_dir": work_dir}
        moments = _read(model, tokenizer, texts, classes, names, **options)
    ordered = MappingProxyType({name: moments[name] for name in names})
    return OnPolicy(ordered, written, found, counts, prefixes)


def _located(model: nn.Module, steering: Any) -> Any:
    """Return ``steering`` with its sites, or raise an error if its positions cannot be found along a text."""
    if steering is None:
        return None
    placed = placements(unwrapped(model), sites_of(steering), strength=None, positions=None)
    for one in placed:
        if one.positions == "assistant":
            raise ParameterError(
                f"The steering at {one.site!r} acts at positions='assistant'; on_policy reads texts again, and they do "
                "not say where earlier answers are. Pass steering.with_origin(positions='generated'), or "
                "positions='all'."
            )
    return placed


def _codes(
    rule: Rule, written: Sequence[Generation], scores: Sequence[float | None], prefixes: _Prefixes
) -> list[Codes]:
    if rule.credit == "text":
        return [rule.of_text(g, score) for g, score in zip(written, scores, strict=True)]
    return [rule.of_steps(g, row) for g, row in zip(written, prefixes.scores, strict=True)]


def _counts(codes: Sequence[Codes]) -> Mapping[str, Mapping[str, int]]:
    found = {}
    for code, label in enumerate(CLASSES):
        steps = [int((row == code).sum()) for row in codes]
        found[label] = MappingProxyType({"texts": sum(map(bool, steps)), "steps": sum(steps)})
    return MappingProxyType(found)


def _require_both(
    counts: Mapping[str, Mapping[str, int]], rule: Rule, scorer: str, scores: Sequence[float | None]
) -> None:
    if all(counts[label]["texts"] >= LEAST_TEXTS for label in CLASSES):
        return
    classes = " and ".join(
        f"{counts[label]['texts']} in {label!r} ({what})" for label, what in rule.explained().items()
    )
    known = [score for score in scores if score is not None]
    reach = f"scores reach from {min(known):.3g} to {max(known):.3g}" if known else "no text has a score"
    raise DataError(
        f"Of {len(scores)} texts the scorer {scorer} puts {classes}; {reach}, and {len(scores) - len(known)} have "
        f"nothing to score. Each class needs at least {LEAST_TEXTS} texts: give more prompts, or prompts that provoke "
        f"such texts, raise samples, or move {rule.thresholds()}."
    )


def _read(
    model: nn.Module,
    tokenizer: Any,
    generations: list[Generation],
    codes: list[Codes],
    sites: list[str],
    *,
    batch_size: int,
    progress: bool,
    work_dir: str | os.PathLike[str] | None,
) -> dict[str, ClassMoments]:
    tokens, steps = predicting_positions(model, tokenizer, generations, caller="on_policy")
    settings = {
        **{"job": "on-policy-moments", "sites": sites, "tokens": tokens, "batch_size": batch_size},
        **{"codes": [row.tolist() for row in codes], "starts": [s.start for s in steps], "block": BLOCK_STEPS},
    }
    folder = folder_of(work_dir, model, [], settings)
    with reader(model, tokenizer, sites, "all") as read:
        how: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "folder": folder}
        return read_steps(read, model, tokens, steps, codes, sites, **how)
