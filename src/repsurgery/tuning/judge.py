"""`train_judge`: a judge for a concept that has no scorer, trained on labelled texts."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from repsurgery.arrays import Vector
from repsurgery.checkpoint import Checkpoint, keyed_folder
from repsurgery.errors import DataError, ParameterError
from repsurgery.files import Contents, built_from, digest_of, read_file, write_file
from repsurgery.metrics.ranking import auc_interval
from repsurgery.progress import progress_bar
from repsurgery.scorers.base import check_texts, score_visible
from repsurgery.tuning.alike import nearly_in
from repsurgery.tuning.text_rows import embed, embedding_identity, learn_words

__all__ = ["FEWEST_TEXTS", "LOWEST_AUC", "Judge", "Representation", "require_better_than_chance", "train_judge"]

Representation = Literal["minilm", "words"]
Texts = tuple[Sequence[str], Sequence[str]]

FEWEST_TEXTS = 10
"""Distinct texts of each label that are needed to train, and as many to measure."""
LOWEST_AUC = 0.6
"""A judge with a smaller area under the curve is refused."""

_VERSION = "1"
"""Raised when the recipe changes."""
_C = 10.0
"""Inverse strength of the penalty. With 200 + 200 embedded texts the area under the curve is .984 (courtesy) and .795
(tweets); five-fold cross-validation of this number gives .982 and .795."""
_KIND = "judge-rows"


@dataclass(frozen=True, slots=True)
class Judge:
    """A frozen function from texts to the probability of the source; a scorer like those of `repsurgery.scorers`.

    Attributes
    ----------
    name : "minilm-judge" or "words-judge"
    version : str
        The version of the recipe.
    digest : str
        SHA-256 of everything that determines a score: the weights, and the encoder or the vocabulary.
    source, target : str
        The labels of texts with high and with low scores.
    auc, auc_low, auc_high : float
        The area under the ROC curve on the held-out texts, with its 95 % interval.
    texts, held_out : int
        The number of texts that it was trained on, and on which the area was measured.
    repeated : int
        The number of held-out texts that were left out, because they nearly repeat a text that it was trained on.

    Guarantees
    ----------
    A text's score does not depend on the texts around it, beyond the rounding of float32
    (test_scores_are_those_of_each_text_alone).
    Threads may score at the same time (test_threads_get_the_scores_of_one_thread).
    """

    name: str
    version: str
    digest: str
    source: str
    target: str
    auc: float
    auc_low: float
    auc_high: float
    texts: int
    held_out: int
    _probability: Callable[[list[str]], Vector] = field(repr=False, compare=False)
    repeated: int = 0

    def __call__(self, texts: Sequence[str]) -> list[float | None]:
        """Return the probability (n,) of the source for each text; None for texts without a visible character."""
        return score_visible(texts, self._score, caller="The judge")

    def facts(self) -> dict[str, Any]:
        """Return what a record states about its judge, ready for JSON."""
        names = ("name", "digest", "auc", "auc_low", "auc_high")
        # the number of texts on which the AUC was measured
        return {"kind": "trained", "texts": self.held_out} | {name: getattr(self, name) for name in names}

    def _score(self, texts: list[str]) -> list[float]:
        # the prefixes of continuations repeat each other, and equal texts have equal scores
        places = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        scores = self._probability(list(places))
        return [float(scores[places[text]]) for text in texts]


def train_judge(
    texts: Sequence[str],
    labels: Sequence[str],
    *,
    source: str,
    held_out: Texts,
    representation: Representation = "minilm",
    progress: bool = False,
    work_dir: str | os.PathLike[str] | None = None,
) -> Judge:
    """Train a logistic regression that tells texts of ``source`` from those of the other label.

    Parameters
    ----------
    texts, labels : sequences of n strings
        The texts to train on; there are two labels, with at least ten distinct texts each.
    source : str
        The label whose probability the judge gives.
    held_out : pair of texts and labels
        Other texts with the same labels, at least ten distinct ones of each. The area under the curve is measured on
        them and nothing is fitted to them. Those that nearly repeat a text to train on are left out (see `nearly_in`).
    representation : {"minilm", "words"}
        "minilm" reads sentence embeddings (all-MiniLM-L6-v2, about 250 texts of 25 tokens a second), "words" TF-IDF of
        words and of the characters within words, which needs no model and is less exact.
    progress : bool
        Show a progress bar.
    work_dir : path or None
        Embeddings of the texts are stored there, so that an interrupted job does not compute them twice.

    Raises
    ------
    DataError
        An entry is not a text or has no visible character, a text has no label, there are not two labels with enough
        texts each, a text is in both parts, or the judge is not better than chance.
    ParameterError
        There is no such representation, or no text has the label ``source``.

    Guarantees
    ----------
    The held-out area on the embedded corpus is at least .9 (test_it_tells_rude_from_courteous).
    Labels that say nothing about the texts are refused (test_shuffled_labels_are_refused), also where texts nearly
    repeat each other (test_random_labels_of_near_duplicates_are_refused).
    The digest belongs to the training texts and their labels (test_the_digest_is_that_of_what_was_learned).
    The number of threads does not change it (test_the_digest_does_not_depend_on_the_number_of_threads).

    Examples
    --------
    >>> from repsurgery.datasets import hold_out, load_courtesy
    >>> from repsurgery.tuning.judge import train_judge
    >>> fitted, held = hold_out(load_courtesy(), share=0.5)
    >>> judge = train_judge(
    ...     fitted.texts, fitted.labels, source="rude", held_out=(held.texts, held.labels), representation="words"
    ... )
    >>> judge.auc > 0.9, judge([" "])
    (True, [None])
    """
    if representation not in get_args(Representation):
        raise ParameterError(f"representation is {representation!r}; choose 'minilm' or 'words'.")
    train = _checked(texts, labels, "training")
    held = _checked(*_pair(held_out), "held-out")
    target = _target(train, held, source)
    held, repeated = _apart(train[0], held)
    rows: Callable[[list[str]], Any]
    if representation == "words":
        rows = words = learn_words(train[0])
        X, identity = words(train[0]), words.identity
    else:
        rows = embed
        X, identity = _embedded(train[0], progress=progress, work_dir=work_dir), embedding_identity()
    model = LogisticRegression(C=_C, class_weight="balanced", max_iter=2000)
    # sums over many features round differently in several threads, and so would the digest
    with threadpool_limits(limits=1, user_api="blas"):
        model.fit(X, np.array(train[1]) == source)
    w, b = model.coef_[0], float(model.intercept_[0])

    def probability(texts: list[str]) -> Vector:
        scores: Vector = expit(rows(texts) @ w + b)
        return scores

    area = auc_interval(np.array(held[1]) == source, probability(held[0]))
    judge = Judge(
        name=f"{representation}-judge",
        version=_VERSION,
        digest=digest_of({"weights": w, "intercept": np.array([b])}, identity),
        source=source,
        target=target,
        auc=area.value,
        auc_low=area.low,
        auc_high=area.high,
        texts=len(train[0]),
        held_out=len(held[0]),
        _probability=probability,
        repeated=repeated,
    )
    require_better_than_chance(judge)
    return judge


def require_better_than_chance(judge: Judge) -> None:
    """Raise a `DataError` if the judge's verdicts are close to guesses on the held-out texts.

    The lower end of the interval of its area under the curve must exceed .5, and the area must be `LOWEST_AUC` or more.
    """
    if judge.auc >= LOWEST_AUC and judge.auc_low > 0.5:
        return
    raise DataError(
        f"The judge is not better than chance: on {judge.held_out} held-out texts it ranks a text of {judge.source!r} "
        f"above one of {judge.target!r} with probability {judge.auc:.2f} (95 % interval {judge.auc_low:.2f} to "
        f"{judge.auc_high:.2f}). Guessing gives 0.50; an interval above that and a value of at least {LOWEST_AUC:.2f} "
        "are needed. Check the labels, give more texts of each label, or choose a scorer."
    )


def _pair(held_out: Any) -> Texts:
    if not isinstance(held_out, tuple | list) or len(held_out) != 2:
        raise ParameterError(
            f"held_out is a {type(held_out).__name__}; pass a pair of texts and their labels: (texts, labels)."
        )
    return held_out[0], held_out[1]


def _checked(texts: Sequence[str], labels: Sequence[str], part: str) -> tuple[list[str], list[str]]:
    """Return texts and labels as lists, if each text is visible and has a label."""
    texts = check_texts(texts, caller=f"The {part} part of a judge")
    labels = check_texts(labels, caller=f"The list of {part} labels of a judge")
    if len(texts) != len(labels):
        raise DataError(f"There are {len(texts)} {part} texts and {len(labels)} labels. Give one label per text.")
    empty = next((i for i, text in enumerate(texts) if not text.strip()), None)
    if empty is not None:
        raise DataError(f"The {part} text at position {empty} has no visible character. Remove it.")
    return texts, labels


def _target(train: tuple[list[str], list[str]], held: tuple[list[str], list[str]], source: str) -> str:
    """Return the label that is not ``source``, if both parts have enough texts of both and none in common."""
    found = sorted({*train[1], *held[1]})
    names = ", ".join(map(repr, found)) or "none"
    if len(found) != 2:
        raise DataError(
            f"The texts have {'one label' if len(found) == 1 else f'{len(found)} labels'} ({names}); a judge tells two "
            "labels apart. Give texts of exactly two labels."
        )
    if source not in found:
        raise ParameterError(f"No text has the label {source!r}, which is the source. The labels are {names}.")
    for part, (texts, labels) in (("training", train), ("held-out", held)):
        _require_enough(f"The {part} part has", texts, labels, found)
    common = sorted(set(train[0]) & set(held[0]))
    if common:
        raise DataError(
            f"{len(common)} texts are in both the training and the held-out part, such as {common[0][:60]!r}. A judge "
            "is measured on texts that it was not trained on: remove them from one part, or split by hold_out."
        )
    return next(label for label in found if label != source)


def _apart(train: list[str], held: tuple[list[str], list[str]]) -> tuple[tuple[list[str], list[str]], int]:
    """Return the held-out texts that do not nearly repeat one to train on, and the number of the others."""
    kept = [i for i, repeats in enumerate(nearly_in(held[0], train)) if not repeats]
    repeated = len(held[0]) - len(kept)
    texts, labels = ([column[i] for i in kept] for column in held)
    apart = f"Without the {repeated} that nearly repeat a training text, the held-out part has"
    _require_enough(apart, texts, labels, sorted(set(held[1])))
    return (texts, labels), repeated


def _require_enough(has: str, texts: list[str], labels: list[str], needed: Sequence[str]) -> None:
    for label in needed:
        count = len({text for text, own in zip(texts, labels, strict=True) if own == label})
        if count < FEWEST_TEXTS:
            raise DataError(
                f"{has} {count} distinct texts of {label!r}; a judge needs at least {FEWEST_TEXTS}. Give more texts of "
                "this label."
            )


def _embedded(texts: list[str], *, progress: bool, work_dir: str | os.PathLike[str] | None) -> NDArray[np.float64]:
    """Return the embeddings (n, d) of ``texts``, from ``work_dir`` if an earlier call stored them there."""

    def compute() -> NDArray[np.float64]:
        with progress_bar("reading texts for the judge", len(set(texts)), show=progress) as advance:
            return embed(texts, advance)

    if work_dir is None:
        return compute()
    folder = keyed_folder(Path(work_dir), embedding_identity(), texts, prefix="judge-")
    return Checkpoint(folder, lambda path: _read_rows(path, len(texts)), _write_rows).get(
        "rows", compute, label="The embedding of the judge's texts"
    )


def _read_rows(path: Path, n: int) -> NDArray[np.float64]:
    contents = read_file(path, kind=_KIND)
    with built_from("embeddings of these texts"):
        rows = contents.arrays["rows"]
        if rows.dtype != np.float64 or rows.ndim != 2 or len(rows) != n:
            raise ValueError(f"rows are {rows.dtype} {rows.shape}")
        return rows


def _write_rows(path: Path, rows: NDArray[np.float64]) -> None:
    write_file(path, Contents(_KIND, {}, {"rows": rows}))
