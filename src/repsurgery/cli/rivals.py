"""``repsurgery rivals``: list the rivals of the toxicity study, and train their parts."""

from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.options import Device, Dtype
from repsurgery.cli.output import say, say_table, step
from repsurgery.cli.set_options import set_options
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.outputs import check_output_folder

__all__ = ["rivals"]

WITHOUT_PROMPTS = {"prompts": "courtesy", "prompt_toxicity": 0.0, "prompt_count": 1}
"""Embedded prompts for texts of the user's own: training reads the labelled texts, and hardly any rival a prompt."""
PUBLISHED = ("jigsaw", "paradetox")


def rivals(
    action: Annotated[Literal["list", "train"], typer.Argument(help="What to do.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Rivals to list or train, such as dexperts or 'dexperts tokens=20000'.",
            show_default="all; to train, those of --spec",
        ),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="TOML file of a toxicity study, whose options and rivals are used.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Labelled texts: jigsaw, paradetox, courtesy, or a table.", show_default="jigsaw")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", "--text-column", help="Column of the texts.", show_default="text")
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", "--label-column", help="Column of the labels.", show_default="label")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Label to move away from.", show_default="toxic")] = None,
    target: Annotated[str | None, typer.Option(help="Label to move to.", show_default="non-toxic")] = None,
    model: Annotated[
        str | None, typer.Option(help="Embedded name, folder or hub id of the model.", show_default="smollm2-135m")
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    option: Annotated[
        list[str] | None, typer.Option("--set", help="Any option of the study, such as --set fit_rows=500. Repeatable.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the named data.", show_default="the variable REPSURGERY_DATA")
    ] = None,
    work_dir: Annotated[
        Path | None, typer.Option(help="Folder for the parts; give the study the same.", show_default="the cache")
    ] = None,
) -> dict[str, Any]:
    """List the rivals of the toxicity study, or train what they need. Re-run to resume."""
    if action == "list":
        return _list_rivals(names or [])
    if spec is None and not names:
        raise OptionsError("No rival was named. Name some, such as repsurgery rivals train dexperts, or pass --spec.")
    if work_dir is not None:
        inputs = [spec, data_dir, *(Path(name) for name in (data, model) if name is not None)]
        check_output_folder(work_dir, inputs=inputs)
    flags = {"data": data, "text": text, "label": label, "source": source, "target": target, "model": model}
    step("Preparing: PyTorch and Transformers")
    from repsurgery.studies.toxicity.prepare import chosen_lines, prepare_rivals, require_rivals

    require_rivals(names or [])
    study = _spec(spec, {name: value for name, value in flags.items() if value is not None}, option or [], names or [])
    lines = chosen_lines(study, names or [])
    if not lines:
        raise ParameterError(f"{spec} has no rival among its configurations. Name the rivals to train.")
    parts = prepare_rivals(
        study,
        lines,
        data_dir=data_dir,
        work_dir=work_dir,
        device=device,
        dtype=dtype,
        announce=step,
    )
    return _show_parts(parts, [line.name for line in lines])


def _spec(file: Path | None, flags: dict[str, str], pairs: list[str], names: list[str]) -> Any:
    from repsurgery.studies.common.options import read_options
    from repsurgery.studies.toxicity import ToxicitySpec, make_toxicity_spec

    stated = {} if file is None else read_options(file)
    if stated.get("experiment", "toxicity") != "toxicity":
        raise ParameterError(f"{file} is a study of {stated['experiment']!r}; only the toxicity study has rivals.")
    options = {**stated, **flags, **set_options(pairs, ToxicitySpec)}
    if "prompts" not in options and options.get("data", PUBLISHED[0]) not in PUBLISHED:
        options = {**WITHOUT_PROMPTS, **options}
    if file is None:
        options = {"configurations": names, **options}
    return make_toxicity_spec(**options)


def _list_rivals(names: list[str]) -> dict[str, Any]:
    from repsurgery.studies.toxicity.generators import GENERATORS
    from repsurgery.studies.toxicity.prepare import require_rivals

    require_rivals(names)
    listed = []
    for name in dict.fromkeys(words.split()[0] for words in names) or GENERATORS:
        one = GENERATORS[name]
        options = " ".join(f"{key}={value}" for key, value in one.options.items())
        say(f"{name} {options}".rstrip(), style="bold")
        needs = getattr(one, "needs", "")
        summary = (one.__doc__ or "").strip().split("\n")[0].replace("``", "'")
        for line in (summary, f"Needs {needs}." if needs else ""):
            if line:
                say(f"  {line}")
        listed.append({"name": name, "options": dict(one.options), "summary": summary, "needs": needs})
    say("A configuration is a name and the options that differ, such as 'dexperts alpha=1'.")
    return {"rivals": listed}


def _show_parts(parts: list[Any], lines: list[str]) -> dict[str, Any]:
    from repsurgery.studies.common.report.tables import Table

    if parts:
        rows = tuple(
            (part.rival, part.name, "made" if part.made else "stored before", f"{part.seconds:.1f}", part.path.name)
            for part in parts
        )
        headings = ("rival", "part", "state", "CPU seconds", "file")
        say_table(Table("Parts of rivals", headings, rows, "", keys=2))
        say(f"The parts are in {parts[0].path.parent}.")
    if without := [name for name in lines if name not in {part.rival for part in parts}]:
        say(f"Nothing has to be trained for {', '.join(without)}.")
    return {"parts": parts, "nothing_to_train": without}
