"""One producer of a `produce` stream, from its OpenProducer to its ProducerEnded.

    opening ──► open ──► closing ──► over
       └───────────┴────────────────►┘

While it is opened (the topic may have to be recovered, or its predecessor's entries be decided) entries that come for
it wait here, counted like all entries of the stream that are not decided. Numbers have no gaps: one that is not the
next is the client's fault, and ends the stream, since nobody could say any more which receipt is for which entry.

**Flow.** Entries go to the topic while its budget has capacity, run by run, and wait here while it has none. The client
is told to pause the producer while

- the topic is full, or entries wait here for it; or
- the producer's undecided entries use up its share of the stream's bound (server/grpc/stream_budget.py), so that
several full
  topics leave capacity for the others.

After the pause only entries arrive that were in flight. The stream is read meanwhile, so its other producers go on. A
client that does not pause is held by the stream's bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.produce_answers import ProduceAnswers
from magnetar_broker.server.grpc.stream_budget import StreamBudget
from magnetar_broker.topic.producer import Producer
from magnetar_broker.topic.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProducerOpened
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.frame import DecodedRun
from magnetar_wire.transport import Code, Refusal

__all__ = ["ChannelOwner", "ProducerChannel"]


class ChannelOwner(Protocol):
    """The stream, as its channels know it."""

    answers: ProduceAnswers
    stream_budget: StreamBudget

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it as one of the stream's tasks."""

    def wake(self) -> None:
        """There are answers."""

    def decided(self, memory_bytes: int) -> None: ...

    def channel_over(self, channel: ProducerChannel) -> None: ...


class ProducerChannel:
    """Is its producer's `ProducerSink`."""

    __slots__ = (
        "_next",
        "_over_share",
        "_owner",
        "_paused",
        "_producer",
        "_resuming",
        "_topic",
        "_undecided_bytes",
        "_waiting",
        "_waiting_for",
        "closing",
        "opening",
        "over",
        "producer_id",
    )

    def __init__(self, producer_id: int, owner: ChannelOwner) -> None:
        self.producer_id = producer_id
        self._owner = owner
        self._topic: Topic | None = None
        self._producer: Producer | None = None
        # Entries that came before it was open, or while its topic had no room; in order.
        self._waiting: deque[DecodedRun] = deque()
        # Memory of its entries that were received and are not decided.
        self._undecided_bytes = 0
        # Whether the client was told to pause, and the first of two reasons for it.
        self._paused = False
        self._over_share = False
        # What the client was told that its topic waits for.
        self._waiting_for = ""
        # Waits until the topic has capacity.
        self._resuming: asyncio.Task[None] | None = None
        self._next = 0
        # Its end has been told, or nobody is there to be told.
        self.over = False
        # What opens it; and whether it is being closed.
        self.opening: asyncio.Task[None] | None = None
        self.closing = False

    def undecided_sizes(self) -> list[int]:
        """Return the bytes of each entry that was received and is not decided: see `ProduceSession.undecided_sizes`."""
        waiting = [len(entry) for run in self._waiting for entry in run.entries]
        return waiting if self._producer is None else [*self._producer.pending_sizes(), *waiting]

    async def open(self, asked: OpenProducer, topic: Topic, address: str, max_message_bytes: int) -> None:
        """Raises `BrokerError`."""
        producer = await topic.open_producer(asked, self, address)
        self._topic, self._producer = topic, producer
        self._owner.answers.opened(
            ProducerOpened(
                producer_id=self.producer_id,
                producer_name=producer.producer_name,
                incarnation=topic.log.incarnation,
                last_sequence_id=topic.last_sequence_id(producer),
                max_message_bytes=max_message_bytes,
            )
        )
        self._owner.wake()
        self._publish_waiting()

    def expect(self, run: DecodedRun) -> None:
        """Raises `Refusal` unless it is what comes next."""
        if run.first != self._next:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"entry {run.first} came for producer {self.producer_id}, and {self._next} is the next one",
            )

    def take(self, run: DecodedRun, memory_bytes: int) -> None:
        self._next += len(run.entries)
        self._undecided_bytes += memory_bytes
        self._waiting.append(run)
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Hand entries to the topic while it has capacity, and pause the client if it must send no more."""
        producer, topic, waiting = self._producer, self._topic, self._waiting
        if producer is None or topic is None:
            return
        while waiting and not topic.budget.full:
            run = waiting.popleft()
            producer.publish(run.first, run.entries)
        if self.over:  # it ended by that
            return
        if topic.budget.full and self._resuming is None:
            self._resuming = self._owner.spawn(self._resume(topic))
        self._over_share = not self._owner.stream_budget.has_share(self._undecided_bytes)
        self._send_flow()

    async def _resume(self, topic: Topic) -> None:
        while topic.budget.full or self._waiting:
            await topic.budget.room()
            self._publish_waiting()
        if not self.over:
            self._resuming = None
            self._send_flow()

    def _send_flow(self) -> None:
        """Pause or resume the client's producer if that has changed."""
        paused = self._over_share or self._resuming is not None
        if paused is not self._paused:
            self._paused = paused
            self._tell_flow()

    def _tell_flow(self) -> None:
        self._owner.answers.set_flow(self.producer_id, self._paused, self._waiting_for)
        self._owner.wake()

    async def close(self) -> None:
        """End the producer once all entries that were sent before are decided.

        A closing topic has stopped it already, which passes over what waits. The topic then ends it with an error, and
        the client resends.
        """
        producer, topic = self._producer, self._topic
        if producer is not None and topic is not None:
            while self._waiting and not self.over:
                await topic.budget.room()
                self._publish_waiting()
            if producer.stopped:
                return
            producer.stop()
            await producer.settled()
        self._end(None)

    def broken(self, error: BrokerError) -> None:
        """Nobody is there any more to be told."""
        self.over = True
        self._let_go(error)

    def fail(self, error: BrokerError) -> None:
        """It was not opened."""
        self._end(error)

    def _end(self, error: BrokerError | None) -> None:
        if self.over:
            return
        self.over = True
        self._let_go(error or BrokerError(ErrorCode.UNKNOWN_ERROR, "it was closed"))
        self._owner.answers.ended(self.producer_id, None if error is None else error.problem)
        self._owner.channel_over(self)
        self._owner.wake()

    def _let_go(self, error: BrokerError) -> None:
        waiting, self._waiting = self._waiting, deque()
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        for run in waiting:
            self.decided(count_entry_memory(run.entries))
        if self._producer is not None and self._topic is not None:
            self._topic.leave(self._producer, error)

    # ── ProducerSink ──

    def stored(self, number: int, position: Position) -> None:
        self._owner.answers.stored(self.producer_id, number, position)
        self._owner.wake()

    def refused(self, number: int, error: BrokerError) -> None:
        self._owner.answers.refused(self.producer_id, number, error.problem)
        self._owner.wake()

    def decided(self, memory_bytes: int) -> None:
        self._undecided_bytes -= memory_bytes
        self._owner.decided(memory_bytes)
        if self._over_share and not self.over and self._owner.stream_budget.has_share(self._undecided_bytes):
            self._over_share = False
            self._send_flow()

    def report_waiting(self, waiting_for: str) -> None:
        if waiting_for != self._waiting_for and not self.over:
            self._waiting_for = waiting_for
            self._tell_flow()

    def ended(self, error: BrokerError) -> None:
        self._end(error)

    async def lives(self) -> bool:
        return not self.over  # the transport looks after that
