"""``repsurgery fit``: from labelled texts or moments to one file with its certificate."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from repsurgery.cli.options import Chat, Device, Dtype
from repsurgery.cli.output import say, say_table
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.outputs import check_output

if TYPE_CHECKING:
    from repsurgery import Origin

__all__ = ["OTHER_NAMES", "fit"]

OTHER_NAMES = {"text": "--text-column", "label": "--label-column", "prompt": "--prompt-column"}
"""What the library calls some of the options."""

Pooling = Literal["last", "cls", "mean", "all"]
Positions = Literal["all", "generated", "prompt", "last", "assistant"]
Credit = Literal["text", "step"]


def _name(registry: str, text: str) -> Any:
    """Return an option whose value is a name in ``registry``, which is imported only when the command runs."""
    module, _, attribute = registry.partition(":")

    def check(name: str | None) -> str | None:
        try:
            if name is not None:
                getattr(import_module(module), attribute)[name]
        except ParameterError as error:
            raise typer.BadParameter(str(error)) from error
        return name

    return typer.Option(callback=check, metavar="NAME", help=f"{text} An unknown name lists all of them.")


def fit(
    out: Annotated[Path, typer.Option(help="File to write.")],
    table: Annotated[
        Path | None,
        typer.Argument(
            help="Table of texts and labels: .csv, .tsv, .jsonl or .parquet; or courtesy for the embedded one. Or use "
            "--moments."
        ),
    ] = None,
    moments: Annotated[
        Path | None,
        typer.Option(help="Fit from this file of moments, without texts and model. See the command moments."),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option("--text-column", "--text", help="Column of the texts.", show_default="text")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option("--label-column", "--label", help="Column of the labels.", show_default="label")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Embedded name, folder, or hub id.", show_default="smollm2-135m")
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    chat: Chat = False,
    prompt_column: Annotated[
        str | None,
        typer.Option(
            help="With --chat: column of the user's messages, to which the texts are the assistant's answers.",
            show_default="none; the texts are the user's messages",
        ),
    ] = None,
    site: Annotated[
        str | None, typer.Option(help="final, layers.N, layers.N.attn, layers.N.mlp, embeddings.", show_default="final")
    ] = None,
    method: Annotated[
        str, _name("repsurgery.steering.base:METHODS", "Estimator, such as mimic, mean or leace.")
    ] = "mimic",
    source: Annotated[list[str] | None, typer.Option(help="Label to steer; repeat it for several.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Label to steer to; required unless the method erases a concept.")
    ] = None,
    gate: Annotated[
        str | None,
        _name("repsurgery.gates.base:GATES", "Gate that decides which vectors are steered, such as lda or always."),
    ] = None,
    shrinkage: Annotated[
        str | None,
        _name(
            "repsurgery.moments.shrinkage:SHRINKAGES",
            "Regularisation of covariances, such as oas or ridge; MiMiC uses pooled unless another one is named.",
        ),
    ] = None,
    ridge: Annotated[float | None, typer.Option(help="Size of the ridge.")] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|auto",
            help="How far pooled shrinkage draws the two covariances together: 0 not at all, 1 to one for both.",
            show_default="auto",
        ),
    ] = None,
    bins: Annotated[
        int | None, typer.Option(min=2, help="Labels are numbers: bin them into so many classes by quantiles.")
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Labels are numbers: erase them as they are (with --method leace)."),
    ] = False,
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            help="How the token states of a text become rows; all makes every token a row.", show_default="last"
        ),
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Largest number of tokens to read of a text.")] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="Strength to write to the file as advice for later use; the map is fitted at 1."),
    ] = None,
    positions: Annotated[
        Positions | None, typer.Option(help="Positions to write to the file as advice for later use.")
    ] = None,
    licence: Annotated[str | None, typer.Option(help="Note on the terms of model and data.")] = None,
    store_fisher: Annotated[
        bool,
        typer.Option("--store-fisher", help="Store what generate --kl-budget needs: a Fisher matrix and moments."),
    ] = False,
    held_out: Annotated[
        float | None,
        typer.Option(
            help="Share of the texts that the map is not fitted on but measured on; 0 holds out none.",
            show_default="0.2",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed that draws the held-out texts, or with --on-policy the texts.", show_default="0"
        ),
    ] = None,
    keep_moments: Annotated[
        bool,
        typer.Option("--keep-moments", help="Save the estimator with its moments, so that more rows can be added."),
    ] = False,
    on_policy: Annotated[
        bool,
        typer.Option("--on-policy", help="Fit on what the model itself writes after --prompts, rated by --scorer."),
    ] = False,
    prompts: Annotated[
        Path | None, typer.Option(help="On-policy: text file with one prompt per line, or .jsonl with messages.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="On-policy: scorer of the texts, such as linear. An unknown name lists all.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="On-policy: continuations of each prompt.", show_default="8")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="On-policy: rounds of writing under the steering so far and fitting what is left.", show_default="1"
        ),
    ] = None,
    credit: Annotated[
        Credit | None,
        typer.Option(
            help="On-policy: label each step by its text, or by its own change of the score.", show_default="text"
        ),
    ] = None,
    source_at: Annotated[
        float | None, typer.Option(help="On-policy: texts of at least this score are steered.", show_default="0.5")
    ] = None,
    target_at: Annotated[
        float | None, typer.Option(help="On-policy: texts of at most this score are the target.", show_default="0.1")
    ] = None,
    step_at: Annotated[
        float | None,
        typer.Option(help="On-policy, --credit step: credit of a step that is steered.", show_default="0.1"),
    ] = None,
) -> dict[str, Any]:
    """Fit a steering function on labelled texts, from moments, or on the model's own texts, and save it."""
    check_output(out, inputs=[table, moments, model, prompts])
    import repsurgery as rs
    from repsurgery.moments.shrinkage import parse_alpha
    from repsurgery.studies.common.report.certificates import certificate_table
    from repsurgery.studies.common.report.describe import describe
    from repsurgery.workflows.fit import fit_moments, fit_table

    options = {"source": source, "target": target, "gate": gate, "shrinkage": shrinkage, "ridge": ridge}
    options |= {"alpha": None if alpha is None else parse_alpha(alpha)}
    params = _given(options)
    labelled = {"--text-column": text_column, "--label-column": label_column, "--held-out": held_out}
    labelled |= {"--prompt-column": prompt_column, "--bins": bins, "--continuous": continuous or None}
    if continuous and method != "leace":
        raise OptionsError("--continuous needs --method leace; the other methods need classes, such as --bins 4.")
    params |= {"concept_type": "continuous"} if continuous else {}
    loading = _given({"device": device, "dtype": dtype})
    rules = {"samples": samples, "credit": credit, "source_at": source_at, "target_at": target_at, "step_at": step_at}
    if on_policy:
        from repsurgery.cli.fit_on_policy import fit_own_texts

        named = {"a table": table, "--moments": moments, "--source": source, "--target": target}
        placed = {"model": model, "site": site, "strength": strength, "positions": positions, "licence": licence}
        return fit_own_texts(
            out,
            prompts=prompts,
            scorer=scorer,
            chat=chat,
            refused={**named, **labelled, "--pooling": pooling},
            keep_moments=keep_moments,
            store_fisher=store_fisher,
            method=method,
            params={name: value for name, value in params.items() if name not in ("source", "target")},
            rounds=1 if rounds is None else rounds,
            **_given({**rules, **placed, **loading, "max_length": max_length, "seed": seed}),
        )
    own = {"prompts": prompts, "scorer": scorer, "rounds": rounds, **rules}
    _refuse(
        {f"--{name.replace('_', '-')}": value for name, value in own.items()},
        "Only --on-policy uses",
        "Add --on-policy, or leave",
    )
    if (table is None) == (moments is None):
        raise OptionsError("Pass either a table of texts or a file of moments (--moments).")
    origin: dict[str, Any] = {"model": model, "site": site, "pooling": pooling}
    origin |= {"strength": strength, "positions": positions, "licence": licence}
    if moments is not None and store_fisher:
        raise OptionsError("--store-fisher needs texts and a model; moments do not hold them.")
    if moments is not None:
        unused = {"--max-length": max_length, "--seed": seed, "--device": device, "--dtype": dtype}
        _refuse({**labelled, **unused, "--chat": chat or None}, "--moments reads no texts, which need")
        result = fit_moments(moments, method=method, params=params, **origin)
    else:
        assert table is not None
        result = fit_table(
            table,
            method=method,
            params=params,
            store_fisher=store_fisher,
            chat=chat,
            prompt=prompt_column,
            bins=bins,
            **loading,
            **_given({"text": text_column, "label": label_column, "max_length": max_length}),
            **_given({"held_out": held_out, "seed": seed, **origin}),
        )
    estimator = result.estimator
    saved = estimator if keep_moments else estimator.steering_
    rs.save(saved, out)
    measured = None if result.held_out is None else result.held_out.certificate
    say_table(certificate_table(estimator.certificate_, measured))
    for note in result.notes:
        say(note)
    say(f"Wrote {out}, to be used at {_place(estimator.origin)}.")
    away = result.held_out and {
        "verdict": result.held_out.verdict,
        "certificate": result.held_out.certificate.to_dict(),
    }
    return {"file": out, **describe(saved), "held_out": away, "notes": result.notes}


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: Mapping[str, Any], why: str, remedy: str = "Leave") -> None:
    """Raise an error if any of these options was given."""
    if given := list(_given(options)):
        raise OptionsError(f"{why} {', '.join(given)}. {remedy} {'it' if len(given) == 1 else 'them'} out.")


def _place(origin: "Origin") -> str:
    site = "the site where these moments were computed" if origin.site is None else f"site {origin.site}"
    return site if origin.model is None else f"{site} of {origin.model}"
