"""The acknowledgement state of a cursor, without I/O: the mark-delete position and the acknowledgements after it.

    mark_delete    all entries up to and including this position are acknowledged
    entries        after it, acknowledged entries: one bitmap per ledger (entry_set.py)
    batches        after it, partially acknowledged batches: the acknowledged messages of each, as bits

Pulsar calls the last two individually deleted messages. An entry is covered by one of the three at most. As soon as the
entry after the mark-delete position is acknowledged, the position advances, also over the ends of ledgers. Example: the
first three entries of ledger L2 are acknowledged, then the rest of L1. The mark-delete position advances to L2:2 at
once. If no entry of L2 is acknowledged, it stays at the last entry of L1.

Clients send positions, so they may be anything. Only positions that the log has count: a large number takes no memory,
and acknowledges no entry that is appended later. Positions in ledgers that are not in the log's list are ignored. The
broker does not know how many messages a batch has; the first number that a client reports for it is used from then on.
The bits of batches therefore have a limit of their own, above which an acknowledgement is refused.

For durable cursors, `unsaved` collects the changes since the last save.

An internal cursor has an attachment: bytes that belong to its mark-delete position, and are stored together with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.cursors.entry_set import BLOCK_ENTRIES, EntrySet
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import LogPositions
from magnetar_broker.position import EARLIEST, LedgerRange, Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = [
    "MAX_ATTACHMENT_BYTES",
    "MAX_BATCH_BYTES",
    "MAX_NODE_ATTACHMENT_BYTES",
    "AckState",
    "PartialBatch",
    "Unsaved",
]

# Some messages of one batch: its position, the messages as bits (bit i: message i), and the batch's size.
PartialBatch = tuple[Position, int, int]

# Maximum size of all bits of a cursor's partially acknowledged batches. 200,000 batches of 1,000 messages each need
# less than half of it.
MAX_BATCH_BYTES: Final = 67_108_864
# Maximum size of an attachment, which one record of the cursor's ledger holds, and of one that its node holds, too.
MAX_ATTACHMENT_BYTES: Final = 4_194_304
MAX_NODE_ATTACHMENT_BYTES: Final = 16_384


@dataclass(slots=True)
class Unsaved:
    """Changes since the last save, except the mark-delete position. It may have passed some of them since."""

    # Whether everything saved before is void.
    reset: bool = False
    # Acknowledged entries by ledger id.
    entries: dict[int, EntrySet] = field(default_factory=dict)
    # Positions of changed batches, in order. Their bits are looked up when they are saved.
    batches: dict[Position, None] = field(default_factory=dict)
    # Whether the attachment has changed.
    attachment: bool = False


class AckState:
    __slots__ = (
        "_acknowledged_count",
        "_batch_bytes",
        "_batches",
        "_entries",
        "_log",
        "attachment",
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
        # By ledger id and entry id: the acknowledged messages as bits, and the batch's size.
        self._batches: dict[int, dict[int, tuple[int, int]]] = {}
        # Size of all bits in `_batches`.
        self._batch_bytes = 0
        # Number of entries in `_entries`.
        self._acknowledged_count = 0
        # Grows with each change.
        self.changes = 0
        # Number of calls of `move_to`.
        self.moves = 0
        # Number of times that another consumer became active. Counting one is not a change: it is saved with the next.
        self.take_overs = 0
        self.unsaved = Unsaved() if durable else None
        self.attachment = b""

    # Queries.

    def is_acknowledged(self, position: Position) -> bool:
        if position <= self.mark_delete:
            return True
        entries = self._entries.get(position.ledger_id)
        return entries is not None and position.entry_id in entries

    def may_be_acknowledged_from(self, position: Position) -> bool:
        return (
            position <= self.mark_delete
            or any((ledger_id, entries.last) >= position for ledger_id, entries in self._entries.items())
            or any(ledger_id >= position.ledger_id for ledger_id in self._batches)
        )

    def get_acknowledged_messages(self, position: Position) -> int:
        return self.get_batch(position)[0]

    def get_batch(self, position: Position) -> tuple[int, int]:
        """Return the acknowledged messages of a partially acknowledged batch, and its size; (0, 0) if it is not one."""
        of_ledger = self._batches.get(position.ledger_id)
        return of_ledger.get(position.entry_id, (0, 0)) if of_ledger else (0, 0)

    def count_acknowledged_messages(self) -> int:
        """Return the number of acknowledged messages of partially acknowledged batches."""
        return sum(bits.bit_count() for of_ledger in self._batches.values() for bits, _ in of_ledger.values())

    def find_unacknowledged_after(self, position: Position) -> Position:
        ledger_id, entry_id = max(position, self.mark_delete)
        while True:
            entries = self._entries.get(ledger_id)
            found = entry_id + 1 if entries is None else entries.first_absent(entry_id + 1)
            end = self._log.ledger_end(ledger_id)
            following = None if end is None or found <= end else self._log.next_ledger(ledger_id)
            if following is None:
                return Position(ledger_id, found)
            ledger_id, entry_id = following, -1

    def count_unacknowledged(self) -> int:
        return max(0, self._log.entries_between(self.mark_delete, self._log.last) - self._acknowledged_count)

    @property
    def has_holes(self) -> bool:
        """Whether entries or messages after the mark-delete position are acknowledged."""
        return bool(self._entries or self._batches)

    @property
    def needs_ledger(self) -> bool:
        """Whether the cursor's node can't hold the whole state."""
        return self.has_holes or len(self.attachment) > MAX_NODE_ATTACHMENT_BYTES

    @property
    def node_attachment(self) -> bytes:
        """The attachment if the cursor's node can hold it."""
        return self.attachment if len(self.attachment) <= MAX_NODE_ATTACHMENT_BYTES else b""

    def count_ranges(self) -> int:
        """Return the number of runs of acknowledged entries after the mark-delete position."""
        return sum(entries.count_ranges() for entries in self._entries.values())

    def entries(self) -> Mapping[int, EntrySet]:
        """Return the acknowledged entries after the mark-delete position, by ledger id."""
        return self._entries

    def batches(self) -> Iterable[PartialBatch]:
        """Yield the partially acknowledged batches."""
        for ledger_id, of_ledger in self._batches.items():
            for entry_id, (bits, size) in of_ledger.items():
                yield Position(ledger_id, entry_id), bits, size

    # Changes.

    def acknowledge(self, entries: Iterable[LedgerRange], messages: Sequence[PartialBatch] = ()) -> list[Position]:
        """Acknowledge entries and messages of batches. Return which of these batches are wholly acknowledged now.

        Raises `BrokerError`, and then nothing is acknowledged.
        """
        if messages:
            self._check_batches(messages)
        for ledger_id, first, last in entries:
            self._acknowledge_range(ledger_id, first, last)
        return self._acknowledge_batches(messages)

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        """Acknowledge all entries up to and including `position`; of a batch, only `messages` of the last entry.

        Raises `BrokerError`, and then nothing is acknowledged.
        """
        end = self._last_entry_of(position.ledger_id)
        if end is None:
            return
        batches = [(position, messages, batch_size)] if batch_size else []
        self._check_batches(batches)
        ledger_id, entry_id = position.ledger_id, max(-1, min(position.entry_id, end))
        self._move_mark_delete(Position(ledger_id, max(-1, entry_id - 1) if batch_size else entry_id))
        self._acknowledge_batches(batches)

    def _check_batches(self, messages: Sequence[PartialBatch]) -> None:
        """Raise `BrokerError` if a batch had another size before, or if the bits of all batches would be too large."""
        sizes: dict[Position, int] = {}
        more = 0
        for position, _, size in messages:
            if not 0 < size <= MAX_BATCH_MESSAGES:
                continue
            known = sizes.get(position, 0) or self.get_batch(position)[1]
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

    def _acknowledge_batches(self, messages: Iterable[PartialBatch]) -> list[Position]:
        done = [
            position
            for position, bits, size in messages
            if self.is_acknowledged(position) or self._acknowledge_messages(position, bits, size)
        ]
        self._advance_mark_delete()
        return done

    def move_to(self, position: Position) -> None:
        """Acknowledge everything up to `position`, and nothing after it."""
        self._clear()
        self.mark_delete = self._find_equivalent(position)
        self.changes += 1
        self.moves += 1
        if self.unsaved is not None:
            self.unsaved = Unsaved(reset=True)

    def attach(self, position: Position, attachment: bytes) -> None:
        """Acknowledge all entries up to and including `position`, and replace the attachment."""
        assert len(attachment) <= MAX_ATTACHMENT_BYTES, "the attachment does not fit into a record"
        assert self.unsaved is not None, "a cursor that is not durable has no attachment"
        self._move_mark_delete(position)
        self.attachment = attachment
        self.unsaved.attachment = True
        self.changes += 1

    def drop_trimmed_ledgers(self) -> None:
        """Forget acknowledgements in ledgers that the log has deleted. Move the mark-delete position out of them."""
        first = self._log.before_first
        if self.mark_delete < first:
            self._move_mark_delete(first)
            self._advance_mark_delete()

    def take_unsaved(self) -> Unsaved:
        """Return the changes to save now, and begin to collect the next ones."""
        taken, self.unsaved = self.unsaved, Unsaved()
        assert taken is not None, "a non-durable cursor saves nothing"
        return taken

    # Restoring a saved state: for each record `restore_mark_delete`, then its entries and batches. At last `match_log`.

    def restore_mark_delete(self, mark_delete: Position, moves: int, take_overs: int = 0, *, reset: bool) -> None:
        """Begin with the next record. With `reset`, all earlier ones are void."""
        self.moves, self.take_overs = moves, take_overs
        if reset:
            self._clear()
            self.mark_delete = mark_delete
        else:
            self._move_mark_delete(mark_delete)

    def restore_range(self, ledger_id: int, first: int, last: int) -> None:
        end = self._last_entry_of(ledger_id)
        if end is not None and 0 <= first <= min(last, end):
            self._entries.setdefault(ledger_id, EntrySet()).add(first, min(last, end))

    def restore_bits(self, ledger_id: int, first: int, bits: int) -> None:
        """Restore acknowledged entries. Bit i stands for entry `first` + i."""
        end = self._last_entry_of(ledger_id)
        if end is None or not 0 <= first <= end:
            return
        bits &= (2 << (end - first)) - 1
        if not bits:
            return
        number, low = divmod(first, BLOCK_ENTRIES)
        bits <<= low
        entries = self._entries.setdefault(ledger_id, EntrySet())
        while bits:
            entries.add_bits(number, bits & ((1 << BLOCK_ENTRIES) - 1))
            number, bits = number + 1, bits >> BLOCK_ENTRIES

    def restore_messages(self, position: Position, bits: int, size: int) -> None:
        self._batches.setdefault(position.ledger_id, {})[position.entry_id] = bits, size

    def match_log(self) -> None:
        """Reduce a new or restored state to the entries that the log has, each covered once. It counts as saved."""
        batches = list(self.batches())
        self._batches.clear()
        self._batch_bytes = 0
        self._acknowledged_count = sum(entries.count for entries in self._entries.values())
        mark_delete = self._find_equivalent(self.mark_delete)
        self.mark_delete = EARLIEST
        self._move_mark_delete(mark_delete)
        self._acknowledge_batches(batches)
        if self.unsaved is not None:
            self.unsaved = Unsaved()
        self.changes = 0

    # Implementation.

    def _find_equivalent(self, position: Position) -> Position:
        """Return the position in a ledger of the log that has the same entries of the log before it."""
        if position >= self._log.last:
            return self._log.last
        if position <= self._log.before_first:
            return self._log.before_first
        end = self._last_entry_of(position.ledger_id)
        if end is not None:
            return Position(position.ledger_id, max(-1, min(position.entry_id, end)))
        following = self._log.first_after(position)
        return Position(following.ledger_id, following.entry_id - 1)

    def _last_entry_of(self, ledger_id: int) -> int | None:
        """Return the last entry id that the log has of this ledger; None if the ledger is not in the log."""
        last = self._log.last
        return last.entry_id if ledger_id == last.ledger_id else self._log.ledger_end(ledger_id)

    def _acknowledge_range(self, ledger_id: int, first: int, last: int) -> None:
        mark = self.mark_delete
        end = self._last_entry_of(ledger_id)
        if ledger_id < mark.ledger_id or end is None:
            return
        first, last = max(first, mark.entry_id + 1 if ledger_id == mark.ledger_id else 0), min(last, end)
        if first > last:
            return
        if ledger_id == mark.ledger_id and first == mark.entry_id + 1:  # no unacknowledged entry is in between
            self._move_mark_delete(Position(ledger_id, last))
            return
        entries = self._entries.get(ledger_id)
        if entries is None:
            entries = self._entries[ledger_id] = EntrySet()
        unsaved = None
        if self.unsaved is not None:
            unsaved = self.unsaved.entries.get(ledger_id)
            if unsaved is None:
                unsaved = self.unsaved.entries[ledger_id] = EntrySet()
        added = entries.add(first, last, unsaved)
        if added:
            self.changes += 1
            self._acknowledged_count += added
            self._drop_batches(ledger_id, first, last)

    def _acknowledge_messages(self, position: Position, bits: int, size: int) -> bool:
        """Acknowledge messages of one batch. Return whether all of its messages are acknowledged now."""
        end = self._last_entry_of(position.ledger_id)
        if not 0 < size <= MAX_BATCH_MESSAGES or end is None or not 0 <= position.entry_id <= end:
            return False
        known, known_size = self.get_batch(position)
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
        dropped: Iterable[int] = range(first, last + 1)
        if last - first >= len(of_ledger):
            dropped = [entry_id for entry_id in of_ledger if first <= entry_id <= last]
        for entry_id in dropped:
            _, size = of_ledger.pop(entry_id, (0, 0))
            self._batch_bytes -= size // 8
        if not of_ledger:
            del self._batches[ledger_id]

    def _move_mark_delete(self, position: Position) -> None:
        """Move the mark-delete position forward, also over unacknowledged entries. An earlier position is ignored."""
        if position <= self.mark_delete:
            return
        self.changes += 1
        self.mark_delete = position
        if self._entries or self._batches:
            self._drop_up_to(position)

    def _drop_up_to(self, position: Position) -> None:
        ledger_id, entry_id = position
        for lower in [key for key in self._entries if key < ledger_id]:
            self._acknowledged_count -= self._entries.pop(lower).count
        for lower in [key for key in self._batches if key < ledger_id]:
            self._batch_bytes -= sum(size // 8 for _, size in self._batches.pop(lower).values())
        entries = self._entries.get(ledger_id)
        if entries is not None:
            self._acknowledged_count -= entries.remove_up_to(entry_id)
            if not entries:
                del self._entries[ledger_id]
        self._drop_batches(ledger_id, 0, entry_id)

    def _advance_mark_delete(self) -> None:
        """Move the mark-delete position to the last position that has no unacknowledged entry before it."""
        if self._entries and self.mark_delete < (first := self._log.before_first):
            # A subscription of a topic without a ledger begins before all of them, with no entry in between.
            self._move_mark_delete(first)
        while self._entries:
            ledger_id, entry_id = self.mark_delete
            entries = self._entries.get(ledger_id)
            last = entry_id if entries is None else entries.first_absent(entry_id + 1) - 1
            if last > entry_id:
                self._move_mark_delete(Position(ledger_id, last))
            end = self._log.ledger_end(ledger_id)
            if end is None or last < end:
                return
            following = self._next_ledger_with_entries(ledger_id)
            if following is None or 0 not in self._entries.get(following, ()):
                return
            self._move_mark_delete(Position(following, -1))

    def _next_ledger_with_entries(self, ledger_id: int) -> int | None:
        following = self._log.next_ledger(ledger_id)
        while following is not None and self._log.ledger_end(following) == -1:
            following = self._log.next_ledger(following)
        return following

    def _clear(self) -> None:
        self._entries.clear()
        self._batches.clear()
        self._acknowledged_count = self._batch_bytes = 0
