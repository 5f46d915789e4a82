"""``repsurgery tune``: choose a steering for a concept at a stated price."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.options import Chat, Device, Dtype, name_in
from repsurgery.cli.output import say, step
from repsurgery.cli.terminal import typer
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.exporters import EXPORTERS
from repsurgery.outputs import check_output, check_output_folder
from repsurgery.studies.tuned.record import TUNE_FILES

__all__ = ["CHOICES", "OTHER_NAMES", "show_tuned", "tune", "tuned_document"]

OTHER_NAMES = {"sites": "--site", "others": "--also"}
"""What the library calls some of the options."""
CHOICES = {"export_to": EXPORTERS.names}
"""The parameters whose values plugins add to."""


def tune(
    texts: Annotated[
        Path | None,
        typer.Argument(
            help="Table of texts with labels (.csv, .tsv, .jsonl, .parquet), or courtesy for the embedded one."
        ),
    ] = None,
    source: Annotated[str, typer.Option(help="Label to steer from.")] = "source",
    target: Annotated[str, typer.Option(help="Label to steer to.")] = "target",
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one prompt per line, .jsonl with messages, or provoking for the embedded ones."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Embedded name, folder or hub id of the model.")] = "smollm2-135m",
    device: Device = None,
    dtype: Dtype = None,
    chat: Chat = False,
    kl: Annotated[float, typer.Option(help="Highest price: KL(base ‖ steered) in nats per token.")] = 0.1,
    wikitext: Annotated[
        str | None,
        typer.Option(help="Highest rise of the perplexity of WikiText, such as +5%.", show_default="no limit"),
    ] = None,
    scorer: Annotated[
        str | None,
        typer.Option(
            help="Scorer that judges the texts: minilm, bilstm, linear, hf:MODEL, ...",
            show_default="a judge is trained on half of the texts",
        ),
    ] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="A further scorer that takes no part and is reported. Repeatable.")
    ] = None,
    measure: Annotated[
        Literal["share", "mean"] | None,
        typer.Option(
            help="Share of texts with a score of at least .5, or mean score.",
            show_default="share for a trained judge, mean for a scorer",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Write and compare less; a few minutes.")] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="Write and compare more; about an hour.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(help="Start no candidate that would leave too little of this time.", show_default="no limit"),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help="A site to consider. Repeatable.", show_default="final and some layers"),
    ] = None,
    export_to: Annotated[
        str | None,
        typer.Option(
            callback=name_in(EXPORTERS),
            help="Consider only steerings that this export holds exactly.",
            show_default="no limit: hooks hold all",
        ),
    ] = None,
    text: Annotated[str, typer.Option("--text", "--text-column", help="Column of the texts.")] = "text",
    label: Annotated[str, typer.Option("--label", "--label-column", help="Column of the labels.")] = "label",
    seed: Annotated[int, typer.Option(help="Random seed of splits and texts.")] = 0,
    lock: Annotated[
        Path | None, typer.Option(help="Lock file of an earlier run: make its steering again, without a search.")
    ] = None,
    out: Annotated[Path, typer.Option(help="File of the steering; its lock is written beside it.")] = Path(
        "tuned.safetensors"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Folder for the page and record.json.", show_default="none")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of WikiText.", show_default="the variable REPSURGERY_DATA")
    ] = None,
    work_dir: Annotated[Path | None, typer.Option(help="Folder for finished work.", show_default="the cache")] = None,
) -> dict[str, Any]:
    """Choose the steering with the greatest effect at a stated price, and confirm it on prompts that took no part."""
    inputs = [texts, prompts, lock, Path(model)]
    check_output(out, inputs=inputs)
    lock_file = out.with_name(f"{out.name.removesuffix('.safetensors')}.lock.json")
    check_output(lock_file, inputs=[texts, prompts, Path(model)])
    for folder, writes in ((report, TUNE_FILES), (work_dir, ())):
        if folder is not None:
            check_output_folder(folder, inputs=inputs, writes=writes)
    if quick and thorough:
        raise OptionsError("--quick and --thorough exclude each other. Pass one of them.")
    stated: dict[str, Any] = {
        "--source": source != "source",
        "--target": target != "target",
        "--kl": kl != 0.1,
        "--seed": seed != 0,
    }
    stated |= {
        "--dtype": dtype,
        "--chat": chat,
        "--model": model != "smollm2-135m",
        "--wikitext": wikitext,
        "--scorer": scorer,
        "--also": also,
    }
    stated |= {"--measure": measure, "--quick": quick, "--thorough": thorough, "--minutes": minutes, "--site": site}
    stated |= {"--export-to": export_to}
    given = [flag for flag, value in stated.items() if value]
    if lock is not None and given:
        raise OptionsError(
            f"--lock states everything but device and places of texts and prompts. Leave out {', '.join(given)}."
        )
    if lock is not None and report is not None:
        raise OptionsError(
            "--lock makes a steering again and measures nothing, so there is no report. Leave out --report."
        )
    step("Preparing: PyTorch and Transformers")
    import repsurgery as rs

    tuned = rs.tune(
        texts,
        source=source,
        target=target,
        prompts=prompts,
        chat=chat,
        model=model,
        device=device,
        dtype=dtype,
        kl=kl,
        wikitext=None if wikitext is None else _ratio(wikitext),
        scorer=scorer,
        others=also or (),
        measure=measure,
        effort="quick" if quick else "thorough" if thorough else "normal",
        minutes=minutes,
        sites=site or None,
        export_to=export_to,
        text=text,
        label=label,
        seed=seed,
        lock=lock,
        data_dir=data_dir,
        work_dir=work_dir,
        announce=step,
    )
    written = tuned.save(out)
    page = None if tuned.record is None else show_tuned(tuned.record, report)
    origin = tuned.steering.origin
    its_lock = "without a lock" if written is None else f"and its lock {written}"
    say(f"Wrote {out}, to be used at site {origin.site} of {origin.model}, {its_lock}.")
    if tuned.record is not None:
        say(f"The search chose {tuned.record['chosen']['name']}, at strength {origin.strength:.3g}.")
        say(_exports(tuned.record["exports"]))
    else:
        same = "the same, bit for bit" if tuned.steering.outcome is not None else "another one than the lock states"
        say(f"The steering is {same}: digest {tuned.steering.digest()[:16]}.")
    return tuned_document(tuned, out, written, page)


def tuned_document(tuned: Any, file: Path, lock: Path | None, page: Path | None) -> dict[str, Any]:
    """Return the document of a tuned steering: where it is, how it is used, and what the search measured."""
    steering = tuned.steering
    effect = None if steering.outcome is None else steering.outcome.to_dict()
    return {
        "file": file,
        "lock": lock,
        "report": page,
        "digest": steering.digest(),
        "origin": steering.origin.to_dict(),
        "outcome": effect,
        "record": tuned.record,
    }


def show_tuned(record: Any, report: Path | None) -> Path | None:
    """Print the last screen of a search, write its report, and return its page."""
    import json

    from repsurgery.checkpoint import write_text
    from repsurgery.studies.tuned.page import write_tune_report
    from repsurgery.studies.tuned.screen import summary_lines

    page = None
    if report is not None:
        write_text(report / "record.json", json.dumps(record, indent=1) + "\n")
        page = write_tune_report(record, report).resolve()
    say("")
    for line in summary_lines(record):
        say(line, style="bold" if line.startswith("Effect") else None, wrap=False)
    if page is not None:
        say(f"Report: {page}")
    return page


def _exports(exports: dict[str, Any]) -> str:
    """Return which exports hold the steering, and what to do for the others."""
    held = [
        f"--to {name}{' --custom-code' * (one['note'] == 'needs custom code')}"
        for name, one in exports.items()
        if one["holds"]
    ]
    others = [name for name, one in exports.items() if not one["holds"]]
    first = f"It runs with hooks and in repsurgery serve{', and as export ' + ' or '.join(held) if held else ''}."
    return f"{first} For {' or '.join(others)}, tune again with --export-to." if others else first


def _ratio(words: str) -> float:
    """Return 1.05 for "+5%", "5%" and "1.05"."""
    rise = re.fullmatch(r"\+?\s*(\d+(?:\.\d+)?|\.\d+)\s*%", words.strip())
    ratio = re.fullmatch(r"1\.\d+", words.strip())
    if rise is None and ratio is None:
        raise ParameterError(f"wikitext is {words!r}; write the highest rise as +5%, or the ratio as 1.05.")
    return float(words) if rise is None else 1 + float(rise[1]) / 100
