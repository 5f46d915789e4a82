"""Fit a steering function on a table of labelled texts, or on a file of moments."""

import os
from collections.abc import Mapping
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import Label
from repsurgery.datasets import read_table
from repsurgery.errors import ParameterError
from repsurgery.files import digest_of
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.lm.read.states import Pooling
from repsurgery.lm.steer.positions import Positions
from repsurgery.moments.by_class import to_contents
from repsurgery.steering.base import METHODS, BaseSteering

__all__ = ["fit_moments", "fit_table", "make_estimator"]


def fit_table(
    table: str | os.PathLike[str],
    *,
    method: str = "mimic",
    text: str = "text",
    label: str = "label",
    model: str = DEFAULT_MODEL,
    site: str = "final",
    pooling: Pooling = "last",
    max_length: int | None = None,
    params: Mapping[str, Any] | None = None,
    strength: float | None = None,
    positions: Positions | None = None,
    licence: str | None = None,
    progress: bool = True,
) -> BaseSteering:
    """Return an estimator fitted on the hidden states of a table's texts; its origin names model, site and data.

    Parameters
    ----------
    table, text, label
        The file and the names of its two columns; see `read_table`.
    method : str
        A name of `repsurgery.steering.base.METHODS`.
    model : str
        See `lm.load`.
    site, pooling, max_length
        See `lm.extract`. With ``pooling="all"`` every token is a row and only moments are computed, so that gates and
        shrinkages which need rows raise an error.
    params : mapping of str to value, or None
        Parameters of the estimator: source, target, gate, shrinkage, ridge. A method with a target needs ``target``.
    strength, positions, licence
        Written to the origin as advice for later use; the map is always fitted at strength 1.
    """
    advice = rs.Origin(pooling=pooling, strength=strength, positions=positions, licence=licence)
    estimator = make_estimator(method, params or {})
    texts = read_table(table, text=text, label=label)
    _require_labels(estimator, texts.counts)
    _require_target(estimator, texts.counts)
    network, tokenizer = lm.load(model)
    # the model is hashed first, so that the digest is that of the weights which are read
    origin = lm.origin_of(network, site=site, data=texts.digest, **advice.known())
    if pooling == "all":
        moments = lm.class_moments(
            network,
            tokenizer,
            texts.texts,
            list[Label](texts.labels),
            sites=[site],
            pooling="all",
            max_length=max_length,
            progress=progress,
        )
        return estimator.fit_moments(moments[site]).with_origin(origin)
    X = lm.extract(
        network, tokenizer, texts.texts, site=site, pooling=pooling, max_length=max_length, progress=progress
    )
    return estimator.fit(X, texts.labels).with_origin(origin)


def fit_moments(
    moments: str | os.PathLike[str],
    *,
    method: str = "mimic",
    params: Mapping[str, Any] | None = None,
    model: str | None = None,
    site: str | None = None,
    pooling: Pooling | None = None,
    strength: float | None = None,
    positions: Positions | None = None,
    licence: str | None = None,
) -> BaseSteering:
    """Return an estimator fitted from a file of class moments.

    Parameters
    ----------
    moments : path
        A file written by ``ClassMoments.save`` or the command ``moments``.
    method, params
        As in `fit_table`; labels may be passed as text ("0" for 0).
    model, site, pooling, strength, positions, licence
        The origin to write, because a file of moments does not contain it.
    """
    name = None if model is None else plain_model_name(model)
    origin = rs.Origin(model=name, site=site, pooling=pooling, strength=strength, positions=positions, licence=licence)
    by_class = rs.ClassMoments.load(moments)
    by_name = {str(label): label for label in by_class}
    labelled = {name: _as_label(name, value, by_name) for name, value in (params or {}).items()}
    estimator = make_estimator(method, labelled)
    _require_target(estimator, {str(label): m.count for label, m in by_class.items()})
    contents = to_contents(by_class)
    origin = origin.revised(data=digest_of(contents.arrays, contents.header))
    return estimator.fit_moments(by_class).with_origin(origin)


def _as_label(name: str, value: Any, by_name: Mapping[str, Label]) -> Any:
    if name not in ("source", "target", "neutral") or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_as_label(name, one, by_name) for one in value]
    if str(value) not in by_name:
        raise ParameterError(f"{name} is {value!r}; the labels of the moments are {', '.join(by_name)}.")
    return by_name[str(value)]


def make_estimator(method: str, params: Mapping[str, Any]) -> BaseSteering:
    """Return an unfitted estimator by name, or raise an error that lists the parameters it takes."""
    estimator = METHODS[method]
    known = estimator().get_params()
    unknown = [name for name in params if name not in known]
    if unknown:
        raise ParameterError(f"{estimator.__name__} takes no {' and no '.join(unknown)}; it takes {', '.join(known)}.")
    return estimator(**params)


def _require_target(estimator: BaseSteering, counts: Mapping[str, int]) -> None:
    # there is no safe default: the last label of the alphabet may be the one to steer away from
    if estimator.get_params().get("target", "none needed") is not None:
        return
    labels = ", ".join(f"{label} ({count})" for label, count in counts.items())
    raise ParameterError(
        f"{type(estimator).__name__} steers towards one label, and none was named. The labels are {labels}. Name the "
        "label to steer to with --target LABEL; all other labels are steered, unless --source names some of them."
    )


def _require_labels(estimator: BaseSteering, counts: Mapping[str, int]) -> None:
    # checked before the model reads the texts, which may take an hour
    for name in ("source", "target", "neutral"):
        wanted = getattr(estimator, name, None)
        for one in wanted if isinstance(wanted, list | tuple) else [wanted]:
            if one is not None and one not in counts:
                raise ParameterError(f"{name} is {one!r}; the labels of the table are {', '.join(counts)}.")
