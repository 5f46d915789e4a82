"""`ray_class_moments`: Ray actors with models read texts and send back moments, never activations."""

import heapq
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsurgery.arrays import Label
from repsurgery.errors import EngineError, EngineWarning, ParameterError
from repsurgery.moments import ClassMoments
from repsurgery.moments.moments import Precision
from repsurgery.scale.engines.base import RETRIES, lost
from repsurgery.scale.engines.ray_engine import RayEngine
from repsurgery.scale.models.reading import Reading

if TYPE_CHECKING:
    from repsurgery.lm.read.states import Pooling

__all__ = ["ray_class_moments"]

Load = Callable[[], tuple[Any, Any]]
"""A function that loads and returns a model and its tokenizer."""


def ray_class_moments(
    load: str | os.PathLike[str] | Load,
    texts: Sequence[str],
    labels: Sequence[Label],
    *,
    sites: Sequence[str],
    pooling: "Pooling" = "last",
    max_length: int | None = None,
    batch_size: int = 32,
    precision: Precision = "float64",
    actors: int = 2,
    num_cpus: float = 1,
    num_gpus: float = 0,
    chunks: int = 32,
    address: str | None = None,
    work_dir: str | os.PathLike[str] | None = None,
) -> dict[str, ClassMoments]:
    """Return, per site, the moments of the texts' hidden states, read by models on Ray actors.

    Every actor loads the model once and reads chunks of the texts, all sites in one pass. When an actor dies, a new
    actor takes over its chunk. The moments of a chunk are added once, when the whole chunk is finished.

    Parameters
    ----------
    load : str, path or callable
        A name for `lm.load`, or a function without arguments that returns model and tokenizer and runs on the actors.
        A model given by name is placed on the GPU of the actor if ``num_gpus`` is not 0.
    texts, labels, sites, pooling, max_length, batch_size, precision
        As in `lm.class_moments`.
    actors : int
        Number of models at a time; the work starts when the first one is ready.
    num_cpus, num_gpus : float
        Resources that Ray reserves for each actor.
    chunks : int
        Number of chunks. An actor that dies loses one chunk of work; each chunk sends 8 k d² bytes per site.
    address : str or None
        As in `RayEngine`.
    work_dir : path or None
        As in `lm.class_moments`, with one folder per chunk; all actors must be able to access it.

    Returns
    -------
    dict of site name to ClassMoments

    Raises
    ------
    SiteError, TextError, LabelError, ParameterError, ModelError
        Before any text is read.
    EngineError
        Actors died repeatedly at one chunk, or while loading the model.

    Guarantees
    ----------
    Equal to the result of one process, with the same bits for any number of actors
    (test_actors_read_what_one_process_reads).
    The death of an actor does not change the result (test_a_killed_actor_costs_nothing).
    """
    _check(load, actors, chunks)
    folder = None if work_dir is None else Path(work_dir).absolute()
    job = Reading(texts, labels, sites, pooling, max_length, batch_size, precision, folder).checked("ray_class_moments")
    sums = {site: ClassMoments() for site in job.sites}
    cores = max(actors, int(-(-actors * num_cpus // 1)))
    with RayEngine(workers=cores, address=address):
        import ray as untyped

        ray: Any = untyped
        _require_room(ray.cluster_resources(), num_cpus, num_gpus, may_grow=address is not None)
        reader = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus)(_Reader)
        work = ray.put((load, job, chunks, "cuda" if num_gpus else None))
        with _Pool(ray, lambda: reader.remote(work), actors) as pool:
            for moments in pool.in_order():
                sums = {site: sums[site].merge(ClassMoments.from_bytes(moments[site])) for site in sums}
    return sums


def _check(load: Any, actors: int, chunks: int) -> None:
    is_model = hasattr(load, "named_modules")  # a model is callable, too
    if is_model or not (callable(load) or isinstance(load, str | os.PathLike)):
        raise ParameterError(
            f"load is {type(load).__name__}; it takes a name or folder for lm.load, or a function that returns model "
            "and tokenizer, because the actors load the models themselves."
        )
    for name, value in (("actors", actors), ("chunks", chunks)):
        if value < 1:
            raise ParameterError(f"{name} is {value}; there must be at least one.")


def _require_room(resources: dict[str, float], num_cpus: float, num_gpus: float, *, may_grow: bool) -> None:
    for name, needed in (("CPU", num_cpus), ("GPU", num_gpus)):
        if resources.get(name, 0) >= needed:
            continue
        text = f"An actor needs {needed:g} {name}, and this Ray has {resources.get(name, 0):g}"
        if not may_grow:
            raise EngineError(f"{text}; it would wait forever. Lower num_{name.lower()}s.")
        warnings.warn(f"{text}; the work starts when a node with enough joins.", EngineWarning, stacklevel=3)


class _Reader:
    """The model on one actor."""

    def __init__(self, work: tuple[str | os.PathLike[str] | Load, Reading, int, str | None]) -> None:
        self._load, self._job, self._chunks, self._device = work

    def start(self) -> int:
        """Load the model, check the job with it, and return the number of chunks that contain texts.

        Not in ``__init__``, because Ray reports an exception there as a dead actor, without its type.
        """
        self._model, self._tokenizer = self._loaded()
        parts = self._job.split(self._model, self._tokenizer, self._chunks)
        self._parts = [part for part in parts if part]
        return len(self._parts)

    def _loaded(self) -> tuple[Any, Any]:
        if callable(self._load):
            return self._load()
        from repsurgery import lm

        return lm.load(self._load, device=self._device)

    def read(self, chunk: int) -> dict[str, bytes]:
        """Return the moments of a chunk for each site, in the bytes of a file."""
        read = self._job.moments(self._model, self._tokenizer, self._parts[chunk], progress=False)
        return {site: moments.to_bytes() for site, moments in read.items()}


class _Pool:
    """Actors, the chunks they work on, the chunks to do, and finished chunks that wait for earlier ones."""

    def __init__(self, ray: Any, make: Callable[[], Any], actors: int) -> None:
        self._ray, self._make, self._window = ray, make, 2 * actors
        self._running: dict[Any, tuple[Any, int | None]] = {}
        self._idle: list[Any] = []
        self._todo: list[int] = []
        self._finished: dict[int, dict[str, bytes]] = {}
        self._deaths: Counter[int | None] = Counter()
        self._next, self._total = 0, 0
        for _ in range(actors):
            self._start()

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for actor in [*self._idle, *(actor for actor, _ in self._running.values())]:
            self._ray.kill(actor)

    def _start(self) -> None:
        actor = self._make()
        self._running[actor.start.remote()] = actor, None

    def in_order(self) -> Iterator[dict[str, bytes]]:
        """Yield the results of all chunks in order, so that their sum has the same bits in every run."""
        while not self._total or self._next < self._total:
            self._hand_out()
            done, _ = self._ray.wait(list(self._running), num_returns=1)
            self._take(done[0])
            while self._next in self._finished:
                yield self._finished.pop(self._next)
                self._next += 1

    def _hand_out(self) -> None:
        # results far ahead of the next chunk in order would only fill the memory of the driver
        while self._idle and self._todo and self._todo[0] < self._next + self._window:
            actor, chunk = self._idle.pop(), heapq.heappop(self._todo)
            self._running[actor.read.remote(chunk)] = actor, chunk

    def _take(self, done: Any) -> None:
        actor, chunk = self._running.pop(done)
        try:
            result = self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            # an unreachable actor may be alive and keep the resources that its replacement needs
            self._ray.kill(actor)
            self._replace(chunk, error)
            return
        self._idle.append(actor)
        if chunk is not None:
            self._finished[chunk] = result
        else:
            del self._deaths[None]
            if not self._total:
                self._total, self._todo = result, list(range(result))

    def _replace(self, chunk: int | None, error: Exception) -> None:
        self._deaths[chunk] += 1
        if self._deaths[chunk] > RETRIES:
            what = "Loading the model" if chunk is None else f"Chunk {chunk} of the texts"
            raise EngineError(f"{what}: {lost(type(error).__name__).message}")
        if chunk is not None:
            heapq.heappush(self._todo, chunk)
        self._start()
