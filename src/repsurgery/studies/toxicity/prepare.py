"""`prepare_rivals`: train or collect the parts of rivals before a study uses them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repsurgery import lm
from repsurgery.errors import ParameterError
from repsurgery.lm.load.folder import cache_root
from repsurgery.lm.twins import Twin, one_thread_each
from repsurgery.studies.common.clock import Announce
from repsurgery.studies.toxicity.data import choose_texts
from repsurgery.studies.toxicity.decoding.rival import Rival
from repsurgery.studies.toxicity.generators import GENERATORS, GeneratorLine, parse_generator_line
from repsurgery.studies.toxicity.spec import ToxicitySpec
from repsurgery.studies.toxicity.study import Study

__all__ = ["PreparedPart", "chosen_lines", "prepare_rivals", "require_rivals"]


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A part of a rival in its file.

    Attributes
    ----------
    rival, name : str
        The configuration line, and the name of the part.
    made : bool
        Whether this run made it; otherwise it was stored before.
    seconds : float
        CPU seconds that it took, in this run or an earlier one.
    path : path
    """

    rival: str
    name: str
    made: bool
    seconds: float
    path: Path


def require_rivals(names: Sequence[str]) -> None:
    """Raise unless the first word of each of ``names`` is a rival."""
    for words in names:
        if (words.split() or [""])[0] not in GENERATORS:
            raise ParameterError(f"There is no rival {words!r}; choose one of {', '.join(GENERATORS)}.")


def chosen_lines(spec: ToxicitySpec, names: Sequence[str]) -> list[GeneratorLine]:
    """Return the lines of ``spec`` that choose a rival, or only those that ``names`` asks for.

    The name of a rival asks for its lines in ``spec``, or for its defaults if there is none; a line with options asks
    for itself.
    """
    stated = [line for line in spec.lines() if isinstance(line, GeneratorLine)]
    if not names:
        return stated
    require_rivals(names)
    chosen: dict[str, GeneratorLine] = {}
    for words in names:
        asked = parse_generator_line(words)
        lines = [line for line in stated if line.generator == words.strip()] or [asked]
        chosen |= {line.name: line for line in lines}
    return list(chosen.values())


def prepare_rivals(
    spec: ToxicitySpec,
    lines: Sequence[GeneratorLine],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> list[PreparedPart]:
    """Make every part of the rivals that ``lines`` choose, and return them in order.

    A study with the same model, labelled texts, seed and work folder uses these parts. Finished parts are not made
    again, and interrupted ones continue.

    Parameters
    ----------
    spec : ToxicitySpec
    lines : sequence of GeneratorLine
        See `chosen_lines`.
    data_dir, work_dir, device, dtype, progress, announce
        As in `run_toxicity`.

    Guarantees
    ----------
    A study that follows trains nothing (test_a_study_after_the_training_trains_nothing).
    """
    work = Path(work_dir) if work_dir is not None else cache_root() / "toxicity"
    with one_thread_each():
        announce("loading texts and model")
        choices, texts = choose_texts(spec, data_dir)
        spec = choices.spec
        if choices.sentence:
            announce(choices.sentence)
        twin = Twin(*lm.load(spec.model, device=device, dtype=dtype))
        context = Study(spec, texts, [twin], {}, {}, work, progress=progress).context(twin)
        # every line is checked before the first part is made
        generators = [line.make(context) for line in lines]
        return [
            part
            for generator in generators
            if isinstance(generator, Rival)
            for part in _prepared(generator, progress=progress, announce=announce)
        ]


def _prepared(rival: Rival, *, progress: bool, announce: Announce) -> list[PreparedPart]:
    before = rival.known_parts()
    missing = [name for name, contents in before.items() if contents is None]
    if missing:
        announce(f"{rival.name}: making {', '.join(missing)}")
    rival.prepare(progress=progress)
    return [
        PreparedPart(
            rival.name, name, name in missing, float(rival.part(name).header["seconds"]), rival.part_path(name)
        )
        for name in before
    ]
