"""What a search is given: texts, prompts, documents and a budget, checked before any work is done."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from repsurgery.checkpoint import digest
from repsurgery.datasets import (
    Documents,
    LabelledTexts,
    load_courtesy,
    load_provoking_prompts,
    load_wikitext2,
    read_table,
)
from repsurgery.datasets.folder import present_folder
from repsurgery.datasets.wikitext import FOLDER as WIKITEXT
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.lm.chat import as_text, is_conversation
from repsurgery.lm.fold.targets import TargetName
from repsurgery.lm.price.shifts import require_decoder
from repsurgery.lm.sites.names import resolve_site, site_names
from repsurgery.tuning.exports import DEPTHS, sites_held
from repsurgery.workflows.prompts import in_chat, read_prompts

__all__ = ["Prompts", "Texts", "choose_sites", "find_documents", "find_prompts", "find_texts"]

COURTESY = "courtesy"
PROVOKING = "provoking"


@dataclass(frozen=True, slots=True)
class Texts:
    """Labelled texts; ``place`` says where they came from: a path with its columns, or the name of embedded ones."""

    texts: LabelledTexts
    place: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts, and where they came from."""

    prompts: tuple[str, ...]
    place: dict[str, Any]


def find_texts(texts: Any, *, text: str = "text", label: str = "label") -> Texts | None:
    """Return the texts of a table, the embedded corpus "courtesy", or given `LabelledTexts`."""
    if texts is None:
        return None
    if isinstance(texts, LabelledTexts):
        found, path, name = texts, None, None
    elif os.fspath(texts) == COURTESY:
        found, path, name = load_courtesy(), None, COURTESY
    else:
        found, path, name = read_table(texts, text=text, label=label), str(Path(texts).absolute()), None
    return Texts(found, {"path": path, "name": name, "text": text, "label": label, "digest": found.digest})


def find_prompts(prompts: Any, *, chat: bool = False) -> Prompts:
    """Return the lines of a file, the embedded prompts "provoking", or given prompts; see `tune`."""
    path, name = None, None
    if prompts is None:
        raise OptionsError(
            "A search needs prompts for the model to continue. Give a text file with one on each line, or "
            f"{PROVOKING!r} for those of this package."
        )
    if not isinstance(prompts, str | os.PathLike):
        found = tuple(as_text(prompt) if is_conversation(prompt) else prompt for prompt in prompts)
    elif os.fspath(prompts) == PROVOKING:
        found, name = load_provoking_prompts(), PROVOKING
    else:
        found, path = tuple(read_prompts(prompts)), str(Path(prompts).absolute())
    if not all(isinstance(prompt, str) for prompt in found):
        raise ParameterError("prompts must be texts or conversations: a list of them, or the name of a file.")
    found = tuple(in_chat(found)) if chat else found
    place = {"path": path, "name": name, "digest": digest(list(found))}
    return Prompts(found, {**place, "chat": True} if chat else place)


def find_documents(wikitext: float | None, data_dir: str | os.PathLike[str] | None) -> tuple[Documents | None, str]:
    """Return WikiText, or None and a note where it is not on disk and no limit needs it; only a limit downloads it."""
    folder = present_folder(WIKITEXT) if data_dir is None else Path(data_dir) / WIKITEXT
    if folder is None and wikitext is None:
        return None, (
            "The ratio of WikiText perplexities was not measured, because WikiText is not on disk: set "
            f"REPSURGERY_DATA to a folder that holds {WIKITEXT}, or pass a limit, which downloads it."
        )
    return load_wikitext2(folder), ""


def choose_sites(
    model: nn.Module, depths: Sequence[float], sites: Sequence[str] | None, export_to: TargetName | None = None
) -> tuple[str, ...]:
    """Return the sites to consider: those that are named, or "final" and blocks at the given shares of the depth.

    With ``export_to``, those of them at which that export holds a shift, and the last block.

    Raises
    ------
    SiteError
        The model has no such site, or none that is known.
    FoldError
        The export holds nothing at a named site, or at any.
    """
    require_decoder(model, caller="tune")
    if sites is not None:
        for site in sites:
            resolve_site(model, site)
        chosen = list(dict.fromkeys(sites))
        return tuple(chosen) if export_to is None else sites_held(model, chosen, export_to, named=True)
    names = site_names(model)
    blocks = [name for name in names if name.count(".") == 1 and name.startswith("layers.")]
    depths = depths if export_to is None else sorted({*depths, *DEPTHS})
    chosen = [blocks[min(len(blocks) - 1, round(depth * len(blocks)))] for depth in depths if blocks]
    found = dict.fromkeys(["final", *reversed(chosen)])
    return tuple(found) if export_to is None else sites_held(model, found, export_to, named=False)
