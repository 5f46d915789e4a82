"""`hold_out`: set a share of labelled texts aside, so that what was fitted on the rest can be measured on them."""

from collections import defaultdict

import numpy as np

from repsurgery.datasets.records import LabelledTexts
from repsurgery.errors import ParameterError

__all__ = ["check_share", "hold_out"]


def check_share(name: str, share: float) -> None:
    """Raise an error, which calls it ``name``, if ``share`` is not a share of texts to hold out."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ParameterError(f"{name} is {share!r}; it must be at least 0 (hold out no texts) and less than 1.")


def hold_out(texts: LabelledTexts, *, share: float = 0.2, seed: int = 0) -> tuple[LabelledTexts, LabelledTexts]:
    """Return the texts to fit on and the held-out texts, each in the order of ``texts``.

    Parameters
    ----------
    texts : LabelledTexts
    share : float
        The share of the distinct texts of each label to hold out, rounded to whole texts. At least one distinct text of
        each label remains to fit on. 0 holds out none, and the second part is then empty.
    seed : int
        The same seed holds out the same texts.

    Guarantees
    ----------
    Each row is in exactly one part, and so are all rows of one text, whatever their labels
    (test_a_text_is_on_one_side_with_all_its_duplicates).
    Each label is held out in proportion (test_the_share_holds_for_each_label).
    """
    check_share("share", share)
    labels_of = defaultdict[str, set[str]](set)
    for text, label in zip(texts.texts, texts.labels, strict=True):
        labels_of[text].add(label)
    strata = defaultdict[tuple[str, ...], list[str]](list)
    for text, labels in labels_of.items():
        strata[tuple(sorted(labels))].append(text)
    rng = np.random.default_rng(seed)
    away: set[str] = set()
    for _, distinct in sorted(strata.items()):
        count = min(int(share * len(distinct) + 0.5), len(distinct) - 1)
        away.update(distinct[i] for i in rng.permutation(len(distinct))[:count])
    held_out = [text in away for text in texts.texts]
    return texts.where([not held for held in held_out]), texts.where(held_out)
