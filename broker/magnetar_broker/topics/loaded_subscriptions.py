"""A topic's subscriptions by name: which there are, and which are loaded.

A durable subscription is its cursor. It has a `Subscription` object only while it has consumers or is being changed:
then it is loaded. A subscription that is not durable ends with its last consumer. The two kinds have separate names, so
a reader may have the name of a durable subscription.

This is the base of `Subscriptions`. It holds what all parts of that use: the objects, what becomes of them when entries
are appended, settings change or the topic is closed, and their statistics.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar

from magnetar_broker.counters import Deliveries, DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.client_positions import StartPosition, find_start
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.dispatch.dispatch_rates import TopicDispatchRates
from magnetar_broker.topics.dispatch.exclusive_and_failover import LastActiveConsumer
from magnetar_broker.topics.subscribe_counts import SubscribeCounts
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_changes import SubscriptionChanges, SubscriptionKey
from magnetar_broker.topics.subscription_stats import (
    SubscriptionStats,
    cursor_stats,
    subscription_stats,
    unopened_stats,
)
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["LoadedSubscriptions"]

_log = logging.getLogger(__name__)


class LoadedSubscriptions:
    __slots__ = (
        "_changes",
        "_clock",
        "_closed",
        "_cursors",
        "_last_active",
        "_last_used",
        "_loaded",
        "_log",
        "_name",
        "_randomness",
        "_read_settings",
        "_settings",
        "_subscribe_counts",
        "_tasks",
        "deliveries",
        "on_return",
        "rates",
    )
    _subscription_class: ClassVar[type[Subscription]] = Subscription

    def __init__(
        self,
        name: TopicName,
        log: Log,
        cursors: TopicCursors,
        settings: SubscriptionSettings,
        clock: Clock,
        randomness: Randomness,
        read_settings: Callable[[], Awaitable[SubscriptionSettings]] | None = None,
        rates: TopicDispatchRates | None = None,
    ) -> None:
        """`read_settings` returns the settings by the present policies, or raises `BrokerError`. `rates`: those of
        dispatches; by default those of `settings`."""
        self.rates = rates or TopicDispatchRates(settings, clock)
        self._name = name
        self._read_settings = read_settings
        self._log = log
        self._cursors = cursors
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        # Subscriptions that have consumers, or are being changed.
        self._loaded: dict[SubscriptionKey, Subscription] = {}
        # Of durable subscriptions that are not loaded.
        self._last_active: dict[str, LastActiveConsumer] = {}
        # When durable subscriptions were used last since the topic was opened, of the monotonic clock.
        self._last_used: dict[str, float] = {}
        # Called when a subscription is used that was not used for some time (subscription_expiry.py).
        self.on_return: Callable[[], object] = lambda: None
        self._subscribe_counts = SubscribeCounts()
        self.deliveries = Deliveries()
        self._tasks = TopicTasks()
        self._changes = SubscriptionChanges(self._tasks, self._loaded.get)
        # Why all requests are refused: the topic is closed.
        self._closed: BrokerError | None = None

    def time_ms(self) -> int:
        return self._clock.time_ms()

    @property
    def consumers(self) -> int:
        """The number of connected consumers."""
        return sum(len(subscription.consumers) for subscription in self._loaded.values())

    @property
    def has_consumers_of_one_schema(self) -> bool:
        """Whether a consumer is connected that reads bytes, or by a schema of its own."""
        return any(
            not consumer.takes_any_schema
            for subscription in self._loaded.values()
            for consumer in subscription.consumers
        )

    @property
    def names(self) -> list[str]:
        """The names of durable subscriptions."""
        return list(self._cursors.names())

    def exclusive_consumer(self, name: str, durable: bool) -> Consumer | None:
        """Return the consumer of the subscription that excludes others. None: there is none."""
        loaded = self._loaded.get((name, durable))
        return None if loaded is None else loaded.exclusive_consumer

    def appended(self) -> None:
        """Deliver new entries of the log."""
        for subscription in list(self._loaded.values()):
            try:
                if (dispatcher := subscription.dispatcher) is not None:
                    dispatcher.dispatch()
            except Exception:  # noqa: BLE001 (the others go on)
                _log.exception("Topic %s: subscription %s failed to deliver new entries", self._name, subscription.name)

    def report_growth(self, partitions: int) -> None:
        for subscription in self._loaded.values():
            for consumer in subscription.consumers:
                consumer.sink.topic_grew(partitions)

    def report_end(self) -> None:
        """Notify the consumers that have reached the end of a terminated topic."""
        for subscription in list(self._loaded.values()):
            subscription.report_end()

    def release_trimmed_entries(self) -> None:
        """The cursors have moved out of deleted ledgers: the entries there are not delivered or counted any more."""
        for subscription in list(self._loaded.values()):
            subscription.release_trimmed_entries()

    def apply_settings(self) -> None:
        """Apply changed limits to the consumers that are connected."""
        for subscription in list(self._loaded.values()):
            subscription.apply_settings()

    def stats(self) -> list[SubscriptionStats]:
        """Return the statistics of all subscriptions, the durable ones first."""
        found = []
        for cursor in self._cursors.durable_cursors():
            loaded = self._loaded.get((cursor.name, True))
            counters = self.deliveries.known_of(cursor.name)
            found.append(
                cursor_stats(cursor, self._log, counters) if loaded is None else subscription_stats(loaded, self._log)
            )
        found += [
            unopened_stats(one, self._log, self.deliveries.known_of(one.name))
            for one in self._cursors.unopened_cursors()
        ]
        for (_, durable), subscription in self._loaded.items():
            if not durable:
                found.append(subscription_stats(subscription, self._log))
        return found

    def counters(self) -> Iterator[DeliveryCounters]:
        """Yield the counters of subscriptions and of their consumers."""
        yield from self.deliveries.durable()
        for subscription in self._loaded.values():
            yield from () if subscription.durable else (subscription.counters,)
            yield from (consumer.counters for consumer in subscription.consumers)

    async def wait_for_cursor(self, name: str) -> Cursor:
        """Return the cursor of the durable subscription when it is open. Raises `BrokerError`."""
        self._check_open()
        await self._cursors.wait_until_open(name)
        self._check_open()
        return self._cursor(name)

    def find_last_use(self, name: str) -> float | None:
        """Return when the durable subscription was used or created last, of the monotonic clock: now, if it has
        consumers. None: it was not used since the topic was opened."""
        loaded = self._loaded.get((name, True))
        if loaded is not None and loaded.consumers:
            return self._clock.monotonic()
        left_at = None if loaded is None else loaded.left_at
        return max((at for at in (left_at, self._last_used.get(name)) if at is not None), default=None)

    def record_use(self, name: str) -> None:
        """Note that the durable subscription is used now."""
        self._last_used[name] = self._clock.monotonic()
        cursor = self._cursors.get(name)
        if cursor is not None and cursor.unused_ms:
            self.on_return()

    # Loading.

    def _check_open(self) -> None:
        if self._closed is not None:
            raise BrokerError(self._closed.code, str(self._closed))

    async def _find_start(self, at: StartAt) -> StartPosition:
        return await find_start(self._log, at)

    def _count_transient(self) -> int:
        """Return the number of subscriptions that are not durable."""
        return sum(not durable for _, durable in self._loaded)

    def _loaded_or_load(self, name: str) -> Subscription:
        """Return a durable subscription. Only for a change: it releases the subscription when it has ended."""
        self._check_open()
        loaded = self._loaded.get((name, True))
        return loaded if loaded is not None else self._load(self._cursor(name))

    def _load_transient(self, name: str, start: StartPosition) -> Subscription:
        cursor = self._cursors.create_transient(name, start.mark_delete)
        if start.skipped is not None:
            cursor.acknowledge((), [start.skipped])
        return self._load(cursor)

    def _load(self, cursor: Cursor) -> Subscription:
        counters = self.deliveries.of_durable(cursor.name) if cursor.is_durable else self.deliveries.of_transient()
        subscription = self._subscription_class(
            cursor,
            self._log,
            self._name.partition_index,
            self._settings,
            self._clock,
            self._tasks,
            self._changes,
            self._released,
            self._delete_cursor,
            counters,
            self.rates.for_subscription(cursor.name, counters, durable=cursor.is_durable),
        )
        if cursor.is_durable and (last_active := self._last_active.get(cursor.name)) is not None:
            subscription.last_active = last_active
        self._loaded[subscription.key] = subscription
        return subscription

    def _released(self, subscription: Subscription) -> None:
        if self._loaded.get(subscription.key) is subscription:
            del self._loaded[subscription.key]
            if subscription.durable and subscription.last_active.name:
                self._last_active[subscription.name] = subscription.last_active
            if subscription.durable and subscription.left_at is not None:
                self._last_used[subscription.name] = max(
                    subscription.left_at, self._last_used.get(subscription.name, subscription.left_at)
                )

    async def _delete_cursor(self, subscription: Subscription) -> None:
        if not subscription.durable:
            return
        await self._cursors.delete(subscription.name)
        self._released(subscription)
        self._forget(subscription.name)

    async def _delete_named(self, name: str) -> None:
        await self._cursors.delete(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Forget a durable subscription that was deleted, and is not loaded."""
        self._last_active.pop(name, None)
        self._last_used.pop(name, None)
        self.deliveries.forget(name)
        self.rates.forget_subscription(name)

    def _cursor(self, name: str) -> Cursor:
        cursor = self._cursors.get(name)
        if cursor is None:
            raise self._not_found(name)
        return cursor

    def _not_found(self, name: str) -> BrokerError:
        return BrokerError(
            ErrorCode.SUBSCRIPTION_NOT_FOUND,
            f"topic {self._name} has no subscription {name!r}: create it, or enable "
            "allow_auto_subscription_creation and subscribe",
        )

    # The end.

    async def close(self, problem: BrokerError | None = None) -> None:
        """End all consumers and cancel all changes. The topic closes the cursors."""
        self.end(problem or TopicUnloaded(f"topic {self._name} was closed by this broker: look it up again"))
        await self._tasks.cancel()

    def end(self, problem: BrokerError) -> None:
        """End all consumers at once. Changes that run go on until they fail."""
        if self._closed is None:
            self._closed = problem
        for subscription in list(self._loaded.values()):
            subscription.close_consumers(self._closed.problem)
            subscription.receipts.fail(self._closed)
        self._loaded.clear()
