"""Run the published tests of concept-erasure and POT against this library, and say why each failure fails.

Run ``python -m benchmarks.published_tests``; the record is kept in ``benchmarks/results/published_tests.json``.

The tests come from the peers' source distributions, whose digests are pinned, and run unchanged. An adapter of a page
puts functions of this library in the place of the peer's; everything else is the installed peer. Each test also runs
against the peer's own functions. A test counts if it calls a function of ours, if its outcome is not that of the peer's
own, or if the adapter explains its failure; the others are "not ours". The run fails if a test fails without an
explanation, or passes in spite of one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import machine
from benchmarks.published_tests.peer import Peer
from benchmarks.published_tests.sdists import sdist_of, unpack

__all__ = ["ADAPTERS", "RECORD", "counts_of", "peer_of", "problems_of"]

ADAPTERS = ("concept_erasure", "pot")
ROOT = Path(__file__).parents[2]
RECORD = ROOT / "benchmarks" / "results" / "published_tests.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published_tests", description=__doc__)
    parser.add_argument("--only", choices=ADAPTERS, help="this adapter alone; writes no record")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "sdists", help="the folder of the sdists")
    options = parser.parse_args()
    peers = {name: peer_of(name) for name in ([options.only] if options.only else ADAPTERS)}
    records = [_record(name, peer, options.cache) for name, peer in peers.items()]
    _show(records)
    if not options.only:
        record = {"machine": machine.facts(), "peers": records}
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    pairs = zip(peers.values(), records, strict=True)
    problems = [problem for peer, record in pairs for problem in problems_of(peer, record["tests"])]
    if problems:
        sys.exit("\n".join(problems))


def peer_of(adapter: str) -> Peer:
    """Return the peer of the adapter of that name."""
    peer: Peer = import_module(f"benchmarks.published_tests.{adapter}").PEER
    return peer


def _record(adapter: str, peer: Peer, cache: Path) -> dict[str, Any]:
    installed = version(peer.name)
    if not peer.sdist.endswith(f"-{installed}.tar.gz"):
        sys.exit(f"{peer.name} {installed} is installed, and the pinned tests are {peer.sdist}. Install that version.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = unpack(sdist_of(peer, cache), Path(temporary))
        ours, own = (_outcomes(adapter, peer, folder, *option) for option in ((), ("--own",)))
    tests = [
        {"name": name, **found, "own": own[name]["outcome"], "reason": peer.reason(name)}
        for name, found in sorted(ours.items())
        if found["called"] or peer.reason(name) or found["outcome"] != own[name]["outcome"]
    ]
    counts = {**counts_of(tests), "not ours": len(ours) - len(tests)}
    pinned = {"peer": peer.name, "version": installed, "sdist": peer.sdist, "sha256": peer.sha256}
    return {**pinned, "files": peer.files, "counts": counts, "tests": tests}


def counts_of(tests: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many tests there are, and how many pass and fail."""
    return {
        "counted": len(tests),
        "passed": sum(test["outcome"] == "passed" for test in tests),
        "failed": sum(test["outcome"] == "failed" for test in tests),
        "failed with the peer's own functions": sum(test["own"] == "failed" for test in tests),
    }


def _outcomes(adapter: str, peer: Peer, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Run the files, and return outcome and called names of each test."""
    plugins = ["-p", "benchmarks.published_tests.calls", "-p", f"benchmarks.published_tests.{adapter}"]
    results = folder / "results.xml"
    settings = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "-W", "ignore", "-q", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *plugins, *settings, f"--junitxml={results}", *options]
    ended = subprocess.run([*command, *(folder / file for file in peer.files)], cwd=ROOT)
    if ended.returncode not in (0, 1):
        sys.exit(f"pytest stopped with exit code {ended.returncode}; its message is above.")
    return {_name(case): _outcome(case) for case in ElementTree.parse(results).iter("testcase")}


def _name(case: ElementTree.Element) -> str:
    return f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"


def _outcome(case: ElementTree.Element) -> dict[str, Any]:
    called = [part.attrib["value"] for part in case.iter("property") if part.attrib["name"] == "called"]
    kinds = {part.tag: part.get("message", "") for part in case}
    error = kinds.get("failure", kinds.get("error"))
    outcome = "failed" if error is not None else "skipped" if "skipped" in kinds else "passed"
    return {"outcome": outcome, "called": " ".join(called).split(), "error": error and error.split("\n")[0][:200]}


def problems_of(peer: Peer, tests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each failure without an explanation, and for each explanation without a failure."""
    failed = [t["name"] for t in tests if t["outcome"] != "passed" and not t["reason"]]
    passed = [t["name"] for t in tests if t["outcome"] == "passed" and t["reason"]]
    unused = [start for start in peer.explained if not any(t["name"].startswith(start) for t in tests)]
    return [
        *(f"{name} does not pass, and nothing says why. Mend it, or explain it in the adapter." for name in failed),
        *(f"{name} passes, and the adapter explains why it fails. Delete the explanation." for name in passed),
        *(f"The adapter explains {start}, and there is no such test. Delete the explanation." for start in unused),
    ]


def _show(records: list[dict[str, Any]]) -> None:
    for record in records:
        counts = ", ".join(f"{count} {what}" for what, count in record["counts"].items())
        print(f"\n{record['peer']} {record['version']}: {counts}")
        for test in record["tests"]:
            if test["outcome"] != "passed":
                print(f"  {test['name']}: {test['reason'] or 'NOT EXPLAINED'}")


if __name__ == "__main__":
    main()
