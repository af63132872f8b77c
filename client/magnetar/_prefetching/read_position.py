"""The read position of a consumer of one topic or partition: how far its messages were delivered.

It knows where the next opening of the consumer begins, which rows of a batch lie before the start, and whether there is
more to read (`has_more`).

If the subscription is not Shared, the broker says with each epoch behind which position its deliveries begin. Later
deliveries are counted here. `has_more` asks the broker for the topic's last message. If that was not delivered yet, it
waits for it, since retention may trim it first. So `has_more` is true only if a read will return a message.

A `BatchPosition` is (ledger id, entry id, batch index), and is compared as the end of what was delivered: `WHOLE_ENTRY`
is the batch index of the last message of a batch, and of a message without a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from magnetar._client_core import ClientCore
from magnetar._message import DeliveredEntry, Message
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar.exceptions import InvalidConfiguration, TopicNotFound
from magnetar_protos.broker_pb2 import ConsumerOpened, EpochBegan, LastMessage, StartAt, StartMessageId
from magnetar_wire.message_id import MessageId

__all__ = ["BatchPosition", "ReadPosition", "Start", "get_position", "make_start"]

BatchPosition = tuple[int, int, int]
WHOLE_ENTRY: Final = 2**31
# Times are less than this.
_MAX_TIME_MS: Final = 2**63


class Start(NamedTuple):
    """Where to begin."""

    at: StartAt
    # The position from which on messages are handed out. Those before it are complete before the message at which the
    # application begins, whose first chunk is at the start. None: all are handed out.
    first_wanted: BatchPosition | None = None

    @property
    def position(self) -> tuple[int, int]:
        return self.at.message_id.ledger_id, self.at.message_id.entry_id


class ReadPosition:
    def __init__(
        self,
        topic: str,
        start: Start,
        client: ClientCore,
        queue: ReceiverQueue,
        has_queued: Callable[[], bool],
        request_more: Callable[[], object],
    ) -> None:
        """`has_queued` returns whether a message can be handed out. `request_more` grants the broker all permits."""
        self._topic = topic
        self._client = client
        self._queue = queue
        self._has_queued = has_queued
        self._request_more = request_more
        # Where the next opening begins, if it creates the subscription.
        self.start = start.at
        # From the start to this position no messages are handed out: rows of its batch, and messages that are complete
        # before one in chunks.
        self.first_wanted = start.first_wanted
        self._unwanted_from = start.position
        # The ledger and entry id of the last entry that was delivered and not dropped since.
        self.last_delivered: tuple[int, int] | None = None
        # All deliveries of this epoch are behind this position; None: it is not known.
        self._behind: BatchPosition | None = None
        # Completed when a message was delivered, or may never be.
        self._waiters: list[asyncio.Future[None]] = []

    # Where the next opening begins.

    def set_start(self, start: Start) -> None:
        """Begin the next opening there."""
        self.start = start.at
        if self.last_delivered is None:  # otherwise the start's batch may be in the queue, without the rows before
            self.first_wanted, self._unwanted_from = start.first_wanted, start.position

    def resume(self) -> None:
        """Begin the next opening behind the last message that was delivered, if there is one."""
        end = self._end
        if end is not None:
            ledger_id, entry_id, index = end
            index = -1 if index == WHOLE_ENTRY else index
            start = _start_at_position(ledger_id, entry_id, index, inclusive=False)
            wanted = max(filter(None, (start.first_wanted, self.first_wanted)), default=None)
            self.set_start(start._replace(first_wanted=wanted))

    async def start_with_last_message(self) -> None:
        """If the start is the end of the topic, begin with the topic's last message instead, if it has one."""
        if self.start.WhichOneof("at") != "latest":
            return
        try:
            last = await self.last_message_id(-1)
        except TopicNotFound:
            return
        if last.entry_id() >= 0:
            self.set_start(make_start(last, inclusive=True))

    # What is delivered.

    def start_epoch(self, reply: ConsumerOpened | EpochBegan, sought: Start | None = None) -> None:
        """Deliveries begin behind the position in the reply; with `sought`, where a seek has moved the subscription."""
        self._behind = None
        if reply.HasField("behind"):
            index = reply.behind.batch_index
            self._behind = reply.behind.ledger_id, reply.behind.entry_id, WHOLE_ENTRY if index < 0 else index
        if sought is not None:
            self.first_wanted, self._unwanted_from = sought.first_wanted, sought.position
        self.wake()

    def count_delivered(self, ledger_id: int, entry_id: int) -> None:
        last = ledger_id, entry_id
        self.last_delivered = last if self.last_delivered is None else max(self.last_delivered, last)

    def forget_delivered(self) -> None:
        """The queue was cleared."""
        self.last_delivered = None

    def find_unwanted_rows(self, entry: DeliveredEntry) -> list[int]:
        """Return the rows of the entry that are not wanted."""
        if self.first_wanted is None:
            return []
        *wanted, first_index = self.first_wanted
        position = [entry.ledger_id, entry.entry_id]
        if self._unwanted_from <= (entry.ledger_id, entry.entry_id) and position < wanted:
            return list(entry.remaining)
        self.first_wanted = None  # it is reached, or another client has moved the subscription to before the start
        if position < wanted:
            return []
        if position > wanted or first_index <= 0:
            return []
        return [row for row in entry.remaining if entry.batch_index(row) < first_index]

    @property
    def _end(self) -> BatchPosition | None:
        """The end of what was delivered."""
        if self.last_delivered is None:
            return self._behind
        end = (*self.last_delivered, WHOLE_ENTRY)
        return end if self._behind is None else max(end, self._behind)

    # Whether there is more.

    async def find_behind(self) -> None:
        """If the broker has not said behind which position the epoch begins: it is the topic's last message."""
        if self._behind is None and self.start.WhichOneof("at") in ("latest", "time_ms"):
            answer = await self._client.lookup.last_message(self._topic)
            if self._behind is None:
                self._behind = _end_of(answer.last) if answer.HasField("last") else (-1, -1, -1)

    async def has_more(self) -> bool:
        """Whether a read will return a message."""
        while not self._has_queued():
            answer = await self._client.lookup.last_message(self._topic)
            if self._has_queued():
                break
            end = self._end
            if not answer.HasField("last") or (end is not None and end >= _end_of(answer.last)):
                return False
            await self.wait_for_delivery()
        return True

    def has_delivered(self, end: BatchPosition) -> bool:
        """Whether everything up to this end was delivered and handed out."""
        return self._end is not None and self._end >= end and not self._has_queued()

    async def find_end(self) -> BatchPosition | None:
        """Return the end of the topic now; None: it has no message."""
        answer = await self._client.lookup.last_message(self._topic)
        return _end_of(answer.last) if answer.HasField("last") else None

    async def wait_for_delivery(self) -> None:
        """Return when `wake` is called. Raises Timeout after the operation's time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        with self._queue.lock:  # without a queue, a message is delivered only while the application waits
            self._queue.waiting += 1
        try:
            self._request_more()
            await self._client.operations.wait_for(waiter, f"the last message of {self._topic} has not come")
        finally:
            with self._queue.lock:
                self._queue.waiting -= 1

    def wake(self, error: Exception | None = None) -> None:
        """A message was delivered, or the opening or epoch has changed. With an error, the consumer has ended."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    async def last_message_id(self, partition: int) -> MessageId:
        """Return the id of the topic's last message; without messages, the position before the first one."""
        answer = await self._client.lookup.last_message(self._topic, find_first_chunk=True)
        if not answer.HasField("last"):
            return MessageId(partition=partition, topic_name=self._topic)
        last = answer.last
        index = last.batch_size - 1 if last.batch_size else -1
        first = None
        if last.HasField("first_chunk"):
            chunk = last.first_chunk
            first = MessageId(partition, chunk.ledger_id, chunk.entry_id, topic_name=self._topic)
        return MessageId(partition, last.ledger_id, last.entry_id, index, last.batch_size, self._topic, first)


