"""Bars of measured speed, from the records that the benchmarks wrote."""

import json
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = Path(__file__).parents[2] / "benchmarks" / "results"


class Bar(NamedTuple):
    """One bar: its label, and the record, script and line that hold its value."""

    label: str
    record: str
    script: str
    what: str


FITTING = (
    Bar("MiMiC, 768 dimensions, against POT", "core", "mimic_fit", "d=768 POT float64 / ours"),
    Bar("MiMiC, 2048 dimensions, against POT", "core", "mimic_fit", "d=2048 POT float64 / ours"),
    Bar("MiMiC, 400 rows in 2048 dimensions, against POT", "core", "few_rows", "d=2048 n=400 POT / ours"),
    Bar("MiMiC, 100 rows in 2048 dimensions, against POT", "core", "few_rows", "d=2048 n=100 POT / ours"),
    Bar("LEACE, 768 dimensions, against concept-erasure", "core", "leace_fit", "d=768 CE batch / ours"),
    Bar("LEACE, streamed, against concept-erasure", "core", "leace_fit", "d=768 CE stream / ours"),
    Bar(
        "neighbours, 1,000 × 100,000, against scikit-learn",
        "fairness",
        "neighbours",
        "speed against scikit-learn, 1,000 x 100,000 x 768, k = 128, float32",
    ),
    Bar(
        "softmax regression, 100,000 rows, against lbfgs",
        "fairness",
        "logistic_regression",
        "n=100000 scikit-learn lbfgs float32 / ours",
    ),
)
GENERATION = tuple(
    Bar(label, "lm", "generation", f"batch 25: {what} / base")
    for label, what in (
        ("repsurgery, one shift", "ours, additive"),
        ("repsurgery, gated affine map at the last site", "ours, gated affine at final"),
        ("a bare hook", "plain hook"),
        ("repeng", "repeng"),
        ("steering-vectors", "steering_vectors"),
        ("pyvene", "pyvene"),
        ("the base, measured again", "base again"),
    )
)
SERVING = tuple(
    Bar(label, "serving", "server", f"{what}: requests per second / sequential")
    for label, what in (
        ("repsurgery serve, 1 client", "server, 1 at once"),
        ("repsurgery serve, 8 clients", "server, 8 at once"),
        ("repsurgery serve, 25 clients", "server, 25 at once"),
        ("the same with mixed steerings", "server, 25 at once, mixed steerings"),
        ("transformers serve, 25 clients", "transformers serve, 25 at once"),
        ("the same with continuous batching", "the same, continuous batching, 25 at once"),
    )
)
FIGURES = {
    "fitting": (
        FITTING,
        "times as fast as the peer (log scale)",
        "CPU seconds of the peer divided by ours, one thread, medians of interleaved rounds; to the right of the line "
        "repsurgery is faster.",
    ),
    "generation": (
        GENERATION,
        "time of a generation step relative to the unsteered model",
        "CPU time of a step in a batch of 25 texts with SmolLM2, relative to the unsteered model. Differences of a few "
        "per cent are noise, as the last bar shows.",
    ),
    "serving": (
        SERVING,
        "requests per second relative to one model.generate after the other",
        "Answers per second, relative to sequential generation on the same machine, which was busy with other work; "
        "wall time, medians of paired ratios.",
    ),
}


def value(bar: Bar) -> float:
    """Return the measured value of a bar; an error names the line that the record lacks."""
    lines = json.loads((RECORDS / f"{bar.record}.json").read_text(encoding="utf-8"))["scripts"][bar.script]
    found = [float(line["value"]) for line in lines if line["what"] == bar.what]
    if len(found) != 1:
        raise KeyError(f"{bar.record}.json, {bar.script}, has {len(found)} lines {bar.what!r}; one is needed.")
    return found[0]


def drawing(name: str) -> tuple[str, str]:
    """Return a figure of `FIGURES` as SVG text, and its caption."""
    from repsurgery.studies.common.report.drawing import COLOURS, GREY, STYLE, matplotlib, svg

    bars, label, caption = FIGURES[name]
    values = [value(bar) for bar in bars]
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 0.34 * len(bars) + 0.8), layout="constrained")
        axis: Any = figure.subplots()
        drawn = axis.barh([bar.label for bar in bars], values, color=COLOURS["mean"], height=0.62)
        axis.bar_label(drawn, labels=[f"{number:.3g}×" for number in values], padding=3, color=GREY)
        axis.axvline(1, color=GREY, linewidth=1.0, linestyle=":")
        axis.invert_yaxis()
        axis.margins(x=0.12)
        if max(values) > 20 * min(values):
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_xlabel(label)
        return svg(figure), caption
