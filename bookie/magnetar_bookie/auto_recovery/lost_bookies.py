"""Which bookies are lost, and since when.

A bookie is in good standing while it has a cookie, is registered and is not being decommissioned. One that is not

- and is leaving, or has no cookie: is lost at once. The first was said by an operator, the second is final;
- and merely has no registration: is lost after `delay_s`, since most of them come back.

`since` counts on the monotonic clock of the process that looks, from the moment at which it saw the trouble first: no
two machines' clocks are compared, and one that has just started waits a little longer than it had to. When the bookie
is in good standing again, everything is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ClusterView", "LostBookies"]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The bookies at one moment, each list sorted."""

    # Every bookie that belongs to the cluster. Read after the others: so whoever is alive has its cookie here.
    cookies: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    # Alive ones that take new entries.
    writable: tuple[str, ...] = ()
    # Alive ones that take none by themselves: full, or told so.
    read_only: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()


class LostBookies:
    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._view = ClusterView()
        # Bookies that are not in good standing, and when that was seen first.
        self._since: dict[str, float] = {}

    @property
    def view(self) -> ClusterView:
        return self._view

    def observe(self, view: ClusterView, now: float) -> None:
        self._view = view
        for bookie_id in (*view.cookies, *view.leaving):
            self._judge(bookie_id, now)
        for bookie_id in list(self._since):
            self._judge(bookie_id, now)

    def observe_named(self, bookies: Iterable[str], now: float) -> None:
        """Ledgers name these: one without a cookie is lost from now on."""
        for bookie_id in bookies:
            if bookie_id not in self._since:
                self._judge(bookie_id, now)

    def is_lost(self, bookie_id: str, now: float) -> bool:
        return self.is_lost_for(bookie_id, now, 0.0)

    def is_lost_for(self, bookie_id: str, now: float, grace_s: float) -> bool:
        """Whether it has been lost for `grace_s`."""
        since = self._since.get(bookie_id)
        return since is not None and now >= since + self._delay_of(bookie_id) + grace_s

    def next_due(self, now: float, grace_s: float) -> float | None:
        """When the next bookie becomes lost, or has been for `grace_s`."""
        lost_at = [since + self._delay_of(bookie_id) for bookie_id, since in self._since.items()]
        return min((due for at in lost_at for due in (at, at + grace_s) if due > now), default=None)

    def _judge(self, bookie_id: str, now: float) -> None:
        view = self._view
        if bookie_id in view.alive and bookie_id in view.cookies and bookie_id not in view.leaving:
            self._since.pop(bookie_id, None)
        else:
            self._since.setdefault(bookie_id, now)

    def _delay_of(self, bookie_id: str) -> float:
        at_once = bookie_id in self._view.leaving or bookie_id not in self._view.cookies
        return 0.0 if at_once else self._delay_s
