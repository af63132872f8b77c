"""What was delivered and is not handed out yet: between the I/O loop, which puts entries in, and whoever receives.

Many threads may receive at a time, and a message must not cost one of them a lock. So there are two stages. Entries
wait, by topic or partition (`Source`), behind the lock. Whoever finds nothing `ready` takes the lock, makes messages of
the next *segment*, at most half a receiver queue of one source, takes the first for himself and leaves the others in
`ready`; from there each is one `popleft`, which Python makes atomic. Segments come from the sources in turn.

**Ctrl-C** may strike the main thread behind every call, and whoever was struck goes on with the same consumer. So what
changes the queue for whoever receives is done in lines that call nothing, each of which leaves it whole. A message is
popped by a `for`, behind which, other than behind a call, nothing can come between; and whoever was struck with
messages in his hands puts them back (`put_back`).

**What is owed.** Messages handed out have to be told to the loop, which grants the broker new permits for them. That is
counted by segment: the first message when it is taken, the others when somebody has found `ready` empty. As soon as a
source owes half a window, its `report` is called, once until the loop has come and fetched what is owed.

**Taking back.** When deliveries are void, `clear` drops all that a source has here. It takes messages out of `ready`
from the far end while others may take them from the near one: each is either handed out or dropped, and the last that
was dropped is the first that was not handed out. `shut` does that for whoever asked for everything again, in his own
thread: nothing of the source is handed out from then on, until the loop calls `reopen`, since it comes again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import islice
from typing import Final

from magnetar._cutting import cut, cut_segment, fitting, payload_bytes
from magnetar._message import Delivered, Message

__all__ = ["ReceiverQueue", "Source"]


class Source:
    """One topic's, or partition's, entries. All but `report` belongs to the queue's lock."""

    __slots__ = ("entries", "last", "owed", "read", "report", "report_at", "reported", "segment", "shut", "size_bytes")

    def __init__(self, report: Callable[[], object]) -> None:
        # Each has something left to be handed out.
        self.entries: deque[Delivered] = deque()
        # What they take.
        self.size_bytes = 0
        self.owed = 0
        self.report_at = 1
        # Called, not fetched yet.
        self.reported = False
        self.report = report
        # At most so many messages are made at a time.
        self.segment = 1
        # What comes now is dropped: it comes again.
        self.shut = False
        # The last of those that were made. All before it are handed out, or in `ready`.
        self.last: Message | None = None
        # The last of those that are known to be handed out, with all before it.
        self.read: Message | None = None


