"""Predict the prices of the zoo again, in its files and in the records of its searches; no map is changed.

Usage: python tools/reprice_zoo.py [NAME ...]

What a candidate costs is predicted along continuations on which it was not fitted. A search does so by itself; this
command does it for steerings and records that are older. It writes the continuations again as the lock of each
steering says. Where a judge was trained, its scores may round differently on other hardware, so that the other
candidates of a record are those of this machine; the steering is the one of the file.
"""

import json
import sys
import warnings
from pathlib import Path

import repsurgery as rs
from repsurgery import lm
from repsurgery.errors import ExtrapolationWarning
from repsurgery.lm.twins import one_thread_each, twins
from repsurgery.tuning.bench import Placed, price_along, priced
from repsurgery.tuning.candidates import Candidate
from repsurgery.tuning.evidence import Evidence, gather
from repsurgery.tuning.forms import fitted_function
from repsurgery.tuning.inputs import find_prompts, find_texts
from repsurgery.tuning.judges import judges_of
from repsurgery.tuning.lock import Lock, candidate_of, plan_of, read_lock
from repsurgery.tuning.prompts import split_prompts
from repsurgery.tuning.record import certificate_words
from repsurgery.tuning.run import work_folder

RECORDS = Path(__file__).parents[1] / "experiments" / "tune"


def evidence_of(lock: Lock, network, tokenizer, pair) -> Evidence:
    """Return what the candidates of a search were fitted from."""
    plan, place = plan_of(lock), lock["texts"]
    columns = {} if place is None else {name: place[name] for name in ("text", "label")}
    texts = find_texts(None if place is None else place["path"] or place["name"], **columns)
    corpus = None if texts is None else texts.texts
    prompts = find_prompts(lock["prompts"]["path"] or lock["prompts"]["name"], chat=False).prompts
    split = split_prompts(prompts, () if corpus is None else corpus.texts, plan, seed=lock["seed"]).read_by(tokenizer)
    labels = {"source": lock["source"], "target": lock["target"]}
    judges = judges_of(corpus, lock["scorer"], (), **labels, seed=lock["seed"])
    how = {
        "sites": lock["sites"],
        "plan": plan,
        "seed": lock["seed"],
        "work": work_folder(None) / "evidence",
        "progress": False,
    }
    return gather(pair, judges.texts, split.folds, judges.labeller, **labels, **how)


def reprice(name: str) -> None:
    """Write the file and the record of one steering again."""
    file, lock = Path(rs.zoo.path(name)), read_lock(rs.zoo.lock(name))
    steering, candidate = rs.load(file), candidate_of(lock)
    record = json.loads((RECORDS / f"zoo-{name}.json").read_text(encoding="utf-8"))
    network, tokenizer = lm.load(lock["model"])
    pair = twins(network, tokenizer)
    evidence = evidence_of(lock, network, tokenizer, pair)

    def price(form_or_steering, site: str, strength: float) -> tuple[Placed, float]:
        placed = Placed(form_or_steering, site, strength)
        return placed, price_along(pair, evidence.apart, placed)

    placed, predicted = price(steering, candidate.site, steering.origin.strength)
    again = priced(placed, predicted).with_origin(steering.origin).with_outcome(steering.outcome)
    assert again.digest() == steering.digest() == lock["digest"] == record["digest"]
    rs.save(again, file)
    record["price"]["predicted_kl"] = predicted
    record["certificate"] = certificate_words(again, candidate)
    print(f"{name}: predicted {predicted:.4f}, measured {steering.outcome.kl:.4f}", flush=True)
    # slopes stay those by which the search chose
    for row in [*record["candidates"], *record["compared"]]:
        if row.get("strength") is None:
            continue
        settings = {key: row[key] for key in ("site", "method", "fit", "shrinkage", "scope")}
        chosen = row["name"].startswith(record["chosen"]["name"])
        function = steering if chosen else fitted_function(Candidate(**settings), evidence)
        row["predicted_kl"] = price(function, row["site"], row["strength"])[1]
        print(f"  {row['name']}: predicted {row['predicted_kl']:.4f}, measured {row['measured_kl']:.4f}", flush=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (RECORDS / f"zoo-{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    with one_thread_each(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # a price decides how far a map is followed
        for one in sys.argv[1:] or rs.zoo.names():
            reprice(one)
