"""The dispatch rates of a subscription, of its topic and of the broker, which limit dispatches to consumers.

A dispatcher checks the three rates before each read (`may_read`). If one is reached, the subscription waits for its
turn: for the topic's rate the subscriptions of the topic take turns, for the broker's those of all topics
(rate_limit.py). The dispatcher reads no more than the rates allow, dispatches what they allow then (`count_allowed`),
at least one entry, and counts it (`record_dispatched`). Redelivered entries count, too.

If `dispatch_throttling_on_non_backlog_consumer_enabled` is off, a subscription that is at most `CAUGHT_UP_ENTRIES`
behind the end of the topic is exempt: it is not limited, and what it gets is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from magnetar_broker.counters import DeliveryCounters, Traffic
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.settings.rates import NO_RATE, DispatchRate, Rate
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRead
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.token_bucket import UNLIMITED, Allowance, add_published
from magnetar_wire import delivery_reasons
from magnetar_wire.clock import Clock
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["CAUGHT_UP_ENTRIES", "SubscriptionDispatchRates", "TopicDispatchRates", "create_broker_limit"]

# As Pulsar's managedLedgerCursorBackloggedThreshold.
CAUGHT_UP_ENTRIES: Final = 1_000
# In the order of the limits of `SubscriptionDispatchRates`.
_REASONS: Final = (
    delivery_reasons.DISPATCH_RATE_OF_SUBSCRIPTION,
    delivery_reasons.DISPATCH_RATE_OF_TOPIC,
    delivery_reasons.DISPATCH_RATE_OF_BROKER,
)


def create_broker_limit(settings: SubscriptionSettings, clock: Clock) -> RateLimit:
    """Return the limit of all dispatches of a broker."""
    return RateLimit("the dispatch rate of the broker", lambda: settings.broker_dispatch_rate, clock)


class TopicDispatchRates:
    """The dispatch rates of one topic and of its subscriptions."""

    __slots__ = ("_by_name", "_read_published", "_settings", "clock", "limits")

    def __init__(
        self,
        settings: SubscriptionSettings,
        clock: Clock,
        broker_limit: RateLimit | None = None,
        read_published: Callable[[], Traffic] = Traffic,
    ) -> None:
        """`read_published` returns the counters of publishes to the topic: a dispatch rate may be relative to them."""
        self._settings = settings
        self.clock = clock
        self._read_published = read_published
        topic_limit = RateLimit(
            "the dispatch rate of the topic", lambda: self._resolve(settings.topic_dispatch_rate), clock
        )
        # Of the topic and of the broker.
        self.limits = topic_limit, broker_limit or RateLimit("none", lambda: NO_RATE, clock)
        # Of durable subscriptions, by name: also while they have no consumers, so that reconnecting resets no limit.
        self._by_name: dict[str, RateLimit] = {}

    def _resolve(self, rate: DispatchRate) -> Rate:
        if not rate.is_relative:
            return rate.limit
        published = self._read_published()
        published.sample(self.clock.monotonic())
        return add_published(rate, published.messages_per_s, published.bytes_per_s)

    def for_subscription(self, name: str, counters: DeliveryCounters, *, durable: bool) -> SubscriptionDispatchRates:
        create = partial(
            RateLimit,
            "the dispatch rate of the subscription",
            lambda: self._resolve(self._settings.subscription_dispatch_rate),
            self.clock,
        )
        limit = self._by_name.get(name) if durable else None
        if limit is None:
            limit = create()
            if durable:
                self._by_name[name] = limit
        return SubscriptionDispatchRates(self._settings, (limit, *self.limits), counters)

    def forget_subscription(self, name: str) -> None:
        """Forget a durable subscription that was deleted."""
        self._by_name.pop(name, None)

    def follow_rate_change(self) -> None:
        """Dispatch now what the rates allow, because the topic's policies have changed."""
        limits = self.limits[0], *self._by_name.values()
        for limit in limits:
            limit.reread_rate()
        for limit in limits:
            limit.follow_rate_change()


