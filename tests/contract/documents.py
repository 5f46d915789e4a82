"""What commands print with --json: the verbs that are run here, on tiny inputs, and why the others are not."""

import json
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from typer.testing import CliRunner

import repsurgery as rs
from tests.contract import saved

NEEDS_MORE = {
    "compare-scorers": "it reads published data sets",
    "demo": "it searches with a model that is not part of the package",
    "lm-eval": "its document is that of the harness, which an extra installs",
    "reproduce": "it runs a whole study",
    "serve": "it runs until it is stopped",
    "train-scorer": "it reads published data sets",
    "tune": "it runs a whole search",
}
"""Verbs whose document is not frozen, with the reason."""
RESULTS = Path(__file__).parents[2] / "experiments" / "results"
KINDS = ("certified", "class-moments-grouped", "cross-moments-factor", "estimator", "fisher", "gate-linear")
KINDS += ("map-dense", "with-outcome", "with-price")


def cases(folder):
    """Yield, in order, a name and the words of each command; some use what an earlier one wrote."""
    from tests.cli.conftest import write_table
    from tests.lm.tiny_models import WIDTH, tiny_model, tiny_tokenizer

    for part in (tiny_model("llama"), tiny_tokenizer()):
        part.save_pretrained(folder / "model")
    for name, shift in (("m", 0), ("n", 1)):
        rs.ClassMoments.of(saved.ROWS + shift, saved.LABELS).save(folder / name)
    np.save(folder / "x0.npy", saved.ROWS)
    np.save(folder / "z0.npy", np.array(saved.LABELS))
    shift = rs.SteeringFunction({None: rs.Translation(np.full(WIDTH, 0.1))})
    rs.save(shift.with_origin(rs.Origin(model="tiny", site="layers.1")), folder / "shift")
    write_table(folder / "texts.csv")
    steered = ("--model", "model")
    columns = ("--text-column", "sentence", "--label-column", "tone")

    yield "error", ("inspect", "absent")
    yield from ((f"inspect {kind}", ("inspect", saved.FOLDER / f"{kind}.safetensors")) for kind in KINDS)
    yield "apply", ("apply", saved.FOLDER / "behind-linear.safetensors", "x0.npy", "--out", "steered.npy")
    yield "doctor", ("doctor",)
    yield "fit --moments", ("fit", "--moments", "m", "--target", "b", "--out", "g")
    yield "fit", ("fit", "texts.csv", *columns, "--target", "b", "--gate", "always", *steered, "--out", "f")
    yield "generate", ("generate", "shift", *steered, "--prompt", "w1 w2", "-n", "2", "--max-new-tokens", "2")
    yield "export", ("export", "shift", "--to", "gguf", *steered, "--out", "v.gguf")
    yield "import", ("import", "v.gguf", "--from", "gguf", "--out", "imported")
    yield "fold", ("fold", "shift", *steered, "--out", "folded")
    yield "guarantees", ("guarantees",)
    yield "merge", ("merge", "m", "n", "--out", "sum")
    yield "moments", ("moments", "x*.npy", "--labels", "z*.npy", "--out", "o", "--workers", "1")
    yield "plan", ("plan", "--rows", "1e6", "--width", "8")
    yield "plan --model", ("plan", *steered)
    yield "push", ("push", "shift", "me/shift", "--out", "shared")
    yield "report", ("report", min(RESULTS.glob("*.json"), key=lambda path: path.stat().st_size), "--out", "page")
    yield "rivals", ("rivals", "list", "dexperts")
    yield "zoo", ("zoo",)


def take():
    """Return the trees of the documents, the verbs that they cover, and why the others are not covered."""
    from repsurgery.cli.app import app
    from tests.lm import tiny_models  # noqa: F401 - imports transformers, which reads the variables of the hub

    found, verbs, before = {}, set(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, COLUMNS="200", NO_COLOR="1"):
        # what doctor finds should not depend on the machine
        os.environ |= {"HF_HUB_CACHE": f"{folder}/hub", "REPSURGERY_CACHE": f"{folder}/cache"}
        os.environ.pop("REPSURGERY_DATA", None)
        os.chdir(folder)
        try:
            for name, words in cases(Path(folder)):
                result = CliRunner().invoke(app, [*map(str, words), "--json"])
                if (result.exit_code == 0) == (name == "error"):
                    raise AssertionError(f"{name}: {result.output}") from result.exception
                found[name] = saved.tree(json.loads(result.stdout))
                verbs.add(words[0])
        finally:
            os.chdir(before)
    return {"trees": found, "covered": sorted(verbs), "needs_more": NEEDS_MORE}
