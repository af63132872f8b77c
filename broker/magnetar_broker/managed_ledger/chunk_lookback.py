"""What a plan holds and tells of what lies in front of its range: where a message may have begun whose last chunk is in
it, but whose first ones are not.

So many ledgers back, the range's first one among them, as far as they have no more than so many bytes; what is right in
front of the range always. A lease holds them from the first of these on.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.entry_search import Boundary
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.message_position import MessagePosition
from magnetar_broker.managed_ledger.position import EARLIEST, Position
from magnetar_broker.managed_ledger.read_plan import PlannedPiece

__all__ = ["find_first_held", "find_needed_start", "is_all_deleted_before", "plan_pieces_before"]

_ledger_id: Final = attrgetter("ledger_id")


def find_first_held(log: LedgerList, place: Position, ledgers: int, max_bytes: int) -> int:
    """The id of the first ledger that is needed for a range that begins at `place`."""
    own = bisect_left(log.ledgers, place.ledger_id, key=_ledger_id)
    if own == len(log.ledgers):
        # Nothing is there yet, and what comes is behind what there was.
        return place.ledger_id
    listed = log.ledgers[own]
    at, size = own, 0
    if listed.ledger_id == place.ledger_id and place.entry_id > 0:
        # About: how many bytes an entry has nobody has looked at yet.
        size = max(1, listed.length_bytes * min(place.entry_id, listed.entries) // max(1, listed.entries))
        ledgers -= 1
    while at > 0 and ledgers > 0 and (not size or size + log.ledgers[at - 1].length_bytes <= max_bytes):
        at -= 1
        ledgers -= 1
        size += log.ledgers[at].length_bytes
    return min(log.ledgers[at].ledger_id, place.ledger_id)


def find_needed_start(log: LedgerList, from_ledger_id: int, start: MessagePosition) -> MessagePosition:
    """The first position that a reader needs which reads from `start` on: the beginning of the first ledger, of those
    from `from_ledger_id` on, in which a message may have begun that was not whole at `start`.
    """
    for listed in log.ledgers[bisect_left(log.ledgers, from_ledger_id, key=_ledger_id) :]:
        if listed.ledger_id > start.ledger_id:
            break
        if listed.chunks:
            return min(start, MessagePosition(listed.ledger_id, 0))
    return start


def plan_pieces_before(log: LedgerList, from_ledger_id: int, place: Position, front: Boundary) -> list[PlannedPiece]:
    """What there is from that ledger on up to `place`, of which `front` is known; the nearest last."""
    begin = bisect_left(log.ledgers, from_ledger_id, key=_ledger_id)
    end = bisect_left(log.ledgers, place.ledger_id, key=_ledger_id)
    pieces = []
    index = log.ledgers[begin - 1].last_index + 1 if begin else -1
    for listed in log.ledgers[begin:end]:
        if listed.entries:
            # Of the very first that there is nobody knows how many messages it has: only how many have been by its end.
            messages = listed.last_index + 1 - index if index >= 0 else 0
            index = listed.last_index + 1
            pieces.append(PlannedPiece(listed.ledger_id, 0, listed.entries - 1, 0, 0, listed.length_bytes, messages))
    if place.entry_id > 0:
        messages = front.messages - index if index >= 0 else 0
        pieces.append(PlannedPiece(place.ledger_id, 0, place.entry_id - 1, 0, 0, front.bytes, messages))
    return pieces


def is_all_deleted_before(log: LedgerList, place: Position) -> bool:
    """There was something in front of it, and all of that was deleted."""
    first = log.at_or_after(EARLIEST)
    return log.trimmed_up_to != EARLIEST and (first is None or place <= first)
