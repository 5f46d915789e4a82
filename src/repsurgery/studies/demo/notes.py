"""What a reader of the demonstration must know to judge its numbers."""

from repsurgery.studies.demo.steerings import Fitted, Split

__all__ = ["notes"]


def notes(split: Split, source: str, fitted: list[Fitted]) -> tuple[str, ...]:
    """Return the cautions that go with these fits, negative results included."""
    n, d = int((split.z == source).sum()), split.X.shape[1]
    found = [
        f"Maps and gate are fitted on the last token of whole sentences and used on every generated token, which is "
        f"another distribution: what a certificate promises holds for vectors like the fitted ones. "
        f"Prompts are neutral, so the base itself is seldom {source}; a small difference is what can be seen.",
        "Perplexity is that of the sampled tokens under the unsteered model: low means expected by that model, not "
        "good; bland text is expected, too.",
        "There are few prompts and samples, so that the demonstration is short, and no intervals are given: small "
        "differences are no findings.",
        "LEACE has no target: it makes the two tones indistinguishable to linear probes, and does not aim at either.",
    ]
    if n < d:
        found.insert(
            0,
            f"{n} rows per class in {d} dimensions leave every class covariance singular. MiMiC and LEACE therefore "
            "shrink it (OAS); MiMiC's covariance claim then holds for the shrunk covariances, not for the rows "
            "themselves, and the covariance gap in the table says by how much.",
        )
    return (*found, *_shortfalls(fitted))


def _shortfalls(fitted: list[Fitted]) -> list[str]:
    """Return a note where a method that claims covariances leaves held-out rows no closer than it found them."""
    found = []
    for f in fitted:
        if f.certified is None or f.scope != "selective" or "covariances" not in f.certified.held_out.claims:
            continue
        pair = next(iter(f.certified.held_out.by_source.values()))
        if pair.covariance_gap >= pair.covariance_gap_before:
            found.append(
                f"A negative result: on held-out texts {f.method} leaves a covariance gap of {pair.covariance_gap:.2f},"
                f" no smaller than the {pair.covariance_gap_before:.2f} it found. So few rows do not determine a "
                "covariance in so many dimensions; more texts would."
            )
    return found
