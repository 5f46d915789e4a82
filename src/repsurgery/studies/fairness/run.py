"""`run_study`: runs the fairness study that a specification describes and returns its record."""

import datetime
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsurgery.datasets import ConceptTexts, Representations, sample_ratio
from repsurgery.lm.load.folder import cache_root
from repsurgery.steering.base import METHODS
from repsurgery.studies.common.clock import Announce, Clock
from repsurgery.studies.common.environment import environment
from repsurgery.studies.common.naming import plain_name, plain_options
from repsurgery.studies.common.stages import Stages
from repsurgery.studies.fairness.data import SOURCES, load_data, splits_of
from repsurgery.studies.fairness.encoders import ENCODERS, PrincipalAxes, encode_texts
from repsurgery.studies.fairness.notes import study_notes
from repsurgery.studies.fairness.record import StudyRecord
from repsurgery.studies.fairness.rows import SPLITS, Part, StudyRows, require_comparable
from repsurgery.studies.fairness.setting import run_setting
from repsurgery.studies.fairness.spec import StudySpec, parse_method

__all__ = ["run_study"]

# these options choose the stages and the report; they do not change the result of any stage
_NOT_IDENTITY = (
    *("methods", "resamples", "alphas", "criteria", "post_groups", "post_rows", "post_calibration"),
    *("ratios", "tpr_classes"),
)

Data = ConceptTexts | Representations
Index = dict[str, NDArray[np.intp]]
"""The rows of each split."""


def run_study(
    spec: StudySpec,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = True,
    announce: Announce = lambda step: None,
) -> StudyRecord:
    """Run a fairness study and return its record.

    Parameters
    ----------
    spec : StudySpec
    data_dir : path or None
        Folder of the named data; None means the folder `REPSURGERY_DATA`, and then the hub.
    work_dir : path or None
        Folder of encodings and finished stages, from which an interrupted run is resumed; None means the cache.
    device, dtype
        Where and in which dtype the encoder is loaded, see `lm.load`; the record states both if they are given.
    progress : bool
        Whether to show a progress bar while texts are encoded.
    announce : function of one text
        Called with the name of each step when it begins.
    """
    work = Path(work_dir) if work_dir is not None else cache_root() / "studies"
    clock = Clock(announce)
    with clock.step(f"data: {plain_name(spec.data)}"):
        spec, found = load_data(spec, data_dir, work=work / "synthetic")
        data = _pool(spec, found)
        if spec.data not in SOURCES and (chosen := " ".join(getattr(data, "cautions", ()))):
            announce(chosen)
        parts = _parts(spec, data)
    with clock.step(f"encodings: {plain_name(spec.encoder)}"):
        X, encoder = _encode(spec, data, parts, work / "encodings", device=device, dtype=dtype, progress=progress)
    settings = []
    for ratio, index in parts.items():
        prefix = "" if ratio is None else f"ratio {ratio:g}: "
        with clock.step(f"{prefix}every method"):
            axes = _axes(spec, X, encoder, parts, index)
            rows = _rows(data, X, index, axes)
            stages = Stages.of(work / "stages", _identity(spec, data, encoder, index, axes))
            settings.append(run_setting(spec, rows, stages, ratio=ratio, announce=_prefixed(announce, prefix)))
    return StudyRecord(
        experiment=spec.experiment,
        created=datetime.datetime.now(datetime.UTC).date().isoformat(),
        spec=plain_options(spec.to_dict()),
        data=_data_facts(data),
        encoder=plain_options(encoder),
        environment=environment(device=device, dtype=dtype),
        seconds=clock.seconds,
        settings=tuple(settings),
        notes=study_notes(spec, data, settings),
    )


def _prefixed(announce: Announce, prefix: str) -> Announce:
    return lambda step: announce(f"{prefix}{step}")


def _pool(spec: StudySpec, data: Data) -> Data:
    # every ratio draws from the same ``per_cell`` rows of each cell, so that no more texts are encoded than one needs
    if spec.experiment == "bios" or isinstance(data, Representations):
        return data
    cells = np.char.add(np.char.add(np.asarray(data.labels), "\t"), np.asarray(data.concepts))
    order = np.random.default_rng(spec.seed).permutation(len(cells))
    drawn = [order[cells[order] == cell][: spec.per_cell] for cell in np.unique(cells)]
    return data.where(np.sort(np.concatenate(drawn)))


