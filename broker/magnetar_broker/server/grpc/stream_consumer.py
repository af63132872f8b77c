"""One consumer of a `consume` stream: it queues what its subscription delivers and reports in the stream's outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.consume_session import ConsumeSession
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxCapacity
from magnetar_protos.broker_pb2 import (
    ActiveChanged,
    ConsumerEnded,
    ConsumerOpened,
    EpochBegan,
    Problem,
    ReachedEnd,
    TopicGrown,
)

__all__ = ["StreamConsumer"]

_log = logging.getLogger(__name__)


class StreamConsumer:
    """Implements `ConsumerSink`."""

    __slots__ = (
        "_has_ended",
        "_has_logged",
        "_session",
        "_stream_consumers",
        "accepts_gaps",
        "broker_metadata",
        "consumer",
        "consumer_id",
        "is_closed",
        "next_number",
        "opening",
    )

    def __init__(
        self,
        session: ConsumeSession,
        consumers: dict[int, StreamConsumer],
        consumer_id: int,
        *,
        broker_metadata: bool,
        accepts_gaps: bool,
    ) -> None:
        """`consumers`: those of the stream, which contain this one until it is closed. `broker_metadata`: the client
        gets entries with the broker's metadata. `accepts_gaps`: the entries of a run may skip others."""
        self._session = session
        self._stream_consumers = consumers
        self.consumer_id = consumer_id
        self.broker_metadata = broker_metadata
        self.accepts_gaps = accepts_gaps
        # Number of the next entry.
        self.next_number = 0
        # The subscription's consumer, once it is open; until then the task that opens it.
        self.consumer: Consumer | None = None
        self.opening: asyncio.Task[None] | None = None
        # The client or the broker has closed it: nothing more is delivered.
        self.is_closed = False
        # ConsumerEnded was sent.
        self._has_ended = False
        self._has_logged = False

    @property
    def address(self) -> str:
        return self._session.address

    @property
    def outbox_capacity(self) -> OutboxCapacity:
        return self._session.outbox_capacity

    @property
    def is_broken(self) -> bool:
        return self._session.is_broken

    async def check_alive(self) -> bool:
        return not self.is_closed  # gRPC's keepalive checks the connection

    def opened(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._session.send_before_entries(
            ConsumerOpened(
                consumer_id=self.consumer_id,
                consumer_name=consumer.name,
                incarnation=consumer.incarnation,
                epoch=consumer.epoch,
                active=consumer.active,
                moves=consumer.moves_and_take_overs,
                behind=consumer.find_epoch_start(),
            )
        )

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        self._session.outbox.deliver(self, runs)
        self._session.wake_sender()

    def epoch_began(self, consumer: Consumer) -> None:
        self._session.send_before_entries(
            EpochBegan(
                consumer_id=self.consumer_id,
                epoch=consumer.epoch,
                acknowledged_from=consumer.acknowledged_from,
                moves=consumer.moves_and_take_overs,
                behind=consumer.find_epoch_start(),
            )
        )

    def active_changed(self, active: bool) -> None:
        self._session.send_before_entries(ActiveChanged(consumer_id=self.consumer_id, active=active))

    def reached_end(self, consumer: Consumer) -> None:
        self._session.send_after_entries(ReachedEnd(consumer_id=self.consumer_id, epoch=consumer.epoch))

    def topic_grew(self, partitions: int) -> None:
        self._session.send_after_entries(TopicGrown(channel_id=self.consumer_id, partitions=partitions))

    def ended(self, problem: Problem | None) -> None:
        self.is_closed = True
        self.forget()
        if not self._has_ended and not self._session.is_broken:
            self._has_ended = True
            self._session.send_after_entries(ConsumerEnded(consumer_id=self.consumer_id, problem=problem))

    def leave(self) -> None:
        """Close the consumer without a report to the client, which has closed it or is disconnected."""
        self.is_closed = True
        if self.opening is not None:
            self.opening.cancel()
        if self.consumer is not None:
            self.consumer.leave()

    def forget(self) -> None:
        """Remove it from the consumers of its stream."""
        if self._stream_consumers.get(self.consumer_id) is self:
            del self._stream_consumers[self.consumer_id]

    def log_once(self, what: str, error: BrokerError) -> None:
        """Log the first error of a request that has no answer."""
        if not self._has_logged:
            self._has_logged = True
            _log.warning(
                "%s of consumer %d of the client at %s is ignored: %s", what, self.consumer_id, self.address, error
            )
