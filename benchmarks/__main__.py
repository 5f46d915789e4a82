"""Run every benchmark, print one table each, and keep each group's record in ``benchmarks/results``."""

import argparse
import json
import os
from pathlib import Path
from types import ModuleType

import torch
from threadpoolctl import threadpool_limits

from benchmarks import (
    accuracy,
    class_moments,
    engines,
    evaluation_throughput,
    few_rows,
    generation,
    hook_cost,
    identical_samples,
    identity,
    import_cost,
    leace_fit,
    logistic_regression,
    machine,
    memory,
    mimic_fit,
    mixed_rows,
    neighbours,
    planning,
    post_processing,
    rivals,
    serving,
    streaming,
)
from benchmarks.lines import Settings, show

GROUPS: dict[str, dict[str, ModuleType]] = {
    "core": {
        "mimic_fit": mimic_fit,
        "few_rows": few_rows,
        "leace_fit": leace_fit,
        "accuracy": accuracy,
        "memory": memory,
        "import_cost": import_cost,
    },
    "lm": {
        "hook_cost": hook_cost,
        "class_moments": class_moments,
        "generation": generation,
        "identical_samples": identical_samples,
        "identity": identity,
    },
    "fairness": {
        "neighbours": neighbours,
        "post_processing": post_processing,
        "logistic_regression": logistic_regression,
    },
    "toxicity": {"evaluation_throughput": evaluation_throughput, "rivals": rivals},
    "scale": {
        "streaming": streaming,
        "engines": engines,
        "planning": planning,
    },
    "serving": {"mixed_rows": mixed_rows, "server": serving},
}
SCRIPTS = {name: module for group in GROUPS.values() for name, module in group.items()}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    choices = [*GROUPS, *SCRIPTS]
    parser.add_argument("--only", action="append", choices=choices, help="this group or script alone (repeatable)")
    parser.add_argument("--repeats", type=int, help="interleaved rounds; 5 at d = 768 and 3 at d = 2048 by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the scripts run, judges nothing")
    parser.add_argument("--output", type=Path, help="where to write the record of single scripts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    wanted = options.only or list(GROUPS)
    with threadpool_limits(limits=1):
        for group in GROUPS:
            if group in wanted:
                _record(GROUPS[group], options, None if options.quick else RESULTS / f"{group}.json")
        single = {name: SCRIPTS[name] for name in wanted if name in SCRIPTS}
        if single:
            _record(single, options, options.output)


def _record(scripts: dict[str, ModuleType], options: argparse.Namespace, output: Path | None) -> None:
    record = {"machine": machine.facts(), "scripts": _run(scripts, options)}
    if output is not None:
        record["machine"]["load_average_after"] = os.getloadavg()
        output.parent.mkdir(exist_ok=True)
        output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"\nwritten: {output.name}")


def _run(scripts: dict[str, ModuleType], options: argparse.Namespace) -> dict[str, list[dict[str, object]]]:
    settings = Settings(options.repeats, options.quick)
    found = {}
    for name, module in scripts.items():
        lines = module.run(settings)
        show(f"{name}: {module.__doc__}", lines, judged=not options.quick)
        found[name] = [line.as_dict() for line in lines]
    return found


if __name__ == "__main__":
    main()
