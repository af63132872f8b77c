"""What the list says of a closed ledger besides its length: the index of its last message, the times of its ends.

A broker that closes a ledger knows them, and leaves them in the ledger's metadata, in the property `listed`. So a
ledger that was closed by its writer is opened without reading an entry, and a damaged one costs nothing.

A ledger that recovery has closed is asked: its first and last entry say it. Where an entry at an end is lost on all
bookies, what it said is bounded by its nearest readable neighbour and by the limits that entries are accepted under:

    index   A lost entry has at most MAX_BATCH_MESSAGES messages. With the last readable entry at index i and n entries
            lost behind it, the ledger ends at or below i + n * MAX_BATCH_MESSAGES, and that is where the topic goes on:
            an index is never given twice. The numbers between are nobody's; that is the gap to be seen in the log.
    time    Of the nearest readable entry, or of the ledger before. The entries that follow have later ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["LISTED", "LedgerEnds", "ends_from_entries", "ends_from_properties"]

# The property of a ledger's metadata: a `ListedLedger`.
LISTED: Final = "listed"


class LedgerEnds(NamedTuple):
    last_index: int
    first_time_ms: int
    last_time_ms: int


def ends_from_properties(payload: bytes | None, ledger_id: int, entries: int) -> LedgerEnds | None:
    """None: the property says nothing of this ledger, closed at this length."""
    if payload is None:
        return None
    try:
        listed = pb.ListedLedger.FromString(payload)
    except DecodeError:
        return None
    if (listed.ledger_id, listed.entries) != (ledger_id, entries):
        return None
    return LedgerEnds(listed.last_index, listed.first_time_ms, listed.last_time_ms)


def ends_from_entries(
    next_index: int, last_time_ms: int, entries: int, first: LogEntry | None, last: LogEntry | None
) -> LedgerEnds:
    """`next_index` and `last_time_ms` are those of the log in front of the ledger. `first`: the first entry, None where
    it is lost; `last`: the last one that can be read, None where none can be."""
    lost = entries if last is None else entries - 1 - last.position.entry_id
    last_index = next_index - 1 if last is None else last.index
    last_time_ms = last_time_ms if last is None else max(last_time_ms, last.broker_time_ms)
    first_time_ms = last_time_ms if first is None else first.broker_time_ms
    return LedgerEnds(last_index + lost * MAX_BATCH_MESSAGES, first_time_ms, last_time_ms)
