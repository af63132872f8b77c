"""A consumer of a connection: what the subscription deals out goes to it as MESSAGE, entries as they are stored.

**Permits.** The protocol's permits are one running number; the broker's begin anew with each epoch. So what the client
has granted and was not used yet is counted here (`_permits`), and granted again when an epoch begins. Of a batch that
was partly acknowledged only the rest counts. Libraries grant once more what they pass over of it (C++ and Java do), on
Pulsar as here, so a client may be sent so many more than its queue was meant for.

**Epochs.** Clients send no epoch with what they acknowledge: it counts as of the last one that was told here
(`_told_epoch`). A subscription that is being moved has begun the next before it tells of it, and what comes meanwhile
is of before: A acknowledges all and seeks back at once; its acknowledgement comes while the cursor moves, and would
undo that. Clients that have an epoch of their own tell it with a redelivery, and get it back with each message that
follows, to tell what was on its way before.

**Moved.** A subscription that was moved, by a seek or an administrator, lets go of its consumers, as Pulsar does:
clients drop what they have, and subscribe again. Until then one that is not durable is kept (`_RETURN_S`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.acknowledged_ids import ranges_of
from magnetar_broker.server.pulsar.acknowledgments import Acknowledging
from magnetar_broker.server.pulsar.message_ids import place_of, unacknowledged_words
from magnetar_broker.server.pulsar.producer import NO_REQUEST
from magnetar_broker.server.pulsar.replies import MessageHeads, frame, success_frame
from magnetar_broker.server.pulsar.subscribe_request import ONE_AT_A_TIME, open_consumer_of
from magnetar_broker.topic.consumer import Consumer, DeliveryRun
from magnetar_broker.topic.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, Problem, StartAt, SubscriptionType
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandSubscribe,
)
from magnetar_wire.entry import broker_metadata_bytes
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    import asyncio

    from magnetar_broker.server.pulsar.connection import PulsarConnection
    from magnetar_broker.topic.subscription import Subscription

__all__ = ["ConnectedConsumer", "leave_together"]

# How long a client may take to subscribe again.
_RETURN_S: Final = 30.0


class ConnectedConsumer:
    """A `ConsumerSink`."""

    __slots__ = (
        "_acknowledging",
        "_client_epoch",
        "_connection",
        "_consumer",
        "_heads",
        "_moved",
        "_owed",
        "_permits",
        "_regranting",
        "_request_id",
        "_told_epoch",
        "_type",
        "_unsubscribing",
        "closed",
        "closing",
        "consumer_id",
        "opening",
        "topic",
    )

    def __init__(self, connection: PulsarConnection, consumer_id: int) -> None:
        self._connection = connection
        self.consumer_id = consumer_id
        self.opening: asyncio.Task[None] | None = None
        # Nothing more is delivered: the client has asked for its end, which waits for what it has acknowledged; it is
        # over.
        self.closing = False
        self.closed = False
        self.topic: Topic | None = None
        self._consumer: Consumer | None = None
        self._heads: MessageHeads | None = None
        self._type = SubscriptionType.EXCLUSIVE
        # Of the SUBSCRIBE that opens it.
        self._request_id = 0
        # The subscription's, of what the client acknowledges now.
        self._told_epoch = 0
        # What the client calls its epoch; None: it has none.
        self._client_epoch: int | None = None
        # How often the subscription had been moved.
        self._moved = 0
        # What the client has granted, less what was delivered; and what of that the rule of dispatch does not know of,
        # since an epoch began while it was below 0.
        self._permits = 0
        self._owed = 0
        # An epoch has begun, and is granted them in a moment, with what comes until then.
        self._regranting = False
        # It deletes the subscription from under all its consumers, itself too.
        self._unsubscribing = False
        self._acknowledging = Acknowledging(connection, consumer_id)

    @property
    def opened_as(self) -> Consumer | None:
        return self._consumer

    @property
    def stays_open(self) -> bool:
        return self._consumer is not None and not self.closing and not self._unsubscribing

    @property
    def permits(self) -> int:
        return self._permits

    # Opening and closing.

    async def open(self, asked: CommandSubscribe) -> None:
        """Answers it, too. Raises `BrokerError`."""
        serving = self._connection.door.serving()
        name = TopicName.parse(asked.topic)
        opening = open_consumer_of(asked, self._connection.door.clock.time_ms())
        self._request_id = asked.request_id
        self._type = opening.type
        if asked.HasField("consumer_epoch"):
            self._client_epoch = asked.consumer_epoch
        self._heads = MessageHeads(self.consumer_id, name.partition_index)
        # A partition is there when its topic is, used or not: whoever follows a pattern asks for no topic to be made.
        self.topic = topic = await serving.topics.find(name, "", asked.force_topic_creation or name.is_partition)
        try:
            await topic.subscriptions.subscribe(opening, self)
        except BrokerError as error:
            holder = topic.subscriptions.holder(opening.subscription, opening.durable)
            if error.code != ErrorCode.CONSUMER_BUSY or holder is None or await holder.sink.lives():
                raise
            await topic.subscriptions.subscribe(opening, self)

    def opened(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._told_epoch = consumer.epoch
        self._moved = _moves(consumer)
        self.tell_success(self._request_id)
        if self._type == SubscriptionType.FAILOVER:
            self.active_changed(consumer.active)

    def tell_success(self, request_id: int) -> None:
        self._connection.write(success_frame(request_id))

    def close(self, request_id: int) -> None:
        """The client asks for it: answered when what it has acknowledged is durable."""
        self.closing = True
        if self._acknowledging.busy:
            self._connection.ask(request_id, self._close_when_acknowledged(request_id))
        else:
            self._close(request_id)

    async def _close_when_acknowledged(self, request_id: int) -> None:
        await self._acknowledging.settled()
        self._close(request_id)

    def _close(self, request_id: int) -> None:
        consumer = self._consumer
        if consumer is None:
            self.leave()
            self.tell_success(request_id)
            return

        def saved(error: BrokerError | None) -> None:
            self._connection.answered()
            self.tell_success(request_id)  # what was not saved comes again, as after a crash

        self._connection.asked()
        consumer.when_saved(saved)
        self.leave()

    def leave(self) -> None:
        self.closed = True
        if self.opening is not None and self._consumer is None:
            self.opening.cancel()
        self._connection.forget_consumer(self)
        if self._consumer is not None:
            self._consumer.leave()

    async def unsubscribe(self, request_id: int, *, force: bool) -> None:
        """Raises `BrokerError`."""
        consumer = self._open_consumer()
        self._unsubscribing = True
        try:
            await consumer.unsubscribe(force=force)
        finally:
            self._unsubscribing = False
        self.leave()
        self.tell_success(request_id)

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {self.consumer_id} is not open on this connection")
        return self._consumer

    # What the client asks for.

    def flow(self, permits: int) -> None:
        self._permits += permits
        if self._consumer is None or self._regranting:
            return
        owed = min(permits, self._owed)
        self._owed -= owed
        if permits > owed:
            self._consumer.flow(self._consumer.epoch, permits - owed)

    def redeliver(self, asked: CommandRedeliverUnacknowledgedMessages) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        if asked.HasField("consumer_epoch"):
            self._client_epoch = asked.consumer_epoch
        ranges = ranges_of(asked.message_ids) if self._type == SubscriptionType.SHARED else []
        if asked.message_ids and self._type == SubscriptionType.SHARED and not ranges:
            return  # what it names is nothing: to name nothing would mean everything
        try:
            consumer.redeliver(consumer.epoch, ranges)
        except BrokerError as error:
            self._acknowledging.log_once("a redelivery", error)

    async def seek(self, asked: CommandSeek) -> None:
        """Raises `BrokerError`."""
        if asked.HasField("message_id"):
            to = place_of(asked.message_id)
        elif asked.HasField("message_publish_time"):
            to = StartAt(time_ms=min(asked.message_publish_time, 2**63 - 1))
        else:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "a seek names a message or a time, and this one neither")
        await self._open_consumer().seek(to)
        self.tell_success(asked.request_id)

    def acknowledge(self, asked: CommandAck) -> None:
        self._acknowledging.acknowledge(self._consumer, asked, self._told_epoch)

    # What the subscription tells: `ConsumerSink`.

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def broken(self) -> bool:
        return self.closed or self._connection.broken

    async def lives(self) -> bool:
        return await self._connection.lives()

    def room(self) -> int:
        return 0 if self.closing or self.closed else self._connection.outgoing.room_for(self)

    def reserve(self, size_bytes: int) -> None:
        self._connection.outgoing.reserve(size_bytes)

    def room_again(self) -> None:
        if self._consumer is not None and not self.closed:
            self._consumer.room_again()

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        assert self._heads is not None
        epoch = self._client_epoch if self._type in ONE_AT_A_TIME else None
        with_broker_part = self._connection.wants_broker_part
        head, parts, size = self._heads.head, list[bytes](), 0
        for run in runs:
            words: Sequence[int] = ()
            if run.acknowledged:
                [entry] = run.entries
                words = unacknowledged_words(run.acknowledged, entry.batch_size)
                self._give_back(int.from_bytes(run.acknowledged, "little").bit_count())
            plain = not run.redelivery_count and not words and epoch is None
            tail = b"" if plain else self._heads.tail(run.redelivery_count, words, epoch)
            for entry in run.entries:
                self._permits -= entry.messages
                stored = entry.stored
                if not with_broker_part:
                    stored = stored[broker_metadata_bytes(stored) :]
                begin = head(entry.position, tail, len(stored))
                parts += (begin, stored)
                size += len(begin) + len(stored)
        self._connection.outgoing.write_all(parts, size)

    def _give_back(self, permits: int) -> None:
        """They were taken for messages that are acknowledged already, and that no application gets."""
        self._connection.soon(lambda: None if self.closed else self.flow(permits))

    def epoch_began(self, consumer: Consumer) -> None:
        if self.closed:
            return  # others leave before it does
        self._told_epoch = consumer.epoch
        if _moves(consumer) != self._moved:
            consumer.subscription.keep_for_return(_RETURN_S)
            self.closed = True
            self._connection.forget_consumer(self)
            self._tell_closed()
            self._connection.soon(self.leave)  # the subscription is telling others yet
        elif not self._regranting:
            self._regranting = True
            self._connection.soon(self._grant_again)

    def _grant_again(self) -> None:
        self._regranting = False
        if self._consumer is None or self.closed:
            return
        self._owed = max(0, -self._permits)
        if self._permits > 0:
            self._consumer.flow(self._consumer.epoch, self._permits)

    def active_changed(self, active: bool) -> None:
        if self.closed:
            return
        told = CommandActiveConsumerChange(consumer_id=self.consumer_id, is_active=active)
        self._connection.write(frame(BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=told)))

    def ended(self, problem: Problem | None) -> None:
        """The client subscribes again, where the topic is by then."""
        if self.closed:
            return
        self.closed = True
        self._connection.forget_consumer(self)
        if not self._unsubscribing:  # it would make the subscription anew
            self._tell_closed()

    def _tell_closed(self) -> None:
        told = CommandCloseConsumer(consumer_id=self.consumer_id, request_id=NO_REQUEST)
        self._connection.write(frame(BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=told)))


def leave_together(consumers: Sequence[ConnectedConsumer]) -> None:
    """All of a connection that has ended: what one has had must not go to another that is about to leave."""
    by_subscription: dict[Subscription, list[Consumer]] = {}
    for consumer in consumers:
        consumer.closed = True
        if (opened := consumer.opened_as) is not None:
            by_subscription.setdefault(opened.subscription, []).append(opened)
    for subscription, leaving in by_subscription.items():
        subscription.leave_together(leaving)
    for consumer in consumers:
        consumer.leave()


def _moves(consumer: Consumer) -> int:
    """How often the subscription was moved; take-overs are no such."""
    return consumer.subscription.cursor.moves
