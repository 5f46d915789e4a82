"""What ``repsurgery fit --on-policy`` does: fit on the model's own texts, and show each round."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repsurgery.cli.output import say, say_table
from repsurgery.errors import OptionsError

__all__ = ["fit_own_texts"]


def fit_own_texts(
    out: Path,
    *,
    prompts: Path | None,
    scorer: str | None,
    chat: bool,
    refused: Mapping[str, Any],
    keep_moments: bool,
    **how: Any,
) -> dict[str, Any]:
    """Fit on what the model writes after the prompts of a file, save the steering, and print its rounds.

    Parameters
    ----------
    out : path
    prompts, scorer
        The values of --prompts and --scorer; both are needed.
    chat : bool
        Take plain prompts as messages of a user.
    refused : mapping of flag to value
        Flags that have no meaning here, which raise an error where they were given.
    keep_moments : bool
        Save the estimator with its moments; of one round only.
    how
        Arguments of `fit_on_policy`.
    """
    given = [flag for flag, value in refused.items() if value is not None]
    if given:
        raise OptionsError(
            f"--on-policy fits on texts that the model writes itself, with the labels source and target. Leave out "
            f"{', '.join(given)}."
        )
    if prompts is None or scorer is None:
        raise OptionsError(
            "--on-policy needs prompts to continue and a scorer of the texts: --prompts FILE --scorer linear."
        )
    if keep_moments and how["rounds"] > 1:
        raise OptionsError("--keep-moments saves the moments of one round. Leave it out, or pass --rounds 1.")
    import repsurgery as rs
    from repsurgery.scorers import load_scorer
    from repsurgery.studies.common.report.certificates import certificate_table
    from repsurgery.studies.common.report.describe import describe
    from repsurgery.workflows.on_policy import fit_on_policy
    from repsurgery.workflows.prompts import in_chat, read_prompts

    asked = in_chat(read_prompts(prompts)) if chat else read_prompts(prompts)
    found = fit_on_policy(asked, load_scorer(scorer), **how)
    steering, result = found.steering, found.steering
    if keep_moments:  # of one round, whose function is the whole steering, so that it has the same price
        result = found.rounds[-1].estimator.with_origin(steering.origin).with_price(steering.price)
    rs.save(result, out)
    rounds = []
    for number, one in enumerate(found.rounds, start=1):
        say_table(certificate_table(one.estimator.certificate_))
        texts = ", ".join(f"{n['texts']} {label} texts ({n['steps']} steps)" for label, n in one.counts.items())
        say(f"Round {number}: {texts}; mean score {one.mean_score:.3f} before its map.")
        measured = one.estimator.certificate_.to_dict()
        rounds.append({"counts": one.counts, "mean_score": one.mean_score, "certificate": measured})
    if len(found.rounds) > 1:
        say(
            "The file holds the composition of all rounds and no certificate: each certificate above describes the map "
            "of one round."
        )
    origin = found.steering.origin
    say(f"Wrote {out}, to be used at site {origin.site} of {origin.model}.")
    return {"file": out, **describe(result), "rounds": rounds}
