"""``repsurgery fit``: labelled texts or moments in, one certified file out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.cli.show import show_table
from repsurgery.errors import ParameterError
from repsurgery.outputs import check_output

if TYPE_CHECKING:
    from repsurgery import Origin

__all__ = ["fit"]

Method = Literal["mean", "mimic", "leace", "trace", "diagonal", "midsteer", "barycenter"]
Gate = Literal["nearest-mean", "always", "labels", "logistic", "mlp", "lda", "qda"]
Shrinkage = Literal["none", "ridge", "relative-ridge", "oas", "ledoit-wolf"]
Pooling = Literal["last", "cls", "mean", "all"]
Positions = Literal["all", "generated", "prompt", "last"]


def fit(
    out: Annotated[Path, typer.Option(help="The file to write.")],
    table: Annotated[
        Path | None, typer.Argument(help="Texts and labels: .csv, .tsv, .jsonl or .parquet. Or use --moments.")
    ] = None,
    moments: Annotated[
        Path | None, typer.Option(help="Fit from moments instead: no texts, no model. See the command moments.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    model: Annotated[
        str | None, typer.Option(help="Embedded name, folder, or hub id.  [default: smollm2-135m]")
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="final, layers.N, layers.N.attn, layers.N.mlp, embeddings.  [default: final]")
    ] = None,
    method: Annotated[Method, typer.Option(help="The estimator.")] = "mimic",
    source: Annotated[list[str] | None, typer.Option(help="Label to steer; repeat it for several.")] = None,
    target: Annotated[str | None, typer.Option(help="Label to steer to; needed unless the method erases.")] = None,
    gate: Annotated[Gate | None, typer.Option(help="Which vectors are steered.")] = None,
    shrinkage: Annotated[Shrinkage | None, typer.Option(help="How covariances are regularised.")] = None,
    ridge: Annotated[float | None, typer.Option(help="Size of the ridge.")] = None,
    pooling: Annotated[
        Pooling | None, typer.Option(help="Which tokens are read; all: every one.  [default: last]")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Read so many tokens of longer texts.")] = None,
    strength: Annotated[
        float | None, typer.Option(help="Strength to note in the file, for whoever uses it; the map is fitted at 1.")
    ] = None,
    positions: Annotated[Positions | None, typer.Option(help="Positions to note in the file.")] = None,
    licence: Annotated[str | None, typer.Option(help="A note on the terms of model and data.")] = None,
    keep_moments: Annotated[
        bool, typer.Option("--keep-moments", help="Save the estimator with its moments, to go on learning.")
    ] = False,
) -> None:
    """Fit a steering function on labelled texts, or from moments, and save it with its certificate."""
    check_output(out, inputs=[table, moments, model])
    import repsurgery as rs
    from repsurgery.studies.common.report.certificates import certificate_table
    from repsurgery.workflows.fit import fit_moments, fit_table

    wanted = {"source": source, "target": target, "gate": gate, "shrinkage": shrinkage, "ridge": ridge}
    params = {name: value for name, value in wanted.items() if value is not None}
    if (table is None) == (moments is None):
        raise ParameterError("Give either a table of texts or a file of moments (--moments).")
    told: dict[str, Any] = {"model": model, "site": site, "pooling": pooling}
    told |= {"strength": strength, "positions": positions, "licence": licence}
    if moments is not None:
        estimator = fit_moments(moments, method=method, params=params, **told)
    else:
        assert table is not None
        estimator = fit_table(
            table,
            method=method,
            text=text_column,
            label=label_column,
            max_length=max_length,
            params=params,
            **{name: value for name, value in told.items() if value is not None},
        )
    rs.save(estimator if keep_moments else estimator.steering_, out)
    console = Console()
    show_table(certificate_table(estimator.certificate_), console)
    console.print(f"Wrote {escape(str(out))}, to be used at {escape(_place(estimator.origin))}.", soft_wrap=True)


def _place(origin: "Origin") -> str:
    site = "the site these moments were taken at" if origin.site is None else f"site {origin.site}"
    return site if origin.model is None else f"{site} of {origin.model}"
