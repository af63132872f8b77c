"""A loaded topic: its log, its subscriptions and its producers.

A `Topic` exists from one opening of the topic to its end. It ends when this broker unloads or deletes the topic, or
when its log or a cursor detects that another broker owns the topic (`TopicUnloaded`). Then all producers and consumers
are closed, and the next request for the topic reopens it.

**Graceful close.** First the topic accepts no more requests. Then it waits until all accepted entries and
acknowledgements are decided and their results sent, so that clients need not resend them to the next owner. Then it
closes producers, consumers, the log and the cursors. If that takes too long, the log and the cursors are abandoned, and
the next opening recovers them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import cast

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import TopicLog
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import Position
from magnetar_broker.topics.backlog_quotas import BacklogQuotas
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.deduplication.deduplication import Deduplication
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.message_expiry import MessageExpiry
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.producers import Producers
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.subscribe_refusals import SubscribeRefusals
from magnetar_broker.topics.subscription_expiry import SubscriptionExpiry
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["Topic"]

_log = logging.getLogger(__name__)


class Topic:
    """A topic that `TopicStorage.open` opened."""

    __slots__ = (
        "_closing",
        "_opening_consumers",
        "_schemas",
        "_settings",
        "budget",
        "counted_lapsed_leases",
        "counters",
        "cursors",
        "deduplication",
        "ended",
        "inactive_since",
        "live_settings",
        "log",
        "message_expiry",
        "name",
        "on_lost",
        "producers",
        "publish_throttle",
        "quotas",
        "refusals",
        "subscription_expiry",
        "subscriptions",
        "unused_since",
    )

    def __init__(
        self,
        name: TopicName,
        log: TopicLog,
        cursors: TopicCursors,
        subscriptions: Subscriptions,
        live_settings: LiveSettings,
        clock: Clock,
        randomness: Randomness,
        counters: BrokerCounters,
        schemas: TopicSchemas,
        broker_publish_limit: RateLimit,
    ) -> None:
        self.name = name
        self.live_settings = live_settings
        settings = live_settings.current
        self._schemas = schemas
        self.log = log
        self.cursors = cursors
        self.subscriptions = subscriptions
        self.counters = TopicCounters()
        # For entries that are published and not decided.
        self.budget = PublishBudget(settings.max_pending_publish_bytes_per_topic)
        self.publish_throttle = PublishThrottle(
            self.budget,
            RateLimit("the publish rate of the topic", lambda: settings.topic_publish_rate, clock),
            broker_publish_limit,
        )
        live_settings.on_changed.append(self.publish_throttle.follow_rate_change)
        # Why the topic accepts no more requests.
        self.ended: BrokerError | None = None
        # Called once, by `abort`.
        self.on_lost: Callable[[Topic, BrokerError], object] = lambda topic, error: None
        # For housekeeping: since when no client is connected, since when the topic is inactive (inactive_topics.py),
        # and how many lapsed leases the metrics have counted.
        self.unused_since = self.inactive_since = clock.monotonic()
        self.counted_lapsed_leases = 0
        # Requests that open a consumer.
        self._opening_consumers = 0
        self.refusals = SubscribeRefusals()
        self._settings = settings
        self.quotas = BacklogQuotas(
            name, log, cursors, live_settings, clock, subscriptions.evict, self._disconnect_producers
        )
        names: ProducerNames[Producer] = ProducerNames()
        self.deduplication = Deduplication(log, cursors, names, live_settings, clock)
        self.producers = Producers(
            log,
            schemas,
            settings,
            clock,
            randomness,
            self.publish_throttle,
            self.counters,
            counters,
            names,
            self.deduplication,
            self._check_served,
            self.quotas.check_opening,
        )
        self.message_expiry = MessageExpiry(log, cursors, subscriptions, live_settings, clock)
        self.subscription_expiry = SubscriptionExpiry(log, cursors, subscriptions, live_settings, clock)
        live_settings.on_changed.append(subscriptions.apply_settings)
        self._closing: asyncio.Task[None] | None = None
        log.on_appended = subscriptions.appended
        log.on_lost = self._lost
        cursors.on_lost = self._lost

    @property
    def in_use(self) -> bool:
        """Whether clients are connected, or about to be."""
        producers, consumers = self.producers, self.subscriptions.consumers
        return len(producers) > 0 or producers.opening > 0 or consumers > 0 or self._opening_consumers > 0

    def _disconnect_producers(self, error: BrokerError) -> None:
        self.producers.disconnect(error)

    @property
    def managed_ledger(self) -> ManagedLedger:
        """The log of a topic whose messages are stored. Raises `BrokerError` for a non-persistent topic."""
        if not self.name.is_persistent:
            raise BrokerError(ErrorCode.UNSUPPORTED, f"{self.name} is non-persistent: its messages are not stored")
        return cast(ManagedLedger, self.log)

    def drop_trimmed_ledgers(self) -> None:
        """Move all subscriptions out of ledgers that the log has deleted."""
        self.cursors.drop_trimmed_ledgers()
        self.subscriptions.release_trimmed_entries()

    def waiting_for(self) -> str:
        """Return why publishing waits; empty: it does not."""
        return self.log.waiting_for or self.quotas.blocks_producers or self.publish_throttle.waiting_for

    # Consumers.

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer:
        """Open a consumer if its schema can read the topic, and call the sink's `opened`. Raises `BrokerError`."""
        self._opening_consumers += 1
        try:
            await self._schemas.admit_consumer(opened.schema, sink.address, self._is_unused)
            consumer = await self.subscriptions.subscribe(opened, sink)
            self.refusals.forget(opened.subscription, opened.consumer_name)
            return consumer
        except BrokerError as error:
            now_ms = self.subscriptions.time_ms()
            self.refusals.record(opened.subscription, opened.consumer_name, sink.address, error, now_ms)
            raise
        finally:
            self._opening_consumers -= 1

    def _is_unused(self) -> bool:
        """Return whether nothing is stored, and nobody is connected but consumers that take any schema."""
        is_empty = self.log.last <= self.log.before_first
        return is_empty and len(self.producers) == 0 and not self.subscriptions.has_consumers_of_one_schema

    def report_growth(self, partitions: int) -> None:
        """Notify producers and consumers that the topic of which this is a partition has more partitions."""
        for producer in self.producers.connected():
            producer.report_growth(partitions)
        self.subscriptions.report_growth(partitions)

    # Termination.

    async def terminate(self) -> Position:
        """Accept no message any more, durably. Return the position of the last message. Raises `BrokerError`."""
        last = await self.managed_ledger.terminate()
        self.report_terminated()
        return last

    def report_terminated(self) -> None:
        """End the producers of a terminated topic, and notify consumers that have reached its end. Housekeeping calls
        it, too: a subscription may reach the end because the last entries are lost or trimmed."""
        try:
            self.log.check_not_terminated()
        except BrokerError as error:
            self.producers.end_queued(error)
            for producer in self.producers.connected():
                producer.end(error)
            self.subscriptions.report_end()

    # Closing.

    def _lost(self, error: BrokerError) -> None:
        """Another broker owns the log or the cursors, or it is unknown which."""
        if self.ended is None:
            _log.warning("Closing %s: %s", self.name, error)
            self.abort(error)

    def abort(self, error: BrokerError) -> None:
        """End the topic at once, also if it is being closed gracefully. `on_lost` closes it."""
        if self.ended is None:
            self._end(error)
            self.on_lost(self, error)
        elif self._closing is not None:
            self._closing.cancel()

    def _end(self, error: BrokerError) -> None:
        self.ended = self.ended or error
        self.producers.end_queued(error)  # first: none of them gets its turn now
        for producer in self.producers.connected():
            producer.end(error)
        self.publish_throttle.end()

    async def close_consumers(self, problem: BrokerError) -> None:
        """Close all consumers and save their cursors, within a bounded time. Producers may publish until `close`."""
        if self.ended is None:
            closing = asyncio.get_running_loop().create_task(self._close_consumers(problem))
            closing.add_done_callback(partial(self._log_failure, "not all cursors were saved"))
            await self._wait_closed(closing)

    async def _close_consumers(self, problem: BrokerError) -> None:
        self.deduplication.take_snapshot()
        await self.cursors.flush()
        await self.subscriptions.close(problem)
        await self.cursors.close()

    async def close(self, problem: BrokerError) -> None:
        """Close the topic gracefully, within a bounded time; at once, if it was aborted."""
        lost = self.ended is not None
        self.ended = self.ended or problem
        closing = asyncio.get_running_loop().create_task(self._close(self.ended, is_graceful=not lost))
        closing.add_done_callback(partial(self._log_failure, "it was not closed gracefully"))
        self._closing = closing
        try:
            await self._wait_closed(closing)
        finally:
            self._abandon()
        if closing.cancelled():
            _log.warning(
                "%s was not closed gracefully: it was closed at once by another cause, or took too long", self.name
            )

    def _log_failure(self, failure: str, closing: asyncio.Task[None]) -> None:
        """Log the error of a task that closes the topic, also if its caller was cancelled."""
        if not closing.cancelled() and (error := closing.exception()) is not None:
            _log.warning("%s: %s: %s: %s", self.name, failure, type(error).__name__, error)

    async def _wait_closed(self, closing: asyncio.Task[None]) -> None:
        """Wait for the task, and cancel it if it takes too long."""
        try:
            await asyncio.wait([closing], timeout=self._settings.topic_close_timeout_seconds)
        finally:
            if not closing.done():
                closing.cancel()
                await asyncio.wait([closing])

    async def _close(self, problem: BrokerError, *, is_graceful: bool) -> None:
        self.producers.end_queued(problem)
        producers = self.producers.connected()
        for producer in producers:
            producer.stop()
        self.publish_throttle.end()
        for producer in producers:
            if is_graceful:
                await producer.settled()
            producer.end(problem)
        if is_graceful:
            self.deduplication.take_snapshot()
            await self.cursors.flush()
        await self.subscriptions.close(problem)
        if is_graceful:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(self.cursors.close())
                tasks.create_task(self.log.close())

    def abandon(self, error: BrokerError) -> None:
        """Release a topic that could not be opened completely, without a call of `on_lost`."""
        self.ended = self.ended or error
        self._abandon()

    def _abandon(self) -> None:
        """Release everything that is not closed. After a close that was cancelled, consumers are not closed yet."""
        problem = self.ended or BrokerError(ErrorCode.SERVICE_NOT_READY, f"{self.name} was closed")
        self._end(problem)
        self.subscriptions.end(problem)
        self.deduplication.stop(problem)
        self.cursors.abandon()
        self.log.abandon()

    def _check_served(self) -> None:
        if self.ended is not None:
            raise self.ended.again()
