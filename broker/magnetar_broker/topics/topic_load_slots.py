"""Which topics may be opened now: a bounded number of slots, of which slow openings may hold half.

    requested ──slot granted──► running ──────────────────────────────────────────────► released
                                   └─ for longer than the bound ─► slow ── evicted ──────┘

An opening is slow when it has been running for longer than a bound, or from its beginning when the topic's last one
failed. Slots are granted in the order of the requests, except that slow openings wait while slow ones hold half of
the slots. So topics that can't be opened, for example because their bookies are down, delay healthy ones no longer
than that bound.

A running opening may become slow when slow ones hold half of the slots already. It holds its slot while no healthy
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
    """One opening of a topic, from the request of a slot until its release."""

    __slots__ = ("is_evicted", "is_slow", "name", "number")

    def __init__(self, name: N, number: int, *, is_slow: bool) -> None:
        self.name = name
        # Requests are numbered in their order.
        self.number = number
        self.is_slow = is_slow
        # It is being cancelled.
        self.is_evicted = False


class TopicLoadSlots(Generic[N]):
    def __init__(self, slots: int, max_remembered: int = MAX_REMEMBERED) -> None:
        self._max_running = slots
        self._max_slow = max(1, slots // 2)
        self._max_remembered = max_remembered
        self._requests = 0
        # Requests without a slot, in their order.
        self._waiting: dict[TopicLoad[N], None] = {}
        self._waiting_slow: dict[TopicLoad[N], None] = {}
        # In the order in which slots were granted; and the slow ones among them, in the order in which they became
        # slow.
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
        """Grant a slot to the first request that may have one. None: none may. Call it until then."""
        if len(self._running) >= self._max_running:
            return None
        loading = next(iter(self._waiting), None)
        if len(self._running_slow) < self._max_slow:
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
        """Record that an opening has been running for longer than the bound."""
        if loading in self._running:
            loading.is_slow = True
            self._running_slow[loading] = None

    def evict_next(self) -> TopicLoad[N] | None:
        """Return a slow opening to cancel for a healthy one that waits. None: there is none. Call it until then.

        It holds its slot until it is released.
        """
        surplus = len(self._running_slow) - self._max_slow
        if surplus <= 0 or not self._waiting:
            return None
        evicted = sum(loading.is_evicted for loading in self._running_slow)
        if evicted >= min(surplus, len(self._waiting)):
            return None
        loading = next(one for one in self._running_slow if not one.is_evicted)
        loading.is_evicted = True
        return loading

    def release(self, loading: TopicLoad[N], *, failed: bool) -> None:
        """Release an opening that has ended, or whose request was withdrawn."""
        self._leave(loading)
        self._failed.pop(loading.name, None)
        if failed:
            self._failed[loading.name] = None
            if len(self._failed) > self._max_remembered:
                del self._failed[next(iter(self._failed))]

    def _leave(self, loading: TopicLoad[N]) -> None:
        for loadings in (self._waiting, self._waiting_slow, self._running, self._running_slow):
            loadings.pop(loading, None)
