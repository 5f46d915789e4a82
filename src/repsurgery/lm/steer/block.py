"""One steering block: for whom it holds, its hooks, and what it has counted."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from repsurgery.lm.steer.forward_context import Watch
from repsurgery.lm.steer.threads import Owner

__all__ = ["Block"]


class Block:
    """What one ``with lm.steer(...)`` holds and counts; see `steer` for the meaning of its counts.

    Parameters
    ----------
    note : str
        What steers, as text; it tells two readings of one model apart.
    sites : sequence of str
    everywhere : bool
        Whether it holds in every thread, or in the one that makes this object.

    Attributes
    ----------
    handles : list
        Of its hooks, removed by `close`.
    """

    def __init__(self, note: str, sites: Sequence[str], *, everywhere: bool) -> None:
        self.note = note
        self._owner = None if everywhere else Owner()
        self._lock = threading.Lock()
        self._visits, self._elsewhere = dict.fromkeys(sites, 0), dict.fromkeys(sites, 0)
        self._asked, self._steered = dict.fromkeys(sites, 0), dict.fromkeys(sites, 0)
        self.handles: list[Any] = []
        self._open, self._excused = True, False

    @property
    def visits(self) -> Mapping[str, int]:
        """How many passes went through each site."""
        return MappingProxyType(dict(self._visits))

    @property
    def steered_share(self) -> Mapping[str, float]:
        """Of the positions asked for at each site, the share that was steered; 0.0 where none was asked for."""
        return MappingProxyType({site: self._steered[site] / max(n, 1) for site, n in self._asked.items()})

    def holds_here(self) -> bool:
        """Return whether this block steers the code that asks."""
        return self._open and (self._owner is None or self._owner.here())

    def meant_at(self, site: str) -> Callable[[], bool]:
        """Return the function by which the hook at ``site`` asks whether a pass is meant; others' are counted."""

        def meant() -> bool:
            if self.holds_here():
                return True
            with self._lock:
                self._elsewhere[site] += 1
            return False

        return meant

    def count_visit(self, site: str) -> None:
        """Note one pass through ``site``."""
        with self._lock:
            self._visits[site] += 1

    def count_rows(self, site: str, asked: int, steered: int) -> None:
        """Note that ``steered`` of ``asked`` positions were handed to a map."""
        with self._lock:
            self._asked[site] += asked
            self._steered[site] += steered

    def excuse(self) -> None:
        """Accept that no pass is made: what it would have given was found on file."""
        self._excused = True

    def close(self) -> None:
        """Take every hook away."""
        self._open = False
        for handle in self.handles:
            handle.remove()

    def problem(self, watch: Watch) -> str | None:
        """Return what kept this block from steering, and what to do; None where it steered at every site."""
        hooks_stand = all(handle.id in (handle.hooks_dict_ref() or ()) for handle in self.handles)
        if not hooks_stand or not watch.intact():
            return (
                "Somebody removed a hook of this steering block while it was open, so some of its passes may not have "
                "been steered. Do not remove hooks while the block is open, and compute these results again."
            )
        if self._owner is None and watch.generates_elsewhere():
            return (
                "Another thread is still generating at the end of this steering block, and the rest of its text will "
                "not be steered. Wait for it (thread.join()) inside the block."
            )
        idle = [site for site, visits in self._visits.items() if not visits]
        if not idle or self._excused:
            return None
        where = ", ".join(repr(site) for site in idle)
        if any(self._elsewhere[site] for site in idle):
            return (
                f"No pass of the thread that entered this steering block went through {where}, but passes of other "
                "threads did, unsteered. Pass threads='all' to steer them too."
            )
        return (
            f"No pass went through {where} inside this steering block, so nothing was steered there. Run the model "
            "inside the block; name a site that runs in its forward pass (lm.site_names); or, where another thread "
            "runs the model, pass threads='all'. Exported and traced graphs (torch.export, torch.jit, ONNX) cannot be "
            "steered."
        )
