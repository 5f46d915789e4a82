"""``repsurgery reproduce``: a study of the paper, on its data or the user's own."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.cli.show import show_table
from repsurgery.errors import ParameterError
from repsurgery.outputs import check_output_folder

__all__ = ["reproduce"]

Experiment = Literal["bios", "dialect", "toxicity"]
Preset = Literal["paper", "released", "local"]


def reproduce(
    experiment: Annotated[Experiment | None, typer.Argument(help="Which study; a --spec file may name it.")] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(help="The paper's text; the code published with it (bios, dialect); a laptop's size (toxicity)."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Toxicity: embedded name, folder or hub id.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Bios, dialect: minilm, smollm2-135m, bert, gpt2, llama2, a folder or a hub id.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="bios, winobias, gap, dialect, dialect-stand-in, synthetic-bios, jigsaw, paradetox, or a table."
        ),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the named data, else REPSURGERY_DATA.")] = None,
    spec: Annotated[Path | None, typer.Option(help="A TOML file: experiment, preset, and what differs.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="Any option of the study: --set early_stopping=true; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the record.")] = Path("experiments/results"),
    report: Annotated[Path | None, typer.Option(help="Folder of the report; none: no report.")] = None,
    work_dir: Annotated[Path | None, typer.Option(help="Where encodings and stages are kept, else the cache.")] = None,
) -> None:
    """Run a whole study, or go on with one that was interrupted, and write its record."""
    console = Console()
    from repsurgery.checkpoint import write_text
    from repsurgery.studies.page import REPORT_FILES, write_study_report
    from repsurgery.studies.records import write_record

    given = {"experiment": experiment, "preset": preset, "model": model, "encoder": encoder, "data": data}
    named = {name: value for name, value in given.items() if value is not None}
    if spec is None and experiment is None:
        raise ParameterError("Say which study: bios, dialect or toxicity, or name a file with --spec.")
    study = _study(spec, named, option or [])
    inputs = [spec, data_dir, *(Path(name) for name in (data, model, encoder) if name is not None)]
    check_output_folder(out)
    for folder, writes in ((report, REPORT_FILES), (work_dir, ())):
        if folder is not None:
            check_output_folder(folder, inputs=inputs, writes=writes)
    record = study.run(
        data_dir=data_dir,
        work_dir=work_dir,
        announce=lambda step: console.print(f"[bold]{escape(step)}[/]", highlight=False),
    )
    path = write_record(record, out)
    toml = path.with_suffix(".toml")
    if spec is None or not (toml.exists() and toml.samefile(spec)):  # a study repeated from its own specification
        write_text(toml, study.toml)
    for table in study.tables(record)[:2]:
        show_table(table, console)
    for note in (*record.data["cautions"], *record.notes):
        console.print(f"· {escape(note)}", style="dim", highlight=False)
    console.print(f"Record: {escape(str(path))}", soft_wrap=True, highlight=False)
    if report is not None:
        page = write_study_report([record], report)
        console.print(f"Report: {escape(str(page))}", soft_wrap=True, highlight=False)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One study: how it is run, written down and shown."""

    run: Callable[..., Any]
    toml: str
    tables: Callable[[Any], list[Any]]


def _study(spec: Path | None, named: dict[str, Any], pairs: list[str]) -> _Chosen:
    from repsurgery.studies.common.options import read_options
    from repsurgery.studies.fairness.report.tables import result_tables
    from repsurgery.studies.toxicity.report.tables import toxicity_tables

    held = {} if spec is None else read_options(spec)
    if {**held, **named}.get("experiment") == "toxicity":
        from repsurgery.studies import toxicity

        chosen = toxicity.make_toxicity_spec(**{**held, **named, **_options(pairs, toxicity.ToxicitySpec)})
        return _Chosen(partial(toxicity.run_toxicity, chosen), toxicity.toxicity_toml(chosen), toxicity_tables)
    from repsurgery.studies import fairness

    study = fairness.make_spec(**{**held, **named, **_options(pairs, fairness.StudySpec)})
    return _Chosen(partial(fairness.run_study, study), fairness.spec_toml(study), result_tables)


def _options(pairs: list[str], kind: type) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ParameterError(f"--set takes name=value, not {pair!r}.")
        found[name.strip()] = _value(kind, name.strip(), value.strip())
    return found


def _value(kind: type, name: str, text: str) -> Any:
    # a value is what TOML would read, and a bare word is a string; so is a number where words are wanted
    if text[:1] not in ('"', "'") and get_type_hints(kind).get(name) is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
