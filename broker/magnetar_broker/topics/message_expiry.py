"""Expires the messages of a topic that are older than their time to live (TTL).

All durable subscriptions acknowledge such messages, durably, as if a consumer had done it. Readers, whose subscriptions
are not durable, still get them. The age of a message counts from when a broker received it. The TTL is the policy
`message_ttl_seconds` or the setting `ttl_duration_default_in_seconds`. The messages of an entry were received together,
so they expire together, also if some of them are acknowledged already. A message that is delivered and not acknowledged
expires, too; its consumer may still acknowledge it.

Housekeeping calls `run` at intervals (`message_expiry_check_interval_in_minutes`), and soon after a policy has changed.
`run` does not wait until the acknowledgements are saved: that happens soon, as for those of consumers. A subscription
that is being changed, for example by a seek, is skipped, and a next run follows soon.

An expiry can't be undone. So the TTL is read again before the messages of each subscription expire: if it has changed
since `run` began, the next run decides (CHK-69).

A run costs the same for a backlog of any size. Broker times never fall from one entry to the next, so the first entry
of the longest backlog shows whether anything has expired. Then one binary search, of about fifteen reads, finds the
first entry that has not expired, for all subscriptions.
"""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.expiry_check import ExpiryCheck

__all__ = ["MessageExpiry"]

# Subscriptions that are expired before other tasks get a turn.
_SUBSCRIPTIONS_PER_TURN: Final = 50


class MessageExpiry(ExpiryCheck):
    __slots__ = ()

    def is_due(self, now: float) -> bool:
        """Return whether to call `run`. `now`: on the monotonic clock."""
        return self._is_time_to_check(now) and self._ttl_s > 0

    @property
    def _interval_minutes(self) -> float:
        return self._live.current.message_expiry_check_interval_in_minutes

    @property
    def _ttl_s(self) -> int:
        return self._live.current.ttl_duration_default_in_seconds

    async def run(self) -> None:
        """Expire the messages that are too old now. Raises `BrokerError`: the rest is expired by the next run."""
        self._check_after_interval()
        ttl_s = self._ttl_s
        before_ms = self._clock.time_ms() - ttl_s * 1000
        lagging = [cursor for cursor in self._cursors.durable_cursors() if cursor.count_unacknowledged()]
        if (
            before_ms <= 0
            or not lagging
            or not await self._is_older(min(one.mark_delete for one in lagging), before_ms)
        ):
            return
        first_unexpired = await self._log.find_first_at_time(before_ms)
        for number, cursor in enumerate(lagging, 1):
            if not self._live.are_known or self._ttl_s != ttl_s:
                self._check_soon()
                return
            has_expired = self._log.first_after(cursor.mark_delete) < first_unexpired
            if has_expired and not self._subscriptions.expire_now(cursor.name, first_unexpired.previous):
                self._check_soon()
            if number % _SUBSCRIPTIONS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _is_older(self, mark_delete: Position, before_ms: int) -> bool:
        """Return whether the first entry after the position was received before `before_ms`, or can't be read."""
        try:
            first = await self._log.read(self._log.first_after(mark_delete), 1, 1)
        except UnreadableEntry:
            return True
        return bool(first) and first[0].broker_time_ms < before_ms
