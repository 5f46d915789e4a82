"""``repsurgery reproduce``: a study of the paper, on its data or the user's own."""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from repsurgery.cli.needs import Console, escape, typer
from repsurgery.cli.show import show_table
from repsurgery.errors import ParameterError

__all__ = ["reproduce"]

Experiment = Literal["bios", "dialect"]
Preset = Literal["paper", "released"]


def reproduce(
    experiment: Annotated[Experiment | None, typer.Argument(help="Which study; a --spec file may name it.")] = None,
    preset: Annotated[Preset | None, typer.Option(help="The paper's text, or the code published with it.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="minilm, smollm2-135m, bert, gpt2, llama2, a folder or a hub id.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="bios, winobias, gap, dialect, dialect-stand-in, synthetic-bios, or a table.")
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
    from repsurgery.experiments.fairness import load_spec, make_spec, run_study, spec_toml
    from repsurgery.report import result_tables, write_study_report
    from repsurgery.results import write_record

    given = {"experiment": experiment, "preset": preset, "encoder": encoder, "data": data}
    differences = {**{name: value for name, value in given.items() if value is not None}, **_options(option or [])}
    if spec is None and experiment is None:
        raise ParameterError("Say which study: bios or dialect, or name a file with --spec.")
    chosen = load_spec(spec, **differences) if spec is not None else make_spec(**differences)
    for folder in (out, report, work_dir):
        _require_folder(folder)
    record = run_study(
        chosen,
        data_dir=data_dir,
        work_dir=work_dir,
        announce=lambda step: console.print(f"[bold]{escape(step)}[/]", highlight=False),
    )
    path = write_record(record, out)
    if not path.with_suffix(".toml").exists():
        path.with_suffix(".toml").write_text(spec_toml(chosen), encoding="utf-8")
    for table in result_tables(record)[:2]:
        show_table(table, console)
    for note in (*record.data["cautions"], *record.notes):
        console.print(f"· {escape(note)}", style="dim", highlight=False)
    console.print(f"Record: {escape(str(path))}", soft_wrap=True, highlight=False)
    if report is not None:
        page = write_study_report([record], report)
        console.print(f"Report: {escape(str(page))}", soft_wrap=True, highlight=False)


def _options(pairs: list[str]) -> dict[str, Any]:
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ParameterError(f"--set takes name=value, not {pair!r}.")
        found[name.strip()] = _value(name.strip(), value.strip())
    return found


def _require_folder(folder: Path | None) -> None:
    # asked before the study: it may run for hours
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"{folder} cannot be used as a folder ({error.strerror}). Name another.") from error
    if not os.access(folder, os.W_OK):
        raise ParameterError(f"Nothing can be written into {folder}. Name another folder.")


def _value(name: str, text: str) -> Any:
    from repsurgery.experiments.fairness import StudySpec

    # a value is what TOML would read, and a bare word is a string; so is a number where words are wanted
    if text[:1] not in ('"', "'") and get_type_hints(StudySpec).get(name) is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
