"""Check the wheel and the sdist in a folder: both hold the package as it is in ``src``, and nothing else."""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml"}
ADDED = {"PKG-INFO", ".gitignore"}
"""What the build adds to an sdist."""


def main(folder: Path) -> None:
    """Exit with one line for each difference."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/repsurgery/__init__.py").read_text(), re.MULTILINE)
    with zipfile.ZipFile(folder / f"repsurgery-{version}-py3-none-any.whl") as wheel:
        in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}
    with tarfile.open(folder / f"repsurgery-{version}.tar.gz") as sdist:
        in_sdist = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    package = {path.relative_to(ROOT / "src").as_posix() for path in _files(ROOT / "src/repsurgery")}
    problems = [
        *_differences("wheel", in_wheel, package),
        *_differences("sdist", in_sdist - ADDED, {f"src/{name}" for name in package} | DOCUMENTS),
    ]
    if problems:
        sys.exit("\n".join(problems))
    sys.stdout.write(f"repsurgery {version}: wheel and sdist hold the {len(package)} files of the package.\n")


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def _differences(kind: str, found: set[str], expected: set[str]) -> list[str]:
    lacking = [f"The {kind} lacks {name}." for name in sorted(expected - found)]
    return lacking + [f"The {kind} holds {name}, which does not belong to it." for name in sorted(found - expected)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
