"""``repsurgery tune``: choose a steering for a concept at a stated price."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from repsurgery.cli.terminal import Console, escape, print_sentence, typer
from repsurgery.errors import ParameterError
from repsurgery.outputs import check_output, check_output_folder
from repsurgery.studies.tuned.record import TUNE_FILES

__all__ = ["show_tuned", "tune"]


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
        typer.Option(help="Text file with one prompt per line, or provoking for the embedded ones."),
    ] = None,
    model: Annotated[str, typer.Option(help="Embedded name, folder or hub id of the model.")] = "smollm2-135m",
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
    text: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    label: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
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
) -> None:
    """Choose the steering with the greatest effect at a stated price, and confirm it on prompts that took no part."""
    inputs = [texts, prompts, lock, Path(model)]
    check_output(out, inputs=inputs)
    lock_file = out.with_name(f"{out.name.removesuffix('.safetensors')}.lock.json")
    check_output(lock_file, inputs=[texts, prompts, Path(model)])
    for folder, writes in ((report, TUNE_FILES), (work_dir, ())):
        if folder is not None:
            check_output_folder(folder, inputs=inputs, writes=writes)
    if quick and thorough:
        raise ParameterError("--quick and --thorough exclude each other. Pass one of them.")
    stated: dict[str, Any] = {
        "--source": source != "source",
        "--target": target != "target",
        "--kl": kl != 0.1,
        "--seed": seed != 0,
    }
    stated |= {"--model": model != "smollm2-135m", "--wikitext": wikitext, "--scorer": scorer, "--also": also}
    stated |= {"--measure": measure, "--quick": quick, "--thorough": thorough, "--minutes": minutes, "--site": site}
    given = [flag for flag, value in stated.items() if value]
    if lock is not None and given:
        raise ParameterError(
            f"--lock states everything but the places of texts and prompts. Leave out {', '.join(given)}."
        )
    if lock is not None and report is not None:
        raise ParameterError(
            "--lock makes a steering again and measures nothing, so there is no report. Leave out --report."
        )
    console = Console()
    console.print("[bold]Preparing[/]: PyTorch and Transformers")
    import repsurgery as rs

    tuned = rs.tune(
        texts,
        source=source,
        target=target,
        prompts=prompts,
        model=model,
        kl=kl,
        wikitext=None if wikitext is None else _ratio(wikitext),
        scorer=scorer,
        others=also or (),
        measure=measure,
        effort="quick" if quick else "thorough" if thorough else "normal",
        minutes=minutes,
        sites=site or None,
        text=text,
        label=label,
        seed=seed,
        lock=lock,
        data_dir=data_dir,
        work_dir=work_dir,
        announce=lambda line: print_sentence(line, console),
    )
    written = tuned.save(out)
    if tuned.record is not None:
        show_tuned(tuned.record, report, console)
    origin = tuned.steering.origin
    print_sentence(f"Wrote {out}, to be used at site {origin.site} of {origin.model}, and its lock {written}.", console)
    if tuned.record is None:
        same = "the same, bit for bit" if tuned.steering.outcome is not None else "another one than the lock states"
        print_sentence(f"The steering is {same}: digest {tuned.steering.digest()[:16]}.", console)


def show_tuned(record: Any, report: Path | None, console: Console) -> None:
    """Print the last screen of a search, and write its report."""
    import json

    from repsurgery.checkpoint import write_text
    from repsurgery.studies.tuned.page import write_tune_report
    from repsurgery.studies.tuned.screen import summary_lines

    if report is not None:
        write_text(report / "record.json", json.dumps(record, indent=1) + "\n")
        page = write_tune_report(record, report)
    console.print()
    for line in summary_lines(record):
        console.print(
            escape(line), highlight=False, soft_wrap=True, style="bold" if line.startswith("Effect") else None
        )
    if report is not None:
        console.print(f"Report: {escape(str(page.resolve()))}", soft_wrap=True, highlight=False)


def _ratio(words: str) -> float:
    """Return 1.05 for "+5%", "5%" and "1.05"."""
    rise = re.fullmatch(r"\+?\s*(\d+(?:\.\d+)?|\.\d+)\s*%", words.strip())
    ratio = re.fullmatch(r"1\.\d+", words.strip())
    if rise is None and ratio is None:
        raise ParameterError(f"wikitext is {words!r}; write the highest rise as +5%, or the ratio as 1.05.")
    return float(words) if rise is None else 1 + float(rise[1]) / 100
