"""Expires messages of a topic by their age: all durable subscriptions acknowledge those that are too old.

The age counts from when a broker received the message (`ttl_duration_default_in_seconds`, which the policy
`message_ttl_seconds` replaces). An entry is expired as a whole, as its messages were received together, also if some of
them are acknowledged, or if it is delivered and not acknowledged: consumers may still acknowledge it. An expired
message counts as acknowledged from then on, durably. Readers, whose subscriptions are not durable, still get it.

Housekeeping calls `run` at intervals (`message_expiry_check_interval_in_minutes`), and soon after a policy has changed.
Expired messages are acknowledged as a consumer would do it: at once, and saved soon. So a run waits for no cursor. A
subscription that is being changed, for example moved, is expired by the next run, which is soon then.

The policy is read again in each turn in which messages are expired, as that can't be undone: if it has changed in the
meantime, the next run decides (CHK-69).

A run costs the same for any backlog: broker times never fall, so one entry tells whether any subscription has an
expired message, and one search, of some fifteen reads, finds the first entry that is not expired, for all
subscriptions.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_wire.clock import Clock

__all__ = ["MessageExpiry"]

# Subscriptions that are expired before other tasks get a turn.
_SUBSCRIPTIONS_PER_TURN: Final = 50
_SECONDS_PER_MINUTE: Final = 60


class MessageExpiry:
    __slots__ = ("_clock", "_cursors", "_is_exempt", "_live", "_log", "_next_check", "_subscriptions")

    def __init__(
        self, log: Log, cursors: TopicCursors, subscriptions: Subscriptions, live: LiveSettings, clock: Clock
    ) -> None:
        self._log = log
        self._cursors = cursors
        self._subscriptions = subscriptions
        self._live = live
        self._clock = clock
        self._is_exempt = is_system_topic(log.name)
        self._next_check = clock.monotonic()
        live.on_changed.append(self._check_soon)

    def _check_soon(self) -> None:
        self._next_check = self._clock.monotonic()

    def is_due(self, now: float) -> bool:
        """`now` is the time of the monotonic clock."""
        if now < self._next_check or self._is_exempt or not self._live.are_known:
            return False
        return self._ttl_s > 0

    @property
    def _ttl_s(self) -> int:
        return self._live.current.ttl_duration_default_in_seconds

    async def run(self) -> None:
        """Expire the messages that are too old now. Raises `BrokerError`: the rest is expired by the next run."""
        settings = self._live.current
        self._next_check = (
            self._clock.monotonic() + settings.message_expiry_check_interval_in_minutes * _SECONDS_PER_MINUTE
        )
        ttl_s = self._ttl_s
        before_ms = self._clock.time_ms() - ttl_s * 1000
        lagging = [cursor for cursor in self._cursors.durable_cursors() if cursor.count_unacknowledged()]
        if (
            before_ms <= 0
            or not lagging
            or not await self._is_older(min(one.mark_delete for one in lagging), before_ms)
        ):
            return
        first_left = await self._log.find_first_at_time(before_ms)
        for number, cursor in enumerate(lagging, 1):
            if not self._live.are_known or self._ttl_s != ttl_s:
                self._check_soon()
                return
            has_expired = self._log.first_after(cursor.mark_delete) < first_left
            if has_expired and not self._subscriptions.expire_now(cursor.name, first_left.previous):
                self._check_soon()
            if number % _SUBSCRIPTIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _is_older(self, mark_delete: Position, before_ms: int) -> bool:
        """Return whether the first entry after the position is older than that, or can't be read."""
        try:
            first = await self._log.read(self._log.first_after(mark_delete), 1, 1)
        except UnreadableEntry:
            return True
        return bool(first) and first[0].broker_time_ms < before_ms