def _parts(spec: StudySpec, data: Data) -> dict[float | None, Index]:
    parts: dict[float | None, Index] = {}
    if spec.experiment == "bios":
        names = splits_of(spec, data)
        parts[None] = {split: np.flatnonzero(names == split) for split in SPLITS}
    for ratio in spec.ratios if spec.experiment == "dialect" else ():
        drawn = sample_ratio(
            data.labels,
            data.concepts,
            ratio,
            per_cell=spec.per_cell,
            label=spec.positive or max(data.labels),
            concept=spec.target,
            seed=spec.seed,
        )
        parts[ratio] = dict(zip(SPLITS, drawn, strict=True))
    # checked before any text is encoded, which may take an hour
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    for index in parts.values():
        require_comparable({name: (y[rows], z[rows]) for name, rows in index.items()})
    return parts


def _encode(
    spec: StudySpec, data: Data, parts: dict[float | None, Index], work: Path, *, progress: bool, **where: str | None
) -> tuple[NDArray[Any], dict[str, Any]]:
    if isinstance(data, Representations):
        return data.X, {"name": "none", "dim": int(data.X.shape[1]), "digest": data.digest}
    # only texts that some ratio draws are encoded
    used = _used(parts)
    encoded, facts = encode_texts(spec, [data.texts[i] for i in used], work=work, progress=progress, **where)
    X = np.empty((len(data.texts), encoded.shape[1]), dtype=np.float32)
    X[used] = encoded
    return X, facts


def _used(parts: dict[float | None, Index]) -> NDArray[np.intp]:
    return np.unique(np.concatenate([rows for index in parts.values() for rows in index.values()]))


def _axes(
    spec: StudySpec, X: NDArray[Any], encoder: dict[str, Any], parts: dict[float | None, Index], index: Index
) -> PrincipalAxes | None:
    usual = ENCODERS[encoder["name"]].components if encoder["name"] in ENCODERS else 0
    count = usual if spec.components < 0 else spec.components
    if count == 0 or count >= X.shape[1]:
        return None
    rows = _used(parts) if spec.components_from == "all" else np.sort(index["train"])
    return PrincipalAxes.of(X[rows], count)


def _rows(data: Data, X: NDArray[Any], index: Index, axes: PrincipalAxes | None) -> StudyRows:
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    parts = {}
    for name, rows in index.items():
        taken = _take(X, rows)
        parts[name] = Part(taken if axes is None else axes(taken), y[rows], z[rows])
    return StudyRows(**parts)


def _take(X: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    # consecutive rows are a view, so that an array on disk is not copied into memory
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and np.all(np.diff(rows) == 1):
        return X[rows[0] : rows[-1] + 1]
    return X[rows]


def _identity(
    spec: StudySpec, data: Data, encoder: dict[str, Any], index: Index, axes: PrincipalAxes | None
) -> dict[str, Any]:
    sha = hashlib.sha256()
    for name in SPLITS:
        sha.update(f"{name}|{len(index[name])}|".encode() + np.asarray(index[name], dtype=np.int64).tobytes())
    options = {name: value for name, value in spec.to_dict().items() if name not in _NOT_IDENTITY}
    reduced = {} if axes is None else {"axes": axes.digest()}
    plugins = [METHODS.source(parsed[0]) for name in spec.methods if (parsed := parse_method(name)) is not None]
    facts = {"spec": options, "data": data.digest, "encoder": encoder, "rows": sha.hexdigest(), **reduced}
    return {**facts, **{name: source for plugin in plugins for name, source in plugin.items()}}


def _data_facts(data: Data) -> dict[str, Any]:
    y, z = np.asarray(data.labels), np.asarray(data.concepts)
    return {
        "name": data.name,
        "source": data.source,
        "licence": getattr(data, "licence", ""),
        "digest": data.digest,
        "counts": {
            str(label): {str(concept): int(np.sum((y == label) & (z == concept))) for concept in np.unique(z)}
            for label in np.unique(y)
        },
        "cautions": list(getattr(data, "cautions", ())),
    }
