"""Looking at topics as they grow, or at a part of what is there, without a subscription.

**The last messages** of a log are found from its end: an entry holds a message at least, so the last 20 are within the
last 20 entries; the broker says which those are. They are read, and all but 20 left out. Of several partitions the last
of each are put together by the time of publishing.

Then each reader has a thread that fills a queue, bounded, which the command's own thread empties onto the screen: who
stops the output with Ctrl-S stops the reading, not the connection.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from magnetar import MessageId
from magnetar.exceptions import AlreadyClosed, MagnetarException, Timeout
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.messages.showing import MessageWriter, Shown, as_shown
from magnetar_wire.interruptible_wait import SIGNAL_CHECK_S

if TYPE_CHECKING:
    import magnetar
    from magnetar.admin import Admin, InternalStats

__all__ = ["Look", "tail"]

_AT_ONCE: Final = 500
# Of as many messages each, at most.
_QUEUED: Final = 4
_MOMENT_S: Final = 0.2
# A message that the broker says is there comes within so long, or the broker is gone.
_ARRIVAL_MS: Final = 15_000

# What came together; what a reader ended by; None: it is at its end.
_Line: TypeAlias = "queue.Queue[list[Shown] | MagnetarException | None]"


@dataclass(frozen=True, slots=True)
class Look:
    # How many of those that are there; 0: none.
    last: int
    # Where to begin, if not by their number; None: behind what is there.
    start: MessageId | int | None
    follow: bool
    # End after so many; 0: go on.
    count: int


def tail(client: magnetar.Client, admin: Admin, topics: Sequence[str], look: Look, writer: MessageWriter) -> ExitCode:
    """Raises what can't be."""
    shown = _Shown(writer, look.count)
    if look.last:
        # Partitions by themselves: each has an end of its own.
        logs = [home.topic for topic in topics for home in admin.topics.homes(topic)]
        found = [_last_of(client, admin, log, look.last) for log in logs]
        readers = [reader for reader, _ in found]
        there = sorted((message for _, last in found for message in last), key=lambda one: one.publish_ms)
        shown.write(there[-look.last :])
    else:
        start = MessageId.latest if look.start is None else look.start
        readers = [_reader(client, log, start) for topic in topics for log in _logs(admin, topic, start)]
    if shown.enough or (look.last and not look.follow):
        return ExitCode.DONE
    return _pumped(readers, shown, look)


class _Shown:
    def __init__(self, writer: MessageWriter, count: int) -> None:
        self._writer = writer
        self._left = count or None

    @property
    def enough(self) -> bool:
        return self._left == 0

    def write(self, messages: Sequence[Shown]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self._writer.write(messages)


def _logs(admin: Admin, topic: str, start: MessageId | int) -> list[str]:
    """What to read of it: the topic as a whole, or, from a message on, the partition that has it. A topic that is not
    there is not made by looking at it."""
    homes = [home.topic for home in admin.topics.homes(topic)]
    if isinstance(start, MessageId) and start not in (MessageId.earliest, MessageId.latest) and len(homes) > 1:
        if not 0 <= start.partition() < len(homes):
            from magnetar.exceptions import InvalidArgument

            raise InvalidArgument(
                f"{topic} has {len(homes)} partitions: add the message's partition to its id, e.g. "
                f"{start.ledger_id()}:{start.entry_id()}:0, or use the partition as the topic"
            )
        return [homes[start.partition()]]
    return [topic]


def _reader(client: magnetar.Client, topic: str, start: MessageId | int) -> magnetar.Reader:
    # The latest message included would be the last one that is there: what follows it is asked for.
    return client.create_reader(topic, start, start_message_id_inclusive=start != MessageId.latest)


def _last_of(client: magnetar.Client, admin: Admin, log: str, count: int) -> tuple[magnetar.Reader, list[Shown]]:
    """A reader that is behind them, and they."""
    stats = admin.topics.internal_stats(log)
    start = _entries_back(stats, count)
    if start is None:
        # From what comes next on: something may have come since.
        return _reader(client, log, MessageId.earliest), []
    reader = _reader(client, log, start)
    found: deque[magnetar.Message] = deque(maxlen=count)
    while reader.has_message_available():
        try:
            messages = _read_together(reader, _ARRIVAL_MS)
        except Timeout:
            break
        found.extend(messages)
        if _is_behind(messages[-1].message_id(), stats.last):
            break
    return reader, list(map(as_shown, found))


def _entries_back(stats: InternalStats, count: int) -> MessageId | None:
    """The entry that has `count - 1` behind it, or the first that is there; None: there is none."""
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
    # What the broker did not list is older, and there may be more than it lists.
    return start


def _pumped(readers: Sequence[magnetar.Reader], shown: _Shown, look: Look) -> ExitCode:
    """Shows what they read, until it is enough, or all that was there, or somebody wants it to end."""
    line: _Line = queue.Queue(_QUEUED)
    over = threading.Event()
    threads = [
        threading.Thread(
            target=_pump, args=(reader, line, over, look.follow), daemon=True, name=f"reads {reader.topic()}"
        )
        for reader in readers
    ]
    for thread in threads:
        thread.start()
    reading = len(threads)
    try:
        while reading and not shown.enough:
            batch, ended = _next_batch(line)
            reading -= ended
            shown.write(batch)
    finally:
        over.set()
    return ExitCode.DONE


def _next_batch(line: _Line) -> tuple[list[Shown], int]:
    """What is there, and how many readers have come to their end. Waits a moment for either."""
    batch: list[Shown] = []
    ended = 0
    with contextlib.suppress(queue.Empty):
        one = line.get(timeout=SIGNAL_CHECK_S)
        while True:
            if isinstance(one, list):
                batch += one
            elif one is None:
                ended += 1
            else:
                raise one
            if len(batch) >= _AT_ONCE:
                break
            one = line.get_nowait()
    return batch, ended


def _pump(reader: magnetar.Reader, line: _Line, over: threading.Event, follow: bool) -> None:
    def put(one: list[Shown] | MagnetarException | None) -> None:
        while not over.is_set():
            with contextlib.suppress(queue.Full):
                line.put(one, timeout=_MOMENT_S)
                return

    try:
        while not over.is_set() and (follow or reader.has_message_available()):
            put(list(map(as_shown, _read_together(reader, None))))
        put(None)
    except AlreadyClosed:
        put(None)
    except MagnetarException as error:
        put(error)


def _read_together(reader: magnetar.Reader, timeout_ms: int | None) -> list[magnetar.Message]:
    """The next message, and those that have come with it. Raises Timeout."""
    messages = [reader.read_next(timeout_ms)]
    with contextlib.suppress(Timeout):
        while len(messages) < _AT_ONCE:
            messages.append(reader.read_next(0))
    return messages


def _is_behind(message_id: MessageId, end: MessageId) -> bool:
    """The last message of the last entry, or one of a later entry."""
    here, there = (message_id.ledger_id(), message_id.entry_id()), (end.ledger_id(), end.entry_id())
    is_last_of_batch = message_id.batch_index() < 0 or message_id.batch_index() == message_id.batch_size() - 1
    return here > there or (here == there and is_last_of_batch)
