"""Which bookies are lost, and since when.

A bookie is available while it has a cookie, is registered, and is not being decommissioned. A bookie that is not
available is lost

- at once, if it is being decommissioned or has no cookie: the first was requested by an operator, the second is final;
- after `delay_s`, if it is only unregistered, since most bookies return.

The time counts from when this process first saw that the bookie was not available, on its own monotonic clock. Clocks
of different machines are not compared; a process that has just started waits a little longer than necessary. When the
bookie is available again, its record is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ClusterView", "LostBookies"]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The bookies at one moment. Each list is sorted."""

    # Every bookie that belongs to the cluster. Read after the other lists, so it has all that are alive.
    cookies: tuple[str, ...] = ()
    # Registered bookies.
    alive: tuple[str, ...] = ()
    # Those that accept new entries.
    writable: tuple[str, ...] = ()
    # Those that refuse new entries themselves, since a disk is full or an operator has requested it.
    read_only: tuple[str, ...] = ()
    # Bookies that are being decommissioned, registered or not.
    leaving: tuple[str, ...] = ()


class LostBookies:
    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._view = ClusterView()
        # Bookies that are not available, and when that was first seen.
        self._since: dict[str, float] = {}

    @property
    def view(self) -> ClusterView:
        return self._view

    def observe(self, view: ClusterView, now: float) -> None:
        """Replace the view."""
        self._view = view
        for bookie_id in (*view.cookies, *view.leaving):
            self._update(bookie_id, now)
        for bookie_id in list(self._since):
            self._update(bookie_id, now)

    def observe_named(self, bookies: Iterable[str], now: float) -> None:
        """Record that ledgers name these bookies. One without a cookie is lost from now on."""
        for bookie_id in bookies:
            if bookie_id not in self._since:
                self._update(bookie_id, now)

    def is_lost(self, bookie_id: str, now: float) -> bool:
        return self.is_lost_for(bookie_id, now, 0.0)

    def is_lost_for(self, bookie_id: str, now: float, grace_s: float) -> bool:
        """Return whether the bookie has been lost for at least `grace_s`."""
        since = self._since.get(bookie_id)
        return since is not None and now >= since + self._delay_of(bookie_id) + grace_s

    def next_due(self, now: float, grace_s: float) -> float | None:
        """Return when the next bookie becomes lost, or has been lost for `grace_s`."""
        lost_at = [since + self._delay_of(bookie_id) for bookie_id, since in self._since.items()]
        return min((due for at in lost_at for due in (at, at + grace_s) if due > now), default=None)

    def _update(self, bookie_id: str, now: float) -> None:
        view = self._view
        if bookie_id in view.alive and bookie_id in view.cookies and bookie_id not in view.leaving:
            self._since.pop(bookie_id, None)
        else:
            self._since.setdefault(bookie_id, now)

    def _delay_of(self, bookie_id: str) -> float:
        at_once = bookie_id in self._view.leaving or bookie_id not in self._view.cookies
        return 0.0 if at_once else self._delay_s
