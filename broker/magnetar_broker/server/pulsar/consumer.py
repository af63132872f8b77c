"""One consumer of a connection: it sends the entries that its subscription dispatches to it as MESSAGE, as stored.

**Permits.** In Pulsar's protocol permits are one running number; the broker's permits begin at 0 in each epoch. So the
permits that the client has granted and not used are counted here (`_permits`), and granted again when an epoch begins.
Of a partly acknowledged batch only the other messages count. Libraries grant permits for the messages of it that they
skip (C++ and Java do), with Pulsar as with Magnetar, so a client may be sent that many more than its queue is meant
for.

**Epochs.** Clients send no epoch with their acknowledgements: each counts as of the last epoch that was reported here
(`_epoch`). A subscription that is being moved begins the next epoch before it reports it. An acknowledgement that
arrives in the meantime belongs to the epoch before: if a client acknowledges everything and then seeks back, the
acknowledgement that arrives while the cursor moves would otherwise undo the seek. Clients that count epochs themselves
send theirs with a redelivery request, and get it back with each later message, to recognize those sent before.

**Moved subscriptions.** A subscription that is moved, by a seek or an administrator, closes its consumers, as in
Pulsar: clients drop their messages and subscribe again. A subscription that is not durable is retained until then
(`_RETURN_S`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.acknowledged_ids import entry_ranges
from magnetar_broker.server.pulsar.acknowledgments import Acknowledgments
from magnetar_broker.server.pulsar.message_ids import start_at, unacknowledged_words
from magnetar_broker.server.pulsar.replies import NO_REQUEST, MessageHeads, frame, success_frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.pulsar.subscribe_request import SINGLE_ACTIVE, make_open_consumer
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxCapacity
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, Problem, StartAt, SubscriptionType
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandReachedEndOfTopic,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
)
from magnetar_wire.entry import broker_metadata_bytes
from magnetar_wire.topic_name import TopicName

__all__ = ["ConnectedConsumer"]

# How long a subscription that is not durable is retained for its clients to subscribe again.
_RETURN_S: Final = 30.0


class ConnectedConsumer:
    """Implements `ConsumerSink`."""

    __slots__ = (
        "_acknowledgments",
        "_client_epoch",
        "_consumers",
        "_epoch",
        "_heads",
        "_is_closing",
        "_is_regranting",
        "_is_unsubscribing",
        "_moves",
        "_owed_permits",
        "_permits",
        "_request_id",
        "_session",
        "_type",
        "consumer",
        "consumer_id",
        "is_closed",
        "opening",
        "topic",
    )

    def __init__(self, session: ClientSession, consumers: dict[int, ConnectedConsumer], consumer_id: int) -> None:
        """`consumers`: those of the connection, which contain this one until it is closed."""
        self._session = session
        self._consumers = consumers
        self.consumer_id = consumer_id
        self.opening: asyncio.Task[None] | None = None
        # The client has closed the consumer: it gets nothing more, and waits until its acknowledgements are applied.
        self._is_closing = False
        # The consumer is closed, by its client or by the broker.
        self.is_closed = False
        self.topic: Topic | None = None
        # The subscription's consumer, once it is open.
        self.consumer: Consumer | None = None
        self._heads: MessageHeads | None = None
        self._type = SubscriptionType.EXCLUSIVE
        # The id of the SUBSCRIBE that opens it.
        self._request_id = 0
        # The subscription's epoch to which the client's acknowledgements belong.
        self._epoch = 0
        # The client's own epoch; None: it counts none.
        self._client_epoch: int | None = None
        # How often the subscription had been moved when the consumer was opened.
        self._moves = 0
        # Permits that the client has granted, less delivered messages. If an epoch begins while they are below 0, the
        # dispatch rule does not know of that part; `_owed_permits` is subtracted from what the client grants next.
        self._permits = 0
        self._owed_permits = 0
        # An epoch has begun, and `_grant_again` is scheduled: it grants all permits.
        self._is_regranting = False
        # It deletes the subscription, which closes all its consumers, this one too.
        self._is_unsubscribing = False
        self._acknowledgments = Acknowledgments(session, consumer_id)

    @property
    def is_open(self) -> bool:
        return self.consumer is not None and not self._is_closing and not self._is_unsubscribing

    @property
    def permits(self) -> int:
        return self._permits

    def forget(self) -> None:
        """Remove it from the consumers of its connection."""
        if self._consumers.get(self.consumer_id) is self:
            del self._consumers[self.consumer_id]

    # Opening and closing.

    async def open(self, request: CommandSubscribe) -> None:
        """Open the consumer and answer the request. Raises `BrokerError`.

        If an exclusive subscription has a consumer whose client is found dead, retry once.
        """
        server = self._session.context.server
        broker_session = server.get_session()
        name = TopicName.parse(request.topic)
        opening = make_open_consumer(request, server.clock.time_ms())
        opening.client_version = self._session.client_version
        self._request_id = request.request_id
        self._type = opening.type
        if request.HasField("consumer_epoch"):
            self._client_epoch = request.consumer_epoch
        self._heads = MessageHeads(self.consumer_id, name.partition_index)
        # A partition exists with its topic, used or not: clients that subscribe by a pattern request no creation.
        may_create = request.force_topic_creation or name.is_partition
        self.topic = topic = await broker_session.topics.find(name, "", may_create)
        try:
            await topic.subscribe(opening, self)
        except BrokerError as error:
            holder = topic.subscriptions.exclusive_consumer(opening.subscription, opening.durable)
            if error.code != ErrorCode.CONSUMER_BUSY or holder is None or await holder.sink.check_alive():
                raise
            await topic.subscribe(opening, self)

    def opened(self, consumer: Consumer) -> None:
        """Answer SUBSCRIBE."""
        self.consumer = consumer
        if self._is_closing:
            self._stop_delivery()
        self._epoch = consumer.epoch
        self._moves = _count_moves(consumer)
        self.send_success(self._request_id)
        if self._type == SubscriptionType.FAILOVER:
            self.active_changed(consumer.active)

    def send_success(self, request_id: int) -> None:
        self._session.write(success_frame(request_id))

    def close(self, request_id: int) -> None:
        """Close the consumer at the client's request. The answer is sent when its acknowledgements are durable."""
        self._is_closing = True
        self._stop_delivery()
        if self._acknowledgments.is_pending:
            self._session.start_request(request_id, self._close_when_acknowledged(request_id))
        else:
            self._close(request_id)

    async def _close_when_acknowledged(self, request_id: int) -> None:
        await self._acknowledgments.wait_applied()
        self._close(request_id)

    def _close(self, request_id: int) -> None:
        consumer = self.consumer
        if consumer is None:
            self.leave()
            self.send_success(request_id)
            return

        def saved(error: BrokerError | None) -> None:
            self._session.requests.count_reply()
            self.send_success(request_id)  # what was not saved is redelivered, as after a crash

        self._session.requests.expect_reply()
        consumer.when_saved(saved)
        self.leave()

    def leave(self) -> None:
        """Close the consumer without sending anything to the client, which has closed it or is disconnected."""
        self.is_closed = True
        self._stop_delivery()
        if self.opening is not None and self.consumer is None:
            self.opening.cancel()
        self.forget()
        if self.consumer is not None:
            self.consumer.leave()

    def _stop_delivery(self) -> None:
        if self.consumer is not None:
            self.consumer.stop_delivery()

    async def unsubscribe(self, request_id: int, *, force: bool) -> None:
        """Delete the subscription and answer the request. Raises `BrokerError`."""
        consumer = self._get_open()
        self._is_unsubscribing = True
        try:
            await consumer.unsubscribe(force=force)
        finally:
            self._is_unsubscribing = False
        self.leave()
        self.send_success(request_id)

    def _get_open(self) -> Consumer:
        if self.consumer is None:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {self.consumer_id} is not open on this connection")
        return self.consumer

    # Commands of the client.

    def flow(self, permits: int) -> None:
        """Grant permits."""
        self._permits += permits
        if self.consumer is None or self._is_regranting:
            return
        owed = min(permits, self._owed_permits)
        self._owed_permits -= owed
        if permits > owed:
            self.consumer.flow(self.consumer.epoch, permits - owed)

    def redeliver(self, request: CommandRedeliverUnacknowledgedMessages) -> None:
        """Redeliver unacknowledged messages: those of the request, if the type redelivers single ones."""
        consumer = self.consumer
        if consumer is None:
            return
        if request.HasField("consumer_epoch"):
            self._client_epoch = request.consumer_epoch
        in_order = self._type in SINGLE_ACTIVE
        ranges = [] if in_order else entry_ranges(request.message_ids)
        if request.message_ids and not in_order and not ranges:
            return  # it names no entry; an empty list would mean all
        try:
            consumer.redeliver(self._epoch, ranges)  # while the subscription is moved it has no effect
        except BrokerError as error:
            self._acknowledgments.log_once("A redelivery request", error)

    async def seek(self, request: CommandSeek) -> None:
        """Move the subscription and answer the request. Raises `BrokerError`."""
        if request.HasField("message_id"):
            to = start_at(request.message_id)
        elif request.HasField("message_publish_time"):
            to = StartAt(time_ms=min(request.message_publish_time, 2**63 - 1))
        else:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "SEEK lacks its position: set message_id or publish time")
        await self._get_open().seek(to)
        self.send_success(request.request_id)

    def acknowledge(self, request: CommandAck) -> None:
        self._acknowledgments.acknowledge(self.consumer, request, self._epoch)

    # Calls of the subscription: `ConsumerSink`.

    @property
    def address(self) -> str:
        return self._session.address

    @property
    def outbox_capacity(self) -> OutboxCapacity:
        return self._session.outbound

    @property
    def is_broken(self) -> bool:
        return self.is_closed or self._session.is_closed

    async def check_alive(self) -> bool:
        return await self._session.check_alive()

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        assert self._heads is not None
        epoch = self._client_epoch if self._type in SINGLE_ACTIVE else None
        with_broker_metadata = self._session.wants_broker_metadata
        head, parts, size = self._heads.head, list[bytes](), 0
        for run in runs:
            words: Sequence[int] = ()
            if run.acknowledged:
                [entry] = run.entries
                words = unacknowledged_words(run.acknowledged, entry.batch_size)
                self._return_permits(int.from_bytes(run.acknowledged, "little").bit_count())
            plain = not run.redelivery_count and not words and epoch is None
            tail = b"" if plain else self._heads.tail(run.redelivery_count, words, epoch)
            for entry in run.entries:
                self._permits -= entry.messages
                stored = entry.stored
                if not with_broker_metadata:
                    stored = stored[broker_metadata_bytes(stored) :]
                begin = head(entry.position, tail, len(stored))
                parts += (begin, stored)
                size += len(begin) + len(stored)
        self._session.outbound.write_all(parts, size)

    def _return_permits(self, permits: int) -> None:
        """Return the permits of acknowledged messages of a batch, which no application gets."""
        self._session.call_soon(lambda: None if self.is_closed else self.flow(permits))

    def epoch_began(self, consumer: Consumer) -> None:
        if self.is_closed:
            return  # its connection is closed, and other consumers of it leave first
        self._epoch = consumer.epoch
        if _count_moves(consumer) != self._moves:
            consumer.subscription.retain_for_reconnect(_RETURN_S)
            self.is_closed = True
            self._stop_delivery()
            self.forget()
            self._send_closed()
            self._session.call_soon(self.leave)  # not now: the subscription is still calling its consumers
        elif not self._is_regranting:
            self._is_regranting = True
            self._session.call_soon(self._grant_again)

    def _grant_again(self) -> None:
        """Grant all unused permits in the epoch that has begun."""
        self._is_regranting = False
        if self.consumer is None or self.is_closed:
            return
        self._owed_permits = max(0, -self._permits)
        if self._permits > 0:
            self.consumer.flow(self.consumer.epoch, self._permits)

    def active_changed(self, active: bool) -> None:
        if self.is_closed:
            return
        change = CommandActiveConsumerChange(consumer_id=self.consumer_id, is_active=active)
        command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)
        self._session.write(frame(command))

    def reached_end(self, consumer: Consumer) -> None:
        if self.is_closed:
            return
        reached = CommandReachedEndOfTopic(consumer_id=self.consumer_id)
        self._session.write(frame(BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC, reached_end_of_topic=reached)))

    def topic_grew(self, partitions: int) -> None:
        """Do nothing: Pulsar's clients count partitions from time to time."""

    def ended(self, problem: Problem | None) -> None:
        """Send CLOSE_CONSUMER: the client looks the topic up and subscribes again."""
        if self.is_closed:
            return
        self.is_closed = True
        self.forget()
        if not self._is_unsubscribing:  # the client would create the subscription again
            self._send_closed()

    def _send_closed(self) -> None:
        close = CommandCloseConsumer(consumer_id=self.consumer_id, request_id=NO_REQUEST)
        self._session.write(frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=close)))


def _count_moves(consumer: Consumer) -> int:
    """Return how often the subscription was moved. Take-overs by another consumer do not count."""
    return consumer.subscription.cursor.moves
