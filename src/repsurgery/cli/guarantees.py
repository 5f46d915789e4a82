"""``repsurgery guarantees``: every method on Gaussian data, with what it guarantees and what it reaches."""

import warnings
from typing import TYPE_CHECKING, Annotated, Any

from repsurgery.cli.output import say_table
from repsurgery.cli.terminal import typer
from repsurgery.errors import PluginWarning

if TYPE_CHECKING:
    from repsurgery.arrays import Matrix

__all__ = ["guarantees"]

_COLUMNS = {
    "mean gap": "mean_gap",
    "covariance gap": "covariance_gap",
    "EBBN": "ebbn",
    "probe R²": "probe_r2",
    "cost": "cost",
    "optimum": "optimal_cost",
}


def gaussian_concept(seed: int, *, n: int = 4000, d: int = 64) -> tuple["Matrix", Any]:
    """Return the rows (2n, d) and labels (2n,) of two Gaussian classes that differ in mean and covariance."""
    import numpy as np

    rng = np.random.default_rng(seed)
    mix = [rng.normal(size=(d, d)) / np.sqrt(d) + np.eye(d) for _ in range(2)]
    shift = rng.normal(size=d) / 4
    source, target = rng.normal(size=(n, d)) @ mix[0] + shift, rng.normal(size=(n, d)) @ mix[1] - shift
    return np.vstack([source, target]), np.repeat(["source", "target"], n)


def guarantees(seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0) -> dict[str, Any]:
    """Fit every method on Gaussian data, list what it guarantees, and test it on fresh data."""
    import repsurgery as rs
    from repsurgery.steering.base import METHODS
    from repsurgery.studies.common.report.tables import Table

    X, z = gaussian_concept(seed)
    fresh = X[1::2], z[1::2]
    X, z = X[::2], z[::2]
    untouched = rs.MeanMatching(source="source", target="target").fit(X, z).certificate_.by_source["source"]
    before = [
        untouched.mean_gap_before,
        untouched.covariance_gap_before,
        untouched.ebbn_before,
        untouched.probe_r2_before,
    ]
    rows = [("", "untouched", "", *(f"{value:.2g}" for value in before), "0", "0", *[""] * 3)]
    for name in METHODS:
        try:
            cells = _row(METHODS[name], X, z, fresh)
        except Exception as error:
            if name in METHODS.own():
                raise
            text = f"The plugin {name!r} is left out: fitting it raised {type(error).__name__}: {error}"
            warnings.warn(text, PluginWarning, stacklevel=1)
            continue
        rows.append((name, *cells))
    table = Table(
        "Two Gaussian classes, 2,000 rows each, 64 dimensions: steered by their labels",
        ("name", "method", "claims", *_COLUMNS, "probe − prior (nats)", "Youden J of gate", "fresh rows"),
        tuple(rows),
        "Each figure is measured on the fitted map. 'claims': what the method guarantees to make equal. 'fresh rows': "
        "whether 4,000 rows that were not used in the fit support the claims.",
        keys=2,
    )
    say_table(table)
    return {"methods": [dict(zip(table.headings, row, strict=True)) for row in rows[1:]]}


def _row(method: Any, X: "Matrix", z: Any, fresh: tuple["Matrix", Any]) -> list[str]:
    from repsurgery.certificates.verify import verdict_of

    params = {name: name for name in ("source", "target") if name in method().get_params()}
    estimator = method(**params).fit(X, z)
    certificate = estimator.certify(X, z)
    measures = [f"{getattr(certificate, name):.2g}" for name in _COLUMNS.values()]
    above_prior = (certificate.probe_loss or 0.0) - (certificate.prior_entropy or 0.0)
    gate = "-" if certificate.youden is None else f"{certificate.youden:.3f}"
    verdict = verdict_of(lambda: estimator.steering_.verify(*fresh)) if certificate.claims else "-"
    claims = ", ".join(certificate.claims) or "none stated"
    return [method.__name__, claims, *measures, f"{above_prior:.1g}", gate, verdict]
