"""Make the steering of a lock again: the same texts, prompts, model and fit, without a search."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repsurgery import lm
from repsurgery.certificates.outcome import Outcome
from repsurgery.errors import ExtrapolationWarning, IdentityWarning, ParameterError
from repsurgery.lm.twins import one_thread_each, twins
from repsurgery.origin import IN_CHAT
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.bench import price_along, priced
from repsurgery.tuning.evidence import gather
from repsurgery.tuning.forms import fitted_function
from repsurgery.tuning.inputs import choose_sites, find_prompts, find_texts
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.lock import Lock, candidate_of, plan_of, require_same
from repsurgery.tuning.prompts import split_prompts
from repsurgery.workflows.prompts import speaks_in_chat

__all__ = ["repeat"]


def repeat(
    lock: Lock,
    texts: Any,
    prompts: Any,
    scorer: Any,
    work: Path,
    *,
    device: str | None = None,
    progress: bool,
    announce: Callable[[str], None],
) -> SteeringFunction:
    """Return the steering of ``lock``, with its origin and outcome.

    Parameters
    ----------
    lock : mapping
        See `read_lock`.
    texts, prompts, scorer
        Where the lock does not say how to find them, or they have moved; otherwise None.
    device : str or None
        See `lm.load`; the dtype is that of the lock.

    Warns
    -----
    IdentityWarning
        The steering has another digest, as rounding on other hardware may cause; it then has no outcome.

    Raises
    ------
    DataError
        Texts, prompts, model or labeller are not those of the lock.
    """
    plan, seed, candidate = plan_of(lock), lock["seed"], candidate_of(lock)
    place = lock["texts"]
    columns = {} if place is None else {name: place[name] for name in ("text", "label")}
    found_texts = find_texts(_given(texts, place), **columns)
    found_prompts = find_prompts(_given(prompts, lock["prompts"]), chat=lock["prompts"].get("chat", False))
    if found_texts is None and place is not None:
        raise ParameterError("The texts of the lock were not in a file, so that it cannot find them. Pass texts.")
    if found_texts is not None and place is not None:
        require_same("texts", found_texts.place["digest"], place["digest"])
    require_same("prompts", found_prompts.place["digest"], lock["prompts"]["digest"])
    corpus = None if found_texts is None else found_texts.texts
    split = split_prompts(found_prompts.prompts, () if corpus is None else corpus.texts, plan, seed=seed)
    with one_thread_each():
        announce(f"model: {lock['model']}")
        network, tokenizer = lm.load(lock["model"], device=device, dtype=lock.get("dtype"))
        split = split.read_by(tokenizer)
        used = {"strength": lock["strength"], "positions": "all", "data": lock["prompts"]["digest"]}
        used |= {"pooling": f"generated{IN_CHAT}"} if speaks_in_chat(found_prompts.prompts) else {}
        origin = lm.origin_of(network, site=candidate.site, **used)
        require_same("weights of the model", str(origin.fingerprint), lock["fingerprint"])
        judges = judges_of(
            corpus, scorer or lock["scorer"], (), source=lock["source"], target=lock["target"], seed=seed
        )
        require_same("scores of the labeller", judges.labeller.digest, lock["labeller"])
        announce(f"writing: {len(split.writing)} prompts x {plan.writing_samples}")
        pair = twins(network, tokenizer)
        evidence = gather(
            pair,
            judges.texts,
            split.folds,
            judges.labeller,
            source=lock["source"],
            target=lock["target"],
            sites=choose_sites(network, plan.depths, lock["sites"]),
            plan=plan,
            seed=seed,
            work=work / "evidence",
            progress=progress,
        )
        placed = lm.Placement(fitted_function(candidate, evidence), candidate.site, lock["strength"], "all")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # the strength is that of a measured price
            function = priced(placed, price_along(pair, evidence.apart, placed)).with_origin(origin)
    if function.digest() != lock["digest"]:
        warnings.warn(
            f"The steering has the digest {function.digest()[:12]}, and that of the lock {lock['digest'][:12]}: other "
            "hardware or libraries round differently. It has no measured effect: run tune without --lock for one.",
            IdentityWarning,
            stacklevel=3,
        )
        return function
    return function.with_outcome(Outcome.from_dict(lock["outcome"]))


def _given(value: Any, place: dict[str, Any] | None) -> Any:
    """Return what was passed, or else what the lock names."""
    if value is not None or place is None:
        return value
    return place["path"] or place["name"]
