"""Enforces a topic's backlog quotas, by size and by age (backlog_quota_rules.py has the rules).

What happens when a backlog has reached its quota depends on the quota's policy (Pulsar's RetentionPolicy):
`producer_request_hold` and `producer_exception` block producers, and `consumer_backlog_eviction` evicts the oldest
messages.

    a client opens a producer ──► check_opening ──► refused, if a quota that blocks producers is reached
    housekeeping              ──► is_due, enforce ──► evicts messages; or closes the producers, after the results of the
                                                      entries that they have sent

Clients retry to open their producers, or report the error, until the backlog has shrunk or the quota is raised.
Consumers are not affected, so they can always reduce the backlog.

No check reads the backlog. Its size follows from the list of ledgers. Its age is the time of its first entry: that one
is read once for each position of the slowest subscription, and only if its ledger is old enough.

An eviction can't be undone. So it happens only while the topic's policies are known. It is a change of a subscription
like a seek, and changes of one subscription run one at a time (subscription_changes.py). What it skips is decided when
its turn comes, by the quota and the backlog at that time (CHK-69).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import BrokerError, UnreadableEntry
from magnetar_broker.managed_ledger.interface import TopicLog
from magnetar_broker.managed_ledger.stored_sizes import count_bytes_after
from magnetar_broker.position import Position
from magnetar_broker.settings.backlog_quotas import Quota
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.backlog_quota_rules import (
    Excess,
    QuotaKind,
    Slowest,
    find_eviction_end,
    find_eviction_target,
    find_slowest,
    is_reached,
)
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["BacklogQuotas", "EvictFrom"]

_log = logging.getLogger(__name__)


class EvictFrom(Protocol):
    async def __call__(self, name: str, find_end: Callable[[], Position | None]) -> int:
        """Skip the entries of a durable subscription up to `find_end()`, which is called when the change begins; None:
        skip nothing. Return the number of skipped entries when that is durable. Raises `BrokerError`."""


class BacklogQuotas:
    __slots__ = (
        "_clock",
        "_cursors",
        "_end_producers",
        "_enforcing",
        "_evict",
        "_live_settings",
        "_log",
        "_name",
        "_next_check",
        "_oldest",
        "blocks_producers",
        "evictions",
    )

    def __init__(
        self,
        name: TopicName,
        log: TopicLog,
        cursors: TopicCursors,
        live_settings: LiveSettings,
        clock: Clock,
        evict: EvictFrom,
        end_producers: Callable[[BrokerError], object],
    ) -> None:
        self._name = name
        self._log = log
        self._cursors = cursors
        self._live_settings = live_settings
        self._clock = clock
        self._evict = evict
        self._end_producers = end_producers
        self._next_check = 0.0
        # One enforcement runs at a time, so that each measures the backlog after the last one.
        self._enforcing = asyncio.Lock()
        # The first entry of a backlog, and when a broker received it, in ms since 1970.
        self._oldest: tuple[Position, int] | None = None
        # Why the topic accepted no producers at the last check. Empty: it did.
        self.blocks_producers = ""
        # The number of evictions.
        self.evictions = dict.fromkeys(QuotaKind, 0)

    def get_quota(self, kind: QuotaKind) -> Quota:
        settings = self._live_settings.current
        return settings.size_quota if kind is QuotaKind.SIZE else settings.age_quota

    async def check_opening(self) -> None:
        """Raise `BrokerError` if a quota is reached that blocks producers. Waits until the cursors are known."""
        limited = [kind for kind in self._list_limited() if not self._evicts(kind)]
        if not limited:
            return
        await self._cursors.wait_until_listed()
        for kind in limited:
            excess = await self._find_excess(kind)
            if excess is not None and not excess.is_evicted:
                raise excess.to_error(self._name)

    def is_due(self, now: float) -> bool:
        """Return whether to call `enforce`. `now`: on the monotonic clock."""
        if now < self._next_check:
            return False
        self._next_check = now + self._live_settings.current.backlog_quota_check_interval_in_seconds
        if any(self._may_exceed(kind) for kind in self._list_limited()):
            return True
        self.blocks_producers = ""
        return False

    async def enforce(self) -> None:
        """Close producers, or evict messages, if a quota is reached. Raises `BrokerError`."""
        async with self._enforcing:
            await self._enforce()

    async def _enforce(self) -> None:
        evicting = [kind for kind in self._list_limited() if self._evicts(kind)]
        try:
            for kind in evicting:  # first, as the producers may then stay open
                excess = await self._find_excess(kind)
                if excess is not None and excess.is_evicted:
                    await self._evict_all(excess)
        finally:
            await self._block_producers()

    async def _block_producers(self) -> None:
        """Close the producers if a quota is reached that blocks them."""
        for kind in self._list_limited():
            if self._evicts(kind) or (excess := await self._find_excess(kind)) is None or excess.is_evicted:
                continue
            if not self.blocks_producers:
                _log.warning("%s closes its producers: %s", self._name, excess.describe())
            self.blocks_producers = excess.describe()
            self._end_producers(excess.to_error(self._name))
            return
        self.blocks_producers = ""

    # Measuring.

    def _evicts(self, kind: QuotaKind) -> bool:
        return self.get_quota(kind).policy == "consumer_backlog_eviction"

    def _list_limited(self) -> list[QuotaKind]:
        """Return the kinds of quotas that the topic has."""
        if not self._live_settings.current.backlog_quota_check_enabled:
            return []
        if is_system_topic(self._name) or not self._name.is_persistent:
            return []
        return [
            kind
            for kind in QuotaKind
            if self.get_quota(kind).limit > 0 or (kind is QuotaKind.SIZE and self.get_quota(kind).limit == 0)
        ]

    def _find_slowest(self) -> Slowest | None:
        """Return the slowest durable subscription among those whose cursors are open. None: there is none."""
        return find_slowest((one.name, one.mark_delete) for one in self._cursors.durable_cursors())

    def count_backlog_bytes(self) -> int:
        slowest = self._find_slowest()
        return 0 if slowest is None else count_bytes_after(self._log.ledger_list.ledgers, slowest.mark_delete)

    def known_age_s(self) -> int:
        """Return the age in seconds of the oldest message of the backlog. -1: that message was not read, as no quota
        by age needs it, or can't be read."""
        slowest = self._find_slowest()
        if slowest is None or self._oldest is None or self._oldest[0] != self._log.first_after(slowest.mark_delete):
            return -1
        return int(self._age_s(self._oldest[1]))

    def _may_exceed(self, kind: QuotaKind) -> bool:
        if kind is QuotaKind.SIZE:
            return is_reached(kind, self.get_quota(kind), self.count_backlog_bytes())
        slowest = self._find_slowest()
        return slowest is not None and self._is_old_enough(self._log.first_after(slowest.mark_delete))

    async def _find_excess(self, kind: QuotaKind) -> Excess | None:
        await self._wait_until_open()
        slowest = self._find_slowest()
        value: int | None
        if kind is QuotaKind.SIZE:
            value = self.count_backlog_bytes()
        else:
            value = None if slowest is None else await self._measure_age(self._log.first_after(slowest.mark_delete))
        quota = self.get_quota(kind)
        if value is None or not is_reached(kind, quota, value):
            return None
        return Excess(kind, quota, "" if slowest is None else slowest.subscription, value)

    async def _wait_until_open(self) -> None:
        """Wait for the cursors that are being opened, once for each. Those that can't be opened don't count."""
        for unopened in list(self._cursors.unopened_cursors()):
            if not unopened.is_damaged and unopened.problem is None:
                try:
                    await self._cursors.wait_until_open(unopened.name, wait_again=False)
                except BrokerError as error:
                    _log.info("The backlog of %s is not known completely: %s", self._name, error)

    def _is_old_enough(self, first: Position) -> bool:
        """Return whether the entry may be older than the quota by age: by its own time if that is known, else by its
        ledger's."""
        if first > self._log.last:
            return False
        if self._oldest is not None and self._oldest[0] == first:
            since_ms = self._oldest[1]
        else:
            ledger = self._log.ledger_list.find(first.ledger_id)
            since_ms = 0 if ledger is None else ledger.first_time_ms
        return is_reached(QuotaKind.AGE, self.get_quota(QuotaKind.AGE), self._age_s(since_ms))

    async def _measure_age(self, first: Position) -> int | None:
        """Return the age of this entry in seconds. None: it is too young to matter, or can't be read now."""
        if not self._is_old_enough(first):
            return None
        if self._oldest is None or self._oldest[0] != first:
            since_ms = await self._read_time(first)
            if since_ms is None:
                return None
            self._oldest = first, since_ms
        return int(self._age_s(self._oldest[1]))

    async def _read_time(self, position: Position) -> int | None:
        try:
            entries = await self._log.read(position, 1, 1)
        except UnreadableEntry:  # it is in the backlog, and at least as old as the last entry of its ledger
            ledger = self._log.ledger_list.find(position.ledger_id)
            return None if ledger is None else ledger.last_time_ms
        except BrokerError as error:
            _log.info("The age of the backlog of %s can't be read now: %s", self._name, error)
            return None
        return entries[0].broker_time_ms if entries else None

    def _age_s(self, since_ms: int) -> float:
        return max(0, self._clock.time_ms() - since_ms) / 1000  # another broker's clock may be ahead

    # Eviction.

    async def _evict_all(self, excess: Excess) -> None:
        if not self._live_settings.are_known:
            return
        cut: Position | None = None
        if excess.kind is QuotaKind.AGE:
            cut_ms = max(0, int(self._clock.time_ms() - find_eviction_target(excess.quota) * 1000))
            cut = (await self._log.find_first_at_time(cut_ms)).previous

        def find_end() -> Position | None:
            quota = self.get_quota(excess.kind)
            if quota != excess.quota or not self._live_settings.are_known:
                return None
            return cut if cut is not None else find_eviction_end(self._log.ledger_list.ledgers, quota)

        _log.warning("%s: %s: its oldest messages are evicted", self._name, excess.describe())
        self.evictions[excess.kind] += 1
        for name in self._list_behind(find_end()):
            try:
                entries = await self._evict(name, find_end)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                continue  # it was deleted in the meantime
            _log.warning("%s: %d entries of subscription %r were evicted", self._name, entries, name)

    def _list_behind(self, end: Position | None) -> Iterator[str]:
        """Yield the subscriptions behind this position, the slowest one first."""
        cursors = sorted(self._cursors.durable_cursors(), key=lambda one: one.mark_delete)
        for one in cursors:
            if end is not None and one.mark_delete < end:
                yield one.name
