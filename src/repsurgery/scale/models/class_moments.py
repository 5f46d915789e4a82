"""`class_moments`: moments of hidden states, read by all ranks of a ``torchrun`` job."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from repsurgery.arrays import Label
from repsurgery.errors import EngineError, ParameterError
from repsurgery.moments import ClassMoments
from repsurgery.moments.moments import Precision
from repsurgery.scale.engines.torch_engine import all_reduce_moments
from repsurgery.scale.models.reading import Reading

if TYPE_CHECKING:
    from repsurgery.lm.read.states import Pooling

__all__ = ["class_moments"]


def class_moments(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    labels: Sequence[Label],
    *,
    sites: Sequence[str],
    pooling: "Pooling" = "last",
    max_length: int | None = None,
    batch_size: int = 32,
    precision: Precision = "float64",
    progress: bool = True,
    work_dir: str | os.PathLike[str] | None = None,
    group: Any = None,
) -> dict[str, ClassMoments]:
    """Return, on every rank and per site, the moments of the hidden states of all texts.

    Every rank calls it with the same arguments and with the model on its own device. The batches are dealt out to the
    ranks in turn. Each rank reads all sites in one pass, and one all-reduce per site adds the moments. Without a
    process group, this is `lm.class_moments`.

    Parameters
    ----------
    model, tokenizer, texts, labels, sites, pooling, max_length, batch_size, precision
        As in `lm.class_moments`.
    progress : bool
        Whether rank 0 shows progress.
    work_dir : path or None
        As in `lm.class_moments`; ranks may share it. The same call on the same number of ranks resumes.
    group : torch.distributed.ProcessGroup or None

    Returns
    -------
    dict of site name to ClassMoments

    Raises
    ------
    SiteError, TextError, LabelError, ParameterError
        On every rank, before any text is read.

    Guarantees
    ----------
    Equal to the result of one process, with the same bits on every rank (test_ranks_read_what_one_process_reads).
    An interrupted call is resumed (test_ranks_go_on_where_they_stopped).
    """
    job = Reading(texts, labels, sites, pooling, max_length, batch_size, precision, work_dir).checked("class_moments")
    rank, ranks = _place(group)
    parts = job.split(model, tokenizer, ranks)
    if ranks > 1:
        _require_one_job(job, model, ranks, group)
    mine = job.moments(model, tokenizer, parts[rank], progress=progress and rank == 0)
    return mine if ranks == 1 else {site: all_reduce_moments(mine[site], group=group) for site in job.sites}


def _place(group: Any) -> tuple[int, int]:
    """Return this rank and the number of ranks."""
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise EngineError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and there is no process group: every rank would read "
                "everything. Call torch.distributed.init_process_group first."
            )
        return 0, 1
    rank = distributed.get_rank(group)
    if rank < 0:
        raise EngineError("This rank is not in the group. Call class_moments on the ranks of the group only.")
    return rank, distributed.get_world_size(group)


def _require_one_job(job: Reading, model: Any, ranks: int, group: Any) -> None:
    from torch import distributed

    from repsurgery.lm.load.fingerprint import fingerprint

    jobs: list[Any] = [None] * ranks
    distributed.all_gather_object(jobs, (job.digest(), fingerprint(model)), group=group)
    if len(set(jobs)) > 1:
        raise ParameterError(
            "The ranks received different texts, labels, options or models. Load the same model, and pass all texts to "
            "every rank; class_moments divides them among the ranks."
        )
