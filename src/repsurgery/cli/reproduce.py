"""``repsurgery reproduce``: a study of the paper, on its data or the user's own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from repsurgery.cli.options import Device, Dtype
from repsurgery.cli.output import say, say_table, step
from repsurgery.cli.set_options import set_options
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.outputs import check_output_folder

__all__ = ["OTHER_NAMES", "reproduce"]

OTHER_NAMES = {name: f"--set {name}=" for name in ("text", "label", "concept", "split", "source", "target")}
"""What the library calls options of a study, which are set by --set."""

Experiment = Literal["bios", "dialect", "toxicity"]
Preset = Literal["paper", "released", "local"]


def reproduce(
    experiment: Annotated[Experiment | None, typer.Argument(help="The study; not needed with --spec.")] = None,
    preset: Annotated[
        Preset | None,
        typer.Option(
            help="Defaults from the paper's text (paper), from its published code (released: bios, dialect), "
            "or for a laptop (local: toxicity)."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Language model of the toxicity study: embedded name, folder or hub id.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder of bios and dialect: minilm, smollm2-135m, bert, gpt2, llama2, folder or hub id."),
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="bios, winobias, gap, dialect, dialect-stand-in, synthetic-bios, jigsaw, paradetox, or a table."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the named data.", show_default="the variable REPSURGERY_DATA")
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="TOML file with experiment, preset and options that differ from the preset.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any option of the study, such as --set early_stopping=true. Repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the record.")] = Path("experiments/results"),
    report: Annotated[Path | None, typer.Option(help="Folder for the report.", show_default="no report")] = None,
    work_dir: Annotated[
        Path | None, typer.Option(help="Folder for encodings and finished stages.", show_default="the cache")
    ] = None,
) -> dict[str, Any]:
    """Run a study and write its record. Re-run to resume."""
    from repsurgery.checkpoint import write_text
    from repsurgery.studies.page import REPORT_FILES, write_study_report
    from repsurgery.studies.records import write_record

    if spec is None and experiment is None:
        raise OptionsError("No study was named. Pass bios, dialect or toxicity, or a file with --spec.")
    flags = {"experiment": experiment, "preset": preset, "model": model, "encoder": encoder, "data": data}
    study = _study(spec, {name: value for name, value in flags.items() if value is not None}, option or [])
    inputs = [spec, data_dir, *(Path(name) for name in (data, model, encoder) if name is not None)]
    check_output_folder(out)
    for folder, writes in ((report, REPORT_FILES), (work_dir, ())):
        if folder is not None:
            check_output_folder(folder, inputs=inputs, writes=writes)
    record = study.run(
        data_dir=data_dir,
        work_dir=work_dir,
        device=device,
        dtype=dtype,
        announce=step,
    )
    path = write_record(record, out)
    toml = path.with_suffix(".toml")
    if spec is None or not (toml.exists() and toml.samefile(spec)):  # a study repeated from its own specification
        write_text(toml, study.toml(record))
    tables = study.tables(record)[:2]
    for table in tables:
        say_table(table)
    notes = [*record.data["cautions"], *record.notes]
    for note in notes:
        say(f"· {note}", style="dim")
    say(f"Record: {path}")
    page = None if report is None else write_study_report([record], report)
    if page is not None:
        say(f"Report: {page}")
    shown = [{"title": t.title, "rows": [dict(zip(t.headings, row, strict=True)) for row in t.rows]} for t in tables]
    return {"record": path, "spec": toml, "report": page, "tables": shown, "notes": notes}


@dataclass(frozen=True, slots=True)
class _Study:
    """A specified study: the functions that run it, that return the specification of its record, and its tables."""

    run: Callable[..., Any]
    toml: Callable[[Any], str]
    tables: Callable[[Any], list[Any]]


def _study(spec: Path | None, flags: dict[str, Any], pairs: list[str]) -> _Study:
    from repsurgery.studies.common.options import read_options

    options = {**({} if spec is None else read_options(spec)), **flags}
    if options["experiment"] not in get_args(Experiment):
        names = ", ".join(get_args(Experiment))
        raise ParameterError(f"{spec} names the experiment {options['experiment']!r}; it must be one of {names}.")
    if options["experiment"] == "toxicity":
        from repsurgery.studies import toxicity
        from repsurgery.studies.toxicity.report.tables import toxicity_tables

        toxicity_spec = toxicity.make_toxicity_spec(**{**options, **set_options(pairs, toxicity.ToxicitySpec)})
        return _Study(
            partial(toxicity.run_toxicity, toxicity_spec),
            lambda record: toxicity.toxicity_toml(_as_run(toxicity_spec, record, toxicity.FOLLOWING)),
            toxicity_tables,
        )
    from repsurgery.studies import fairness
    from repsurgery.studies.fairness.report.tables import result_tables

    fairness_spec = fairness.make_spec(**{**options, **set_options(pairs, fairness.StudySpec)})
    return _Study(
        partial(fairness.run_study, fairness_spec),
        lambda record: fairness.spec_toml(_as_run(fairness_spec, record, fairness.FOLLOWING)),
        result_tables,
    )


def _as_run(spec: Any, record: Any, following: Sequence[str]) -> Any:
    """Return the specification with the options that the study chose to suit the data."""
    return replace(spec, **{name: record.spec[name] for name in following})
