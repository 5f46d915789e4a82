"""Run a search from a request to a confirmed steering, its record and its lock."""

import os
import warnings
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ExtrapolationWarning
from repsurgery.lm.batching.tokens import encode
from repsurgery.lm.load.folder import cache_root
from repsurgery.lm.load.models import check_loading
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.twins import one_thread_each, twins
from repsurgery.origin import IN_CHAT, Origin
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.bench import Bench, priced
from repsurgery.tuning.confirm import Confirmed
from repsurgery.tuning.exports import check_target, exports_of
from repsurgery.tuning.inputs import Prompts, Texts, choose_sites, find_documents, find_prompts, find_texts
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.lock import SCHEMA, Lock
from repsurgery.tuning.prompts import split_prompts
from repsurgery.tuning.race import Raced
from repsurgery.tuning.record import outcome_of, record_of
from repsurgery.tuning.request import Request
from repsurgery.tuning.search import Search
from repsurgery.workflows.prompts import speaks_in_chat

__all__ = ["run", "work_folder"]


def work_folder(work_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of finished work; None is one in the cache."""
    return cache_root() / "tune" if work_dir is None else Path(work_dir)


def run(request: Request) -> tuple[SteeringFunction, dict[str, Any], Lock]:
    """Return the confirmed steering, the record and the lock; texts and prompts are checked before the model runs."""
    r = request
    check_target(r.export_to)
    check_loading(r.device, r.dtype)  # before the judge is trained, and the sites too
    check_places(r.model, [(site, None) for site in r.sites or ()])
    texts, prompts = find_texts(r.texts, text=r.columns[0], label=r.columns[1]), find_prompts(r.prompts, chat=r.chat)
    corpus = None if texts is None else texts.texts
    split = split_prompts(prompts.prompts, () if corpus is None else corpus.texts, r.plan, seed=r.seed)
    documents, note = find_documents(r.budget.wikitext, r.data_dir)
    with one_thread_each(), warnings.catch_warnings():
        # a price, not the geodesic, decides how far a map is followed
        warnings.simplefilter("ignore", ExtrapolationWarning)
        judges = judges_of(corpus, r.scorer, r.others, source=r.source, target=r.target, seed=r.seed)
        if judges.facts["auc"] is not None:
            r.announce(f"judge: {judges.facts['name']}, AUC {judges.facts['auc']:.3f} on texts that it never saw")
        r.announce(f"model: {r.model}")
        network, tokenizer = lm.load(r.model, device=r.device, dtype=r.dtype)
        split = split.read_by(tokenizer)
        sites = choose_sites(network, r.plan.depths, r.sites, r.export_to)
        # a prompt that is too long is found before anything is written
        every = [*split.writing, *split.search, *split.confirmation]
        encode(network, tokenizer, every, max_length=None, room=r.plan.tokens, caller="tune")
        measure = r.measure or ("share" if judges.facts["kind"] == "trained" else "mean")
        bench = Bench(twins(network, tokenizer), judges.judge, r.plan, measure, r.seed, r.work, documents)
        search = Search(bench, judges, split, sites, r.budget, r.source, r.target, r.deadline, r.progress, r.announce)
        search.export_to = r.export_to
        search.notes += [note] if note else []
        search.gather()
        best = search.choose()
        confirmed = search.confirm(best)
        predicted = bench.kl_along(search.evidence.apart, confirmed.placed)
        used = {"strength": confirmed.placed.strength, "positions": "all", "data": prompts.place["digest"]}
        used |= {"pooling": f"generated{IN_CHAT}"} if speaks_in_chat(prompts.prompts) else {}
        exports = exports_of(network, best.form.function, best.placed.site)
        origin = lm.origin_of(network, site=best.placed.site, **used)
    function = priced(confirmed.placed, predicted)
    steering = function.with_origin(origin).with_outcome(outcome_of(search, confirmed))
    lock = _lock(r, search, best, confirmed, origin, texts, prompts)
    return steering, {**record_of(search, best, confirmed, function, r.model), "exports": exports}, lock


def _lock(
    r: Request,
    search: Search,
    best: Raced,
    confirmed: Confirmed,
    origin: Origin,
    texts: Texts | None,
    prompts: Prompts,
) -> Lock:
    return {
        **{"kind": "tune-lock", "schema": SCHEMA, "version": rs.__version__, "model": r.model},
        **{"fingerprint": origin.fingerprint, "source": r.source, "target": r.target},
        **{"texts": None if texts is None else texts.place, "prompts": prompts.place},
        **{"scorer": r.scorer if isinstance(r.scorer, str) else None, "judge": search.judges.judge.digest},
        **{"labeller": search.judges.labeller.digest, "measure": search.bench.measure},
        **{"plan": r.plan.to_dict(), "sites": list(search.sites), "seed": r.seed},
        **{"kl": r.budget.kl, "wikitext": r.budget.wikitext, "candidate": best.form.candidate.to_dict()},
        **{"strength": confirmed.placed.strength, "digest": best.form.function.digest()},
        **({} if r.dtype is None else {"dtype": r.dtype}),
        "outcome": outcome_of(search, confirmed).to_dict(),
    }
