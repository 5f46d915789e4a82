"""Run every benchmark, print one table each, and keep the record in ``benchmarks/results/core.json``."""

import argparse
import json
import os
from pathlib import Path
from types import ModuleType

import torch
from threadpoolctl import threadpool_limits

from benchmarks import accuracy, few_rows, leace_fit, machine, memory, mimic_fit
from benchmarks.lines import Settings, show

SCRIPTS: dict[str, ModuleType] = {
    "mimic_fit": mimic_fit,
    "few_rows": few_rows,
    "leace_fit": leace_fit,
    "accuracy": accuracy,
    "memory": memory,
}
RECORD = Path(__file__).parent / "results" / "core.json"


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(SCRIPTS), help="run this script alone (repeatable)")
    parser.add_argument("--repeats", type=int, help="interleaved rounds; 5 at d = 768 and 3 at d = 2048 by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the scripts run, judges nothing")
    parser.add_argument("--output", type=Path, help=f"where to write the record; {RECORD.name} after a full run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        record = {"machine": machine.facts(), "scripts": _run(options)}
    whole = not (options.only or options.quick)
    output = options.output or (RECORD if whole else None)
    if output is not None:
        record["machine"]["load_average_after"] = os.getloadavg()
        output.write_text(json.dumps(record, indent=1) + "\n")
        print(f"\nwritten: {output}")


def _run(options: argparse.Namespace) -> dict[str, list[dict[str, object]]]:
    settings = Settings(options.repeats, options.quick)
    found = {}
    for name in options.only or SCRIPTS:
        module = SCRIPTS[name]
        lines = module.run(settings)
        show(f"{name}: {module.__doc__}", lines, judged=not options.quick)
        found[name] = [line.as_dict() for line in lines]
    return found


if __name__ == "__main__":
    main()
