"""Rules for the ends of a closed ledger: the index of its last message, and the times of its first and last entry.

A broker that closes a ledger knows them, and stores them in the ledger's metadata, in the property `listed`. So a log
whose last ledger was closed by its writer is opened without reading an entry.

After a recovery they are read from the first and last entry. If one of these is lost on all bookies, its values are
bounded by its nearest readable neighbour and by the limits of entries:

    index   A lost entry has at most MAX_BATCH_MESSAGES messages. If the last readable entry has index i and n lost
            entries follow it, the ledger ends at or below i + n * MAX_BATCH_MESSAGES, and the topic continues there: no
            index is assigned twice. The unused numbers are a gap in the log.
    time    that of the nearest readable entry, or of the ledger before. Later entries have later times.
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
    """Decode the property. None: it is absent, or belongs to another ledger or length."""
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
    """Return the ends by the first entry, None if it is lost, and the last readable one, None if all are lost.
    `next_index` and `last_time_ms` are those of the log before the ledger."""
    lost = entries if last is None else entries - 1 - last.position.entry_id
    last_index = next_index - 1 if last is None else last.index
    last_time_ms = last_time_ms if last is None else max(last_time_ms, last.broker_time_ms)
    first_time_ms = last_time_ms if first is None else first.broker_time_ms
    return LedgerEnds(last_index + lost * MAX_BATCH_MESSAGES, first_time_ms, last_time_ms)
