"""`lm.export_targets` says which exports hold a steering, and the exports agree with it."""

import re
from pathlib import Path

import numpy as np
import pytest

from repsurgery import Diagonal, Origin, SteeringFunction, lm
from repsurgery.errors import FoldError, ShapeError
from repsurgery.lm.fold.targets import nearest_targets
from repsurgery.steering.base import METHODS
from tests.lm.folding import SITES, dense_map, eraser, hooked, labelled_rows, logits, same, translation, width
from tests.lm.tiny_models import FAMILIES, LAYERS, WIDTH, tiny_model

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "export.md"
PLACE = r"^\| method.*?(?=\n\n)"
"""The guide's table; ``python -m tests.lm.test_targets`` writes it anew."""
MAPS = {
    "translation": translation,
    "eraser": eraser,
    "dense": dense_map,
    "diagonal": lambda d: Diagonal(np.linspace(0.5, 2, d), np.ones(d)),
}


def refusal(write, *args, **options):
    try:
        write(*args, **options)
    except FoldError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("family", FAMILIES)
def test_the_targets_are_those_that_write_and_agree(family, tmp_path):
    model = tiny_model(family)
    for site in (*SITES, "layers.1", "layers.0"):
        for name, make in MAPS.items():
            m = make(width(model, site))
            targets = lm.export_targets(model, m, site)
            place = tmp_path / f"{site}-{name}"
            refused = {
                "folder": refusal(lm.fold, model, m, site),
                "lora": refusal(lm.to_lora, model, m, site, place, constant="merge"),
                "gguf": refusal(lm.to_gguf, model, m, site, tmp_path / f"{site}-{name}.gguf"),
            }
            for target, message in refused.items():
                assert targets[target].holds == (not message)
            for target in ("folder", "lora"):
                assert refused[target].startswith(targets[target].refusal.removesuffix("."))
            if targets["folder"].holds:
                folded = lm.fold(model, m, site)
                assert same(logits(folded), hooked(model, site, m))
                needs_code = bool(refusal(lm.save_folded, folded, place))
                assert (targets["folder"].condition == "needs custom code") == needs_code
            if targets["lora"].holds:
                written = lm.to_lora(model, m, site, place, constant="merge")
                conditions = {"switch": "merges with biases", "adapter": "does not merge"}
                expected = conditions.get(written.place, "merges untied" if written.tied else "")
                assert written.exact and targets["lora"].condition == expected


def test_gates_and_positions_are_held_by_no_export():
    model, m = tiny_model("llama"), translation(WIDTH)
    gated = METHODS["mean"](source=1, target=0, gate="nearest-mean").fit(*labelled_rows())
    assert not any(target.holds for target in lm.export_targets(model, gated, "layers.1").values())
    origin = Origin(site="layers.1", positions="generated")
    targets = lm.export_targets(model, SteeringFunction({None: m}, origin=origin))
    assert {target.refusal for target in targets.values()} == {
        "This steering is for positions='generated', and an export acts at every position."
    }
    assert all(target.holds for target in lm.export_targets(model, m, "layers.1").values())
    with pytest.raises(ShapeError, match="has 5 features"):
        lm.export_targets(model, translation(5), "layers.1")


def test_the_nearest_target_depends_on_what_is_in_the_way():
    model = tiny_model("gpt2")

    def nearest(m, site, wanted):
        return [target.name for target in nearest_targets(lm.export_targets(model, m, site), wanted, m)]

    assert nearest(eraser(WIDTH), "layers.0.attn", "gguf") == ["lora", "folder"]
    assert nearest(translation(WIDTH), "final", "gguf") == ["folder", "lora"]
    assert nearest(dense_map(WIDTH), "final", "gguf") == nearest(dense_map(WIDTH), "final", "lora") == ["folder"]
    assert nearest(eraser(WIDTH), "layers.0", "gguf") == []


def cell(target):
    return f"exact{', ' if target.condition else ''}{target.condition}" if target.holds else "refused"


def table():
    """Return the guide's table: methods by site, on a model with RMSNorm and one with LayerNorm."""
    models = {name: tiny_model(name) for name in ("llama", "gpt2")}
    head = ["method", "site", *(f"{name}: {target}" for name in models for target in ("folder", "lora", "gguf"))]
    rows = []
    for method in ("mean", "leace", "midsteer", "diagonal", "mimic"):
        options = {} if method == "leace" else {"source": 1, "target": 0, "gate": "always"}
        steering = METHODS[method](**options).fit(*labelled_rows())
        for site in (f"layers.{LAYERS - 1}", f"layers.{LAYERS - 1}.mlp", "final"):
            cells = [cell(t) for model in models.values() for t in lm.export_targets(model, steering, site).values()]
            rows.append([f"`{method}`", f"`{site.replace(str(LAYERS - 1), 'N')}`", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def test_the_table_of_the_guide_is_computed():
    text = GUIDE.read_text(encoding="utf-8")
    (found,) = re.findall(PLACE, text, flags=re.MULTILINE | re.DOTALL)
    assert found == table()


if __name__ == "__main__":
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(re.sub(PLACE, table(), text, flags=re.MULTILINE | re.DOTALL), encoding="utf-8")
