"""Which topics may be opened now: a bounded number of places, of which slow openings may hold half.

    requested ──place granted──► running ──────────────────────────────────────────────► released
                                    └─ for longer than the bound ─► slow ── evicted ──────┘

An opening is slow when it has been running for longer than a bound, or from its beginning when the topic's last one
failed. Places are granted in the order of the requests, except that slow openings wait while slow ones hold half
of the places. So topics that can't be opened, because their bookies are away for example, keep healthy ones waiting for
no longer than that bound.

A running opening may become slow when slow ones hold half of the places already. It keeps its place while no healthy
opening waits for it; when one does, the oldest of the surplus is evicted.

Failed topics are remembered in bounded memory: the oldest is forgotten first, and then counts as healthy until it is
slow again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

__all__ = ["TopicLoad", "TopicLoadSlots"]

N = TypeVar("N", bound=Hashable)

MAX_REMEMBERED: Final = 10_000


class TopicLoad(Generic[N]):
    """One opening of a topic, from the request of a place until its release."""

    __slots__ = ("is_evicted", "is_slow", "name", "number")

    def __init__(self, name: N, number: int, *, is_slow: bool) -> None:
        self.name = name
        # Requests are numbered in their order.
        self.number = number
        self.is_slow = is_slow
        # Its owner has been asked to end it.
        self.is_evicted = False


class TopicLoadSlots(Generic[N]):
    def __init__(self, places: int, max_remembered: int = MAX_REMEMBERED) -> None:
        self._places = places
        self._slow_places = max(1, places // 2)
        self._max_remembered = max_remembered
        self._requests = 0
        # Requests without a place, in their order.
        self._waiting: dict[TopicLoad[N], None] = {}
        self._waiting_slow: dict[TopicLoad[N], None] = {}
        # In the order in which places were granted, and of those the slow ones in the order in which they became slow.
        self._running: dict[TopicLoad[N], None] = {}
        self._running_slow: dict[TopicLoad[N], None] = {}
        # Topics whose last opening failed, oldest first.
        self._failed: dict[N, None] = {}

    def request(self, name: N) -> TopicLoad[N]:
        self._requests += 1
        loading = TopicLoad(name, self._requests, is_slow=name in self._failed)
        (self._waiting_slow if loading.is_slow else self._waiting)[loading] = None
        return loading

    def grant_next(self) -> TopicLoad[N] | None:
        """Grants a place to the first request that may have one; None: none may. Call it until then."""
        if len(self._running) >= self._places:
            return None
        loading = next(iter(self._waiting), None)
        if len(self._running_slow) < self._slow_places:
            slow = next(iter(self._waiting_slow), None)
            if loading is None or (slow is not None and slow.number < loading.number):
                loading = slow
        if loading is not None:
            self._leave(loading)
            self._running[loading] = None
            if loading.is_slow:
                self._running_slow[loading] = None
        return loading

    def mark_slow(self, loading: TopicLoad[N]) -> None:
        """It has been running for longer than the bound."""
        if loading in self._running:
            loading.is_slow = True
            self._running_slow[loading] = None

    def evict_next(self) -> TopicLoad[N] | None:
        """The slow opening to be ended for a healthy one that waits; None: none is. Call it until then.

        It keeps its place until it is released.
        """
        surplus = len(self._running_slow) - self._slow_places
        if surplus <= 0 or not self._waiting:
            return None
        evicted = sum(loading.is_evicted for loading in self._running_slow)
        if evicted >= min(surplus, len(self._waiting)):
            return None
        loading = next(one for one in self._running_slow if not one.is_evicted)
        loading.is_evicted = True
        return loading

    def release(self, loading: TopicLoad[N], *, failed: bool) -> None:
        """The opening is over, or its request is withdrawn."""
        self._leave(loading)
        self._failed.pop(loading.name, None)
        if failed:
            self._failed[loading.name] = None
            if len(self._failed) > self._max_remembered:
                del self._failed[next(iter(self._failed))]

    def _leave(self, loading: TopicLoad[N]) -> None:
        for loadings in (self._waiting, self._waiting_slow, self._running, self._running_slow):
            loadings.pop(loading, None)
