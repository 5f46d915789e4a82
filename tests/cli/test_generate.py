import re

import numpy as np
import pytest

import repsurgery as rs
from repsurgery import lm
from repsurgery.gates import AlwaysGate, ClassifierGate, LinearGate, SoftGate
from repsurgery.workflows.compare import SteeredSteps, steered_steps
from repsurgery.workflows.steerings import open_steering
from tests.certificates.test_outcome import outcome
from tests.lm.tiny_models import WIDTH

PUSH = rs.Translation(np.full(WIDTH, 0.1))
PROMPTS = ["w1 w2 w3", "w4", "w5 w6"]


@pytest.fixture
def steered(run, model_folder, tmp_path):
    """Return a function that generates under a gate and gives the steered share in percent and the number of steps."""

    def steered(gate, *words):
        rs.save(rs.SteeringFunction({1: PUSH}, gate, (0, 1)), tmp_path / "f")
        prompts = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
        result = run("generate", tmp_path / "f", "--model", model_folder, *prompts, "-n", 4, *words)
        assert result.exit_code == 0, result.output
        (found,) = re.findall(r"steered (.+) % of the (\d+) generated steps", result.stdout)
        return found[0], int(found[1])

    return steered


def linear(threshold, direction=0):
    return LinearGate((0, 1), np.eye(WIDTH)[direction : direction + 1], np.array([-threshold]))


def test_a_gate_that_always_steers_steers_every_generated_step(steered, model_folder):
    share, steps = steered(AlwaysGate(), "--max-new-tokens", 20, "--seed", 3)
    found = written(model_folder, {"final": PUSH}, max_new_tokens=20, seed=3)
    assert share == "100"
    # ended texts have fewer steps than the longest of their batch, which the hook also counts
    assert steps == sum(len(g.tokens) + g.finished for g in found) < 20 * len(found)


def test_a_gate_that_never_fires_steers_no_step(steered):
    assert steered(linear(1e6))[0] == "0"
    assert steered(linear(-1e6))[0] == "100"


def test_strength_zero_steers_no_step(steered):
    assert steered(AlwaysGate(), "--strength", 0)[0] == "0"


def test_the_last_position_of_the_prompt_is_one_step_of_each_text(steered):
    share, steps = steered(AlwaysGate(), "--positions", "last", "--max-new-tokens", 2)
    assert share == f"{100 * 12 / steps:.0f}"
    assert steered(linear(1e6), "--positions", "last")[0] == "0"


def test_a_gate_that_sometimes_fires_is_counted_between(steered):
    share, _ = steered(linear(0.0))
    assert 0 < int(share) < 100


def test_a_gate_that_hardly_fires_is_pointed_out(run, model_folder, tmp_path):
    for threshold, said in ((1e6, True), (-1e6, False)):
        rs.save(rs.SteeringFunction({1: PUSH}, linear(threshold), (0, 1)), tmp_path / "f")
        shown = run("generate", tmp_path / "f", "--model", model_folder, "--prompt", PROMPTS[0]).stdout
        assert ("Fit with --gate always" in shown) is said


def written(folder, steering, **how):
    model, tokenizer = lm.load(folder)
    return lm.generate(model, tokenizer, PROMPTS, steering=steering, n=4, progress=False, **how)


class Counting:
    """A classifier that fires by one coordinate, and counts how often it was asked and how often it fired."""

    def __init__(self):
        self.asked = self.fired = 0

    def predict(self, X):
        codes = (np.asarray(X)[:, 0] > 0).astype(int)
        self.asked, self.fired = self.asked + len(codes), self.fired + int(codes.sum())
        return codes


