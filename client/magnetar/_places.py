"""Places in a topic's log, as a consumer reckons with them.

A `Place` is (ledger, entry, batch index), and says up to where something was read: `WHOLE_ENTRY` stands behind all that
is in the entry, and is what the last message of a batch and one without a batch have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from magnetar._message import Message
from magnetar_protos.broker_pb2 import EntryRange, LastMessage, MessagePlace, StartAt
from magnetar_wire.message_id import MessageId

__all__ = [
    "WHOLE_ENTRY",
    "Place",
    "first_wanted",
    "last_place",
    "place_of",
    "ranges_of",
    "read_up_to",
    "resumed",
    "start_at",
]

Place = tuple[int, int, int]
WHOLE_ENTRY: Final = 2**31


def read_up_to(place: MessagePlace) -> Place:
    return place.ledger_id, place.entry_id, WHOLE_ENTRY if place.batch_index < 0 else place.batch_index


def place_of(message: Message) -> Place:
    one = message._delivered
    index = one.batch_index(message._at)
    return one.ledger_id, one.entry_id, WHOLE_ENTRY if index < 0 or index == one.batch_size - 1 else index


def last_place(last: LastMessage) -> Place:
    return last.ledger_id, last.entry_id, WHOLE_ENTRY


def start_at(where: MessageId | int, *, inclusive: bool) -> StartAt:
    """Of a message id, or of a time in ms."""
    if isinstance(where, int):
        return StartAt(time_ms=where)
    if where == MessageId.earliest:
        return StartAt(earliest=True)
    if where == MessageId.latest:
        return StartAt(latest=True)
    first = where.first_chunk_message_id if inclusive else None
    where = first or where
    place = MessagePlace(
        ledger_id=where.ledger_id(), entry_id=where.entry_id(), batch_index=where.batch_index(), inclusive=inclusive
    )
    return StartAt(place=place)


def first_wanted(start: StartAt) -> Place | None:
    """The first place that the start leaves, if it may lie within a batch."""
    if start.WhichOneof("at") != "place" or start.place.batch_index < 0:
        return None
    place = start.place
    return place.ledger_id, place.entry_id, place.batch_index + (not place.inclusive)


def resumed(start: StartAt, last: Place | None) -> StartAt:
    """Where to go on: behind the last place that was delivered, if any was."""
    if last is not None:
        index = -1 if last[2] == WHOLE_ENTRY else last[2]
        return StartAt(place=MessagePlace(ledger_id=last[0], entry_id=last[1], batch_index=index, inclusive=False))
    return start


def ranges_of(places: Iterable[tuple[int, int]]) -> list[EntryRange]:
    """(ledger, entry) each, as ranges."""
    ranges: list[EntryRange] = []
    for ledger_id, entry_id in sorted(places):
        last = ranges[-1] if ranges else None
        if last is not None and last.ledger_id == ledger_id and last.last_entry_id == entry_id - 1:
            last.last_entry_id = entry_id
        else:
            ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=entry_id, last_entry_id=entry_id))
    return ranges
