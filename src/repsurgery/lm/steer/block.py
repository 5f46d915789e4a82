"""One steering block: the threads to which it applies, its hooks, and its counts."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from repsurgery.lm.steer.threads import Owner

__all__ = ["Block"]


class Block:
    """The state of one ``with lm.steer(...)``; `steer` explains its counts.

    Parameters
    ----------
    note : str
        The steering as text; it distinguishes stored results that were read under different steerings.
    sites : sequence of str
    everywhere : bool
        Whether the block applies to every thread, or only to the one that creates this object.

    Attributes
    ----------
    handles : list
        The handles of its hooks, which `close` removes.
    """

    def __init__(self, note: str, sites: Sequence[str], *, everywhere: bool) -> None:
        self.note = note
        self._owner = None if everywhere else Owner()
        self._lock = threading.Lock()
        self._visits: dict[str, int] = {}
        self._elsewhere: dict[str, int] = {}
        self._selected: dict[str, int] = {}
        self._steered: dict[str, float] = {}
        self.watch(sites)
        self.handles: list[Any] = []
        self._open, self._excused = True, False

    @property
    def visits(self) -> Mapping[str, int]:
        """How many passes went through each site."""
        return MappingProxyType(dict(self._visits))

    @property
    def steered_share(self) -> Mapping[str, float]:
        """The share of the selected positions at each site that was steered; 0.0 where none was selected.

        Behind a soft gate it is the mean strength over the selected positions.
        """
        return MappingProxyType({site: self._steered[site] / max(n, 1) for site, n in self._selected.items()})

    def watch(self, sites: Iterable[str]) -> None:
        """Count passes through further ``sites``, too."""
        for site in sites:
            for counts in (self._visits, self._elsewhere, self._selected, self._steered):
                counts.setdefault(site, 0)

    def holds_here(self) -> bool:
        """Return whether this block applies to the code that calls this method."""
        return self._open and (self._owner is None or self._owner.here())

    def applies_at(self, site: str) -> Callable[[], bool]:
        """Return a function that tells the hook at ``site`` whether to act, and counts passes of other threads."""

        def applies() -> bool:
            if self.holds_here():
                return True
            with self._lock:
                self._elsewhere[site] += 1
            return False

        return applies

    def count_visit(self, site: str) -> None:
        """Count one pass through ``site``."""
        with self._lock:
            self._visits[site] += 1

    def count_rows(self, site: str, selected: int, steered: float) -> None:
        """Count ``selected`` positions, of which the gate assigned ``steered`` to a map, or the sum of strengths."""
        with self._lock:
            self._selected[site] += selected
            self._steered[site] += steered

    def excuse(self) -> None:
        """Accept that no pass is made, because its results were already stored."""
        self._excused = True

    def close(self) -> None:
        """Remove every hook."""
        self._open = False
        for handle in self.handles:
            handle.remove()

    def problem(self, *, context_intact: bool, others_generate: bool) -> str | None:
        """Return why this block did not steer, and what to do; None where it steered at every site.

        Parameters
        ----------
        context_intact : bool
            Whether every hook that tracks the model's passes is still set.
        others_generate : bool
            Whether another thread is inside a call of ``generate``.
        """
        hooks_intact = all(handle.id in (handle.hooks_dict_ref() or ()) for handle in self.handles)
        if not hooks_intact or not context_intact:
            return (
                "A hook of this steering block was removed by other code while the block was open, so some of its "
                "passes may not have been steered. Do not remove hooks while the block is open, and compute these "
                "results again."
            )
        if self._owner is None and others_generate:
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
                "threads did, unsteered. Pass threads='all' to lm.steer to steer them too; lm.steer_rows steers its "
                "own thread only."
            )
        return (
            f"No pass went through {where} inside this steering block, so nothing was steered there. Run the model "
            "inside the block; name a site that runs in its forward pass (lm.site_names); or, where another thread "
            "runs the model, pass threads='all'. Exported and traced graphs (torch.export, torch.jit, ONNX) cannot be "
            "steered."
        )
