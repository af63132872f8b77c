"""What was appended to a topic and is not decided, in order.

    sent, to the ledger that is written │ waiting, for room or for a ledger

An append gets its index, its broker time and its stored bytes once, when it comes, and keeps them: if its ledger fails
and is then closed by its own writer, `resend` puts back what was sent and not confirmed, and the same bytes go to the
next ledger first, in the same order.

One that can't be taken stands in the queue too, without its bytes, so that everybody is told in the order of the
appends. It goes to no ledger: it is told when those before it are decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.entry import add_broker_metadata
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.errors import WireError

__all__ = ["Append", "AppendDone", "AppendQueue"]

# Called with the places of some entries, or why one has none; in the order of the appends.
AppendDone = Callable[[Sequence[Position] | BrokerError], object]

_NOWHERE: Final = Position(-1, -1)
_NOTHING: Final = LogEntry(_NOWHERE, b"", 0, 0, 0, 0)


@dataclass(slots=True)
class Append:
    # It gets its position when it is confirmed.
    entry: LogEntry
    done: AppendDone
    refused: BrokerError | None = None


class AppendQueue:
    __slots__ = ("_last_time_ms", "_max_bytes", "_sent", "_waiting", "next_index", "pending_bytes", "refused")

    def __init__(self, next_index: int, last_time_ms: int, max_bytes: int) -> None:
        self.next_index = next_index
        self._last_time_ms = last_time_ms
        self._max_bytes = max_bytes
        # The memory of entries that are appended and not decided.
        self.pending_bytes = 0
        # How many were refused and are not told.
        self.refused = 0
        self._sent: deque[Append] = deque()
        self._waiting: deque[Append] = deque()

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    @property
    def full(self) -> bool:
        return self.pending_bytes >= self._max_bytes

    def append(self, entries: Sequence[NewEntry], done: AppendDone, now_ms: int, waits_for: str) -> int:
        """Returns how many were taken, from the first on; the next one is refused. The one that passes the bound is
        taken still."""
        # A wall clock that falls must not have times fall.
        time_ms = self._last_time_ms = max(now_ms, self._last_time_ms)
        waiting, most = self._waiting, self._max_bytes
        for taken, (entry, messages, batch_size, chunk) in enumerate(entries):
            if self.pending_bytes >= most:
                reason = f": {waits_for}" if waits_for else ""
                text = (
                    f"the topic has {self.pending_bytes} pending bytes, above the limit of {most}{reason}; try "
                    "again later"
                )
                self.refuse(BrokerError(ErrorCode.TOO_MANY_REQUESTS, text), done)
                return taken
            index = self.next_index + messages - 1  # of the last message
            try:
                stored = add_broker_metadata(entry, time_ms, index)
            except WireError as error:
                self.refuse(BrokerError(ErrorCode.MESSAGE_TOO_BIG, str(error)), done)
                return taken
            self.next_index = index + 1
            self.pending_bytes += len(stored) + ENTRY_OVERHEAD_BYTES
            waiting.append(Append(LogEntry(_NOWHERE, stored, messages, batch_size, index, time_ms, chunk), done))
        return len(entries)

    def pending_sizes(self) -> list[int]:
        """Return the stored bytes of each entry that is not decided, oldest first, without refused ones.

        The simulation compares them with the bound, which goes by `pending_bytes`.
        """
        return [len(one.entry.stored) for one in (*self._sent, *self._waiting) if one.refused is None]

    def refuse(self, error: BrokerError, done: AppendDone) -> None:
        self.refused += 1
        self._waiting.append(Append(_NOTHING, done, error))

    @property
    def waits(self) -> bool:
        """Something is not sent yet, or refused and not told."""
        return bool(self._waiting) or (bool(self._sent) and self._sent[0].refused is not None)

    @property
    def has_waiting(self) -> bool:
        """There is something for a ledger."""
        waiting = self._waiting
        return bool(waiting) and (waiting[0].refused is None or any(one.refused is None for one in waiting))

    @property
    def has_chunk_waiting(self) -> bool:
        """Among what is for a ledger is a chunk of a message."""
        return any(one.entry.chunk is not None for one in self._waiting)

    def next_waiting(self) -> LogEntry | None:
        """What is to be sent next."""
        waiting = self._waiting
        while waiting and waiting[0].refused is not None:
            self._sent.append(waiting.popleft())
        return waiting[0].entry if waiting else None

    def sent(self) -> None:
        """What `next_waiting` has named was sent."""
        self._sent.append(self._waiting.popleft())

    def confirmed(self, count: int) -> list[Append]:
        """So many of those that were sent are stored. Returns the first of them, up to one that was refused and whose
        turn it is then; those refused before were told."""
        sent = self._sent
        if not self.refused:
            confirmed = [sent.popleft() for _ in range(count)]
        else:
            confirmed = []
            while len(confirmed) < count and sent[0].refused is None:
                confirmed.append(sent.popleft())
        size_bytes = sum([len(append.entry.stored) for append in confirmed])
        self.pending_bytes -= size_bytes + len(confirmed) * ENTRY_OVERHEAD_BYTES
        return confirmed

    def take_refused(self) -> list[Append]:
        """Those that are to be told now: nothing before them is pending."""
        taken = []
        for queue in (self._sent, self._waiting):
            while queue and queue[0].refused is not None:
                taken.append(queue.popleft())
            if queue:
                break
        self.refused -= len(taken)
        return taken

    def resend(self) -> None:
        """The ledger is closed: what was sent and not confirmed is not in it."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    def take_all(self) -> list[Append]:
        taken = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        self.pending_bytes = self.refused = 0
        return taken
