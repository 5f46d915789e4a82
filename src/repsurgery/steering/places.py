"""Where a steering is found by its name: a file, a shared folder, the hub, or the zoo."""

import os
from pathlib import Path

from repsurgery import zoo
from repsurgery.steering.pretrained import STEERING, file_in_folder, file_on_hub

__all__ = ["HUB", "find", "short_name"]

HUB = "hub:"


def find(name: str | os.PathLike[str]) -> Path:
    """Return the file that ``name`` stands for.

    Parameters
    ----------
    name : str or path
        In this order: the name of a file; the name of a folder that `save_pretrained` wrote; "hub:OWNER/NAME" or
        "hub:OWNER/NAME@REVISION", a repository; a name of the zoo. A path object is always a file or folder.

    Raises
    ------
    FileNotFoundError
        There is nothing of this name. A name without "hub:" never asks the network, so that a mistyped path does not.

    Guarantees
    ----------
    A local file or shared folder comes before an entry of the zoo (test_a_local_file_comes_before_the_zoo).
    """
    path = Path(name)
    if (path / STEERING).is_file():
        return file_in_folder(path)
    if isinstance(name, os.PathLike) or path.is_file():
        return path
    if name.startswith(HUB):
        repository, _, revision = name.removeprefix(HUB).partition("@")
        return file_on_hub(repository, revision=revision or None)
    if name in zoo.names():
        return zoo.path(name)
    if path.exists():
        return path
    raise FileNotFoundError(
        f"There is no file to read: {name} does not exist, and the zoo has no such entry (it has "
        f"{', '.join(zoo.names())}). A steering on the hub is written hub:OWNER/NAME."
    )


def short_name(name: str | os.PathLike[str]) -> str:
    """Return what to call a steering: the stem of its file, or the last part of the name of its folder or repository.

    Examples
    --------
    >>> [short_name(name) for name in ("out/kinder.safetensors", "hub:me/kinder@v1", "courteous", "shared/kinder")]
    ['kinder', 'kinder', 'courteous', 'kinder']
    """
    text = os.fspath(name)
    if text.startswith(HUB) and not Path(text).exists():
        text = text.removeprefix(HUB).partition("@")[0]
    last = Path(text).name
    return last.removesuffix(".safetensors") or text