@pytest.mark.parametrize("site", ["final", "layers.0"])
def test_the_share_is_that_of_the_hook_without_prompt_and_waiting(model_folder, tmp_path, site):
    model, tokenizer = lm.load(model_folder)
    counting = Counting()
    function = rs.SteeringFunction({1: PUSH}, ClassifierGate((0, 1), counting), (0, 1))
    # one text at a time, so that no text waits, and only positions that predict a token
    how = {"n": 1, "max_new_tokens": 6, "positions": "generated", "progress": False}
    found = [
        g
        for seed in range(6)
        for g in lm.generate(model, tokenizer, PROMPTS, steering={site: function}, batch_size=1, seed=seed, **how)
    ]
    by_hook = SteeredSteps(counting.fired, counting.asked)
    rs.save(rs.SteeringFunction({1: PUSH}, linear(0.0), (0, 1)), tmp_path / "f")
    opened = open_steering(tmp_path / "f", site).placement
    assert steered_steps(model, tokenizer, found, opened, progress=False) == by_hook
    assert 0 < by_hook.steered < by_hook.steps


def test_behind_a_soft_gate_a_step_counts_by_its_strength(run, model_folder, tmp_path):
    gate = SoftGate((0, 1), np.eye(WIDTH)[:1], np.zeros(1), np.array([-1.0, 1.0]), np.array([0.0, 0.8]))
    function = rs.SteeringFunction({1: PUSH}, gate, (0, 1))
    rs.save(function, tmp_path / "f")
    found = written(model_folder, {"final": function}, max_new_tokens=6)
    model, tokenizer = lm.load(model_folder)
    strength = gate.strength(np.concatenate(lm.states_along(model, tokenizer, found, site="final", progress=False)))
    counted = steered_steps(model, tokenizer, found, open_steering(tmp_path / "f", "final").placement, progress=False)
    assert counted.steered / counted.steps == pytest.approx(strength.mean())
    assert strength.mean() < 0.9 * (strength > 0).mean()
    words = [word for prompt in PROMPTS for word in ("--prompt", prompt)]
    result = run("generate", tmp_path / "f", "--model", model_folder, *words, "-n", 4, "--max-new-tokens", 6)
    assert f"{len(strength)} generated steps with a mean gate strength of {strength.mean():.3g}" in result.stdout


@pytest.mark.parametrize(
    ("steered", "steps", "share"),
    [(0, 9, "0"), (1, 900, "less than 1"), (37, 100, "37"), (899, 900, "more than 99"), (9, 9, "100")],
)
def test_a_share_is_not_rounded_to_nothing_or_everything(steered, steps, share):
    assert SteeredSteps(steered, steps).words == f"steered {share} % of the {steps} generated steps"


def test_base_and_steered_stand_side_by_side(run, fitted, model_folder):
    result = run("generate", fitted, "--model", model_folder, "--prompt", "w1 w2", "--seed", 3, "--max-new-tokens", 4)
    assert result.exit_code == 0, result.output
    for steering in (None, rs.load(fitted)):
        model, tokenizer = lm.load(model_folder)
        (text,) = lm.generate(
            model, tokenizer, ["w1 w2"], steering=steering, n=1, seed=3, max_new_tokens=4, progress=False
        )
        assert text.text.strip() in result.stdout
    assert "base" in result.stdout
    assert fitted.stem in result.stdout


