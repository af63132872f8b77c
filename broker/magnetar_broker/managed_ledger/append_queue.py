"""Pending appends of a topic, in order: the rules of appends.

    sent: added to the current ledger, not persisted yet │ waiting: for a ledger, or for capacity in it

An entry gets its index, its broker time and its stored bytes when it is appended, and keeps them. If its ledger fails
and is closed by its own writer, `resend` moves the entries that were sent and not persisted back to the waiting ones:
the same bytes are added to the next ledger first, in the same order.

An append that is refused also stands in the queue, without an entry, so that results are reported in the order of the
appends. It is never sent, and is reported once all appends before it are decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.read.record import RECORD_HEADER_BYTES
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.entry import add_broker_metadata
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.errors import WireError

__all__ = ["Append", "AppendDone", "AppendQueue"]

# Called with the positions of consecutive entries of one call of `append`, or of several with an equal callback; or
# with the error of one entry. In the order of the appends.
AppendDone = Callable[[Sequence[Position] | BrokerError], object]

_NO_POSITION: Final = Position(-1, -1)
_NO_ENTRY: Final = LogEntry(_NO_POSITION, b"", 0, 0, 0, 0)


@dataclass(slots=True)
class Append:
    # It gets its position when it is persisted.
    entry: LogEntry
    done: AppendDone
    error: BrokerError | None = None


class AppendQueue:
    __slots__ = (
        "_explain_wait",
        "_max_bytes",
        "_sent",
        "_waiting_bytes",
        "last_time_ms",
        "next_index",
        "pending_bytes",
        "refused",
        "waiting",
        "waiting_chunks",
    )

    def __init__(
        self, next_index: int, last_time_ms: int, max_bytes: int, explain_wait: Callable[[], str] = lambda: ""
    ) -> None:
        """`explain_wait` returns why entries wait, for errors; empty: for nothing but the bookies' answers."""
        self.next_index = next_index
        self.last_time_ms = last_time_ms
        self._max_bytes = max_bytes
        self._explain_wait = explain_wait
        # The memory of the pending entries.
        self.pending_bytes = 0
        # The number of refused appends in the queue.
        self.refused = 0
        self._sent: deque[Append] = deque()
        # If the first one is refused, it is reported before anything else is sent.
        self.waiting: deque[Append] = deque()
        # Of the waiting entries: their stored bytes, and the number of chunks.
        self._waiting_bytes = 0
        self.waiting_chunks = 0

    def __len__(self) -> int:
        return len(self._sent) + len(self.waiting)

    # ── adding to the queue ──

    def append(self, entries: Sequence[NewEntry], done: AppendDone, now_ms: int) -> int:
        """Append the entries, and return how many were accepted, from the first on. The next one is refused. An entry
        is accepted while less than `max_bytes` are pending, and may exceed that. If this raises, none was appended."""
        # Broker times never fall, though a wall clock may.
        time_ms = self.last_time_ms = max(now_ms, self.last_time_ms)
        appends: list[Append] = []
        max_bytes, pending_bytes, next_index, error = self._max_bytes, self.pending_bytes, self.next_index, None
        size_bytes = chunks = 0
        for entry, messages, batch_size, chunk in entries:
            if pending_bytes >= max_bytes:
                error = self._explain_full(pending_bytes)
                break
            index = next_index + messages - 1  # of the last message
            try:
                stored = add_broker_metadata(entry, time_ms, index)
            except WireError as too_big:
                error = BrokerError(ErrorCode.MESSAGE_TOO_BIG, str(too_big))
                break
            appends.append(Append(LogEntry(_NO_POSITION, stored, messages, batch_size, index, time_ms, chunk), done))
            next_index = index + 1
            size_bytes += len(stored)
            pending_bytes += len(stored) + ENTRY_OVERHEAD_BYTES
            if chunk is not None:
                chunks += 1
        self.waiting.extend(appends)
        self.next_index, self.pending_bytes = next_index, pending_bytes
        self._waiting_bytes += size_bytes
        self.waiting_chunks += chunks
        if error is not None:
            self.refuse(error, done)
        return len(appends)

    def _explain_full(self, pending_bytes: int) -> BrokerError:
        waiting_for = self._explain_wait()
        reason = f": {waiting_for}" if waiting_for else ""
        return BrokerError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"the topic has {pending_bytes} pending bytes, above the limit of {self._max_bytes}{reason}; try again "
            "later",
        )

    def refuse(self, error: BrokerError, done: AppendDone) -> None:
        """Append a refusal."""
        self.refused += 1
        self.waiting.append(Append(_NO_ENTRY, done, error))

    # ── sending ──

    @property
    def needs_ledger(self) -> bool:
        """Whether an entry waits."""
        return len(self.waiting) > self.refused or any(append.error is None for append in self.waiting)

    @property
    def is_chunk_next(self) -> bool:
        """Whether the first waiting entry is a chunk of a message."""
        return bool(self.waiting) and self.waiting[0].entry.chunk is not None

    def take_run(
        self, max_entries: int, max_memory_bytes: int, max_stored_bytes: int, *, takes_chunks: bool
    ) -> list[bytes]:
        """Move waiting entries to the sent ones, and return their stored bytes, in order.

        `max_memory_bytes` limits the memory of their records, `max_stored_bytes` their size; one entry may exceed
        these two. Without `takes_chunks` the run ends before the first chunk. Afterwards the first of `waiting`, if
        any, is an entry.
        """
        waiting, sent = self.waiting, self._sent
        count, size_bytes = len(waiting), self._waiting_bytes
        if (
            not self.refused
            and count <= max_entries
            and size_bytes <= max_stored_bytes
            and size_bytes + count * (RECORD_HEADER_BYTES + ENTRY_OVERHEAD_BYTES) <= max_memory_bytes
            and (takes_chunks or not self.waiting_chunks)
        ):
            run = [append.entry.stored for append in waiting]
            sent.extend(waiting)
            waiting.clear()
            self._waiting_bytes = self.waiting_chunks = 0
            return run
        run = []
        while waiting:
            append = waiting[0]
            if append.error is None:
                entry = append.entry
                if len(run) >= max_entries or max_memory_bytes <= 0 or max_stored_bytes <= 0:
                    break
                if entry.chunk is not None:
                    if not takes_chunks:
                        break
                    self.waiting_chunks -= 1
                size_bytes = len(entry.stored)
                self._waiting_bytes -= size_bytes
                max_stored_bytes -= size_bytes
                max_memory_bytes -= size_bytes + RECORD_HEADER_BYTES + ENTRY_OVERHEAD_BYTES
                run.append(entry.stored)
            sent.append(waiting.popleft())
        return run

    def resend(self) -> None:
        """Have all sent entries wait again: their ledger was closed, and they are not in it."""
        entries = [append.entry for append in self._sent if append.error is None]
        self.waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._waiting_bytes += sum([len(entry.stored) for entry in entries])
        self.waiting_chunks += sum([entry.chunk is not None for entry in entries])

    # ── results ──

    def confirm(self, count: int) -> tuple[list[Append], int]:
        """Remove the first `count` sent entries, which are persisted, up to a refused append that is to be reported
        next. Return them and their stored bytes. Refused appends before them were reported."""
        sent = self._sent
        if not self.refused:
            confirmed = [sent.popleft() for _ in range(count)]
        else:
            confirmed = []
            while len(confirmed) < count and sent[0].error is None:
                confirmed.append(sent.popleft())
        size_bytes = sum([len(append.entry.stored) for append in confirmed])
        self.pending_bytes -= size_bytes + len(confirmed) * ENTRY_OVERHEAD_BYTES
        return confirmed, size_bytes

    def take_refused(self) -> list[Append]:
        """Remove and return the refused appends before which nothing is pending."""
        taken = []
        for queue in (self._sent, self.waiting):
            while queue and queue[0].error is not None:
                taken.append(queue.popleft())
            if queue:
                break
        self.refused -= len(taken)
        return taken

    def refuse_waiting(self, error: BrokerError, next_index: int) -> None:
        """Refuse all waiting entries, while none is sent. `next_index`: of the message after the last stored one."""
        for append in self.waiting:
            if append.error is None:
                append.entry, append.error = _NO_ENTRY, error
                self.refused += 1
        self.next_index = next_index
        self.pending_bytes = self._waiting_bytes = self.waiting_chunks = 0

    def take_all(self) -> list[Append]:
        """Remove and return all appends."""
        taken = [*self._sent, *self.waiting]
        self._sent.clear()
        self.waiting.clear()
        self.pending_bytes = self.refused = self._waiting_bytes = self.waiting_chunks = 0
        return taken

    def pending_sizes(self) -> list[int]:
        """Return the stored bytes of each pending entry, oldest first.

        The simulation compares them with the bound, which goes by `pending_bytes`.
        """
        return [len(append.entry.stored) for append in (*self._sent, *self.waiting) if append.error is None]
