"""Rules for chunks before a plan's range: messages whose last chunk is in the range, and whose first chunks are not.

A plan also lists the pieces before its range, for a limited number of ledgers back, the first of the range included,
and a limited number of bytes. The piece right before the range is always listed. The plan's lease protects the ledgers
from the first of these on.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.entry_search import Boundary
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.message_position import MessagePosition
from magnetar_broker.managed_ledger.read_plan import PlannedPiece
from magnetar_broker.position import EARLIEST, Position

__all__ = ["find_first_held", "find_needed_start", "is_all_deleted_before", "plan_pieces_before"]

_ledger_id: Final = attrgetter("ledger_id")


def find_first_held(ledger_list: LedgerList, position: Position, ledgers: int, max_bytes: int) -> int:
    """Return the first ledger that a lease must protect for a range that begins at `position`."""
    own = bisect_left(ledger_list.ledgers, position.ledger_id, key=_ledger_id)
    if own == len(ledger_list.ledgers):
        # The range is empty, and begins after all ledgers.
        return position.ledger_id
    listed = ledger_list.ledgers[own]
    at, size = own, 0
    if listed.ledger_id == position.ledger_id and position.entry_id > 0:
        # An estimate: no entry was read.
        size = max(1, listed.length_bytes * min(position.entry_id, listed.entries) // max(1, listed.entries))
        ledgers -= 1
    while at > 0 and ledgers > 0 and (not size or size + ledger_list.ledgers[at - 1].length_bytes <= max_bytes):
        at -= 1
        ledgers -= 1
        size += ledger_list.ledgers[at].length_bytes
    return min(ledger_list.ledgers[at].ledger_id, position.ledger_id)


def find_needed_start(ledger_list: LedgerList, from_ledger_id: int, start: MessagePosition) -> MessagePosition:
    """Return the first position that a reader needs which reads from `start` on: the beginning of the first ledger,
    from `from_ledger_id` on, that may hold chunks. A message that was incomplete at `start` may begin there."""
    for listed in ledger_list.ledgers[bisect_left(ledger_list.ledgers, from_ledger_id, key=_ledger_id) :]:
        if listed.ledger_id > start.ledger_id:
            break
        if listed.chunks:
            return min(start, MessagePosition(listed.ledger_id, 0))
    return start


def plan_pieces_before(
    ledger_list: LedgerList, from_ledger_id: int, position: Position, front: Boundary
) -> list[PlannedPiece]:
    """Return the pieces from that ledger on up to `position`, whose front is `front`, in order."""
    begin = bisect_left(ledger_list.ledgers, from_ledger_id, key=_ledger_id)
    end = bisect_left(ledger_list.ledgers, position.ledger_id, key=_ledger_id)
    pieces = []
    index = ledger_list.ledgers[begin - 1].last_index + 1 if begin else -1
    for listed in ledger_list.ledgers[begin:end]:
        if listed.entries:
            # For the first ledger of the list only the index of its last message is known, not the number of messages.
            messages = listed.last_index + 1 - index if index >= 0 else 0
            index = listed.last_index + 1
            pieces.append(PlannedPiece(listed.ledger_id, 0, listed.entries - 1, 0, 0, listed.length_bytes, messages))
    if position.entry_id > 0:
        messages = front.messages - index if index >= 0 else 0
        pieces.append(PlannedPiece(position.ledger_id, 0, position.entry_id - 1, 0, 0, front.bytes, messages))
    return pieces


def is_all_deleted_before(ledger_list: LedgerList, position: Position) -> bool:
    """Return whether there were entries before the position, and all of them were deleted."""
    first = ledger_list.at_or_after(EARLIEST)
    return ledger_list.trimmed_up_to != EARLIEST and (first is None or position <= first)