class SubscriptionDispatchRates:
    """The three dispatch rates that limit one subscription, while it has consumers."""

    __slots__ = ("_counters", "_is_exempt", "_limits", "_settings", "_use_turn", "_waits_for")

    def __init__(
        self, settings: SubscriptionSettings, limits: tuple[RateLimit, RateLimit, RateLimit], counters: DeliveryCounters
    ) -> None:
        """`limits`: of the subscription, the topic and the broker."""
        self._settings = settings
        self._limits = limits
        self._counters = counters
        # No rate limits what is being dispatched.
        self._is_exempt = True
        # The limit whose turn it waits for, and what that calls then.
        self._waits_for: RateLimit | None = None
        self._use_turn: Callable[[], object] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._waits_for is not None

    def find_wait(self) -> DeliveryReason | None:
        """Return which rate dispatches wait for. None: they wait for none."""
        limit = self._waits_for
        if limit is None:
            return None
        return _REASONS[self._limits.index(limit)](rate=limit.describe_wait(), until_ms=limit.find_next_ms())

    def may_read(self, read: DispatchRead, log: Log, read_position: Position, retry: Callable[[], object]) -> bool:
        """Return whether to read now, and shrink the read to what the rates allow. If not, `retry` is called later."""
        allowances = [limit.get_allowance() for limit in self._limits]
        self._is_exempt = all(one is UNLIMITED for one in allowances) or self._is_caught_up(log, read_position)
        if self._is_exempt:
            return True
        for level, limit in enumerate(self._limits):
            if limit.must_wait():
                allowance = allowances[level]
                self._counters.throttled.count(level, by_messages=allowance.messages <= 0 or allowance.bytes > 0)
                self._wait_for_turn(limit, retry)
                return False
        messages, size_bytes = self._get_allowance()
        read.max_entries = int(max(1, min(read.max_entries, messages)))
        read.max_bytes = int(max(1, min(read.max_bytes, size_bytes)))
        return True

    def _is_caught_up(self, log: Log, read_position: Position) -> bool:
        if self._settings.dispatch_throttling_on_non_backlog_consumer_enabled:
            return False
        return log.entries_between(read_position.previous, log.last) <= CAUGHT_UP_ENTRIES

    def _get_allowance(self) -> Allowance:
        allowances = [limit.get_allowance() for limit in self._limits]
        return Allowance(min(one.messages for one in allowances), min(one.bytes for one in allowances))

    def _wait_for_turn(self, limit: RateLimit, retry: Callable[[], object]) -> None:
        def use_turn() -> None:
            self._waits_for = self._use_turn = None
            retry()

        self._waits_for, self._use_turn = limit, use_turn
        limit.wait_for_turn(use_turn)

    def stop(self) -> None:
        """Wait for no turn any more."""
        if self._waits_for is not None and self._use_turn is not None:
            self._waits_for.cancel_turn(self._use_turn)
        self._waits_for = self._use_turn = None

    def count_allowed(self, entries: Sequence[Deliverable]) -> int:
        """Return how many of the entries to dispatch: the one that reaches a rate is the last."""
        if self._is_exempt:
            return len(entries)
        messages, size_bytes = self._get_allowance()
        batches_count_once = self._settings.dispatch_throttling_on_batch_message_enabled
        for count, one in enumerate(entries, 1):
            messages -= 1 if batches_count_once else one.entry.messages
            size_bytes -= len(one.entry.stored)
            if messages <= 0 or size_bytes <= 0:
                return count
        return len(entries)

    def record_dispatched(self, entries: Sequence[Deliverable]) -> None:
        """Count the entries in the rates."""
        if self._is_exempt:
            return
        messages = len(entries)
        if not self._settings.dispatch_throttling_on_batch_message_enabled:
            messages = sum([one.entry.messages for one in entries])
        size_bytes = sum([len(one.entry.stored) for one in entries])
        for limit in self._limits:
            limit.record_passed(messages, size_bytes)
