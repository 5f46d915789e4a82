"""Errors in the words of the command line: flags instead of parameters, the nearest flag, and flags given twice."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise, zip_longest
from typing import Any

from repsurgery.cli.terminal import typer

__all__ = ["UsageError", "explain_value", "flags_of", "in_flags", "refuse_repeats", "suggest"]

UsageError: Any = typer.BadParameter.__mro__[1]
"""The error of a wrong command line; Typer exports only this subclass of it."""

SYNONYMS = {
    "--site": ("layer", "layers", "layer-idx", "hook"),
    "--out": ("o", "output", "output-file", "output-dir", "output-path", "save", "outfile"),
    "--strength": ("scale", "coefficient", "coeff", "multiplier", "weight"),
    "--scale": ("coefficient", "coeff", "multiplier", "factor", "times"),
    "--kl-budget": ("budget", "kl", "price", "nats"),
    "--kl": ("budget", "kl-budget", "price", "nats"),
    "--max-new-tokens": ("tokens", "max-tokens", "max-length", "length"),
    "--dtype": ("precision", "torch-dtype"),
    "--device": ("gpu", "cuda", "device-map"),
    "--model": ("m", "model-name", "pretrained", "base-model", "checkpoint"),
    "--prompt": ("p",),
    "--prompts": ("prompts-file", "prompt-file"),
    "--prompts-file": ("prompts", "prompt-file"),
    "--n": ("samples", "num-samples"),
    "--samples": ("n", "num-samples"),
    "--text-column": ("text", "column"),
    "--label-column": ("label", "labels", "concept-column", "concept"),
    "--report": ("html", "page"),
    "--steerings-dir": ("steerings",),
}
"""Other words for a flag, as other programs call it."""
ALIKE = 0.75
"""The share of letters in common, by difflib, from which a word is taken for a misspelt flag."""

_PARAMETER = re.compile(
    r"(?<!\w)'[^']*'(?!\w)"  # a quotation, and a call such as fit(X, concept=z), are left as they are
    r"|[\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\)"
    r"|(?<![\w.-])(?P<name>[a-z_]+)=(?P<value>'[^']*'|\"[^\"]*\"|[\w.+-]*\w)?"
    r"|(?<![\w./-])(?P<word>[a-z]+(?:_[a-z]+)+)(?![\w/=-]|\.\w)"  # no word of a sentence has an underscore
)
_UNKNOWN = re.compile(r"\b([a-z_]+)=(?:, |(?=[.;]))")
_DECIMAL_COMMA = re.compile(r"-?\d*,\d+")


def flags_of(command: Any, other_names: Mapping[str, str]) -> dict[str, str]:
    """Return the flag of each parameter of a command, and of other names by which the library calls one."""
    options = {p.name: max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}
    return {**options, **other_names}


def in_flags(message: str, flags: Mapping[str, str]) -> str:
    """Return an error message with flags in place of parameters.

    "batch_rows is 0" becomes "--batch-rows is 0", and "choose gate='always'" becomes "choose --gate always".

    Guarantees
    ----------
    Quotations and calls of functions stay as they are (test_parameters_become_flags_and_quotations_stay).
    """

    def flag(found: re.Match[str]) -> str:
        name, value = found["name"] or found["word"], (found["value"] or "").strip("'\"")
        if name not in flags:
            return found[0]
        joint = "" if flags[name].endswith("=") or not value else " "
        return f"{flags[name]}{joint}{value}"

    name, is_, problem = message.partition(" is ")
    if is_ and name in flags:
        message = f"{flags[name]} is {problem}"
    # of a list of parameters, those without a flag are left out
    message = _UNKNOWN.sub(lambda found: found[0] if found[1] in flags else "", message)
    return _PARAMETER.sub(flag, message).replace("--set --set ", "--set ")


def explain_value(error: Any, words: Sequence[str]) -> None:
    """Complete the error of a value that was not understood: what it was, and that decimals have a point."""
    values = _values(getattr(error.param, "opts", ()), words) if getattr(error, "param", None) is not None else []
    commas = [value for value in values if _DECIMAL_COMMA.fullmatch(value)]
    if commas:
        error.message = f"{commas[0]!r} is not a number. Write a decimal point, as in {commas[0].replace(',', '.')}."
    elif values and not any(value in error.message for value in values):
        error.message = f"{values[0]!r} was given. {error.message}"


def suggest(unknown: str, flags: Sequence[str], words: Sequence[str]) -> str:
    """Return what to say of an unknown flag: the nearest one, if one is near.

    Parameters
    ----------
    unknown : str
        As it was typed.
    flags : sequence of str
        Those of the command.
    words : sequence of str
        All words of the command line; ``--layer 12`` names its value there.
    """
    said = f"There is no option {unknown}."
    word = unknown.lstrip("-").replace("_", "-").lower()
    if word.startswith("layer") and "--site" in flags:
        value = next((after for one, after in pairwise(words) if one == unknown), "")
        value = value or next((one.partition("=")[2] for one in words if one.startswith(f"{unknown}=")), "")
        return f"{said} Did you mean --site layers.{value if value.isdigit() else 'N'}?"
    near = [flag for flag in flags if word in SYNONYMS.get(flag, ())]
    names = {flag.lstrip("-"): flag for flag in flags if flag.startswith("--")}
    near += [flag for name, flag in names.items() if len(word) > 2 and name.startswith(word)]
    near += [names[name] for name in get_close_matches(word, names, n=2, cutoff=ALIKE)]
    return f"{said} Did you mean {' or '.join(list(dict.fromkeys(near))[:3])}?" if near else said


def refuse_repeats(command: Any, context: Any, words: Sequence[str]) -> None:
    """Raise a usage error where an option that takes one value was given several times."""
    _, _, order = command.make_parser(context).parse_args(list(words))
    for param, count in Counter(order).items():
        if count < 2 or param.param_type_name != "option" or param.multiple or getattr(param, "is_flag", False):
            continue
        values = _values(param.opts, words)
        times = "twice" if count == 2 else f"{count} times"
        raise UsageError(
            f"{max(param.opts, key=len)} was given {times}: {' and '.join(values)}. Give it once.", ctx=context
        )


def _values(spellings: Sequence[str], words: Sequence[str]) -> list[str]:
    following = zip_longest(words, words[1:], fillvalue="")
    pairs = (
        (name, value if equals else after) for word, after in following for name, equals, value in [word.partition("=")]
    )
    return [value for name, value in pairs if name in spellings]
