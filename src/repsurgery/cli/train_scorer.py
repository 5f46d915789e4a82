"""``repsurgery train-scorer``: train the adapters of the MiniLM toxicity scorer on rows that no study uses."""

from pathlib import Path
from typing import Annotated, Any

from repsurgery.cli.output import say
from repsurgery.cli.terminal import typer
from repsurgery.outputs import check_output, check_output_folder

__all__ = ["train_scorer"]


def train_scorer(
    out: Annotated[Path, typer.Option(help="Output file.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of Jigsaw and RealToxicityPrompts.", show_default="$REPSURGERY_DATA, or the hub"),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the training; the rows are those of the study's default seed.")
    ] = 0,
    version: Annotated[str, typer.Option(help="Version that the scorer will state.")] = "1",
    work_dir: Annotated[Path | None, typer.Option(help="Folder for finished epochs.", show_default="OUT.work")] = None,
) -> dict[str, Any]:
    """Train the MiniLM toxicity scorer on texts that the toxicity study does not use. Re-run to resume."""
    from repsurgery.scorers import MiniLMScorer
    from repsurgery.scorers.archived import agreement
    from repsurgery.studies.toxicity.minilm.rows import scorer_rows
    from repsurgery.studies.toxicity.minilm.train import Recipe, train_minilm

    check_output(out)
    folder = work_dir or out.with_name(f"{out.name}.work")
    check_output_folder(folder)
    rows = scorer_rows(data_dir)
    train_minilm(rows, out, recipe=Recipe(seed=seed), version=version, work_dir=folder)
    result: dict[str, Any] = {"file": out, "work_dir": folder}
    for name in ("validation", "never_seen"):
        part = rows.parts()[name]
        found = agreement(MiniLMScorer(out), list(part), list(part.values()))
        say(f"{name.replace('_', ' ')}: {found.texts} texts, AUC {found.auc:.4f}, Spearman {found.spearman:.4f}")
        result[name] = {"texts": found.texts, "auc": found.auc, "spearman": found.spearman}
    say(f"Wrote {out}. The finished epochs in {folder} may be removed.")
    return result
