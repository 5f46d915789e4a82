"""`run_study`: data, an encoder and a specification in; one record out."""

import datetime
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.datasets import ConceptTexts, Representations, sample_ratio
from repsurgery.lm.load.folder import cache_root
from repsurgery.studies.common.clock import Announce, Clock
from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.naming import plain_name
from repsurgery.studies.common.stages import Stages
from repsurgery.studies.fairness.components import PrincipalAxes
from repsurgery.studies.fairness.data import load_data, splits_of
from repsurgery.studies.fairness.encoders import ENCODERS, encode_texts
from repsurgery.studies.fairness.notes import study_notes
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.rows import SPLITS, Part, StudyRows, require_comparable
from repsurgery.studies.fairness.setting import run_setting
from repsurgery.studies.fairness.spec import StudySpec

__all__ = ["run_study"]

# these choose what is run and shown, not what any one stage computes
_NOT_IDENTITY = ("methods", "resamples", "alphas", "criteria", "post_groups", "ratios", "tpr_classes")


def run_study(
    spec: StudySpec,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> StudyRecord:
    """Run a fairness study and return its record.

    Parameters
    ----------
    spec : StudySpec
    data_dir : path or None
        Where the named data lie; None looks where `REPSURGERY_DATA` points, then at the hub.
    work_dir : path or None
        Where encodings and finished stages are kept; None is the cache. An interrupted run goes on from there.
    progress : bool
        Show a bar while texts are read.
    announce : function of one text
        Told what begins.
    """
    work = Path(work_dir) if work_dir is not None else cache_root() / "studies"
    clock = Clock(announce)
    with clock.step(f"data: {plain_name(spec.data)}"):
        data = _pool(spec, load_data(spec, data_dir, work=work / "synthetic"))
        parts = _parts(spec, data)
    with clock.step(f"encodings: {plain_name(spec.encoder)}"):
        X, encoder = _encoded(spec, data, parts, work / "encodings", progress=progress)
    settings = []
    for ratio, index in parts.items():
        words = "" if ratio is None else f"ratio {ratio:g}: "
        with clock.step(f"{words}every method"):
            axes = _axes(spec, X, encoder, parts, index)
            rows = _rows(data, X, index, axes)
            stages = Stages.of(work / "stages", _identity(spec, data, encoder, index, axes))
            told = _prefixed(announce, words)
            settings.append(run_setting(spec, rows, stages, ratio=ratio, announce=told))
    return StudyRecord(
        experiment=spec.experiment,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        spec={**spec.to_dict(), "data": plain_name(spec.data), "encoder": plain_name(spec.encoder)},
        data=_data_facts(data),
        encoder={key: plain_name(value) if isinstance(value, str) else value for key, value in encoder.items()},
        environment=environment(),
        seconds=clock.seconds,
        settings=tuple(settings),
        notes=study_notes(spec, data, settings),
    )


Index = dict[str, NDArray[np.intp]]


def _pool(spec: StudySpec, data: ConceptTexts | Representations) -> ConceptTexts | Representations:
    # every ratio draws from the same ``per_cell`` rows of each cell, so that no more texts are read than one needs
    if spec.experiment == "bios" or isinstance(data, Representations):
        return data
    cells = np.char.add(np.char.add(np.asarray(data.labels), "\t"), np.asarray(data.concepts))
    order = np.random.default_rng(spec.seed).permutation(len(cells))
    kept = [order[cells[order] == cell][: spec.per_cell] for cell in np.unique(cells)]
    return data.where(np.sort(np.concatenate(kept)))


def _parts(spec: StudySpec, data: ConceptTexts | Representations) -> dict[float | None, Index]:
    if spec.experiment == "bios":
        names = splits_of(spec, data)
        return _checked(data, {None: {split: np.flatnonzero(names == split) for split in SPLITS}})
    found: dict[float | None, Index] = {}
    for ratio in spec.ratios:
        drawn = sample_ratio(
            data.labels,
            data.concepts,
            ratio,
            per_cell=spec.per_cell,
            label=spec.positive or max(data.labels),
            concept=spec.target,
            seed=spec.seed,
        )
        found[ratio] = dict(zip(SPLITS, drawn, strict=True))
    return _checked(data, found)


def _checked(data: ConceptTexts | Representations, parts: dict[float | None, Index]) -> dict[float | None, Index]:
    # before any text is read: reading may take an hour
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    for index in parts.values():
        require_comparable({name: (y[rows], z[rows]) for name, rows in index.items()})
    return parts


def _encoded(
    spec: StudySpec,
    data: ConceptTexts | Representations,
    parts: dict[float | None, Index],
    work: Path,
    *,
    progress: bool,
) -> tuple[NDArray[Any], dict[str, Any]]:
    if isinstance(data, Representations):
        return data.X, {"name": "none", "dim": int(data.X.shape[1]), "digest": data.digest}
    # texts that no ratio draws are not read
    used = _used(parts)
    read, facts = encode_texts(spec, [data.texts[i] for i in used], work=work, progress=progress)
    X = np.empty((len(data.texts), read.shape[1]), dtype=np.float32)
    X[used] = read
    return X, facts


def _rows(data: ConceptTexts | Representations, X: NDArray[Any], index: Index, axes: PrincipalAxes | None) -> StudyRows:
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    taken = {name: _take(X, rows) for name, rows in index.items()}
    seen = taken if axes is None else {name: axes(rows) for name, rows in taken.items()}
    return StudyRows(**{name: Part(seen[name], y[rows], z[rows]) for name, rows in index.items()})


def _axes(
    spec: StudySpec, X: NDArray[Any], encoder: dict[str, Any], parts: dict[float | None, Index], index: Index
) -> PrincipalAxes | None:
    usual = ENCODERS[encoder["name"]].components if encoder["name"] in ENCODERS else 0
    count = usual if spec.components < 0 else spec.components
    if count == 0 or count >= X.shape[1]:
        return None
    chosen = _used(parts) if spec.components_from == "all" else np.sort(index["train"])
    return PrincipalAxes.of(X[chosen], count)


def _used(parts: dict[float | None, Index]) -> NDArray[np.intp]:
    return np.unique(np.concatenate([index for part in parts.values() for index in part.values()]))


def _take(X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    # neighbouring rows are a view, so that an array on disk stays there
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and np.all(np.diff(rows) == 1):
        return X[rows[0] : rows[-1] + 1]
    return X[rows]


def _identity(
    spec: StudySpec,
    data: ConceptTexts | Representations,
    encoder: dict[str, Any],
    index: Index,
    axes: PrincipalAxes | None,
) -> dict[str, Any]:
    sha = hashlib.sha256()
    for name in SPLITS:
        sha.update(f"{name}|{len(index[name])}|".encode() + np.asarray(index[name], dtype=np.int64).tobytes())
    choices = {name: value for name, value in spec.to_dict().items() if name not in _NOT_IDENTITY}
    seen = {} if axes is None else {"axes": axes.digest()}
    return {"spec": choices, "data": data.digest, "encoder": encoder, "rows": sha.hexdigest(), **seen}


def _data_facts(data: ConceptTexts | Representations) -> dict[str, Any]:
    return {
        "name": data.name,
        "source": data.source,
        "licence": getattr(data, "licence", ""),
        "digest": data.digest,
        "counts": _counts(data),
        "cautions": list(getattr(data, "cautions", ())),
    }


def _counts(data: ConceptTexts | Representations) -> dict[str, dict[str, int]]:
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    return {
        str(c): {str(concept): int(np.sum((y == c) & (z == concept))) for concept in np.unique(z)} for c in np.unique(y)
    }


def _prefixed(announce: Announce, words: str) -> Announce:
    return lambda step: announce(f"{words}{step}")
