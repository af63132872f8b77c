"""The schedule that the expiry of messages and the expiry of subscriptions have in common.

Housekeeping calls `is_due` of each loaded topic in every round, and `run` if it returns True. A check is due when the
interval since the last one is over, and soon after a policy has changed. System topics are exempt. Nothing is due while
the topic's policies are unknown, because an expiry can't be undone.
"""

from __future__ import annotations

from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_wire.clock import Clock

__all__ = ["SECONDS_PER_MINUTE", "ExpiryCheck"]

SECONDS_PER_MINUTE = 60


class ExpiryCheck:
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
        # On the monotonic clock.
        self._next_check = clock.monotonic()
        live.on_changed.append(self._check_soon)

    @property
    def _interval_minutes(self) -> float:
        """The time between two checks."""
        raise NotImplementedError

    def _check_soon(self) -> None:
        self._next_check = self._clock.monotonic()

    def _check_after_interval(self) -> None:
        self._next_check = self._clock.monotonic() + self._interval_minutes * SECONDS_PER_MINUTE

    def _is_time_to_check(self, now: float) -> bool:
        """`now`: on the monotonic clock."""
        return now >= self._next_check and not self._is_exempt and self._live.are_known
