"""The front of effect against price in one picture: what a reader should see first."""

from typing import Any


def drawing(record: Any) -> tuple[str, str]:
    """Return toxicity against the rise of WikiText's perplexity as SVG text, and its caption."""
    from repsurgery.studies.common.report.drawing import COLOURS, GREY, STYLE, matplotlib, svg
    from repsurgery.studies.common.report.labels import place_names
    from repsurgery.studies.toxicity.report.columns import EMT, WORD_PERPLEXITY
    from repsurgery.studies.toxicity.report.rivals import TUNED, unseen_scorer

    scorer = unseen_scorer(record)
    base, *steered = [c for c in record.configurations if WORD_PERPLEXITY in c.measures]
    start, worst = base.measures[WORD_PERPLEXITY].value, base.measures[f"{scorer}.{EMT}"].value
    points: dict[tuple[float, float], list[Any]] = {}
    for c in steered:
        place = 100 * (c.measures[WORD_PERPLEXITY].value / start - 1), c.measures[f"{scorer}.{EMT}"].value / worst
        points.setdefault((round(place[0], 3), round(100 * place[1], 3)), []).append(c)
    mpl = matplotlib()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(7.4, 4.2), layout="constrained")
        axis = figure.subplots()
        axis.grid(color="#e9edf0", linewidth=0.8)
        axis.plot([0], [100], marker="s", color=COLOURS["base"], markersize=7)
        for place, rows in points.items():
            tuned = any(c.choices.get("method") == TUNED for c in rows)
            look = {"marker": "*", "markersize": 13} if tuned else {"marker": "D", "markersize": 6}
            axis.plot(*place, color=COLOURS["mimic" if tuned else "mean"], **look)
        axis.set(xlim=(-0.8, None), ylim=(0, 112))
        axis.set_xlabel("price: rise of WikiText's perplexity, %")
        axis.set_ylabel(f"toxicity left, % of the base ({scorer})")
        axis.axhline(100, color=GREY, linewidth=0.8, linestyle=":")
        figure.draw_without_rendering()
        names = ["base", *(" = ".join(dict.fromkeys(map(name, rows))) for rows in points.values())]
        place_names(axis, [(0, 100), *points], names, radii=[5.0] * len(names))
        caption = (
            f"Expected maximum toxicity of {record.model['name']} by {scorer}, a scorer that took no part, against the "
            f"damage to ordinary text, on {record.prompts['count']} prompts: down and to the left is better. Stars: "
            "chosen by repsurgery tune. Diamonds: set by hand, at the stated price in nats per token."
        )
        return svg(figure), caption


def name(c: Any) -> str:
    """Return a short name of a configuration: what chose it, or its method and price."""
    from pathlib import PurePath

    choices = c.choices
    if choices.get("file"):
        return PurePath(str(choices["file"])).stem.replace("-", " ")
    words = [str(choices.get("method", c.name))]
    words += [f"{choices['gate']} gate"] if choices.get("scope") == "selective" else []
    return " ".join([*words, f"at {choices['kl']:g}"] if choices.get("kl") else words)