class ReceiverQueue:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ready: Final[deque[Message]] = deque()
        # Pops the next of those that are ready: `for message in queue.popping: …`. Raises IndexError.
        self.popping: Final[Iterator[Message]] = iter(self.ready.popleft, None)
        # Why there will be nothing more.
        self.error: Exception | None = None
        # How many wait for a message, and how many of them for a batch.
        self.waiting = 0
        self.batches_waiting = 0
        # Nothing more will come until something is taken.
        self.full = False
        # Called with the lock held when so many messages, or an error, have come: wakes who waits.
        self.wake: Callable[[int], object] = lambda _: None
        # Sources that have entries, by whose turn it is.
        self._ring: deque[Source] = deque()
        # Whose messages are in `ready`, and how many of its segment are not counted as handed out.
        self._current: Source | None = None
        self._uncounted = 0
        # Some in `ready` were put back, and may be others'.
        self._mixed = False
        # Owes more than before, and has not been told of.
        self._indebted: Source | None = None
        # Of what the sources have.
        self._messages = 0
        self._bytes = 0

    # By the loop.

    def add(self, source: Source, entries: Sequence[Delivered]) -> None:
        """Puts in entries, each of which has something to hand out."""
        with self.lock:
            if self.error is not None or source.shut or not entries:
                return
            if not source.entries:
                self._ring.append(source)
            source.entries.extend(entries)
            count = 0
            for one in entries:
                count += len(one.todo)
                self._bytes += one.size_bytes
                source.size_bytes += one.size_bytes
            self._messages += count
            if self.waiting:
                self.wake(count)

    def clear(self, source: Source) -> Message | None:
        """Drops what the source has here, and what it owes. Returns the first message that was not handed out."""
        with self.lock:
            return self._clear(source)

    def reopen(self, source: Source) -> None:
        """What comes from now on is handed out."""
        with self.lock:
            source.shut = False

    def _clear(self, source: Source) -> Message | None:
        first: Message | None = None
        if source.entries:
            first = Message(source.entries[0], source.entries[0].todo[0])
            self._forget(source, source.entries)
            source.entries.clear()
            self._ring.remove(source)
        if self._current is source or self._mixed:
            first = self._clear_ready(source) or first
        if self._current is source:
            self._current, self._uncounted = None, 0
        source.owed = 0
        source.last = source.read = None
        self.full = False
        return first

    def _clear_ready(self, source: Source) -> Message | None:
        """Returns the first that was dropped."""
        first: Message | None = None
        others: list[Message] = []
        while self.ready:
            try:
                message = self.ready.pop()
            except IndexError:  # others have taken the rest
                break
            if self._mixed and message._delivered.era.origin.source is not source:
                others.append(message)
            else:
                first = message
        self.ready.extend(reversed(others))
        return first

    def drop(self, source: Source, places: Container[tuple[int, int]]) -> int:
        """Drops these entries, given by ledger and entry id. Returns how many messages were not handed out."""
        with self.lock:
            kept = deque(one for one in source.entries if (one.ledger_id, one.entry_id) not in places)
            dropped = 0
            if len(kept) < len(source.entries):
                gone = [one for one in source.entries if (one.ledger_id, one.entry_id) in places]
                dropped += sum(len(one.todo) for one in gone)
                self._forget(source, gone)
                source.entries = kept
                if not kept:
                    self._ring.remove(source)
            if self._current is source:
                dropped += self._drop_ready(places)
            return dropped

    def _drop_ready(self, places: Container[tuple[int, int]]) -> int:
        taken: list[Message] = []
        while self.ready:
            try:
                taken.append(self.ready.pop())
            except IndexError:
                break
        kept = [one for one in taken if (one._delivered.ledger_id, one._delivered.entry_id) not in places]
        self.ready.extend(reversed(kept))
        dropped = len(taken) - len(kept)
        self._uncounted = max(self._uncounted - dropped, 0)
        return dropped

    def _forget(self, source: Source, entries: deque[Delivered] | list[Delivered]) -> None:
        for one in entries:
            self._messages -= len(one.todo)
            self._bytes -= one.size_bytes
            source.size_bytes -= one.size_bytes

    def fetch_owed(self, source: Source) -> int:
        """What was handed out since the last time."""
        with self.lock:
            owed, source.owed = source.owed, 0
            source.reported = False
            return owed

    def has_of(self, source: Source) -> bool:
        """Whether a message of the source is here."""
        with self.lock:
            return bool(source.entries or (self._current is source and self.ready))

    def set_full(self) -> None:
        """Nothing more will come until something is taken, if anything is here."""
        with self.lock:
            if len(self):
                self.full = True
                self.wake(self.waiting)

    def replace_lock(self) -> None:
        """In a child after a fork: whoever held it may not be there any more, nor those who waited."""
        self.lock = threading.Lock()
        self.wake = lambda _: None

    def fail(self, error: Exception) -> None:
        """Nothing more is handed out: who receives meets the error. The first one counts."""
        with self.lock:
            if self.error is not None:
                return
            self.error = error
            for source in list(self._ring):
                self._clear(source)
            if self._current is not None:
                self._clear(self._current)
            self.wake(self.waiting)

    # By whoever receives, or refuses what there is.

    def shut(self, source: Source) -> None:
        """Drops what the source has here, and what still comes of it, until it is reopened. From any thread."""
        with self.lock:
            source.shut = True
            self._clear(source)

    def __len__(self) -> int:
        return self._messages + len(self.ready)

    def take(self) -> Message | None:
        """The next message, if one is there."""
        with self.lock:
            return self.take_locked()

    def take_locked(self) -> Message | None:
        while True:
            try:
                for message in self.popping:
                    return message
            except IndexError:
                pass
            self._finish_segment()
            if not self._cut_segment():
                return None

    def put_back(self, messages: Sequence[Message]) -> None:
        """They were taken by somebody who could not hand them out, and come first again."""
        with self.lock:
            self._mixed = True
            self.ready.extendleft(reversed(messages))
            if self.waiting:
                self.wake(len(messages))

    def has_batch(self, max_messages: int, max_bytes: int) -> bool:
        """Whether a batch is complete."""
        if len(self) >= max_messages:
            return True
        return (self._bytes >= max_bytes or bool(self.ready)) and self._payload_bytes() >= max_bytes

    def _payload_bytes(self) -> int:
        """Exactly: what entries are said to take has their metadata in it."""
        size = sum(map(payload_bytes, list(self.ready)))
        for source in self._ring:
            for one in source.entries:
                payloads = one.columns.payloads
                size += sum(len(payloads[at] or b"") for at in one.todo)
        return size

    def take_batch_locked(self, batch: list[Message], max_messages: int, max_bytes: int) -> None:
        """Puts in as much as there is and as a batch may have: at least one message, if there is one. All that was
        taken is in the batch, whenever this is broken off."""
        self.full = False
        room = max_bytes
        while len(batch) < max_messages:
            try:
                for message in self.popping:
                    batch += (message,)
                    break
            except IndexError:
                self._finish_segment()
                break
            size = payload_bytes(message)
            if len(batch) > 1 and size > room:
                del batch[-1]
                self.ready.appendleft(message)
                return
            room -= size
        while len(batch) < max_messages and self._next_source():
            source = self._ring[0]
            delivered = source.entries[0]
            count = min(len(delivered.todo), max_messages - len(batch))
            if delivered.size_bytes > room:  # which is more than its payloads: now it is to be exact
                room = max_bytes - sum(map(payload_bytes, batch))
                count = fitting(delivered, count, room, bool(batch))
                if not count:
                    break
            messages, rest = cut(delivered, count)
            # Nothing is called from here on: see above.
            batch += messages
            self._messages -= count
            if rest:
                delivered.todo = rest
            else:
                self._bytes -= delivered.size_bytes
                source.size_bytes -= delivered.size_bytes
                del source.entries[0]
            source.last = source.read = messages[-1]
            source.owed += count
            self._indebted = source
            # To here.
            room -= delivered.size_bytes
            self._report_debt()
            self._turn()

    def _cut_segment(self) -> bool:
        """Makes the next segment, whose first message counts as handed out. False: there is nothing."""
        if not self._next_source():
            return False
        source, ready = self._ring[0], self.ready
        messages, whole, partly, rest = cut_segment(source.entries, source.segment)
        gone = sum(one.size_bytes for one in whole)
        left = deque(islice(source.entries, len(whole), None))
        count = len(messages)
        # Nothing is called from here on: see above.
        if partly is not None:
            partly.todo = rest
        source.entries = left
        source.size_bytes -= gone
        self._bytes -= gone
        self._messages -= count
        source.last = messages[-1]
        self._current = source
        self._uncounted = count
        ready += messages
        # To here.
        self._uncounted -= 1
        source.owed += 1
        self._indebted = source
        self._report_debt()
        self._turn()
        return True

    def _finish_segment(self) -> None:
        """Nothing is ready: the segment is handed out."""
        if self._current is not None:
            self._current.owed += self._uncounted
            self._current.read = self._current.last
            self._indebted = self._current
            self._current, self._uncounted = None, 0
        self._mixed = False
        self._report_debt()

    def _report_debt(self) -> None:
        source = self._indebted
        if source is not None:
            if source.owed >= source.report_at and not source.reported:
                source.report()  # the loop, which takes that away, waits for the lock
                source.reported = True
            self._indebted = None

    def _next_source(self) -> bool:
        """Whether any has entries; it is the first in the ring."""
        while self._ring and not self._ring[0].entries:  # it was taken from when somebody was struck
            del self._ring[0]
        return bool(self._ring)

    def _turn(self) -> None:
        """The next source's turn."""
        if self._ring[0].entries:
            self._ring.rotate(-1)
        else:
            self._ring.popleft()
