"""Fit a steering function on a table of labelled texts, or on a file of moments."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import repsurgery as rs
from repsurgery import lm
from repsurgery.arrays import Label, Rows
from repsurgery.datasets.held_out import check_share
from repsurgery.errors import OptionsError, ParameterError
from repsurgery.files import digest_of
from repsurgery.lm.load.models import DEFAULT_MODEL
from repsurgery.lm.load.origin import plain_model_name
from repsurgery.lm.read.states import Pooling
from repsurgery.lm.steer.early import check_places
from repsurgery.lm.steer.positions import Positions
from repsurgery.moments.by_class import to_contents
from repsurgery.moments.shrinkage import check_shrinkage
from repsurgery.origin import IN_CHAT
from repsurgery.steering.base import BaseSteering, method_of_rows
from repsurgery.steering.held_out import usual_folds
from repsurgery.workflows.held_out import HeldOut, TextReader, measure, split
from repsurgery.workflows.prompts import read_texts
from repsurgery.workflows.ratings import as_numbers, binned, require_classes, split_ratings
from repsurgery.workflows.support import support_notes

__all__ = ["FitResult", "fit_moments", "fit_table", "make_estimator"]


@dataclass(frozen=True, slots=True, eq=False)
class FitResult:
    """A fitted estimator and what is known about it.

    Attributes
    ----------
    estimator : BaseSteering
    held_out : HeldOut or None
        What held-out texts say of it; None where no texts were held out.
    notes : tuple of str
        Sentences for the user: how it was measured, and what the texts do not support.
    """

    estimator: BaseSteering
    held_out: HeldOut | None = None
    notes: tuple[str, ...] = ()


def fit_table(
    table: str | os.PathLike[str],
    *,
    method: str = "mimic",
    text: str = "text",
    label: str = "label",
    chat: bool = False,
    prompt: str | None = None,
    model: str = DEFAULT_MODEL,
    device: str | None = None,
    dtype: str | None = None,
    site: str = "final",
    pooling: Pooling = "last",
    max_length: int | None = None,
    params: Mapping[str, Any] | None = None,
    bins: int | None = None,
    strength: float | None = None,
    positions: Positions | None = None,
    licence: str | None = None,
    store_fisher: bool = False,
    held_out: float = 0.2,
    seed: int = 0,
    progress: bool = True,
) -> FitResult:
    """Fit an estimator on the hidden states of a table's texts, and measure it on texts that were held out.

    The origin of the estimator names model, site and data; the data are the texts that it was fitted on.

    Parameters
    ----------
    table, text, label
        The file and the names of its two columns; see `read_table`.
    method : str
        A name of `repsurgery.steering.base.METHODS`.
    chat, prompt
        Read the texts through the model's chat template, and the column of the user's messages; see `read_texts`.
    model, device, dtype
        See `lm.load`.
    site, pooling, max_length
        See `lm.extract`. With ``pooling="all"`` every token is a row and only moments are computed, so that gates and
        shrinkages which need rows raise an error.
    params : mapping of str to value, or None
        Parameters of the estimator: source, target, gate, shrinkage, ridge, alpha. A method with a target needs
        ``target``. Without ``shrinkage``, MiMiC pools covariances as far as the texts do not support one per class.
        ``concept_type="continuous"`` of LEACE takes the labels as numbers.
    bins : int or None
        Bin labels that are numbers into so many classes by their quantiles; see `quantile_bins`.
    strength, positions, licence
        Written to the origin as advice for later use; the map is always fitted at strength 1.
    store_fisher : bool
        Store the Fisher matrix at ``site`` along these texts, all positions steered, and the moments, so that
        ``kl_budget`` needs nothing else later; see `lm.price`.
    held_out : float
        The share of each label's texts to hold out; see `datasets.hold_out`. 0 fits on all texts, and so does a table
        with too few texts, which a note then says.
    seed : int
        Draws the held-out texts.

    Guarantees
    ----------
    The estimator is fitted on the other texts alone, and the held-out certificate describes this estimator
    (test_the_held_out_column_describes_the_saved_file).
    """
    advice = rs.Origin(
        pooling=f"{pooling}{IN_CHAT}" if chat else pooling, strength=strength, positions=positions, licence=licence
    )
    estimator = make_estimator(method, params or {})
    texts, in_chat = read_texts(table, text=text, label=label, chat=chat, prompt=prompt)
    continuous = getattr(estimator, "concept_type", None) == "continuous"
    if continuous:
        if pooling == "all" or bins is not None:
            raise OptionsError(
                "--continuous takes one row and one number per text: leave out --pooling all and --bins."
            )
        as_numbers(texts.labels)  # checked before the model reads the texts
        check_share("held_out", held_out)
        fitted, away, note = split_ratings(texts, share=held_out, seed=seed)
    else:
        texts = texts if bins is None else binned(texts, bins)
        require_classes(texts)
        _require_labels(estimator, texts.counts)
        _require_target(estimator, texts.counts)
        fitted, away, note = split(texts, _named(estimator, texts.counts), share=held_out, seed=seed)
    check_places(model, [(site, None)])
    network, tokenizer = lm.load(model, device=device, dtype=dtype)
    # the model is hashed first, so that the digest is that of the weights which are read
    origin = lm.origin_of(network, site=site, data=fitted.digest, **advice.known())
    read = TextReader(network, tokenizer, site, pooling, max_length, progress)
    if pooling == "all":
        moments = lm.class_moments(
            network,
            tokenizer,
            fitted.texts,
            list[Label](fitted.labels),
            sites=[site],
            pooling="all",
            max_length=max_length,
            groups=fitted.texts,
            progress=progress,
        )
        estimator = estimator.fit_moments(moments[site]).with_origin(origin)
    else:
        X, z, groups = read.rows(fitted)
        estimator = _fitted(estimator, X, as_numbers(z.tolist()) if continuous else z, groups).with_origin(origin)
    if store_fisher:
        price = lm.price(
            network, tokenizer, fitted.texts, estimator, site=site, max_length=max_length, progress=progress
        )
        estimator = estimator.with_price(price)
    measured = measure(estimator, read, away, seed=seed) if len(away) else None
    support = support_notes(estimator, "tokens" if pooling == "all" else "texts")
    said = (note,) if measured is None else measured.notes(len(fitted))
    return FitResult(estimator, measured, (*([in_chat] if in_chat else []), *support, *said))


def _fitted(estimator: BaseSteering, X: Rows, z: Any, groups: Any) -> BaseSteering:
    """Fit on rows, with the gaps on rows left out in the certificate where the classes are large enough for folds.

    The folds are those of this fit alone, so that the estimator takes moments and further rows later.
    """
    if estimator.folds is not None:
        return estimator.fit(X, z, groups=groups)
    folds = usual_folds(z, groups, continuous=getattr(estimator, "concept_type", None) == "continuous")
    fitted: BaseSteering = estimator.set_params(folds=folds).fit(X, z, groups=groups).set_params(folds=None)
    return fitted


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
) -> FitResult:
    """Fit an estimator from a file of class moments; there are no texts to hold out.

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
    estimator = estimator.fit_moments(by_class).with_origin(origin)
    no_texts = "A file of moments holds no texts, so none were held out to measure the map on."
    return FitResult(estimator, notes=(*support_notes(estimator, "rows"), no_texts))


def _named(estimator: BaseSteering, counts: Mapping[str, int]) -> list[str]:
    """Return the labels that a certificate of ``estimator`` names."""
    source = getattr(estimator, "source", None)
    if source is None:
        return list(counts)
    others = (getattr(estimator, name, None) for name in ("target", "neutral"))
    return [*(source if isinstance(source, list | tuple) else [source]), *(one for one in others if one is not None)]


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
    estimator = method_of_rows(method)
    known = estimator().get_params()
    unknown = [name for name in params if name not in known]
    if unknown:
        refused, taken = (", ".join(f"{name}=" for name in names) for names in (unknown, known))
        raise OptionsError(f"{estimator.__name__} takes no {refused}; it takes {taken}.")
    # states of texts rarely support one covariance per class; a method says what it does about it
    usual = {"shrinkage": estimator.text_shrinkage} if "shrinkage" in known else {}
    chosen = estimator(**{**usual, **params})
    # checked before the model reads the texts, which may take an hour
    check_shrinkage(chosen.shrinkage, chosen.ridge, chosen.alpha)
    return chosen


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
