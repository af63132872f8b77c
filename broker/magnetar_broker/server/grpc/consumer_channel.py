"""One consumer's channel of a `consume` stream: what the subscription tells it goes to the stream's outbox."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar_broker.errors import BrokerError
from magnetar_broker.topic.consumer import Consumer, DeliveryRun
from magnetar_protos.broker_pb2 import ActiveChanged, ConsumerEnded, ConsumerOpened, EpochBegan, Problem

if TYPE_CHECKING:
    from magnetar_broker.server.grpc.consume_stream import ConsumeSession

__all__ = ["ConsumerChannel"]

_log = logging.getLogger(__name__)


class ConsumerChannel:
    """A `ConsumerSink`."""

    __slots__ = (
        "_ended",
        "_logged",
        "_session",
        "broker_metadata",
        "closed",
        "consumer",
        "consumer_id",
        "next_number",
        "opening",
    )

    def __init__(self, session: ConsumeSession, consumer_id: int, broker_metadata: bool) -> None:
        self._session = session
        self.consumer_id = consumer_id
        self.broker_metadata = broker_metadata
        self.next_number = 0
        # Once it is open.
        self.consumer: Consumer | None = None
        # Until then.
        self.opening: asyncio.Task[None] | None = None
        # Nothing more is delivered.
        self.closed = False
        # And the client has been told.
        self._ended = False
        self._logged = False

    @property
    def address(self) -> str:
        return self._session.address

    @property
    def broken(self) -> bool:
        return self._session.broken

    async def lives(self) -> bool:
        return not self.closed  # the transport looks after that

    def room(self) -> int:
        return 0 if self.closed else self._session.room_for(self)

    def reserve(self, size_bytes: int) -> None:
        self._session.outbox.reserve(size_bytes)
        if size_bytes < 0:
            self._session.wake_sender()

    def opened(self, consumer: Consumer) -> None:
        self.consumer = consumer
        told = ConsumerOpened(
            consumer_id=self.consumer_id,
            consumer_name=consumer.name,
            incarnation=consumer.incarnation,
            epoch=consumer.epoch,
            active=consumer.active,
            moves=consumer.moves,
            behind=consumer.behind(),
        )
        self._session.outbox.tell_before(told)
        self._session.wake_sender()

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        for run in runs:
            self._session.outbox.deliver(self, run)
        self._session.wake_sender()

    def epoch_began(self, consumer: Consumer) -> None:
        told = EpochBegan(
            consumer_id=self.consumer_id,
            epoch=consumer.epoch,
            acknowledged_from=consumer.acknowledged_from,
            moves=consumer.moves,
            behind=consumer.behind(),
        )
        self._session.outbox.tell_before(told)
        self._session.wake_sender()

    def active_changed(self, active: bool) -> None:
        self._session.outbox.tell_before(ActiveChanged(consumer_id=self.consumer_id, active=active))
        self._session.wake_sender()

    def ended(self, problem: Problem | None) -> None:
        self.closed = True
        self._session.forget(self)
        if not self._ended and not self._session.broken:
            self._ended = True
            self._session.outbox.tell_behind(ConsumerEnded(consumer_id=self.consumer_id, problem=problem))
            self._session.wake_sender()

    def leave(self) -> None:
        """The client has closed it, or is gone."""
        self.closed = True
        if self.opening is not None:
            self.opening.cancel()
        if self.consumer is not None:
            self.consumer.leave()

    def log_once(self, what: str, error: BrokerError) -> None:
        """Of what nobody waits for an answer."""
        if not self._logged:
            self._logged = True
            _log.warning("consumer %d of %s: %s was dropped: %s", self.consumer_id, self.address, what, error)
