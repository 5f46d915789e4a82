"""Predict the prices of the zoo again, in its files and in the records of its searches; no map is changed.

Usage: python tools/reprice_zoo.py [--all] [NAME ...]

What a candidate costs is predicted along continuations on which it was not fitted. A search does so by itself; this
command does it for steerings and records that are older. The continuations are written again as the lock of each
steering says. With --all the other candidates of a record are fitted and priced again, too; where a judge was
trained, its scores may round differently on other hardware, so that these are the candidates of this machine.
"""

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ExtrapolationWarning
from repsurgery.lm.twins import Twin, each, one_thread_each, twins
from repsurgery.tuning.bench import price_along, priced
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.evidence import gather, spread_out
from repsurgery.tuning.forms import fitted_function
from repsurgery.tuning.inputs import find_prompts, find_texts
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.lock import Lock, candidate_of, plan_of, read_lock
from repsurgery.tuning.prompts import PromptSplit, split_prompts
from repsurgery.tuning.record import certificate_words
from repsurgery.tuning.run import work_folder

RECORDS = Path(__file__).parents[1] / "experiments" / "tune"


def inputs(lock: Lock, tokenizer: Any) -> tuple[Any, PromptSplit]:
    """Return the labelled texts of a search, or None, and its prompts."""
    place, plan = lock["texts"], plan_of(lock)
    columns = {} if place is None else {name: place[name] for name in ("text", "label")}
    texts = find_texts(None if place is None else place["path"] or place["name"], **columns)
    corpus = None if texts is None else texts.texts
    prompts = find_prompts(lock["prompts"]["path"] or lock["prompts"]["name"], chat=False).prompts
    split = split_prompts(prompts, () if corpus is None else corpus.texts, plan, seed=lock["seed"])
    return corpus, split.read_by(tokenizer)


def apart(lock: Lock, split: PromptSplit, pair: Sequence[Twin]) -> list[lm.Generation]:
    """Return the continuations on which a search predicts prices, without reading anything else."""
    plan = plan_of(lock)
    how: dict[str, Any] = {"n": plan.writing_samples, "max_new_tokens": plan.tokens, "seed": lock["seed"]}

    def write(twin: Twin, prompts: Sequence[str]) -> list[lm.Generation]:
        return spread_out(lm.generate(twin.model, twin.tokenizer, prompts, progress=False, **how), plan.priced // 2)[1]

    return [g for half in each(write, list(split.folds), pair) for g in half]


def reprice(name: str, *, every: bool) -> None:
    """Write the file and the record of one steering again."""
    file, lock = Path(rs.zoo.path(name)), read_lock(rs.zoo.lock(name))
    steering, candidate = rs.load(file), candidate_of(lock)
    path = RECORDS / f"zoo-{name}.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    network, tokenizer = lm.load(lock["model"])
    pair = twins(network, tokenizer)
    corpus, split = inputs(lock, tokenizer)
    texts = apart(lock, split, pair)
    placed = lm.Placement(steering, candidate.site, steering.origin.strength, "all")
    predicted = price_along(pair, texts, placed)
    again = priced(placed, predicted).with_origin(steering.origin).with_outcome(steering.outcome)
    if not again.digest() == steering.digest() == lock["digest"] == record["digest"]:
        raise SystemExit(f"{name}: file, lock and record are not of one steering.")
    rs.save(again, file)
    record["price"]["predicted_kl"] = predicted
    record["certificate"] = certificate_words(again, candidate)
    sys.stdout.write(f"{name}: predicted {predicted:.4f}, measured {steering.outcome.kl:.4f}\n")
    evidence = None
    if every:
        labels = {"source": lock["source"], "target": lock["target"]}
        judges = judges_of(corpus, lock["scorer"], (), **labels, seed=lock["seed"])
        how = {"sites": lock["sites"], "plan": plan_of(lock), "seed": lock["seed"], "progress": False}
        work = work_folder(None) / "evidence"
        evidence = gather(pair, judges.texts, split.folds, judges.labeller, work=work, **labels, **how)
    # slopes stay those by which the search chose
    for row in [*record["candidates"], *record["compared"]]:
        own = row["name"].startswith(record["chosen"]["name"])
        if row.get("strength") is None or (evidence is None and not own):
            continue
        settings = {key: row[key] for key in ("site", "method", "fit", "shrinkage", "scope")}
        function = steering if own or evidence is None else fitted_function(Candidate(**settings), evidence)
        row["predicted_kl"] = price_along(pair, texts, lm.Placement(function, row["site"], row["strength"], "all"))
        sys.stdout.write(f"  {row['name']}: {row['predicted_kl']:.4f}, measured {row['measured_kl']:.4f}\n")
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.flush()


if __name__ == "__main__":
    with one_thread_each(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # a price decides how far a map is followed
        names = [one for one in sys.argv[1:] if one != "--all"]
        for one in names or rs.zoo.names():
            reprice(one, every="--all" in sys.argv)
