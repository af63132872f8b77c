"""One producer of a `produce` stream, from its OpenProducer to its ProducerEnded.

    opening ──► open ──► closing ──► ended
       └───────────┴────────────────►┘

While the producer is being opened (its topic may be in recovery, or its predecessor's entries undecided) its entries
wait here, and count like all undecided entries of the stream. A producer that waits until it has the topic to itself
(`queued`) may wait for any time: if it is closed, its opening is cancelled. Entries are numbered without gaps. An entry
with another number is a mistake of the client and ends the stream, since results could no longer be matched with
entries.

**Flow.** Entries are published run by run while the topic has capacity, and wait here while it has none. The client
must pause the producer while

- the topic is full, or entries wait here for it or for a publish rate (topics/publish_throttle.py); or
- the producer's undecided entries use up its share of the stream's budget (stream_budget.py), so that several full
  topics leave capacity for the others.

After the pause only entries arrive that were in flight. The stream is read in the meantime, so its other producers go
on. A client that does not pause is stopped by the stream's budget.
"""

from __future__ import annotations

import asyncio
from collections import deque

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.server.grpc.produce_session import ProduceSession
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.producer_access_rules import StaleTopicEpoch
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProducerOpened
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.frame import DecodedRun
from magnetar_wire.transport import Code, Refusal

__all__ = ["StreamProducer"]


