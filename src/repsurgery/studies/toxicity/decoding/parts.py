"""What rivals train or collect beforehand: computed once, and stored under everything that decides it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from repsurgery.checkpoint import Checkpoint, digest, recall
from repsurgery.errors import ModelError
from repsurgery.files import Contents, read_file, write_file
from repsurgery.lm.batching.batches import out_of_memory

__all__ = ["Made", "Part", "Workshop", "known_part", "make_part", "part_path"]

KIND = "rival-part"
Made = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Facts about a part, and its arrays."""


@dataclass(slots=True, eq=False)
class Workshop:
    """Where one part is made.

    Attributes
    ----------
    state : path
        A file for unfinished work; it is removed when the part is finished.
    progress : bool
    seconds : float
        CPU seconds that earlier, interrupted attempts took; whoever resumes from ``state`` adds them.
    """

    state: Path
    progress: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a rival.

    Attributes
    ----------
    name : str
        Such as "expert" or "store of toxic tokens"; it labels progress and errors.
    make : function of a Workshop
        Computes the facts and arrays.
    recipe : mapping
        JSON values that decide them, beside model, tokenizer, labelled texts and seed.
    """

    name: str
    make: Callable[[Workshop], Made]
    recipe: Mapping[str, Any] = field(default_factory=dict)


def make_part(folder: Path, part: Part, identity: Mapping[str, Any], *, progress: bool) -> Contents:
    """Return a part from ``folder``; if it is not there, make and store it, with the CPU seconds that it took.

    Parameters
    ----------
    identity : mapping
        JSON values that decide the part, its recipe included.

    Guarantees
    ----------
    An interruption leaves no file of the part (test_an_interrupted_part_is_not_half_written).
    A part is made once (test_a_part_is_made_once).
    Exhausted memory is one clear error (test_exhausted_memory_is_one_line_and_nothing_is_stored).
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = digest(identity)[:16]
    workshop = Workshop(folder / f"{key}.unfinished", progress)

    def compute() -> Contents:
        start = time.process_time()
        try:
            facts, arrays = part.make(workshop)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise ModelError(
                f"Memory ran out while {part.name!r} was made. Free memory, let the method read fewer labelled texts "
                "or use a smaller model, and run the same command again."
            ) from error
        seconds = workshop.seconds + time.process_time() - start
        size = sum(array.nbytes for array in arrays.values())
        return Contents(KIND, {**facts, "name": part.name, "seconds": seconds, "bytes": size}, arrays)

    store = Checkpoint(folder, partial(read_file, kind=KIND), write_file)
    contents = store.get(key, compute, label=f"The part {part.name!r}")
    workshop.state.unlink(missing_ok=True)
    return contents


def known_part(folder: Path, identity: Mapping[str, Any]) -> Contents | None:
    """Return a part that was made before; None without one."""
    return recall(part_path(folder, identity), partial(read_file, kind=KIND))[0]


def part_path(folder: Path, identity: Mapping[str, Any]) -> Path:
    """Return the file in which a part is stored."""
    return folder / f"{digest(identity)[:16]}.safetensors"
