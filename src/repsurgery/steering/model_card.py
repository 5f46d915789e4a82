"""The card of a shared steering: effect, price, certificate, data, licence and limits, as the hub's README."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repsurgery.cards import plain
from repsurgery.errors import CertificateError, ParameterError
from repsurgery.steering.hub import check_repository, hub_library
from repsurgery.steering.shown import foreign_words

if TYPE_CHECKING:
    from repsurgery.steering.function import SteeringFunction

__all__ = ["BASE_MODELS", "Facts", "card_of", "certificate_words", "in_markdown"]

BASE_MODELS = {
    "smollm2-135m": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "gemma-3-270m": "google/gemma-3-270m",
    "tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "qwen2.5-coder-1.5b": "Qwen/Qwen2.5-Coder-1.5B-Instruct",
    "all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2",
}
"""The hub's names of the embedded models."""
_ACTIVE = frozenset("\\`*_[]<>|~&$@#!^")
"""Characters that begin something in Markdown, also in the middle of a line."""
_MOST_CLASSES = 20
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a card says beyond what the steering holds.

    Attributes
    ----------
    repository : str or None
        Where it is shared, as OWNER/NAME.
    licence : str or None
        An identifier of the hub, such as "apache-2.0", or any other words; None is the note in the origin.
    fitted_on : str or None
        A sentence on the data it was fitted on.
    datasets : tuple of str
        The hub's names of that data.
    base_model : str or None
        The hub's name of the model, where the origin does not hold it.
    """

    repository: str | None = None
    licence: str | None = None
    fitted_on: str | None = None
    datasets: tuple[str, ...] = ()
    base_model: str | None = None

    def __post_init__(self) -> None:
        if self.repository is not None:
            check_repository(self.repository)
        for name in self.datasets:
            check_repository(name, what="a data set on the hub")
        if self.base_model is not None:
            check_repository(self.base_model, what="a model on the hub")


def card_of(steering: "SteeringFunction", facts: Facts) -> str:
    """Return the README of a repository that holds ``steering``, with the metadata that the hub reads.

    Guarantees
    ----------
    No label, name or note adds markup, a link, a line or metadata (test_hostile_words_stay_words_in_a_card).
    """
    sections = {
        "Effect and price": _effect(steering),
        "Certificate": certificate_words(steering),
        "What it is": _use(steering),
        "Data": _data(steering, facts),
        "Licence": _licence(steering, facts)[1],
        "Limits": _limits(steering),
        "How to load it": _loading(steering, facts.repository or "OWNER/NAME"),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items())
    return f"---\n{_metadata(steering, facts)}---\n\n# {_title(steering, facts)}\n\n{body}\n"


def in_markdown(text: Any) -> str:
    """Return ``text`` so that Markdown shows it literally and on one line."""
    shown = plain(str(text))
    escaped = "".join(f"\\{c}" if c in _ACTIVE else c for c in " ".join(shown.split()))
    # addresses become links without any markup
    return re.sub(r"(www)\.|:(?=//)", lambda m: f"{m[1]}\\." if m[1] else "\\:", escaped, flags=re.IGNORECASE)


def _sentence(text: str) -> str:
    return f"{in_markdown(text).rstrip('.')}."


def certificate_words(steering: "SteeringFunction") -> str:
    """Return the certificate in sentences that begin with what follows from it."""
    certificate = steering.certificate
    if certificate is None and (words := foreign_words(steering)):
        return f"{words} Another program made its map."
    if certificate is None:
        return "This steering has no certificate: nothing was measured when its map was made."
    try:
        steering.verify()
    except CertificateError:
        return "The certificate belongs to other maps than those in this file, so it says nothing about them."
    card = certificate._card()
    figures = "\n".join(
        ["| | |", "|---|---|", *(f"| {in_markdown(name)} | {in_markdown(value)} |" for name, value in card.facts)]
    )
    return (
        f"The certificate of {in_markdown(certificate.method)} says: {in_markdown(card.verdict)} Its digest is that of "
        f"the maps and the gate in this file. A certificate is a measurement, not a proof.\n\n{figures}"
    )


def _title(steering: "SteeringFunction", facts: Facts) -> str:
    outcome, name = steering.outcome, (facts.repository or "").rpartition("/")[2]
    concept = f"from {in_markdown(outcome.source)} to {in_markdown(outcome.target)}" if outcome else ""
    return f"{name or 'Steering'}{': a steering ' if name else ' '}{concept}".strip()


def _effect(steering: "SteeringFunction") -> str:
    if steering.outcome is None:
        return "Effect and price were not measured. `repsurgery tune` measures both, on prompts that took no part."
    return f"{in_markdown(steering.outcome.words())} Both hold for the model, site, strength and positions below."


def _use(steering: "SteeringFunction") -> str:
    origin = steering.origin
    maps = ", ".join(dict.fromkeys(m.kind for m in steering.maps.values()))
    rows = {
        "model": origin.model,
        "site": origin.site,
        "strength": f"{origin.effective_strength():g}",
        "positions": origin.positions or "all",
        "map": f"{maps} of {steering.dim} features",
        "gate": "none, every vector is steered" if steering.gate.reads == "nothing" else steering.gate.kind,
        "classes": ", ".join(map(str, steering.classes[:_MOST_CLASSES])) or None,
        "digest": steering.digest(),
    }
    shown = (f"| {name} | {in_markdown('unknown' if value is None else value)} |" for name, value in rows.items())
    return "\n".join(("| | |", "|---|---|", *shown))


def _data(steering: "SteeringFunction", facts: Facts) -> str:
    sentences = [f"The author says: {_sentence(facts.fitted_on)}"] if facts.fitted_on else []
    if facts.datasets:
        sentences.append(f"Data sets on the hub: {', '.join(map(in_markdown, facts.datasets))}.")
    if not sentences:
        sentences.append("The author of this file does not describe the data that it was fitted on.")
    if steering.origin.foreign:
        sentences.append(f"It is {_sentence(str(steering.origin.data))}")
    elif steering.origin.data:
        sentences.append(f"The digest of the data is {in_markdown(steering.origin.data)}.")
    return " ".join([*sentences, "The file holds no texts and no rows."])


def _licence(steering: "SteeringFunction", facts: Facts) -> tuple[dict[str, str], str]:
    """Return the metadata of the licence, and its words."""
    licence = " ".join((facts.licence or steering.origin.licence or "").split())
    base = "The licence of the base model applies to the model itself."
    if not licence:
        return {}, f"The author states no licence, so ask before you reuse it. {base}"
    if _LICENCE.fullmatch(licence.lower()):
        return {"license": licence.lower()}, f"Licence: {in_markdown(licence)}. {base}"
    return {"license": "other"}, f"The author says: {_sentence(licence)} {base}"


def _limits(steering: "SteeringFunction") -> str:
    limits = [
        "It was made for one model and one site. With other weights its effect is unknown, and `repsurgery` warns.",
        "It changes tendencies, not abilities: unwanted text becomes rarer and does not become impossible. It is no "
        "safety guarantee.",
    ]
    outcome = steering.outcome
    if outcome is not None:
        limits.append(
            "The judge reads continuations alone and can be wrong; the effect on other kinds of prompts may be smaller "
            "or larger. The price is an average over the continuations of the same prompts."
        )
        if outcome.low <= 0 <= outcome.high:
            limits.insert(0, "**The interval of the effect contains zero: it may have no effect.**")
    return "\n".join(f"* {limit}" for limit in limits)


def _loading(steering: "SteeringFunction", repository: str) -> str:
    model = steering.origin.model
    # a name that could end the quotation or the line is not shown in code
    named = model if model and re.fullmatch(r"[\w.][\w./-]*", model) else "MODEL"
    name = repository.rpartition("/")[2]
    return f"""```python
import repsurgery as rs
from repsurgery import lm

steering = rs.SteeringFunction.from_pretrained("{repository}")
model, tokenizer = lm.load("{named}")
for one in lm.generate(model, tokenizer, ["You are"], steering=steering, n=3):
    print(one.text)
```

```
repsurgery generate --steering hub:{repository} --model {named} --prompt "You are"
repsurgery serve --steering hub:{repository} --model {named}    # requests choose it: "steering": {{"name": "{name}"}}
```"""


def _metadata(steering: "SteeringFunction", facts: Facts) -> str:
    """Return the lines of YAML at the start of the card."""
    model = facts.base_model or BASE_MODELS.get(steering.origin.model or "") or _hub_name(steering.origin.model)
    about: dict[str, Any] = {
        "base_model": model,
        "base_model_relation": "adapter" if model else None,
        "datasets": list(facts.datasets) or None,
        "pipeline_tag": "text-generation" if steering.outcome else None,
        **_licence(steering, facts)[0],
    }
    known = {name: value for name, value in about.items() if value is not None}
    tags = ["repsurgery", "steering", "activation-steering", "representation-engineering"]
    data = hub_library().ModelCardData(library_name="repsurgery", tags=tags, **known)
    return f"{data.to_yaml()}\n"


def _hub_name(model: str | None) -> str | None:
    """Return a model's name if the hub could know it."""
    try:
        return None if model is None else check_repository(model)
    except ParameterError:
        return None
