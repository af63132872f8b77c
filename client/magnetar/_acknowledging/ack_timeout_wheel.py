"""Which messages of one partition the application has received and not acknowledged in time: a time wheel.

Time is divided into ticks. A received message is due at the tick at which its acknowledgement timeout has passed, and
is late if it is still unacknowledged then. Its entry is redelivered, so the wheel returns positions of entries.

**Bitmaps.** An entry takes one bit of its block, and one of its block at the tick at which it is due: an application
that never acknowledges costs a few bits for each entry that it receives, however long the timeout is. An
acknowledgement clears the first of the two, and the second has no effect then. Only `forget` clears both, for an entry
that will be received again.

**Batches.** Messages of one batch may be received at different times, so a batch has a set of messages for each tick at
which some of them are due. A batch is late if a message is that was received: the others, which are prefetched, are not
due yet.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["AckTimeoutWheel"]

Position = tuple[int, int]
# The ledger id, and the entry id divided by the size of a block.
_Block = tuple[int, int]

_BLOCK_BITS: Final = 10
_BLOCK_SIZE: Final = 1 << _BLOCK_BITS


class AckTimeoutWheel:
    def __init__(self) -> None:
        # Entries with messages that are received and not acknowledged, one bit each.
        self._unacked: dict[_Block, int] = {}
        # Tick → entries that are due then, one bit each. `_ticks` is a heap of the keys.
        self._due: dict[int, dict[_Block, int]] = {}
        self._ticks: list[int] = []
        # Batch → tick → its unacknowledged messages that are due then, one bit each, by their batch index.
        self._batches: dict[_Block, dict[Position, dict[int, int]]] = {}

    def __bool__(self) -> bool:
        """Whether a message is received and not acknowledged."""
        return bool(self._unacked)

    # Received messages.

    def add_entry(self, position: Position, due_tick: int) -> None:
        """The message of an entry that is not a batch was received."""
        block, bit = _locate(position)
        self._unacked[block] = self._unacked.get(block, 0) | bit
        due = self._due.get(due_tick)
        if due is None:
            due = self._due[due_tick] = {}
            heapq.heappush(self._ticks, due_tick)
        due[block] = due.get(block, 0) | bit

    def add_messages(self, position: Position, bits: int, due_tick: int) -> None:
        """These messages of a batch were received. Bit i is batch index i."""
        self.add_entry(position, due_tick)
        block, _ = _locate(position)
        ticks = self._batches.setdefault(block, {}).setdefault(position, {})
        ticks[due_tick] = ticks.get(due_tick, 0) | bits

    # Acknowledged messages.

    def remove_entry(self, position: Position) -> None:
        """All messages of the entry are acknowledged."""
        block, bit = _locate(position)
        unacked = self._unacked.get(block, 0)
        if not unacked & bit:
            return
        if unacked == bit:
            del self._unacked[block]
        else:
            self._unacked[block] = unacked & ~bit
        batches = self._batches.get(block)
        if batches is not None:
            batches.pop(position, None)
            if not batches:
                del self._batches[block]

    def remove_messages(self, position: Position, bits: int) -> None:
        """These messages of a batch are acknowledged."""
        ticks = self._batches.get(_locate(position)[0], {}).get(position)
        if ticks is None:
            return
        for tick, unacked in list(ticks.items()):
            if unacked & ~bits:
                ticks[tick] = unacked & ~bits
            else:
                del ticks[tick]
        if not ticks:
            self.remove_entry(position)

    def remove_before(self, end: Position) -> None:
        """All entries before this position are acknowledged."""
        last_block, end_bit = _locate(end)
        for block in [block for block in self._unacked if block <= last_block]:
            bits = self._unacked[block]
            if block == last_block:
                bits &= end_bit - 1
            for position in list(_positions(block, bits)):
                self.remove_entry(position)

    # Entries that will be received again.

    def forget(self, positions: Iterable[Position]) -> None:
        """These entries will be redelivered."""
        blocks: dict[_Block, int] = {}
        for position in positions:
            self.remove_entry(position)
            block, bit = _locate(position)
            blocks[block] = blocks.get(block, 0) | bit
        for due in self._due.values():
            for block in blocks.keys() & due.keys():
                due[block] &= ~blocks[block]

    def return_messages(self, position: Position, bits: int) -> None:
        """These messages of a batch were put back. They will be received again; others of their batch may be due."""
        ticks = self._batches.get(_locate(position)[0], {}).get(position)
        if ticks is None or not any(unacked & ~bits for unacked in ticks.values()):
            self.forget([position])
        else:
            self.remove_messages(position, bits)

    def clear(self) -> None:
        """Everything will be redelivered, or nothing is any more."""
        self._unacked.clear()
        self._due.clear()
        self._ticks.clear()
        self._batches.clear()

    # Late messages.

    def pop_late(self, now_tick: int) -> list[Position]:
        """Remove the entries with messages that are late, and return their positions, each once."""
        late: list[Position] = []
        while self._ticks and self._ticks[0] <= now_tick:
            tick = heapq.heappop(self._ticks)
            for block, bits in self._due.pop(tick).items():
                for position in _positions(block, bits & self._unacked.get(block, 0)):
                    if self._is_late(position, tick):
                        late.append(position)
                        self.remove_entry(position)
        return late

    def _is_late(self, position: Position, tick: int) -> bool:
        ticks = self._batches.get(_locate(position)[0], {}).get(position)
        return ticks is None or tick in ticks


def _locate(position: Position) -> tuple[_Block, int]:
    """Return the entry's block, and its bit there."""
    ledger_id, entry_id = position
    return (ledger_id, entry_id >> _BLOCK_BITS), 1 << (entry_id & _BLOCK_SIZE - 1)


def _positions(block: _Block, bits: int) -> Iterator[Position]:
    ledger_id, first = block[0], block[1] << _BLOCK_BITS
    while bits:
        lowest = bits & -bits
        yield ledger_id, first + lowest.bit_length() - 1
        bits ^= lowest