def test_prompts_in_a_file_are_read_as_fit_reads_them(run, fitted, model_folder, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("  w1 w2 \n\nw4 w5\n")
    common = ("generate", fitted, "--model", model_folder, "--max-new-tokens", 4)
    from_file = run(*common, "--prompts-file", prompts)
    assert from_file.exit_code == 0, from_file.output
    assert from_file.stdout == run(*common, "--prompt", "w1 w2", "--prompt", "w4 w5").stdout
    prompts.write_bytes("é".encode("latin-1"))
    assert "Save the file as UTF-8" in run(*common, "--prompts-file", prompts).stderr


def test_strength_zero_writes_what_the_base_writes(run, fitted, model_folder, tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3\n\nw4 w5\n")
    common = ("--model", model_folder, "--prompts-file", prompts, "--positions", "generated", "-n", 2)
    result = run("generate", fitted, fitted, *common, "--strength", 0)
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert len([row for row in rows if row[0].strip()]) == 4
    for _, base, first, second in rows:
        assert base.strip() == first.strip() == second.strip()


def test_without_a_prompt_it_is_a_usage_error(run, fitted, model_folder):
    result = run("generate", fitted, "--model", model_folder)
    assert result.exit_code == 2
    assert "--prompts-file" in result.stderr


def test_sites_are_one_for_all_files_or_one_for_each(run, fitted, model_folder):
    wrong = run("generate", fitted, "--prompt", "w1", "--model", model_folder, "--site", "final", "--site", "layers.0")
    assert wrong.exit_code == 2
    assert "one for each" in wrong.stderr
    right = ("--site", "final", "--site", "layers.0")
    assert run("generate", fitted, fitted, "--prompt", "w1", "--model", model_folder, *right).exit_code == 0


def test_a_file_that_is_not_there_is_one_line(run, model_folder, tmp_path):
    result = run("generate", tmp_path / "none", "--prompt", "w1", "--model", model_folder)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no file")


def test_a_budget_needs_a_stored_fisher_matrix(run, fitted, table, model_folder, tmp_path):
    common = ("--model", model_folder, "--prompt", "w1 w2", "--kl-budget", 0.01)
    without = run("generate", fitted, *common)
    assert without.exit_code == 1
    assert "--store-fisher" in without.stderr
    out = tmp_path / "priced.safetensors"
    result = run(
        *("fit", table, "--text-column", "sentence", "--label-column", "tone", "--model", model_folder),
        *("--method", "mean", "--source", "a", "--target", "b", "--gate", "always", "--store-fisher", "--out", out),
    )
    assert result.exit_code == 0, result.output
    priced = run("generate", out, *common)
    assert priced.exit_code == 0, priced.output
    import repsurgery as rs

    function = rs.load(out)
    assert f"strength {function.price.strength(function, 0.01):g}" in priced.stdout
    assert "predicted KL at strength 1" in run("inspect", out).stdout
    both = run("generate", out, *common, "--strength", 0.5)
    assert both.exit_code == 2 and "either --strength or --kl-budget" in both.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), ""),
        (("--strength", 0.5, "--site", "layers.0", "--positions", "generated"), ""),
        (("--strength", 0.25), "measured at strength 0.5; it does not apply at strength 0.25."),
        (("--site", "final"), "measured at layers.0; it does not apply at final."),
        (("--positions", "all"), "measured at positions generated; it does not apply at positions all."),
        (
            ("--site", "final", "--strength", 1),
            "measured at layers.0, at strength 0.5; it does not apply at final, at strength 1.",
        ),
    ],
)
def test_another_use_than_the_measured_one_is_one_line(run, model_folder, tmp_path, words, says):
    origin = rs.Origin(site="layers.0", strength=0.5, positions="generated")
    function = rs.SteeringFunction({None: PUSH}, origin=origin)
    common = ("--model", model_folder, "--prompt", "w1 w2", "--max-new-tokens", 3, *words)
    shown = []
    for name, value in (("bare", function), ("measured", function.with_outcome(outcome()))):
        rs.save(value, tmp_path / f"{name}.safetensors")
        result = run("generate", tmp_path / f"{name}.safetensors", *common)
        assert result.exit_code == 0, result.output
        shown.append(result.stdout.replace("measured:", "bare:").splitlines())
    bare, found = ([line for line in lines if line.startswith("bare:")] for lines in shown)
    assert len(bare) == 1
    assert found == bare + ([f"bare: the effect in the file was {says}"] if says else [])


def test_a_measured_effect_without_a_strength_was_measured_at_strength_1(tmp_path):
    rs.save(rs.SteeringFunction({None: PUSH}).with_outcome(outcome()), tmp_path / "f")
    assert open_steering(tmp_path / "f").unmeasured == ""
    assert open_steering(tmp_path / "f", "final", 1.0, "all").unmeasured == ""
    assert open_steering(tmp_path / "f", strength=2.0).unmeasured
    assert open_steering(tmp_path / "f", strength=2.0).placement.function.outcome is None
