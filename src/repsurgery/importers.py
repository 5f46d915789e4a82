"""`Importer`: reads a steering of another program. `IMPORTERS`: ours and those of plugins, by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from repsurgery.registry import Registry, offers

if TYPE_CHECKING:
    from repsurgery.origin import Origin
    from repsurgery.steering.function import SteeringFunction

__all__ = ["IMPORTERS", "Importer"]


class Importer(Protocol):
    """Reads a steering of another program.

    Two more members are optional: a parameter ``site`` of `read`, which chooses one of several vectors in a file (None
    where the user names none), and ``model_type(path)``, which returns the model type that a file names, or None.

    Attributes
    ----------
    name : str
        As it is registered, and as ``--from`` names it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    def read(self, path: Path) -> "tuple[SteeringFunction, Origin]":
        """Return the steering in a file, and what the file says of where it belongs."""
        ...


IMPORTERS: Registry[Importer] = Registry(
    "import",
    own={
        "repeng": "repsurgery.steering.foreign:REPENG",
        "steering-vectors": "repsurgery.steering.foreign:STEERING_VECTORS",
        "gguf": "repsurgery.steering.foreign:GGUF",
        "safetensors": "repsurgery.steering.foreign:SAFETENSORS",
    },
    group="repsurgery.importers",
    needs="an object with name and read",
    instances=True,
    accepts=offers("name", "read"),
)
