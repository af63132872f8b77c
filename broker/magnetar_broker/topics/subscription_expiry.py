"""Deletes the durable subscriptions of a topic that have not been used for too long.

The period is the policy `subscription_expiration_minutes` of the namespace, or the setting
`subscription_expiration_time_minutes`. A subscription is used while it has a consumer, and when messages are
acknowledged: by a consumer, or by a reader that stores its progress. Changes by administrators and the expiry of
messages are not a use.

**What counts as unused.** Only time in which the topic is open at a broker counts, and the time between two visits of
its owner (topic_visits.py). While the topic has no owner, or all brokers are stopped, nobody can use the subscription.
The cursor's node stores the time that has counted so far, as `unused_ms`. The owner adds to it in steps of a tenth of
the period, or of an hour if that is less, and sets it to 0 soon after a use. So a subscription in use costs no writes,
and the topic's next owner continues to count. While the period is unlimited, `unused_ms` is 0: if a policy limits it
later, counting begins then.

**When it is deleted.** An owner deletes nothing in its first interval of checks, in which clients reconnect. So a
subscription may be deleted late by one interval, and by one step for each time that its topic was closed.

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
from magnetar_broker.topics.expiry_check import ExpiryCheck
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_wire.clock import Clock

__all__ = ["MS_PER_MINUTE", "SubscriptionExpiry"]

_log = logging.getLogger(__name__)
MS_PER_MINUTE: Final = 60_000
# How long an owner counts before it stores `unused_ms` again, at most.
_MAX_STEP_MS: Final = 3_600_000


class SubscriptionExpiry(ExpiryCheck):
    __slots__ = ("_since", "_stored_at")

    def __init__(
        self, log: Log, cursors: TopicCursors, subscriptions: Subscriptions, live: LiveSettings, clock: Clock
    ) -> None:
        super().__init__(log, cursors, subscriptions, live, clock)
        # All times are of the monotonic clock. Since when subscriptions expire: the topic was opened, or a policy set.
        self._since = self._next_check
        # When this owner has stored how long a subscription was not used.
        self._stored_at: dict[str, float] = {}
        subscriptions.on_return = self._check_soon

    @property
    def counted(self) -> tuple[float, dict[str, float]] | None:
        """What this owner has counted, for `count_on`. None: subscriptions do not expire."""
        return (self._since, self._stored_at) if self._live.are_known and self._period_ms else None

    def count_on(self, counted: tuple[float, dict[str, float]]) -> None:
        """Count the time since this broker had the topic open before, as nobody else had it open in the meantime."""
        self._since, self._stored_at = counted

    def is_due(self, now: float) -> bool:
        """Return whether to call `run`. `now`: on the monotonic clock."""
        if not self._live.are_known or not self._period_ms:
            self._since = now
        if not self._is_time_to_check(now):
            return False
        if self._period_ms or any(cursor.unused_ms for cursor in self._cursors.durable_cursors()):
            return True
        self._check_after_interval()
        return False

    @property
    def _period_ms(self) -> int:
        """How long a subscription may be unused; 0: for ever."""
        return int(self._live.current.subscription_expiration_time_minutes * MS_PER_MINUTE)

    @property
    def _interval_minutes(self) -> float:
        return self._live.current.subscription_expiry_check_interval_in_minutes

    async def run(self) -> None:
        """Delete the subscriptions that were not used for the whole period, and store how long others were not used.
        Raises `BrokerError`: the rest is checked by the next run."""
        self._check_after_interval()
        cursors = list(self._cursors.durable_cursors())
        self._stored_at = {one.name: self._stored_at[one.name] for one in cursors if one.name in self._stored_at}
        for cursor in cursors:
            if not self._is_expired(cursor):
                await self._store(cursor)
            elif await self._delete_if_expired(cursor):
                _log.info("%s: deleted subscription %s, which was not used in time", self._log.name, cursor.name)

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
        return (
            open_s * 1000 >= min(period_ms, self._interval_minutes * MS_PER_MINUTE)
            and self._find_unused_ms(cursor) > period_ms
        )

    def _find_unused_ms(self, cursor: Cursor) -> int:
        now = self._clock.monotonic()
        counted_from = max(self._since, self._stored_at.get(cursor.name, self._since))
        unused_ms = cursor.unused_ms + (now - counted_from) * 1000
        used_at = self._subscriptions.find_last_use(cursor.name)
        return int(unused_ms if used_at is None else min(unused_ms, (now - used_at) * 1000))
