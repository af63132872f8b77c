"""A connection's producer: what SEND brings goes to the topic, and its fate comes back as SEND_RECEIPT or SEND_ERROR.

Entries that came in one piece go to the topic together (`gather`, `publish`), or wait here, in order, while it has no
room: the connection is read on meanwhile, up to a bound, so that its other producers go on. The topic tells their fates
by number, in order, but for one that may not be stored: that it tells at once, and the client hears of it in its turn
(`_refused`).
For libraries take a SEND_ERROR to be about the oldest that they have sent, or connect again and send everything anew,
the refused one too, for ever. `_sent` has what the client calls them by.

A library that can't be told so has its producer closed instead, and nothing is stored behind that entry (`_close_at`).

Who is the same producer as before? The protocol has no token for that, and names are no secret, be they chosen or made
up by a broker. So it is the same only if it comes on the same connection with the same number, in a higher epoch. For
any other the name is taken, as long as the connection of who has it lives, which is then asked for a sign of life; and
free in whatever epoch once nobody has it. For no SEND comes before the answer to PRODUCER: what an old connection may
still have in it publishes nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from magnetar_broker.core.position import Position
from magnetar_broker.core.system_topics import is_system_topic
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.server.pulsar.error_codes import gives_entries_up, refusal_error
from magnetar_broker.server.pulsar.replies import ReceiptFrames, frame, told_text
from magnetar_broker.server.pulsar.schemas import check_schema
from magnetar_broker.topic.producer import Producer
from magnetar_broker.topic.publish_budget import PublishBudget
from magnetar_broker.topic.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, StartAt
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    CommandSendError,
    ProducerAccessMode,
)
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    import asyncio

    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["ConnectedProducer"]

_log = logging.getLogger(__name__)
# As request id of what no request has asked for.
NO_REQUEST: Final = 2**64 - 1
# Somebody has the name, or had it in a later epoch.
_TAKEN: Final = (ErrorCode.PRODUCER_BUSY, ErrorCode.PRODUCER_FENCED)


class ConnectedProducer:
    """A `ProducerSink`."""

    __slots__ = (
        "_budget",
        "_close_at",
        "_closing",
        "_connection",
        "_dropped",
        "_first",
        "_gathered_from",
        "_logged",
        "_producer",
        "_receipts",
        "_refused",
        "_sent",
        "_topic",
        "_waiting",
        "_waits",
        "closed",
        "gathered",
        "opened",
        "opening",
        "producer_id",
    )

    def __init__(self, connection: PulsarConnection, producer_id: int) -> None:
        self._connection = connection
        self.producer_id = producer_id
        self.opening: asyncio.Task[None] | None = None
        # It takes what comes; takes nothing more; nor is anything told.
        self.opened = False
        self._closing = False
        self.closed = False
        self._topic: Topic | None = None
        self._producer: Producer | None = None
        self._budget: PublishBudget | None = None
        self._receipts: ReceiptFrames | None = None
        # Of what was sent and is not told yet: the client's numbers, and the broker's number of the first.
        self._sent: deque[tuple[int, int]] = deque()
        self._first = 0
        # Of those, the ones that may not be stored, by the broker's number: it is not their turn.
        self._refused: dict[int, BrokerError] = {}
        # The one at which it is closed, by the broker's number.
        self._close_at: int | None = None
        self._logged = False
        # Not handed to the topic yet: the last of `_sent`.
        self.gathered: list[bytes] = []
        self._gathered_from = 0
        # Runs of entries, behind those that the topic has, which found no room in it: each with the broker's number of
        # its first. A task hands them over while there are any.
        self._waiting: deque[tuple[int, list[bytes]]] = deque()
        self._waits = False
        # Entries were dropped that the topic did not take, and the client does not know yet.
        self._dropped = False

    @property
    def untold(self) -> int:
        """Entries whose fate the client does not know."""
        return len(self._sent)

    @property
    def topic(self) -> Topic | None:
        return self._topic

    # Opening and closing.

    async def open(self, asked: CommandProducer) -> None:
        """Answers it, too. Raises `BrokerError`."""
        serving = self._connection.door.serving()
        name = TopicName.parse(asked.topic)
        if is_system_topic(name):
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a system topic: servers alone write to it")
        _check_asked(asked)
        topic = await serving.topics.find(name, "", True, to_publish=not asked.initial_subscription_name)
        if asked.initial_subscription_name:
            await topic.subscriptions.make_on_first_use(asked.initial_subscription_name, StartAt(earliest=True))
        producer = await self._open(topic, asked)
        if self.closed:  # meanwhile
            topic.leave(producer, TopicUnloaded("its connection has ended"))
            return
        self._topic, self._producer, self._budget = topic, producer, serving.budget
        self.opened = not self._closing
        self._receipts = ReceiptFrames(self.producer_id, name.partition_index)
        self.tell_opened(asked.request_id)

    async def _open(self, topic: Topic, asked: CommandProducer) -> Producer:
        opening = OpenProducer(
            producer_id=self.producer_id,
            producer_name=asked.producer_name,
            instance=self._connection.token + self.producer_id.to_bytes(8, "big"),
            connection_epoch=asked.epoch,
            properties={one.key: one.value for one in asked.metadata},
        )
        try:
            return await topic.open_producer(opening, self, self._connection.address)
        except BrokerError as error:
            if error.code not in _TAKEN:
                raise
            holder = next((one for one in topic.producers() if one.producer_name == asked.producer_name), None)
            if holder is None or await holder.lives():
                raise _busy(error) from None
        try:
            return await topic.open_producer(opening, self, self._connection.address)
        except BrokerError as error:
            raise _busy(error) from None

    def tell_opened(self, request_id: int) -> None:
        assert self._topic is not None
        assert self._producer is not None
        opened = CommandProducerSuccess(
            request_id=request_id,
            producer_name=self._producer.producer_name,
            last_sequence_id=self._topic.last_sequence_id(self._producer),
            schema_version=b"",
            producer_ready=True,
        )
        self._connection.write(frame(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=opened)))

    def stop(self) -> None:
        """Take no more entries from the client; those that were taken are still decided and told."""
        self._closing = True
        self.opened = False

    async def close(self) -> None:
        """Close the producer at the client's request: what it sent before is decided and told first.

        A topic that closes meanwhile does not take entries that wait. Then CLOSE_PRODUCER comes before the answer: an
        entry without a receipt may be sent again.
        """
        self.stop()
        if self._producer is not None:
            await self._hand_over_waiting()
            self._producer.stop()
            await self._producer.settled()
            if self._dropped:
                self.ended(TopicUnloaded("its topic was closed"))
        self.leave(TopicUnloaded("it was closed"))

    def leave(self, why: BrokerError) -> None:
        """The client has closed it, or is gone: nothing more is told."""
        self.closed = True
        if self.opening is not None:
            self.opening.cancel()
        self._connection.forget_producer(self)
        self.gathered = []
        while self._waiting:
            self._forget_waiting(self._waiting.popleft()[1])
        for _ in self._refused:
            self._connection.answered()
        self._refused.clear()
        if self._producer is not None and self._topic is not None:
            self._topic.leave(self._producer, why)

    # What comes.

    def gather(self, sequence_id: int, highest_sequence_id: int, entry: bytes) -> None:
        """Keeps it until `publish`."""
        if not self.gathered:
            self._gathered_from = self._first + len(self._sent)
        self._sent.append((sequence_id, highest_sequence_id))
        self.gathered.append(entry)

    def publish(self) -> bool:
        """Hand entries to the topic as far as it has room. Whether the connection must wait: the broker has none."""
        topic, budget = self._topic, self._budget
        if topic is None or budget is None:
            return False
        if self.gathered and not self.closed:
            assert self._producer is not None
            entries, self.gathered = self.gathered, []
            memory_bytes = count_entry_memory(entries)
            budget.take(memory_bytes)
            self._connection.undecided_bytes += memory_bytes
            self._connection.waiting_publish_bytes += memory_bytes
            self._waiting.append((self._gathered_from, entries))
            self._publish_waiting()
            if self._waiting and not self._waits:
                self._waits = True
                self._connection.spawn(self._hand_over_waiting())
        return budget.full

    def _publish_waiting(self) -> None:
        producer, topic = self._producer, self._topic
        assert producer is not None
        assert topic is not None
        while self._waiting and (producer.stopped or not topic.budget.full):
            first, entries = self._waiting.popleft()
            if producer.stopped:  # it would pass them over: the client gets CLOSE_PRODUCER when the topic has closed
                self._dropped = True
                for _ in entries:
                    self._sent.pop()
                self._forget_waiting(entries)
            else:
                self._connection.waiting_publish_bytes -= count_entry_memory(entries)
                producer.publish(first, entries)

    def _forget_waiting(self, entries: list[bytes]) -> None:
        memory_bytes = count_entry_memory(entries)
        self._connection.waiting_publish_bytes -= memory_bytes
        self.decided(memory_bytes)

    async def _hand_over_waiting(self) -> None:
        """Returns when no entries wait any more for room in the topic."""
        while self._waiting and self._topic is not None:
            await self._topic.budget.room()
            self._publish_waiting()
            self._connection.has_room()
        self._waits = False

    async def broker_room(self) -> None:
        if self._budget is not None:
            await self._budget.room()

    # What the topic tells: `ProducerSink`.

    def stored(self, number: int, position: Position) -> None:
        sent = self._sent.popleft()
        self._first = number + 1
        if not self.closed:
            assert self._receipts is not None
            self._connection.write(self._receipts.receipt(sent[0], sent[1], position))
            if self._refused:
                self._tell_refused()

    def refused(self, number: int, error: BrokerError) -> None:
        if self.closed:
            return
        self._log_once(error)
        self._refused[number] = error
        self._connection.asked()
        if not gives_entries_up(self._connection.client_version):
            self._close_at = number
            self.stop()  # what stands behind it is sent again
            assert self._producer is not None
            self._producer.stop()
        self._tell_refused()

    def _log_once(self, error: BrokerError) -> None:
        """Several libraries tell their application less."""
        if not self._logged:
            self._logged = True
            assert self._producer is not None
            name, address = self._producer.producer_name, self._connection.address
            _log.warning("producer %r of %s: an entry may not be stored: %s", name, address, error)

    def _tell_refused(self) -> None:
        """Those whose turn it is."""
        if self._first == self._close_at:
            self.ended(self._refused[self._first])
        while (error := self._refused.pop(self._first, None)) is not None:
            self._first += 1
            self._connection.answered()
            told = CommandSendError(
                producer_id=self.producer_id,
                sequence_id=max(self._sent.popleft()),
                error=refusal_error(error.code, self._connection.client_version),
                message=told_text(error),
            )
            self._connection.write(frame(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=told)))

    def decided(self, memory_bytes: int) -> None:
        if self._budget is not None:
            self._budget.give_back(memory_bytes)
        self._connection.decided(memory_bytes)

    def report_waiting(self, waiting_for: str) -> None:
        """Pulsar's protocol has no command for it."""

    def ended(self, error: BrokerError) -> None:
        """The client connects it again, where the topic is by then, and sends again what has no receipt."""
        if self.closed:
            return
        mine = self._connection.has_producer(self)
        self.leave(error)
        if mine:
            told = CommandCloseProducer(producer_id=self.producer_id, request_id=NO_REQUEST)
            self._connection.write(frame(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=told)))

    async def lives(self) -> bool:
        """Its client, asked now, gives a sign of life; else its connection has been closed."""
        return await self._connection.lives()


def _busy(error: BrokerError) -> BrokerError:
    """Libraries that are told PRODUCER_FENCED give up; here a later try, in a higher epoch, may well succeed."""
    return BrokerError(ErrorCode.PRODUCER_BUSY, str(error)) if error.code == ErrorCode.PRODUCER_FENCED else error


def _check_asked(asked: CommandProducer) -> None:
    if asked.producer_access_mode != ProducerAccessMode.ACCESS_SHARED:
        raise BrokerError(
            ErrorCode.UNSUPPORTED, "producers share their topics here: access mode Shared is the only one there is yet"
        )
    if asked.txn_enabled:
        raise BrokerError(ErrorCode.UNSUPPORTED, "this broker has no transactions: open the producer without")
    check_schema(asked.schema if asked.HasField("schema") else None)