class StreamProducer:
    """Implements `ProducerSink`."""

    __slots__ = (
        "_has_ended",
        "_is_over_share",
        "_is_paused",
        "_is_queued",
        "_next_number",
        "_producer",
        "_resuming",
        "_session",
        "_stream_producers",
        "_topic",
        "_undecided_bytes",
        "_waiting",
        "_waiting_for",
        "is_closing",
        "opening",
        "producer_id",
    )

    def __init__(self, producer_id: int, session: ProduceSession, producers: dict[int, StreamProducer]) -> None:
        """`producers`: those of the stream, which contain this one until it has ended."""
        self.producer_id = producer_id
        self._session = session
        self._stream_producers = producers
        self._topic: Topic | None = None
        self._producer: Producer | None = None
        # Entries that wait until the producer is open and its topic has capacity, in order.
        self._waiting: deque[DecodedRun] = deque()
        # Memory of its undecided entries.
        self._undecided_bytes = 0
        # Whether the client must pause, and one of the two reasons: the share of the stream's budget is used.
        self._is_paused = False
        self._is_over_share = False
        # The other reason: this task waits until the topic allows to publish.
        self._resuming: asyncio.Task[None] | None = None
        # What the topic waits for, as reported to the client.
        self._waiting_for = ""
        # Number of the next entry.
        self._next_number = 0
        # ProducerEnded was sent, or the stream has broken.
        self._has_ended = False
        # The task that opens it; whether it is being closed.
        self.opening: asyncio.Task[None] | None = None
        self.is_closing = False
        # Its opening waits for other producers.
        self._is_queued = False

    def undecided_sizes(self) -> list[int]:
        """Return the bytes of each entry that was received and is not decided: see `ProduceStream.undecided_sizes`."""
        waiting = [len(entry) for run in self._waiting for entry in run.entries]
        return waiting if self._producer is None else [*self._producer.pending_sizes(), *waiting]

    async def open(self, opening: OpenProducer, topic: Topic, address: str, max_message_bytes: int) -> None:
        """Open the producer and report it to the client. Raises `BrokerError`."""
        producer = await topic.producers.open(opening, self, address)
        self._is_queued = False
        self._topic, self._producer = topic, producer
        self._session.answers.add_opened(
            ProducerOpened(
                producer_id=self.producer_id,
                producer_name=producer.producer_name,
                incarnation=topic.log.incarnation,
                last_sequence_id=topic.producers.last_sequence_id(producer),
                max_message_bytes=min(max_message_bytes, topic.live_settings.current.max_topic_message_size),
                schema_version=producer.identity.schema_version,
                topic_epoch=topic.producers.topic_epoch,
            )
        )
        self._session.wake_sender()
        self._publish_waiting()

    def check_next(self, run: DecodedRun) -> None:
        """Raise `Refusal` if the run does not begin with the next number."""
        if run.first != self._next_number:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"producer {self.producer_id} got entry number {run.first} instead of {self._next_number}",
            )

    def publish(self, run: DecodedRun, memory_bytes: int) -> None:
        """Publish a run, after those that wait."""
        self._next_number += len(run.entries)
        self._undecided_bytes += memory_bytes
        self._waiting.append(run)
        self._publish_waiting()

    def _publish_waiting(self) -> None:
        """Hand entries to the topic while that is allowed, and pause the client if it must send no more."""
        producer, topic, waiting = self._producer, self._topic, self._waiting
        if producer is None or topic is None or self._has_ended:  # it may have ended while `close` waited
            return
        while waiting and not topic.publish_throttle.must_wait:
            run = waiting.popleft()
            published = producer.publish(run.first, run.entries)
            if self._waiting is not waiting:  # it has ended at an entry, and the other runs are released
                return
            if published < len(run.entries):
                waiting.appendleft(DecodedRun(run.channel, run.first + published, run.entries[published:]))
        if (waiting or topic.budget.is_full) and self._resuming is None:
            self._resuming = self._session.spawn(self._resume(topic))
        self._is_over_share = not self._session.budget.has_share(self._undecided_bytes)
        self._send_flow()

    async def _resume(self, topic: Topic) -> None:
        """Publish waiting entries whenever the topic allows it, until none wait and the topic is not full."""
        while topic.budget.is_full or self._waiting:
            await topic.publish_throttle.publish_when_allowed(self._publish_waiting)
        if not self._has_ended:
            self._resuming = None
            self._send_flow()

    def _send_flow(self) -> None:
        """Pause or resume the client's producer if that has changed."""
        must_pause = self._is_over_share or self._resuming is not None
        if must_pause is not self._is_paused:
            self._is_paused = must_pause
            self._add_flow()

    def _add_flow(self) -> None:
        waiting_for = self._waiting_for
        if not waiting_for and self._is_paused and self._topic is not None:
            waiting_for = self._topic.publish_throttle.describe_reached_rate()
        self._session.answers.set_flow(self.producer_id, self._is_paused, waiting_for)
        self._session.wake_sender()

    def begin_close(self) -> None:
        """Have the opening end soon, because the producer is about to be closed."""
        self.is_closing = True
        if self._is_queued and self.opening is not None:
            self.opening.cancel()

    async def close(self) -> None:
        """End the producer once all entries that were sent before are decided.

        A closing topic has stopped the producer, which then ignores waiting entries. The topic ends it with an error,
        and the client resends them.
        """
        producer, topic = self._producer, self._topic
        if producer is not None and topic is not None:
            while self._waiting and not self._has_ended:
                await topic.publish_throttle.publish_when_allowed(self._publish_waiting)
            if producer.is_stopped:
                return
            producer.stop()
            await producer.settled()
        self._end(None)

    def break_off(self, error: BrokerError) -> None:
        """End the producer of a broken stream, without a report to the client."""
        self._has_ended = True
        self._release(error)

    def fail(self, error: BrokerError) -> None:
        """Report that the producer can't be opened."""
        self._end(error)

    def _end(self, error: BrokerError | None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._release(error or BrokerError(ErrorCode.UNKNOWN_ERROR, "it was closed by its client"))
        topic_epoch = error.topic_epoch if isinstance(error, StaleTopicEpoch) else None
        self._session.answers.add_ended(self.producer_id, None if error is None else error.problem, topic_epoch)
        if self._stream_producers.get(self.producer_id) is self:
            del self._stream_producers[self.producer_id]
        self._session.report_change()
        self._session.wake_sender()

    def _release(self, error: BrokerError) -> None:
        """Return the memory of waiting entries, and leave the topic."""
        waiting, self._waiting = self._waiting, deque()
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        for run in waiting:
            self.decided(count_entry_memory(run.entries))
        if self._producer is not None and self._topic is not None:
            self._topic.publish_throttle.release(self._publish_waiting)
            self._topic.producers.leave(self._producer, error)

    # Results from the topic: `ProducerSink`.

    def stored(self, number: int, position: Position) -> None:
        self._session.answers.add_stored(self.producer_id, number, position)
        self._session.wake_sender()

    def partly_stored(self, number: int, position: Position, duplicates: int) -> None:
        self._session.answers.add_stored(self.producer_id, number, position, duplicates)
        self._session.wake_sender()

    def refused(self, number: int, error: BrokerError) -> None:
        self._session.answers.add_refused(self.producer_id, number, error.problem)
        self._session.wake_sender()

    def decided(self, memory_bytes: int) -> None:
        self._undecided_bytes -= memory_bytes
        self._session.finish_pending(memory_bytes)
        if self._is_over_share and not self._has_ended and self._session.budget.has_share(self._undecided_bytes):
            self._is_over_share = False
            self._send_flow()

    def report_waiting(self, waiting_for: str) -> None:
        if waiting_for != self._waiting_for and not self._has_ended:
            self._waiting_for = waiting_for
            self._add_flow()

    def topic_grew(self, partitions: int) -> None:
        self._session.answers.set_grown(self.producer_id, partitions)
        self._session.wake_sender()

    def queued(self, producer_name: str) -> None:
        assert self.opening is not None
        self._session.count_queued(self.opening)
        self._is_queued = True
        if self.is_closing:
            self.begin_close()
        elif not self._has_ended:
            self._session.answers.add_queued(self.producer_id)
            self._session.wake_sender()

    def ended(self, error: BrokerError) -> None:
        self._end(error)

    async def check_alive(self) -> bool:
        return not self._has_ended  # gRPC's keepalive checks the connection
