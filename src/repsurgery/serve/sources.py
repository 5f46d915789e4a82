"""Where the steering files of a server are: single files, and a folder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from repsurgery.errors import ParameterError, ShapeError, SiteError

__all__ = ["Sources", "check_sources", "check_widths"]

SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where steerings come from: single files by their names, and a folder whose files may change."""

    files: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    folder: Path | None = None

    def found(self) -> dict[str, Path]:
        """Return the files that exist now, by name; a single file comes before one of that name in the folder.

        A name that cannot be printed, and so cannot be sent as JSON or in a header, is left out.
        """
        listed = sorted(self.folder.glob(f"*{SUFFIX}")) if self.folder else []
        shown = [path for path in listed if path.name.isprintable() and not path.name.startswith(".")]
        named = {path.stem: path for path in shown} | dict(self.files)
        return {name: path for name, path in named.items() if path.is_file()}

    def lost(self) -> list[Path]:
        """Return the folders that are gone."""
        folders = {*(path.parent for path in self.files.values()), *([self.folder] if self.folder else [])}
        return sorted(folder for folder in folders if not folder.is_dir())


def check_sources(files: Sequence[str | os.PathLike[str]], folder: Path | None) -> Sources:
    """Return the sources, or raise an error for a steering that is missing, unreadable or not unique by its name.

    A string may also name a repository on the hub or an entry of the zoo; see `find`.
    """
    from repsurgery.lm.steer.row_steering import as_steering
    from repsurgery.steering.io import load
    from repsurgery.steering.places import short_name

    if folder is not None and not folder.is_dir():
        raise ParameterError(f"steerings_dir is {str(folder)!r}, which is not a folder. Create it, or name another.")
    named, single = Sources(folder=folder).found(), {}
    for given in files:
        name, path = short_name(given), _found(given)
        if not name.isprintable():
            raise ParameterError(f"The file name {name!r} has characters that cannot be printed. Rename the file.")
        other = named.setdefault(name, path)
        if other is not path and other.resolve() != path.resolve():
            raise ParameterError(f"{str(other)!r} and {str(path)!r} would both be called {name!r}. Rename one of them.")
        as_steering(load(path), caller=f"The file {path}")
        single[name] = path
    return Sources(MappingProxyType(single), folder)


def check_widths(sources: Sources, model: str | os.PathLike[str]) -> None:
    """Raise where a named file belongs to a site or width that ``model`` does not have; no weight is read."""
    from repsurgery.lm.steer.early import check_places
    from repsurgery.lm.steer.placement import Placement
    from repsurgery.steering.io import load

    for path in sources.files.values():
        at = Placement(load(path))
        try:
            check_places(model, [(at.site, at.function.dim)])
        except (ShapeError, SiteError) as error:
            raise type(error)(f"The steering file {path} cannot be used with this model. {error}") from error


def _found(given: str | os.PathLike[str]) -> Path:
    from repsurgery import zoo
    from repsurgery.steering.places import find

    try:
        path = find(given)
    except FileNotFoundError:
        path = Path(given)
    if not path.is_file():
        raise ParameterError(
            f"There is no steering file {os.fspath(given)!r}. Write it with repsurgery fit or tune, name a repository "
            f"(hub:OWNER/NAME), or an entry of the zoo: {', '.join(zoo.names())}."
        )
    return path
