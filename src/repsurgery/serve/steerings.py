"""The steering files that a server offers, by name; files that change, appear or disappear are noticed."""

import functools
import hashlib
import logging
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import repsurgery as rs
from repsurgery.errors import OriginWarning, ParameterError, SurgeryError, SurgeryWarning
from repsurgery.lm.load.fingerprint import fingerprint
from repsurgery.lm.steer.placement import Placement
from repsurgery.lm.steer.placing import compare_weights
from repsurgery.lm.steer.row_steering import as_steering
from repsurgery.lm.steer.rows import Choice, RowPlan, prepare_row
from repsurgery.serve.refusals import Refusal
from repsurgery.serve.schema import STRONGEST, SteeringChoice
from repsurgery.serve.sources import Sources

__all__ = ["Steerings"]

log = logging.getLogger(__name__)
KEPT_PLANS = 16
"""Prepared choices that are kept for the next request; a dense map takes as much memory as a weight matrix."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A file as it was last read: its stamp (None: it could not be), and its steering as it says (None: unusable).

    ``reason`` says why it is unusable.
    """

    path: Path
    stamp: tuple[int, ...] | None
    digest: str = ""
    steering: Placement | None = None
    reason: str = ""


class Steerings:
    """Named steerings for one model.

    Parameters
    ----------
    model : nn.Module
    sources : Sources

    Guarantees
    ----------
    A file that changes, appears or disappears is noticed by the next request that names a steering, and running
    requests keep what they began with (test_files_are_reloaded_and_running_requests_keep_theirs).
    A damaged or foreign file of the folder is left out, and the others are served
    (test_a_damaged_or_foreign_file_is_left_out). A named one raises an error here
    (test_a_named_file_that_does_not_fit_stops_the_server).
    A folder that vanishes changes nothing (test_a_folder_that_vanishes_keeps_its_steerings).
    A file that could not be read is tried again (test_a_file_is_offered_once_it_can_be_read).
    """

    def __init__(self, model: Any, sources: Sources) -> None:
        self._model, self._sources = model, sources
        self._lock = threading.Lock()
        self._versions: Mapping[str, _Version] = {}
        self._lost: list[Path] = []
        self._plans: OrderedDict[Any, RowPlan] = OrderedDict()
        self._weights = functools.cache(lambda: fingerprint(model, ignore_dtype=True))
        self.refresh()
        for name in sources.files:
            if (version := self._versions.get(name)) is not None and version.reason:
                raise ParameterError(
                    f"The steering file {version.path} cannot be used with this model. {version.reason}"
                )

    def names(self) -> list[str]:
        """Return the names of all steerings that can be used, after a look at the files."""
        self.refresh()
        return sorted(name for name, version in self._versions.items() if version.steering is not None)

    def plan(self, choices: Sequence[SteeringChoice]) -> RowPlan:
        """Return how a row is steered by ``choices`` in their order; raise a `Refusal` for what cannot be used."""
        if choices:
            self.refresh()
        # names are looked up in this dictionary only, so that a path is an unknown name
        versions = self._versions
        used = [_named(versions, choice.name) for choice in choices]
        for version, choice in zip(used, choices, strict=True):
            _require_bounded(version, choice)
        key = tuple((v.digest, c.strength, c.positions, c.scale) for v, c in zip(used, choices, strict=True))
        with self._lock:
            if key not in self._plans:
                try:
                    row = [_chosen(version, choice) for version, choice in zip(used, choices, strict=True)]
                    with _without_warnings():
                        self._plans[key] = prepare_row(self._model, row)
                except SurgeryError as error:
                    raise Refusal(400, str(error), param="steering") from error
                if len(self._plans) > KEPT_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            return self._plans[key]

    def refresh(self) -> None:
        """Read the files that changed."""
        with self._lock:
            lost = self._sources.lost()
            for folder in lost if lost != self._lost else ():
                log.warning("The folder %s is gone; its steerings stay loaded.", folder)
            self._lost = lost
            found = self._sources.found()
            kept = {name: one for name, one in self._versions.items() if name in found or one.path.parent in lost}
            for name in self._versions.keys() - kept.keys():
                log.info("The steering %r is gone.", name)
            self._versions = kept | {name: self._read(name, path) for name, path in found.items()}

    def _read(self, name: str, path: Path) -> _Version:
        before = self._versions.get(name)
        stamp, digest = None, ""
        try:
            stat = path.stat()
            # the second time changes with the content even where the first was set back
            stamp = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
            if before is not None and before.stamp == stamp and before.path == path:
                return before
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if before is not None and before.digest == digest:
                return replace(before, path=path, stamp=stamp)
            steering = self._usable(Placement(as_steering(rs.load(path))))
        except FileNotFoundError:
            return before or _Version(path, None)
        except OSError as error:
            # the reason may go without a change of the file, so that it is read again next time
            if before is None or before.stamp is not None:
                log.warning("The steering file %s cannot be read: %s", path, error.strerror or error)
            return _Version(path, None)
        except (SurgeryError, OriginWarning) as error:
            reason = " ".join(str(error).split())
            log.warning("The steering file %s is left out: %s", path, reason)
            return _Version(path, stamp, digest, reason=reason)
        log.info("The steering %r was loaded%s.", name, "" if before is None else " again")
        return _Version(path, stamp, digest, steering)

    def _usable(self, steering: Placement) -> Placement:
        """Return ``steering`` as compared, or raise an error where it belongs to another width, site or model."""
        with _without_warnings():
            warnings.simplefilter("error", OriginWarning)
            (compared,) = compare_weights(self._model, [steering], weights=self._weights)
            prepare_row(self._model, compared)
        return compared


def _chosen(version: _Version, choice: SteeringChoice) -> Choice:
    """Return the steering of a file as a request chooses it; the file decides what the request leaves open."""
    stored = version.steering
    assert stored is not None
    return Choice(Placement(stored.function, stored.site, choice.strength, choice.positions), scale=choice.scale)


def _named(versions: Mapping[str, _Version], name: str) -> _Version:
    version = versions.get(name)
    shown = repr(name[:64])
    if version is None:
        message = f"There is no steering called {shown}. GET /v1/models lists them as MODEL+NAME."
        raise Refusal(404, message, param="steering", code="steering_not_found")
    if version.steering is None:
        message = f"The file of the steering {shown} cannot be used with this model; the server's log says why."
        raise Refusal(404, message, param="steering", code="steering_not_usable")
    return version


def _require_bounded(version: _Version, choice: SteeringChoice) -> None:
    """Raise a `Refusal` where a scale takes a strength out of the range that requests may ask for."""
    if choice.scale == 1 or version.steering is None:
        return
    try:
        effective = version.steering.function.origin.effective_strength(choice.strength, choice.scale)
    except ParameterError as error:
        raise Refusal(400, str(error), param="steering") from error
    if abs(effective) > STRONGEST:
        message = (
            f"The strength of {choice.name[:64]!r} times its scale of {choice.scale:g} is {effective:g}; it must "
            f"lie between -{STRONGEST:g} and {STRONGEST:g}."
        )
        raise Refusal(400, message, param="steering")


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Issue no warnings of this package: clients choose strengths, and must not be able to fill the log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SurgeryWarning)
        yield
