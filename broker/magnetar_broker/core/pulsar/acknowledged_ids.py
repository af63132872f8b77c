"""Ids that a client names, to acknowledge them or to have them again: whole entries as ranges, and parts of batches.

Clients gather acknowledgements for a moment and send them in the order of the messages, so ids that follow each other
become one range, and a thousand of them cost the cursor as much as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar_broker.core.position import Position
from magnetar_broker.core.pulsar.message_ids import position_of
from magnetar_protos.broker_pb2 import EntryRange
from magnetar_protos.entry_pb2 import MessageIdData

__all__ = ["OpenMessages", "ranges_of", "whole_and_partial"]

# A batch of which some messages are still open, as words of the protocol's bit set.
OpenMessages = tuple[Position, Sequence[int]]


def whole_and_partial(message_ids: Iterable[MessageIdData]) -> tuple[list[EntryRange], list[OpenMessages]]:
    """Ids of no entry are passed over: an id in the range below 0 is `earliest`, or of an empty topic."""
    whole: list[MessageIdData] = []
    partial: list[OpenMessages] = []
    for one in message_ids:
        if one.ack_set and any(one.ack_set):
            partial.append((position_of(one), tuple(one.ack_set)))
        else:
            whole.append(one)
    return ranges_of(whole), partial


def ranges_of(message_ids: Iterable[MessageIdData]) -> list[EntryRange]:
    """Entries, whatever is said of their messages."""
    ranges: list[EntryRange] = []
    ledger_id, first, last = -1, 0, -2
    for one in message_ids:
        entry_id = one.entryId
        if entry_id == last + 1 and one.ledgerId == ledger_id:
            last = entry_id
            continue
        if ledger_id >= 0:
            ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
        position = position_of(one)
        if position.ledger_id < 0 or position.entry_id < 0:
            ledger_id, first, last = -1, 0, -2
        else:
            ledger_id, first, last = position.ledger_id, entry_id, entry_id
    if ledger_id >= 0:
        ranges.append(EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last))
    return ranges
