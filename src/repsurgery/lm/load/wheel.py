"""Embedded models: the parts in installed packages are verified, joined, and converted once."""

from collections.abc import Sequence
from pathlib import Path

from repsurgery.checkpoint import file_digest
from repsurgery.errors import ModelError
from repsurgery.lm.load.catalogue import EMBEDDED, EmbeddedModel
from repsurgery.lm.load.convert import convert_gguf, unpack_zip
from repsurgery.lm.load.folder import build_once, cache_root, flaw
from repsurgery.lm.load.parts import intact_files, join

__all__ = ["EMBEDDED", "EmbeddedModel", "embedded_config", "embedded_folder"]


def embedded_folder(name: str) -> Path:
    """Return a folder in the hub's format that holds the embedded model ``name``.

    A GGUF or zip is converted on first use and stored in `cache_root`; afterwards its packages are no longer needed.

    Guarantees
    ----------
    Parts are data: no package is imported (test_no_code_of_a_part_is_run).
    Nothing is built from a part that is missing or altered (test_missing_parts_are_named_with_their_command,
    test_an_altered_part_is_named).
    An interruption leaves nothing that a later call would use (test_an_interrupted_assembly_starts_again).
    """
    model = EMBEDDED[name]
    if model.is_folder:
        return _sources(model)[0].parent
    folder = cache_root() / model.folder_name
    # checked before the packages are searched for: only a conversion needs them
    if flaw(folder, source=model.digest) is None:
        return folder
    sources = _sources(model)
    return build_once(folder, lambda fresh: _build(model, sources, fresh), source=model.digest)


def embedded_config(name: str) -> Path:
    """Return a folder with the configuration of the embedded model ``name``.

    Its weights are not verified, which takes a second, because whoever asks for the configuration does not read them.
    """
    model = EMBEDDED[name]
    part = model.parts[0].find() if model.is_folder else None
    folder = cache_root() / model.folder_name if part is None else part.parent
    return folder if (folder / "config.json").is_file() else embedded_folder(name)


def _sources(model: EmbeddedModel) -> list[Path]:
    subject = f"The embedded model '{model.name}' ({model.description}; licence: {model.licence})"
    return intact_files(model.parts, subject=subject)


def _build(model: EmbeddedModel, sources: Sequence[Path], folder: Path) -> None:
    convert = unpack_zip if model.file.endswith(".zip") else convert_gguf
    if len(sources) == 1:
        convert(sources[0], folder)
        return
    # inside the folder that is being built, so that a killed process leaves nothing elsewhere
    whole = folder / Path(model.file).name
    join(sources, whole)
    if (actual := file_digest(whole)) != model.digest:
        raise ModelError(
            f"The {len(sources)} parts of '{model.name}' are intact, but the file that they form has the SHA-256 "
            f"{actual}, expected {model.digest}. Run again; if it happens again, check the disk of {folder.parent}."
        )
    convert(whole, folder)
    whole.unlink()
