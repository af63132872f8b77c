"""What a cursor knows: up to where everything is acknowledged, and what is of the entries behind that.

    mark_delete          everything up to and with it
    entries              per ledger, those behind it that are acknowledged, whole: bitmaps
    messages             of batches that are acknowledged in part, the messages that are

An entry is in one of the three at most. As soon as what follows the mark-delete position is acknowledged that moves on,
over the ends of ledgers too. So where all of L1 is acknowledged, and the first three of L2 were before that, it goes to
L2:2 at once; where none of L2 is, it stays at the end of L1.

Numbers come from the network and may be anything: of what is acknowledged only that counts which the log has, so that
no number takes more memory than the log has entries, and nothing is ever said of an entry that comes later. Positions
in ledgers that are not on the log's list are passed over, never taken for another ledger's. How many messages a batch
has is believed as it was said first. So what all those bits may take has a bound of its own, and who is above it is
told.

`unsaved` notes what has to be written down, for cursors that are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar_broker.cursors.entry_set import CHUNK_ENTRIES, EntrySet
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.position import EARLIEST, Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["MAX_BATCH_BYTES", "AckState", "LedgerRange", "LogPositions", "PartialBatch", "Unsaved"]

# Entries of one ledger: ledger id, first and last entry id.
LedgerRange = tuple[int, int, int]
# Some messages of one batch: its position, the messages as bits (bit i: message i), and the batch's size.
PartialBatch = tuple[Position, int, int]

# What a cursor holds of batches that are acknowledged in part. Two hundred thousand of a thousand messages each have
# less than half of it.
MAX_BATCH_BYTES: Final = 67_108_864


class LogPositions(Protocol):
    """What is asked of the log; see `managed_ledger.interface.Log`."""

    @property
    def before_first(self) -> Position: ...

    @property
    def last(self) -> Position: ...

    def first_after(self, position: Position) -> Position: ...

    def entries_between(self, after: Position, up_to: Position) -> int: ...

    def ledger_end(self, ledger_id: int) -> int | None: ...

    def next_ledger(self, ledger_id: int) -> int | None: ...


@dataclass(slots=True)
class Unsaved:
    """What changed since this was made, besides the mark-delete position. What that has passed may still be in it."""

    # Everything from before is void.
    reset: bool = False
    entries: dict[int, EntrySet] = field(default_factory=dict)
    # Places of batches; what is acknowledged of them is looked up.
    batches: dict[Position, None] = field(default_factory=dict)


class AckState:
    __slots__ = (
        "_acknowledged",
        "_batch_bytes",
        "_batches",
        "_entries",
        "_log",
        "changes",
        "mark_delete",
        "moves",
        "take_overs",
        "unsaved",
    )

    def __init__(self, log: LogPositions, mark_delete: Position, *, durable: bool = False) -> None:
        self._log = log
        self.mark_delete = mark_delete
        self._entries: dict[int, EntrySet] = {}
        # By ledger and entry: which messages, and how many there are.
        self._batches: dict[int, dict[int, tuple[int, int]]] = {}
        # Of all that are in `_batches`: the bytes of the bits that they have.
        self._batch_bytes = 0
        # How many are in `_entries`.
        self._acknowledged = 0
        # Grows with each change.
        self.changes = 0
        # How often `move_to` was called.
        self.moves = 0
        # How often the subscription changed hands: written down with what is, and for itself not worth it.
        self.take_overs = 0
        self.unsaved = Unsaved() if durable else None

    # ── what is known ──

    def is_acknowledged(self, position: Position) -> bool:
        if position <= self.mark_delete:
            return True
        entries = self._entries.get(position.ledger_id)
        return entries is not None and position.entry_id in entries

    def get_acknowledged_messages(self, position: Position) -> int:
        return self._messages(position)[0]

    def _messages(self, position: Position) -> tuple[int, int]:
        of_ledger = self._batches.get(position.ledger_id)
        return of_ledger.get(position.entry_id, (0, 0)) if of_ledger else (0, 0)

    def find_unacknowledged_after(self, position: Position) -> Position:
        ledger_id, entry_id = max(position, self.mark_delete)
        while True:
            entries = self._entries.get(ledger_id)
            place = entry_id + 1 if entries is None else entries.first_absent(entry_id + 1)
            end = self._log.ledger_end(ledger_id)
            following = None if end is None or place <= end else self._log.next_ledger(ledger_id)
            if following is None:
                return Position(ledger_id, place)
            ledger_id, entry_id = following, -1

    def count_unacknowledged(self) -> int:
        return max(0, self._log.entries_between(self.mark_delete, self._log.last) - self._acknowledged)

    @property
    def has_holes(self) -> bool:
        """The mark-delete position does not say it all."""
        return bool(self._entries or self._batches)

    def entries(self) -> dict[int, EntrySet]:
        """To be looked at only."""
        return self._entries

    def batches(self) -> Iterable[tuple[Position, int, int]]:
        """Those acknowledged in part: which messages of them, of how many."""
        for ledger_id, of_ledger in self._batches.items():
            for entry_id, (bits, size) in of_ledger.items():
                yield Position(ledger_id, entry_id), bits, size

    def batch(self, position: Position) -> tuple[int, int]:
        """Likewise of one; 0: nothing."""
        return self._messages(position)

    # ── what changes it ──

    def acknowledge(
        self, entries: Iterable[tuple[int, int, int]], messages: Sequence[tuple[Position, int, int]] = ()
    ) -> list[Position]:
        """Raises `BrokerError`, and then nothing of it counts."""
        if messages:
            self._check_messages(messages)
        for ledger_id, first, last in entries:
            self._acknowledge_range(ledger_id, first, last)
        return self._acknowledge_messages(messages)

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        """Raises `BrokerError`, and then nothing of it counts."""
        end = self._end(position.ledger_id)
        if end is None:
            return
        some = [(position, messages, batch_size)] if batch_size else []
        self._check_messages(some)
        ledger_id, entry_id = position.ledger_id, max(-1, min(position.entry_id, end))
        self._set_mark(Position(ledger_id, max(-1, entry_id - 1) if batch_size else entry_id))
        self._acknowledge_messages(some)

    def _check_messages(self, messages: Sequence[tuple[Position, int, int]]) -> None:
        sizes: dict[Position, int] = {}
        more = 0
        for position, _, size in messages:
            if not 0 < size <= MAX_BATCH_MESSAGES:
                continue
            known = sizes.get(position, 0) or self._messages(position)[1]
            if not known:
                more += size // 8
            elif known != size and not self.is_acknowledged(position):
                raise BrokerError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"entry {position} was acknowledged as a batch of {known} messages before, but now of {size}",
                )
            sizes[position] = size
        if self._batch_bytes + more > MAX_BATCH_BYTES:
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"partly acknowledged batches use {self._batch_bytes} bytes, and {MAX_BATCH_BYTES} are "
                "allowed: acknowledge the remaining messages of some batches first",
            )

    def _acknowledge_messages(self, messages: Iterable[tuple[Position, int, int]]) -> list[Position]:
        done = [
            position
            for position, bits, size in messages
            if self.is_acknowledged(position) or self._acknowledge_some(position, bits, size)
        ]
        self._advance()
        return done

    def move_to(self, position: Position) -> None:
        """Everything up to it is acknowledged, and nothing behind it."""
        self._clear()
        self.mark_delete = self._within_the_log(position)
        self.changes += 1
        self.moves += 1
        if self.unsaved is not None:
            self.unsaved = Unsaved(reset=True)

    def drop_trimmed_ledgers(self) -> None:
        """What is known of ledgers that are gone is dropped; a mark-delete position in one of them moves on, once."""
        first = self._log.before_first
        if self.mark_delete < first:
            self._set_mark(first)
            self._advance()

    def take_unsaved(self) -> Unsaved:
        """What is to be written down now; what changes from here on is noted anew."""
        taken, self.unsaved = self.unsaved, Unsaved()
        assert taken is not None, "a non-durable cursor saves nothing"
        return taken

    # ── what was saved ──

    def restore(self, mark_delete: Position, moves: int, take_overs: int = 0, *, reset: bool) -> None:
        """A record of it begins. `settle` is to be called after the last one."""
        self.moves, self.take_overs = moves, take_overs
        if reset:
            self._clear()
            self.mark_delete = mark_delete
        else:
            self._set_mark(mark_delete)

    def restore_range(self, ledger_id: int, first: int, last: int) -> None:
        end = self._end(ledger_id)
        if end is not None and 0 <= first <= min(last, end):
            self._entries.setdefault(ledger_id, EntrySet()).add(first, min(last, end))

    def restore_bits(self, ledger_id: int, first: int, bits: int) -> None:
        """Bit i stands for entry `first` + i."""
        end = self._end(ledger_id)
        if not bits or end is None or not 0 <= first <= end:
            return
        bits &= (2 << (end - first)) - 1
        number, low = divmod(first, CHUNK_ENTRIES)
        bits <<= low
        entries = self._entries.setdefault(ledger_id, EntrySet())
        while bits:
            entries.add_bits(number, bits & ((1 << CHUNK_ENTRIES) - 1))
            number, bits = number + 1, bits >> CHUNK_ENTRIES

    def restore_messages(self, position: Position, bits: int, size: int) -> None:
        self._batches.setdefault(position.ledger_id, {})[position.entry_id] = bits, size

    def settle(self) -> None:
        """All of it was restored. Now the log is asked what there still is, and each entry is in one place at most."""
        batches = list(self.batches())
        self._batches.clear()
        self._batch_bytes = 0
        self._acknowledged = sum(entries.count for entries in self._entries.values())
        mark_delete = self._within_the_log(self.mark_delete)
        self.mark_delete = EARLIEST
        self._set_mark(mark_delete)
        self._acknowledge_messages(batches)
        if self.unsaved is not None:
            self.unsaved = Unsaved()
        self.changes = 0

    # ── how ──

    def _within_the_log(self, position: Position) -> Position:
        """The place that means the same, in a ledger that there is."""
        if position >= self._log.last:
            return self._log.last
        if position <= self._log.before_first:
            return self._log.before_first
        end = self._end(position.ledger_id)
        if end is not None:
            return Position(position.ledger_id, max(-1, min(position.entry_id, end)))
        following = self._log.first_after(position)
        return Position(following.ledger_id, following.entry_id - 1)

    def _end(self, ledger_id: int) -> int | None:
        """The last entry that the log has of this ledger; None: it does not know it."""
        last = self._log.last
        return last.entry_id if ledger_id == last.ledger_id else self._log.ledger_end(ledger_id)

    def _acknowledge_range(self, ledger_id: int, first: int, last: int) -> None:
        mark = self.mark_delete
        end = self._end(ledger_id)
        if ledger_id < mark.ledger_id or end is None:
            return
        first, last = max(first, mark.entry_id + 1 if ledger_id == mark.ledger_id else 0), min(last, end)
        if first > last:
            return
        if ledger_id == mark.ledger_id and first == mark.entry_id + 1:  # nothing is between
            self._set_mark(Position(ledger_id, last))
            return
        entries = self._entries.get(ledger_id)
        if entries is None:
            entries = self._entries[ledger_id] = EntrySet()
        news = None
        if self.unsaved is not None:
            news = self.unsaved.entries.get(ledger_id)
            if news is None:
                news = self.unsaved.entries[ledger_id] = EntrySet()
        added = entries.add(first, last, news)
        if added:
            self.changes += 1
            self._acknowledged += added
            self._drop_batches(ledger_id, first, last)

    def _acknowledge_some(self, position: Position, bits: int, size: int) -> bool:
        """Whether the batch is done by now."""
        end = self._end(position.ledger_id)
        if not 0 < size <= MAX_BATCH_MESSAGES or end is None or not 0 <= position.entry_id <= end:
            return False
        known, known_size = self._messages(position)
        whole = (1 << size) - 1
        now = known | bits & whole
        if now == whole:
            self._acknowledge_range(position.ledger_id, position.entry_id, position.entry_id)
            return True
        if now != known:
            self._batch_bytes += 0 if known_size else size // 8
            self._batches.setdefault(position.ledger_id, {})[position.entry_id] = now, size
            self.changes += 1
            if self.unsaved is not None:
                self.unsaved.batches[position] = None
        return False

    def _drop_batches(self, ledger_id: int, first: int, last: int) -> None:
        of_ledger = self._batches.get(ledger_id)
        if not of_ledger:
            return
        gone: Iterable[int] = range(first, last + 1)
        if last - first >= len(of_ledger):
            gone = [entry_id for entry_id in of_ledger if first <= entry_id <= last]
        for entry_id in gone:
            _, size = of_ledger.pop(entry_id, (0, 0))
            self._batch_bytes -= size // 8
        if not of_ledger:
            del self._batches[ledger_id]

    def _set_mark(self, position: Position) -> None:
        """On to there, over whatever is open before it."""
        if position <= self.mark_delete:
            return
        self.changes += 1
        self.mark_delete = position
        if self._entries or self._batches:
            self._drop_up_to(position)

    def _drop_up_to(self, position: Position) -> None:
        ledger_id, entry_id = position
        for held in [held for held in self._entries if held < ledger_id]:
            self._acknowledged -= self._entries.pop(held).count
        for held in [held for held in self._batches if held < ledger_id]:
            self._batch_bytes -= sum(size // 8 for _, size in self._batches.pop(held).values())
        entries = self._entries.get(ledger_id)
        if entries is not None:
            self._acknowledged -= entries.remove_up_to(entry_id)
            if not entries:
                del self._entries[ledger_id]
        self._drop_batches(ledger_id, 0, entry_id)

    def _advance(self) -> None:
        """On to the last place that has nothing open before it."""
        if self._entries and self.mark_delete < (first := self._log.before_first):
            # A subscription of a topic that had no ledger yet begins before all of them, and nothing is between.
            self._set_mark(first)
        while self._entries:
            ledger_id, entry_id = self.mark_delete
            entries = self._entries.get(ledger_id)
            place = entry_id if entries is None else entries.first_absent(entry_id + 1) - 1
            if place > entry_id:
                self._set_mark(Position(ledger_id, place))
            end = self._log.ledger_end(ledger_id)
            if end is None or place < end:
                return
            following = self._next_with_entries(ledger_id)
            if following is None or 0 not in self._entries.get(following, ()):
                return
            self._set_mark(Position(following, -1))

    def _next_with_entries(self, ledger_id: int) -> int | None:
        following = self._log.next_ledger(ledger_id)
        while following is not None and self._log.ledger_end(following) == -1:
            following = self._log.next_ledger(following)
        return following

    def _clear(self) -> None:
        self._entries.clear()
        self._batches.clear()
        self._acknowledged = self._batch_bytes = 0
