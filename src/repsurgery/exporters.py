"""`Exporter`: writes a steering in the form of another program. `EXPORTERS`: ours and those of plugins, by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from repsurgery.registry import Registry, offers

if TYPE_CHECKING:
    from repsurgery.lm.steer.placement import Placement

__all__ = ["EXPORTERS", "ExportTarget", "Exporter", "Written"]


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """What one target makes of a steering.

    Attributes
    ----------
    name : str
        A folded model ("folder": `fold`), an adapter ("lora": `to_lora`), a control vector ("gguf": `to_gguf`), or the
        export of a plugin.
    refusal : str
        A sentence that says why the target cannot hold the steering exactly; empty where it can.
    condition : str
        What holding it takes: a folder may be one that "needs custom code". An adapter always attaches, and it may be
        one that "merges with biases", which an option of the configuration adds to the base, that "merges untied", once
        its layer no longer shares its weight with the embeddings, or that "does not merge". Otherwise empty.
    """

    name: str
    refusal: str = ""
    condition: str = ""

    @property
    def holds(self) -> bool:
        """Whether the target holds the steering exactly."""
        return not self.refusal


@dataclass(frozen=True, slots=True)
class Written:
    """What an exporter says of what it has written.

    Attributes
    ----------
    facts : tuple of str
        Sentences.
    code : tuple of str
        The lines that load it; empty where `Exporter.how_to_load` gives them.
    exact : bool
        Whether it computes what hooks compute, up to rounding.
    """

    facts: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    exact: bool = True


class Exporter(Protocol):
    """Writes a steering in the form of another program.

    Two more members are optional: ``writes``, which is "file" or "folder" where only one of them can be written, and
    ``require()``, which raises a `MissingExtraError` before a model is loaded.

    Attributes
    ----------
    name : str
        As it is registered, and as ``--to`` names it.
    extra : str
        The extra of its package that installs what it needs; empty where nothing is missing.
    options : mapping of str to type
        What `write` takes beyond the path, with the type of each: str, int, float or bool; or with its default.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described above

    @property
    def extra(self) -> str: ...  # noqa: D102

    @property
    def options(self) -> Mapping[str, Any]: ...  # noqa: D102

    def check(self, placement: "Placement", model: Any) -> ExportTarget:
        """Return whether the export holds the steering exactly, or raise a `FoldError`; nothing is written."""
        ...

    @property
    def write(self) -> Callable[..., Written | None]:
        """Write a steering: ``write(placement, model, path, **options)``.

        The path does not exist yet or is an empty folder. A parameter named ``tokenizer`` receives the tokenizer.
        """
        ...

    def how_to_load(self, path: Path) -> str | Sequence[str]:
        """Return the lines, of Python or a shell, that load what was written."""
        ...


EXPORTERS: Registry[Exporter] = Registry(
    "export",
    own={
        "folder": "repsurgery.lm.fold.exporters:FOLDER",
        "lora": "repsurgery.lm.fold.exporters:LORA",
        "gguf": "repsurgery.lm.fold.exporters:GGUF",
    },
    group="repsurgery.exporters",
    needs="an object with name, extra, options, check, write and how_to_load",
    instances=True,
    accepts=offers("name", "extra", "options", "check", "write", "how_to_load"),
)
