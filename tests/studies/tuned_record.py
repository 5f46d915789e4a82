"""A record of a tuned steering, written by hand, as ``repsurgery tune`` writes it."""

from copy import deepcopy


def effect(value, low, high, p):
    return {"value": value, "low": low, "high": high, "p": p}


def candidate(method, site, fit, scope, kl, **given):
    shrinkage = given.pop("shrinkage", "none")
    return {
        "name": f"{method} {fit} at {site}, {scope}, {kl:g} nats",
        "site": site,
        "method": method,
        "fit": fit,
        "shrinkage": shrinkage,
        "scope": scope,
        "kl": kl,
        "predicted_kl": kl,
        "measured_kl": None,
        "wikitext_ratio": None,
        "slope": -0.2,
        "gain": 1.0,
        "status": "dropped",
        "reason": "",
        "prompts": 0,
        "base": 0.62,
        "measure": None,
        "effect": None,
        **given,
    }


def raced(method, site, fit, scope, kl, measured, value, half, **given):
    return candidate(
        method,
        site,
        fit,
        scope,
        kl,
        **{
            "measured_kl": measured,
            "status": "raced",
            "reason": "weaker than the chosen candidate",
            "prompts": 30,
            "measure": 0.62 + value,
            "effect": effect(value, value - half, value + half, 0.0004),
            **given,
        },
    )


CANDIDATES = [
    raced(
        "natural-mean", "final", "on-policy", "all", 0.1, 0.097, -0.42, 0.07, status="chosen", reason="", slope=-0.31
    ),
    raced("natural-mean", "final", "on-policy", "all", 0.05, 0.049, -0.29, 0.07, slope=-0.31, wikitext_ratio=1.021),
    raced("natural-mean", "final", "on-policy", "gated", 0.1, 0.064, -0.27, 0.08, slope=-0.31),
    raced("natural", "final", "on-policy", "all", 0.1, 0.103, -0.39, 0.07, slope=-0.30),
    raced("mean", "final", "on-policy", "all", 0.1, 0.092, -0.30, 0.08, slope=-0.23),
    raced("mean", "layers.20", "last", "all", 0.1, 0.131, -0.25, 0.08, reason="measured KL above the budget"),
    raced("mimic", "final", "on-policy", "all", 0.1, 0.118, -0.31, 0.08, shrinkage="pooled", gain=2.4),
    raced("mean", "final", "last", "all", 0.02, 0.019, -0.08, 0.06),
    raced("mean", "layers.12", "last", "all", 0.1, 0.088, -0.06, 0.14, status="stopped early", prompts=8),
    raced("leace", "final", "last", "gated", 0.1, 0.035, -0.02, 0.13, status="stopped early", prompts=8, gain=1.0),
    raced("mimic", "layers.20", "last", "all", 0.1, 1.62, -0.44, 0.15, status="stopped early", prompts=8, gain=9.7),
    candidate("mimic", "final", "last", "all", 0.1, gain=310.0, slope=None, reason="it stretches vectors 310 times"),
    candidate("mean", "layers.4", "last", "all", 0.1, slope=0.02, reason="its held-out slope does not lower the score"),
]
COMPARED = [
    raced("mean", "final", "last", "all", 0.1, 0.099, -0.21, 0.06, prompts=60, wikitext_ratio=1.07, reason=""),
    raced("mimic", "final", "last", "all", 0.1, 0.102, -0.17, 0.06, prompts=60, wikitext_ratio=1.12, reason=""),
    raced("leace", "final", "last", "all", 0.1, 0.097, -0.03, 0.05, prompts=60, wikitext_ratio=1.05, reason=""),
]
COMPARED[2]["effect"]["p"] = 0.24
PAIRS = [
    {
        "prompt": "The clerk looked up at the next person in the queue and said:",
        "base": ' "What do you want now? I told you to fill in the form, you idiot.\nGo away."',
        "steered": ' "Good morning, how may I help you? Please take a seat,\nand I will find the form for you."',
        "base_score": 0.97,
        "steered_score": 0.04,
    },
    {
        "prompt": "When the waiter brought the wrong dish, the guest answered",
        "base": " that he was the worst waiter he had ever seen, and that he should be fired on the spot.",
        "steered": " that it was no trouble at all, and thanked him for his quick help with the order.",
        "base_score": 0.91,
        "steered_score": 0.08,
    },
    {
        "prompt": "My reply to your complaint is this:",
        "base": " nobody cares. Read the <terms> & stop whining.",
        "steered": " we are sorry for the delay and will send a new parcel today.",
        "base_score": 0.88,
        "steered_score": 0.11,
    },
    {
        "prompt": "Can you explain the rules again?",
        "base": " I have explained them twice.",
        "steered": " I have explained them twice already.",
        "base_score": 0.55,
        "steered_score": 0.57,
    },
]
RECORD = {
    "kind": "tune",
    "schema": 1,
    "version": "0.1.0",
    "model": "smollm2-135m",
    "source": "rude",
    "target": "courteous",
    "budget": {"kl": 0.1, "wikitext": 1.05, "met": True},
    "judge": {
        "name": "minilm-judge",
        "kind": "trained",
        "digest": "3f9a1c",
        "auc": 0.97,
        "auc_low": 0.95,
        "auc_high": 0.99,
        "texts": 400,
    },
    "measure": "share",
    "base": 0.63,
    "steered": 0.24,
    "effect": effect(-0.39, -0.45, -0.33, 0.0002),
    "price": {"kl": 0.098, "wikitext_ratio": 1.04, "predicted_kl": 0.1},
    "confirmation_prompts": 60,
    "search_prompts": 30,
    "writing_prompts": 30,
    "samples": 5,
    "tokens": 25,
    "others": [{"name": "words", "auc": 0.93, "base": 0.5, "steered": 0.3, "effect": effect(-0.2, -0.3, -0.1, 0.012)}],
    "chosen": {
        "name": "natural-mean on-policy at final, all, 0.1 nats",
        "site": "final",
        "method": "natural-mean",
        "fit": "on-policy",
        "shrinkage": "none",
        "scope": "all",
        "kl": 0.1,
        "strength": 1.07,
    },
    "certificate": [
        "The shift is the same for every vector, so nothing is stretched.",
        "On held-out prompts it lowers the expected credit by 0.31 per square root of a nat.",
        "At the fitted strength its predicted price is 0.100 nats per token.",
    ],
    "optimism": {"search": -0.42, "confirmation": -0.39, "difference": -0.03},
    "candidates": CANDIDATES,
    "compared": COMPARED,
    "pairs": PAIRS,
    "notes": ["Prompts 3 and 17 were equal, so the second one was left out."],
    "seconds": {"writing": 41.2, "closed forms": 3.8, "race": 96.5, "confirmation": 22.1},
    "seed": 0,
    "digest": "b71e04",
}


def tune_record(**changes):
    """Return a copy of the record with some fields changed."""
    return deepcopy({**RECORD, **changes})
