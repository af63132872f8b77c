"""Show messages of topics without a subscription: stored ones, and those that are published later.

**The last N messages** of a partition are found from its end. Each entry has at least one message, so they are within
the last N entries, which are found from the broker's list of ledgers. These entries are read, and all but the last N
messages are dropped. If there are several partitions, their last messages are sorted by publish time.

Later messages are read by a thread per reader. The threads put them into a bounded queue, and the main thread prints
them. So if the output stops (Ctrl-S), reading stops, but connections stay open.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from magnetar import MessageId
from magnetar.exceptions import AlreadyClosed, MagnetarException, Timeout
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.messages.message_output import DisplayedMessage, MessageWriter, display_message
from magnetar_wire.interruptible_wait import SIGNAL_CHECK_S

if TYPE_CHECKING:
    import magnetar
    from magnetar.admin import Admin, InternalStats
    from magnetar.schema import Schema

__all__ = ["Tail", "show_messages"]

_MAX_MESSAGES_PER_BATCH: Final = 500
_MAX_QUEUED_BATCHES: Final = 4
_STOP_CHECK_S: Final = 0.2
# The last messages are looked for in at most eight times as many entries, if they were sent in chunks.
_MOST_ENTRIES_BACK: Final = 2_000
_ALL_ENTRIES: Final = 2**62
# Timeout of a message that the broker has stored.
_STORED_MESSAGE_TIMEOUT_MS: Final = 15_000

# A batch of messages, or the error that ended a reader. None: a reader has reached its end.
_BatchQueue: TypeAlias = "queue.Queue[list[DisplayedMessage] | MagnetarException | None]"


@dataclass(frozen=True, slots=True)
class Tail:
    """Which messages to show."""

    # Number of stored messages. 0: begin at `start`.
    last: int
    # None: only messages that are published later.
    start: MessageId | int | None
    # Whether to wait for further messages.
    follow: bool
    # Maximum number of messages. 0: no limit.
    count: int
    # Decodes the values. None: payloads are shown.
    schema: Schema[Any] | None = None


def show_messages(
    client: magnetar.Client, admin: Admin, topics: Sequence[str], tail: Tail, writer: MessageWriter
) -> ExitCode:
    """Show messages until there are no more, or the maximum number was shown. Return the exit status: whether all
    values could be decoded."""
    output = _LimitedOutput(writer, tail.count)
    if tail.last:
        # One reader for each partition, since each has its own end.
        partitions = [owner.topic for topic in topics for owner in admin.topics.owners(topic)]
        found = [_read_last(client, admin, partition, tail) for partition in partitions]
        readers = [reader for reader, _ in found]
        stored = sorted((message for _, last in found for message in last), key=lambda one: one.publish_ms)
        output.write(stored[-tail.last :])
    else:
        start = MessageId.latest if tail.start is None else tail.start
        readers = [
            _create_reader(client, name, start, tail.schema)
            for topic in topics
            for name in _choose_topics(admin, topic, start)
        ]
    if not output.is_full and (tail.follow or not tail.last):
        _show_from_readers(readers, output, tail)
    return ExitCode.FAILED if writer.undecodable else ExitCode.DONE


class _LimitedOutput:
    def __init__(self, writer: MessageWriter, count: int) -> None:
        self._writer = writer
        self._left = count or None

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def write(self, messages: Sequence[DisplayedMessage]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self._writer.write(messages)


def _choose_topics(admin: Admin, topic: str, start: MessageId | int) -> list[str]:
    """Return the topics to read: the partition of a start message, or the topic itself. The request for its partitions
    fails if it does not exist, which a reader would create."""
    partitions = [owner.topic for owner in admin.topics.owners(topic)]
    if isinstance(start, MessageId) and start not in (MessageId.earliest, MessageId.latest) and len(partitions) > 1:
        if not 0 <= start.partition() < len(partitions):
            from magnetar.exceptions import InvalidArgument

            raise InvalidArgument(
                f"{topic} has {len(partitions)} partitions: add the message's partition to its id, e.g. "
                f"{start.ledger_id()}:{start.entry_id()}:0, or use the partition as the topic"
            )
        return [partitions[start.partition()]]
    return [topic]


def _create_reader(
    client: magnetar.Client, topic: str, start: MessageId | int, schema: Schema[Any] | None
) -> magnetar.Reader[Any]:
    # An inclusive start at the latest message would return the last stored message.
    return client.create_reader(topic, start, schema, start_message_id_inclusive=start != MessageId.latest)


def _read_last(
    client: magnetar.Client, admin: Admin, partition: str, tail: Tail
) -> tuple[magnetar.Reader[Any], list[DisplayedMessage]]:
    """Return the last messages, and a reader that continues after them."""
    stats = admin.topics.internal_stats(partition)
    entries, first = tail.last, _find_start(stats, _ALL_ENTRIES)
    while True:
        start = _find_start(stats, entries)
        if start is None:
            # Messages may have been published since, so don't start at the latest one.
            return _create_reader(client, partition, MessageId.earliest, tail.schema), []
        reader, found = _read_from(client, stats, partition, start, tail)
        if len(found) >= tail.last or start == first or entries > _MOST_ENTRIES_BACK:
            return reader, found
        reader.close()
        entries *= 8  # a message in chunks has several entries


def _read_from(
    client: magnetar.Client, stats: InternalStats, partition: str, start: MessageId, tail: Tail
) -> tuple[magnetar.Reader[Any], list[DisplayedMessage]]:
    """Return the last messages from `start` on, and a reader that continues after them."""
    reader = _create_reader(client, partition, start, tail.schema)
    found: deque[magnetar.Message[Any]] = deque(maxlen=tail.last)
    while reader.has_message_available():
        try:
            messages = _read_available(reader, _STORED_MESSAGE_TIMEOUT_MS)
        except Timeout:
            break
        found.extend(messages)
        if _has_reached(messages[-1].message_id(), stats.last):
            break
    return reader, list(map(display_message, found))


def _find_start(stats: InternalStats, count: int) -> MessageId | None:
    """Return the position `count` entries before the end, or the first entry. Return None if there are no entries."""
    start: MessageId | None = None
    for ledger in reversed(stats.ledgers):
        entries = ledger.entries
        if ledger.ledger_id == stats.last.ledger_id():
            entries = stats.last.entry_id() + 1
        if entries <= 0:
            continue
        start = MessageId(-1, ledger.ledger_id, max(0, entries - count))
        count -= entries
        if count <= 0:
            return start
    # The list has no more ledgers. The broker omits old ones if there are very many.
    return start


def _show_from_readers(readers: Sequence[magnetar.Reader[Any]], output: _LimitedOutput, tail: Tail) -> None:
    """Show messages until the output is full, or all readers have reached their end."""
    batches: _BatchQueue = queue.Queue(_MAX_QUEUED_BATCHES)
    stopped = threading.Event()
    threads = [
        threading.Thread(
            target=_read_batches,
            args=(reader, batches, stopped, tail.follow),
            daemon=True,
            name=f"reads {reader.topic()}",
        )
        for reader in readers
    ]
    for thread in threads:
        thread.start()
    reading = len(threads)
    try:
        while reading and not output.is_full:
            batch, ended = _next_batch(batches)
            reading -= ended
            output.write(batch)
    finally:
        stopped.set()


def _next_batch(batches: _BatchQueue) -> tuple[list[DisplayedMessage], int]:
    """Return the available messages, and the number of readers that have ended. Wait a moment if there are none."""
    batch: list[DisplayedMessage] = []
    ended = 0
    with contextlib.suppress(queue.Empty):
        one = batches.get(timeout=SIGNAL_CHECK_S)
        while True:
            if isinstance(one, list):
                batch += one
            elif one is None:
                ended += 1
            else:
                raise one
            if len(batch) >= _MAX_MESSAGES_PER_BATCH:
                break
            one = batches.get_nowait()
    return batch, ended


def _read_batches(reader: magnetar.Reader[Any], batches: _BatchQueue, stopped: threading.Event, follow: bool) -> None:
    """Put batches of messages into the queue. Runs on a thread of its own."""

    def put(one: list[DisplayedMessage] | MagnetarException | None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                batches.put(one, timeout=_STOP_CHECK_S)
                return

    try:
        while not stopped.is_set() and (follow or reader.has_message_available()):
            put(list(map(display_message, _read_available(reader, None))))
        put(None)
    except AlreadyClosed:
        put(None)
    except MagnetarException as error:
        put(error)


def _read_available(reader: magnetar.Reader[Any], timeout_ms: int | None) -> list[magnetar.Message[Any]]:
    """Wait for a message, and return it with those that are available then. Raise Timeout."""
    messages = [reader.read_next(timeout_ms)]
    with contextlib.suppress(Timeout):
        while len(messages) < _MAX_MESSAGES_PER_BATCH:
            messages.append(reader.read_next(0))
    return messages


def _has_reached(message_id: MessageId, end: MessageId) -> bool:
    """Return whether it is the last message of the entry `end`, or in a later entry."""
    position, last = (message_id.ledger_id(), message_id.entry_id()), (end.ledger_id(), end.entry_id())
    is_last_of_batch = message_id.batch_index() < 0 or message_id.batch_index() == message_id.batch_size() - 1
    return position > last or (position == last and is_last_of_batch)
