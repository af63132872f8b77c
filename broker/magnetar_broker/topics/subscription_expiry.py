"""Deletes durable subscriptions of a topic that are not used (`subscription_expiration_time_minutes`, which the policy
`subscription_expiration_minutes` of a namespace replaces).

A subscription is used while it has a consumer, and when messages are acknowledged: by consumers, or by a reader that
stores its progress. Administrators' changes and the expiry of messages are no use.

This broker knows when a subscription was used since the topic was opened. The cursor's node has a time up to which it
counts as used (`used_until_ms`): for earlier sessions, also those that ended in a crash. It is written in advance, up
to a tenth of the period, so a subscription in use costs few writes. A use between two checks may be missing in it if
the broker crashes, so the interval of the checks is added to it. So no subscription is deleted early, and one is
deleted late by a tenth of the period and an interval at most. While subscriptions do not expire, the time is not
written, so it is removed: if they expire later, the period begins then.

Housekeeping calls `run` at intervals (`subscription_expiry_check_interval_in_minutes`), and soon after a policy has
changed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_wire.clock import Clock

__all__ = ["SubscriptionExpiry"]

_log = logging.getLogger(__name__)
_SECONDS_PER_MINUTE: Final = 60
_MS_PER_MINUTE: Final = 60_000


class SubscriptionExpiry:
    __slots__ = ("_clock", "_cursors", "_is_exempt", "_live", "_next_check", "_subscriptions", "_topic")

    def __init__(
        self, log: Log, cursors: TopicCursors, subscriptions: Subscriptions, live: LiveSettings, clock: Clock
    ) -> None:
        self._topic = log.name
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
        if self._period_ms or any(cursor.used_until_ms for cursor in self._cursors.durable_cursors()):
            return True
        self._set_next_check()
        return False

    def _set_next_check(self) -> None:
        self._next_check = self._clock.monotonic() + self._interval_minutes * _SECONDS_PER_MINUTE

    @property
    def _period_ms(self) -> int:
        """How long a subscription may be unused; 0: for ever."""
        return int(self._live.current.subscription_expiration_time_minutes * _MS_PER_MINUTE)

    @property
    def _interval_minutes(self) -> float:
        return self._live.current.subscription_expiry_check_interval_in_minutes

    async def run(self) -> None:
        """Delete the subscriptions that were not used for the whole period, and store the use of others. Raises
        `BrokerError`: the rest is checked by the next run."""
        self._set_next_check()
        for cursor in self._cursors.durable_cursors():
            name, used_ms = cursor.name, self._subscriptions.find_last_use(cursor.name)
            if not self._period_ms:
                if cursor.used_until_ms:
                    await self._cursors.set_used_until(name, 0)
            elif used_ms > cursor.used_until_ms:
                await self._cursors.set_used_until(name, used_ms + self._period_ms // 10)
            elif not cursor.used_until_ms:
                self._subscriptions.record_use(name)  # the period begins now
                await self._cursors.set_used_until(name, self._clock.time_ms())
            elif self._is_expired(cursor) and await self._delete_if_expired(cursor):
                _log.info("%s: deleted subscription %s, which was not used in time", self._topic, name)

    async def _delete_if_expired(self, cursor: Cursor) -> bool:
        return await self._subscriptions.delete_if(cursor.name, partial(self._is_expired, cursor))

    def _is_expired(self, cursor: Cursor) -> bool:
        used_ms = self._subscriptions.find_last_use(cursor.name)
        if not used_ms:
            used_ms = cursor.used_until_ms + int(self._interval_minutes * _MS_PER_MINUTE)
        period_ms = self._period_ms
        return self._live.are_known and 0 < period_ms < self._clock.time_ms() - used_ms
