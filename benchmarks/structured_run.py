"""Run every property of structured rows on many more examples than the tests do, and keep what was drawn and found.

    python -m benchmarks.structured_run --examples 5000 --seed 1

``--seed`` names the draw: the same seed, number and source give the same examples. Each test file runs in a process of
its own on one thread. Finished files are in the record at once, and a run of the same draw goes on after them.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory import ONE_THREAD

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "results" / "structured_run.json"
COUNTS = re.compile(r"(\d+) passing, (\d+) failing, and (\d+) invalid")


def main() -> None:
    """Run the files that are not in the record, and print what failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structured_run", description=__doc__)
    parser.add_argument("--examples", type=int, default=5000, help="of each property (of slow ones, a share)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = {"seed": options.seed, "examples": options.examples}
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if {name: record.get(name) for name in draw} != draw:
        record = {**draw, "files": {}}
    files = sorted(path for path in ROOT.glob("tests/**/test_*.py") if "structured_rows" in path.read_text())
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name not in record["files"]:
            record["files"][name] = _run(name, **draw)
            record["drawn"] = sum(found["examples"] for found in record["files"].values())
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(name, record["files"][name], flush=True)
    if any(found["failed"] for found in record["files"].values()):
        sys.exit("Some properties failed; the record names them.")


def _run(name: str, *, seed: int, examples: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", name, "-p", "no:cacheprovider", "-p", "no:xdist", "-rf"]
    done = subprocess.run(
        [*command, f"--hypothesis-seed={seed}", "--hypothesis-show-statistics"],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "REPSURGERY_EXAMPLES": str(examples)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"{name} did not run:\n{done.stdout}{done.stderr}")
    counts = [tuple(map(int, found)) for found in COUNTS.findall(done.stdout)]
    return {
        "properties": len({line.rstrip(":") for line in done.stdout.splitlines() if line.startswith(f"{name}::")}),
        "examples": sum(passing + failing for passing, failing, _ in counts),
        "rejected": sum(invalid for _, _, invalid in counts),
        "failed": re.findall(r"^FAILED (\S+)", done.stdout, flags=re.MULTILINE),
    }


if __name__ == "__main__":
    main()
