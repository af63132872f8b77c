"""Deletes durable subscriptions of a topic that are not used (`subscription_expiration_time_minutes`, which the policy
`subscription_expiration_minutes` of a namespace replaces).

A subscription is used while it has a consumer, and when messages are acknowledged: by consumers, or by a reader that
stores its progress. Administrators' changes and the expiry of messages are no use.

Only time during which a broker has opened the topic counts, and time between two visits of its owner (topic_visits.py):
while there is no owner, or the brokers are stopped, nobody can use a subscription. The cursor's node has the time that
has counted so far (`unused_ms`). The owner adds to it in steps of a tenth of the period, at most an hour, and sets it
to 0 soon after a use; so a subscription in use costs no writes. The next owner continues from there. It deletes nothing
in its first interval of checks, in which clients reconnect. A subscription is deleted late by an interval, and a step
for each time that its topic was closed. While subscriptions do not expire, the node has 0: if they expire later, the
period begins then.

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

__all__ = ["MS_PER_MINUTE", "SubscriptionExpiry"]

_log = logging.getLogger(__name__)
_SECONDS_PER_MINUTE: Final = 60
MS_PER_MINUTE: Final = 60_000
# Between two times that are stored of a subscription that is not used.
_MAX_STEP_MS: Final = 3_600_000


class SubscriptionExpiry:
    __slots__ = (
        "_clock",
        "_cursors",
        "_is_exempt",
        "_live",
        "_next_check",
        "_since",
        "_stored_at",
        "_subscriptions",
        "_topic",
    )

    def __init__(
        self, log: Log, cursors: TopicCursors, subscriptions: Subscriptions, live: LiveSettings, clock: Clock
    ) -> None:
        self._topic = log.name
        self._cursors = cursors
        self._subscriptions = subscriptions
        self._live = live
        self._clock = clock
        self._is_exempt = is_system_topic(log.name)
        # All times are of the monotonic clock. Since when subscriptions expire: the topic was opened, or a policy set.
        self._since = self._next_check = clock.monotonic()
        # When this owner has stored how long a subscription was not used.
        self._stored_at: dict[str, float] = {}
        live.on_changed.append(self._check_soon)
        subscriptions.on_return = self._check_soon

    def _check_soon(self) -> None:
        self._next_check = self._clock.monotonic()

    @property
    def counted(self) -> tuple[float, dict[str, float]] | None:
        """What `count_on` needs. None: subscriptions do not expire."""
        return (self._since, self._stored_at) if self._live.are_known and self._period_ms else None

    def count_on(self, counted: tuple[float, dict[str, float]]) -> None:
        """Count the time since this broker had the topic open before, as nobody else had it open in the meantime."""
        self._since, self._stored_at = counted

    def is_due(self, now: float) -> bool:
        """`now` is the time of the monotonic clock."""
        if not self._live.are_known or not self._period_ms:
            self._since = now
        if now < self._next_check or self._is_exempt or not self._live.are_known:
            return False
        if self._period_ms or any(cursor.unused_ms for cursor in self._cursors.durable_cursors()):
            return True
        self._set_next_check()
        return False

    def _set_next_check(self) -> None:
        self._next_check = self._clock.monotonic() + self._interval_s

    @property
    def _period_ms(self) -> int:
        """How long a subscription may be unused; 0: for ever."""
        return int(self._live.current.subscription_expiration_time_minutes * MS_PER_MINUTE)

    @property
    def _interval_s(self) -> float:
        return self._live.current.subscription_expiry_check_interval_in_minutes * _SECONDS_PER_MINUTE

    async def run(self) -> None:
        """Delete the subscriptions that were not used for the whole period, and store how long others were not used.
        Raises `BrokerError`: the rest is checked by the next run."""
        self._set_next_check()
        cursors = list(self._cursors.durable_cursors())
        self._stored_at = {one.name: self._stored_at[one.name] for one in cursors if one.name in self._stored_at}
        for cursor in cursors:
            if not self._is_expired(cursor):
                await self._store(cursor)
            elif await self._delete_if_expired(cursor):
                _log.info("%s: deleted subscription %s, which was not used in time", self._topic, cursor.name)

    async def _store(self, cursor: Cursor) -> None:
        """Store how long the subscription was not used, unless little has changed."""
        now, period_ms = self._clock.monotonic(), self._period_ms
        unused_ms = self._find_unused_ms(cursor) if period_ms else 0
        if cursor.unused_ms <= unused_ms < cursor.unused_ms + min(period_ms // 10, _MAX_STEP_MS) or (
            unused_ms == cursor.unused_ms
        ):
            return
        await self._cursors.set_unused(cursor.name, unused_ms)
        self._stored_at[cursor.name] = now

    async def _delete_if_expired(self, cursor: Cursor) -> bool:
        return await self._subscriptions.delete_if(cursor.name, partial(self._is_expired, cursor))

    def _is_expired(self, cursor: Cursor) -> bool:
        period_ms = self._period_ms
        if not self._live.are_known or not period_ms:
            return False
        open_s = self._clock.monotonic() - self._since
        return open_s * 1000 >= min(period_ms, self._interval_s * 1000) and self._find_unused_ms(cursor) > period_ms

    def _find_unused_ms(self, cursor: Cursor) -> int:
        now = self._clock.monotonic()
        counted_from = max(self._since, self._stored_at.get(cursor.name, self._since))
        unused_ms = cursor.unused_ms + (now - counted_from) * 1000
        used_at = self._subscriptions.find_last_use(cursor.name)
        return int(unused_ms if used_at is None else min(unused_ms, (now - used_at) * 1000))
