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
from typing import Final

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.producer_sink import ProducerSink
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["Topic"]

_log = logging.getLogger(__name__)
_NAME_BYTES: Final = 6
_MAX_NAME_LENGTH: Final = 256
_MAX_INSTANCE_BYTES: Final = 64
_MAX_PROPERTIES_BYTES: Final = 16_384


class Topic:
    """`TopicStorage.open` makes it."""

    __slots__ = (
        "_all_counters",
        "_clock",
        "_closing",
        "_names",
        "_pending_of",
        "_randomness",
        "_reported_waiting",
        "_settings",
        "budget",
        "counted_lapsed_leases",
        "counters",
        "cursors",
        "ended",
        "log",
        "name",
        "on_lost",
        "subscriptions",
        "unused_since",
    )

    def __init__(
        self,
        name: TopicName,
        log: ManagedLedger,
        cursors: CursorTable,
        subscriptions: Subscriptions,
        settings: TopicSettings,
        clock: Clock,
        randomness: Randomness,
        counters: BrokerCounters,
    ) -> None:
        self.name = name
        self.log = log
        self.cursors = cursors
        self.subscriptions = subscriptions
        self.counters = TopicCounters()
        # What was taken and is not decided yet.
        self.budget = PublishBudget(settings.max_pending_publish_bytes_per_topic)
        # Why it is served no more.
        self.ended: BrokerError | None = None
        # Called once, where it was given up.
        self.on_lost: Callable[[Topic, BrokerError], object] = lambda topic, error: None
        # What housekeeping knows of it: when somebody was connected last, and what was trimmed last.
        self.unused_since = clock.monotonic()
        # Leases that have lapsed, as far as the broker's metrics have them.
        self.counted_lapsed_leases = 0
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._all_counters = counters
        self._names: ProducerNames[Producer] = ProducerNames()
        # Producers by name, those that have gone too, of whose entries some are pending.
        self._pending_of: dict[str, list[Producer]] = {}
        self._closing: asyncio.Task[None] | None = None
        # What producers were told that the topic waits for.
        self._reported_waiting = ""
        log.on_appended = subscriptions.appended
        log.on_lost = self._lost
        cursors.on_lost = self._lost

    # ── producers ──

    def producers(self) -> list[Producer]:
        """Those that are connected."""
        return list(self._names.live.values())

    def undecided_producers(self) -> list[Producer]:
        """Return the connected producers, and those that have left with entries that are not decided yet.

        The simulation compares their entries with the topic's bound.
        """
        left = [one for several in self._pending_of.values() for one in several]
        return list(dict.fromkeys([*self.producers(), *left]))

    @property
    def in_use(self) -> bool:
        return bool(self._names.live) or self.subscriptions.consumers > 0

    def waiting_for(self) -> str:
        """Why publishing waits; empty: it does not."""
        return self.log.waiting_for

    def report_waiting(self) -> None:
        """Tell producers why publishing waits, if that has changed. Housekeeping calls this every second or so."""
        waiting_for = self.log.waiting_for
        if waiting_for != self._reported_waiting:
            self._reported_waiting = waiting_for
            for producer in self.producers():
                producer.report_waiting(waiting_for)

    async def open_producer(self, asked: OpenProducer, sink: ProducerSink, address: str = "") -> Producer:
        """Open a producer with a name that no other producer of the topic has.

        When this returns, all entries of the previous producer with that name are decided. Until then only
        `report_waiting` of the sink is called. Raises `BrokerError`. If it is cancelled, no producer is open.
        """
        self._check_served()
        _check_asked(asked)
        limit = self._settings.max_producers_per_topic
        name = asked.producer_name or self._made_up_name()
        if limit and len(self._names.live) >= limit and name not in self._names.live:
            raise BrokerError(
                ErrorCode.PRODUCER_BUSY,
                f"{self.name} has {limit} producers, its maximum (max_producers_per_topic)",
            )
        producer = Producer(
            asked.producer_id,
            name,
            asked.instance,
            asked.connection_epoch,
            dict(asked.properties),
            address,
            sink,
            self.log,
            self.budget,
            self._settings.max_message_size,
            self._clock,
            self.counters,
            self._all_counters,
            self._names.record_stored,
        )
        evicted = self._names.claim(name, asked.instance, asked.connection_epoch, producer)
        if evicted is not None:
            evicted.end(
                BrokerError(
                    ErrorCode.PRODUCER_FENCED,
                    f"producer {name!r} has reconnected: messages of its former connection are not accepted any more",
                )
            )
            self._keep_while_pending(evicted)
        if self._reported_waiting:
            producer.report_waiting(self._reported_waiting)
        try:
            while before := self._pending_of.get(name):
                await before[0].settled()
            if producer.error is not None:  # evicted, or the topic given up, while it waited
                raise producer.error.again()
            self._check_served()
        except BaseException:
            self._names.release(name, producer)
            raise
        producer.opened = True
        return producer

    def last_sequence_id(self, producer: Producer) -> int:
        return self._names.last_sequence_id(producer.producer_name)

    def leave(self, producer: Producer, error: BrokerError) -> None:
        """It takes nothing more, and its name is free; what is pending is decided all the same."""
        producer.end(error, tell=False)
        self._names.release(producer.producer_name, producer)
        self._keep_while_pending(producer)

    def _keep_while_pending(self, producer: Producer) -> None:
        if not producer.pending:
            return
        pending = self._pending_of.setdefault(producer.producer_name, [])
        if producer in pending:
            return
        pending.append(producer)

        def settled() -> None:
            pending.remove(producer)
            if not pending and self._pending_of.get(producer.producer_name) is pending:
                del self._pending_of[producer.producer_name]

        producer.on_settled = settled

    def _made_up_name(self) -> str:
        while True:
            name = f"magnetar-{self._randomness.token(_NAME_BYTES).hex()}"
            if name not in self._names.live:
                return name

    # ── its end ──

    def _lost(self, error: BrokerError) -> None:
        """Its log or its cursors are another broker's, or nobody can say whose."""
        if self.ended is None:
            _log.warning("Closing %s: %s", self.name, error)
            self.give_up(error)

    def give_up(self, error: BrokerError) -> None:
        """At once, also where it is being closed in peace. Whoever has it in `on_lost` closes it."""
        if self.ended is None:
            self._end(error)
            self.on_lost(self, error)
        elif self._closing is not None:
            self._closing.cancel()

    def _end(self, error: BrokerError) -> None:
        self.ended = self.ended or error
        for producer in self.producers():
            producer.end(error)

    async def close_consumers(self, problem: BrokerError) -> None:
        """Ends all consumers and saves their cursors, within a bounded time. Producers go on, until `close`."""
        if self.ended is None:
            closing = asyncio.get_running_loop().create_task(self._close_consumers(problem))
            closing.add_done_callback(partial(self._log_failure, "not all cursors were saved"))
            await self._wait_closed(closing)

    async def _close_consumers(self, problem: BrokerError) -> None:
        await self.cursors.flush()
        await self.subscriptions.close(problem)
        await self.cursors.close()

    async def close(self, problem: BrokerError) -> None:
        """In peace, within a bounded time; at once, where it was given up."""
        lost = self.ended is not None
        self.ended = self.ended or problem
        closing = asyncio.get_running_loop().create_task(self._close(self.ended, in_peace=not lost))
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
        """Logs the error of a task that closes the topic, whether or not somebody still waits for the task."""
        if not closing.cancelled() and (error := closing.exception()) is not None:
            _log.warning("%s: %s: %s: %s", self.name, failure, type(error).__name__, error)

    async def _wait_closed(self, closing: asyncio.Task[None]) -> None:
        """Cancels it where it takes too long."""
        try:
            await asyncio.wait([closing], timeout=self._settings.topic_close_timeout_seconds)
        finally:
            if not closing.done():
                closing.cancel()
                await asyncio.wait([closing])

    async def _close(self, problem: BrokerError, *, in_peace: bool) -> None:
        producers = self.producers()
        for producer in producers:
            producer.stop()
        for producer in producers:
            if in_peace:
                await producer.settled()
            producer.end(problem)
        if in_peace:
            await self.cursors.flush()
        await self.subscriptions.close(problem)
        if in_peace:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(self.cursors.close())
                tasks.create_task(self.log.close())

    def abandon(self, error: BrokerError) -> None:
        """At once, and nobody else is told: it was not opened whole."""
        self.ended = self.ended or error
        self._abandon()

    def _abandon(self) -> None:
        """What is closed takes no notice. A close that was broken off has not told the consumers yet."""
        problem = self.ended or BrokerError(ErrorCode.SERVICE_NOT_READY, f"{self.name} was closed")
        self._end(problem)
        self.subscriptions.end(problem)
        self.cursors.abandon()
        self.log.abandon()

    def _check_served(self) -> None:
        if self.ended is not None:
            raise self.ended.again()


def _check_asked(asked: OpenProducer) -> None:
    for what, size, limit in (
        ("the producer's name", len(asked.producer_name), _MAX_NAME_LENGTH),
        ("the producer's instance", len(asked.instance), _MAX_INSTANCE_BYTES),
        ("the producer's properties", sum(len(k) + len(v) for k, v in asked.properties.items()), _MAX_PROPERTIES_BYTES),
    ):
        if size > limit:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{what} has {size} characters, above the limit of {limit}")