def make_start(where: MessageId | int, *, inclusive: bool) -> Start:
    """Make the start for a message id, or for a time in ms. Raises InvalidConfiguration."""
    if isinstance(where, int):
        if abs(where) >= _MAX_TIME_MS:
            raise InvalidConfiguration(f"the time {where} is out of range: use ms since 1970, less than 2**63")
        return Start(StartAt(time_ms=where))
    if where == MessageId.earliest:
        return Start(StartAt(earliest=True))
    if where == MessageId.latest:
        return Start(StartAt(latest=True))
    first_chunk = where.first_chunk_message_id if inclusive else None
    if first_chunk is not None:
        begin = _start_at_position(first_chunk.ledger_id(), first_chunk.entry_id(), -1, inclusive=True)
        return begin._replace(first_wanted=(where.ledger_id(), where.entry_id(), -1))
    return _start_at_position(where.ledger_id(), where.entry_id(), where.batch_index(), inclusive=inclusive)


def get_position(message: Message[Any]) -> BatchPosition:
    """Return the position up to which everything was read when this message was."""
    entry = message._entry
    index = entry.batch_index(message._row)
    return entry.ledger_id, entry.entry_id, WHOLE_ENTRY if index < 0 or index == entry.batch_size - 1 else index


def _start_at_position(ledger_id: int, entry_id: int, batch_index: int, *, inclusive: bool) -> Start:
    start = StartAt(
        message_id=StartMessageId(ledger_id=ledger_id, entry_id=entry_id, batch_index=batch_index, inclusive=inclusive)
    )
    # It may lie within a batch.
    wanted = None if batch_index < 0 else (ledger_id, entry_id, batch_index + (not inclusive))
    return Start(start, wanted)


def _end_of(last: LastMessage) -> BatchPosition:
    return last.ledger_id, last.entry_id, WHOLE_ENTRY
