"""`tune`: choose a steering for a concept at a stated price, and confirm it on prompts that took no part."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import repsurgery as rs
from repsurgery.cards import Card, Shown
from repsurgery.errors import OutputError, SurgeryError
from repsurgery.steering.function import SteeringFunction
from repsurgery.tuning.lock import Lock, lock_path, read_lock, write_lock
from repsurgery.tuning.plan import Budget, Effort, Measure, Plan, plan_of_effort
from repsurgery.tuning.request import Request, check_minutes
from repsurgery.tuning.shown import tuned_card

if TYPE_CHECKING:
    from repsurgery.lm.fold.targets import TargetName

__all__ = ["Tuned", "tune"]


@dataclass(frozen=True, slots=True, eq=False)
class Tuned(Shown):
    """What `tune` returns.

    Attributes
    ----------
    steering : SteeringFunction
        With its origin (model, site, positions, strength) and its outcome (effect and price); `lm.generate` and
        `lm.steer` use it as it is.
    record : mapping or None
        Everything that was measured, JSON-ready; None where a lock was repeated, because nothing was measured.
    lock : mapping
        What the steering follows from.
    """

    steering: SteeringFunction
    record: Mapping[str, Any] | None
    lock: Lock

    def _card(self) -> Card:
        return tuned_card(self)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw effect against price of every measured candidate, with the Pareto front, and return the axes.

        Parameters
        ----------
        ax : Axes of matplotlib, or None
            None makes a new figure. Drawing needs ``pip install 'repsurgery[report]'``.
        """
        if self.record is None:
            raise SurgeryError(
                "A lock made this steering again, so nothing was measured to draw. Tune it without a lock."
            )
        from repsurgery.studies.tuned.plot import draw_front

        return draw_front(self.record, ax)

    def save(self, path: str | os.PathLike[str]) -> Path | None:
        """Write the steering to ``path`` and its lock beside it, and return the path of the lock.

        The lock of kinder.safetensors is kinder.lock.json. A steering that a lock did not make again bit for bit has no
        lock of its own: None is returned.

        Raises
        ------
        OutputError
            The steering has no lock of its own, and there is another one in its place; nothing is written.

        Guarantees
        ----------
        A lock beside a steering is its own (test_a_lock_beside_a_steering_is_its_own).
        """
        place = lock_path(path)
        own = self.steering.digest() == self.lock["digest"]
        if not own and place.exists():
            raise OutputError(
                f"{place} is the lock of another steering than this one, which no lock makes. Write it under another "
                "name."
            )
        rs.save(self.steering, path)
        return write_lock(self.lock, place) if own else None


def tune(
    texts: Any = None,
    *,
    source: str = "source",
    target: str = "target",
    prompts: Any = None,
    chat: bool = False,
    model: str = "smollm2-135m",
    device: str | None = None,
    dtype: str | None = None,
    kl: float = 0.1,
    wikitext: float | None = None,
    scorer: Any = None,
    others: Sequence[str] = (),
    measure: Measure | None = None,
    effort: Effort = "normal",
    plan: Plan | None = None,
    minutes: float | None = None,
    sites: Sequence[str] | None = None,
    export_to: "TargetName | None" = None,
    text: str = "text",
    label: str = "label",
    seed: int = 0,
    lock: Any = None,
    data_dir: str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    progress: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Choose the steering of ``model`` from ``source`` to ``target`` with the greatest effect at a stated price.

    The prompts are divided into three parts. The model continues the first without steering; candidates (site, method,
    fit, shrinkage, scope) are fitted on what it writes and on the texts. Closed forms drop most of them: predicted
    price, held-out slope, gain. The others are brought to the budget by their measured price, and race on the second
    part with equal noise. The winner is confirmed on the third part, and only that figure is reported.

    Parameters
    ----------
    texts : path, "courtesy", LabelledTexts or None
        A table with a text and a label in each row, see `read_table`; None with a scorer.
    source, target : str
        The labels to steer from and to.
    prompts : path, "provoking" or sequence of str or conversations
        A text file with one prompt on each line, a .jsonl file with messages on each line, or the prompts.
    chat : bool
        Take a prompt that is a plain text as a user's message, which the model answers through its chat template. The
        labelled texts stay plain.
    model, device, dtype
        See `lm.load`.
    kl : float
        The highest price: KL(base ‖ steered) in nats per token, over the base's own continuations.
    wikitext : float or None
        The highest ratio of WikiText perplexities, such as 1.05.
    scorer : str, scorer or None
        A name of `repsurgery.scorers`, or any scorer with name, version and digest, whose scores are probabilities of
        the source. None trains a judge on half of the texts.
    others : sequence of str
        Names of further scorers that take no part and are reported beside the judge.
    measure : {"share", "mean"} or None
        The share of continuations with a score of at least .5, or the mean score; None is the share for a trained
        judge and the mean for a scorer.
    effort : {"quick", "normal", "thorough"}
        How much is written and how many candidates are considered; see `EFFORTS`.
    plan : Plan or None
        Exact sizes instead of an effort.
    minutes : float or None
        No candidate begins that would not leave time for the confirmation. What is read and written before the race
        depends on the effort alone.
    sites : sequence of str or None
        The sites to consider; None chooses by the effort.
    export_to : {"folder", "lora", "gguf"}, the export of a plugin, or None
        Consider only steerings that this export holds exactly (see `export_targets`); a folder is one without custom
        code. None considers all, which hooks and the server can use.
    text, label : str
        The columns of the table.
    seed : int
    lock : path or None
        A lock file: its steering is made again, without a search. The other arguments are those of the lock; texts and
        prompts may be given where they have moved.
    data_dir : path or None
        The folder of WikiText; see `load_wikitext2`.
    work_dir : path or None
        Finished work is stored there, and the same call continues it; None is a folder in the cache.
    progress : bool
        Show progress bars.
    announce : function of one text
        Called with each step and each candidate, with the best one so far.

    Guarantees
    ----------
    The confirmed price meets the budget (test_the_confirmed_price_meets_the_budget).
    With ``export_to``, that export holds the steering (test_an_export_limits_the_search_to_what_it_holds).
    No prompt of the confirmation takes part in fits or choices (test_no_prompt_is_in_two_parts).
    A lock makes the same steering bit for bit (test_a_lock_makes_the_same_steering).
    An interrupted search repeats no finished candidate (test_an_interrupted_search_repeats_nothing).
    """
    began = time.monotonic()
    # torch is needed from here on, and not to know the name
    import repsurgery.lm  # noqa: F401 - where torch is missing, this says what to install
    from repsurgery.tuning.repeat import repeat
    from repsurgery.tuning.run import run, work_folder

    work = work_folder(work_dir)
    if lock is not None:
        stored = read_lock(lock)
        how: dict[str, Any] = {"device": device, "progress": progress, "announce": announce}
        return Tuned(repeat(stored, texts, prompts, scorer, work, **how), None, stored)
    request = Request(
        texts=texts,
        columns=(text, label),
        source=source,
        target=target,
        prompts=prompts,
        chat=chat,
        model=model,
        device=device,
        dtype=dtype,
        budget=Budget(kl, wikitext),
        scorer=scorer,
        others=tuple(others),
        measure=measure,
        plan=plan or plan_of_effort(effort),
        sites=None if sites is None else tuple(sites),
        export_to=export_to,
        deadline=began + 60 * check_minutes(minutes),
        seed=seed,
        data_dir=data_dir,
        work=work,
        progress=progress,
        announce=announce,
    )
    return Tuned(*run(request))
