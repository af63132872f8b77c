"""The JSON of a topic's internal statistics, with the names of Pulsar's REST API.

What Pulsar's statistics don't have follows with names of the same style: the incarnation, leases, unsaved progress of
cursors. So a client that reads them from Magnetar's brokers gets all of it, over HTTP, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire.admin.json.parts import Converted, Field, Object, Part

__all__ = ["INTERNAL_STATS", "LEDGER_INFO", "PARTITIONED_INTERNAL_STATS", "PARTITIONED_METADATA"]

# Names of the states of Pulsar's managed ledgers.
_STATES: Final = {
    "written": "LedgerOpened",
    "idle": "ClosedLedger",
    "waiting": "CreatingLedger",
    "ended": "Closed",
    "terminated": "Terminated",
}
_OWN_STATES: Final = {theirs: own for own, theirs in _STATES.items()}
_NO_LEDGER: Final = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}


def _position_from_text(text: Any) -> EntryPosition:
    ledger_id, _, entry_id = str(text).partition(":")
    return EntryPosition(ledger_id=int(ledger_id), entry_id=int(entry_id))


_TEXT: Final = {"type": "string"}


def _ranges_to_text(ranges: Sequence[str]) -> str:
    return f"[{','.join(ranges)}]"


def _ranges_from_text(text: Any) -> list[str]:
    return re.findall(r"\([^\[\]()]*\]", str(text))


def _position(name: str) -> Part:
    """A position as `ledger:entry`."""
    return Converted(name, lambda one: f"{one.ledger_id}:{one.entry_id}", _position_from_text, {"type": "string"})


_LEDGER: Final = Object(
    {"ledgerId": "ledger_id", "entries": "entries", "size": "bytes", "closed": "closed"},
    constants={"offloaded": False, "underReplicated": False},
)
_CURSOR: Final = Object(
    {
        "markDeletePosition": _position("mark_delete"),
        "persistedMarkDeletePosition": _position("saved_mark_delete"),
        "numberOfEntriesNotAcknowledged": "open_entries",
        "numberOfEntriesSinceFirstNotAckedMessage": "entries_after_mark_delete",
        "totalNonContiguousDeletedMessagesRange": "acknowledged_ranges",
        "individuallyDeletedMessages": Converted("first_acknowledged", _ranges_to_text, _ranges_from_text, _TEXT),
        "active": "active",
        "readPosition": _position("read_position"),
        "cursorLedger": "ledger_id",
        # Pulsar's cursors have a number for each of these. The properties of the subscription are texts, which its
        # client can't read there.
        "cursorProperties": "properties",
    },
    constants={"properties": {}},
)
_LEASE: Final = Object(
    {
        "holder": "holder",
        "fromLedgerId": "from_ledger_id",
        "leftMs": "left_ms",
        "leaseMs": "lease_ms",
        "leaseId": Converted("lease_id", bytes.hex, bytes.fromhex, {"type": "string"}),
    }
)
# Pulsar's PersistentTopicInternalStats.
INTERNAL_STATS: Final = Object(
    {
        "entriesAddedCounter": "added_entries",
        "numberOfEntries": "stored_entries",
        "totalSize": "stored_bytes",
        "currentLedgerEntries": "current_ledger_entries",
        "currentLedgerSize": "current_ledger_bytes",
        "pendingAddEntriesCount": "pending_entries",
        "lastConfirmedEntry": _position("last"),
        "state": Converted(
            "state", lambda one: _STATES.get(one, one), lambda one: _OWN_STATES.get(one, str(one)), {"type": "string"}
        ),
        "ledgers": Field("ledgers", of=_LEDGER),
        "cursors": Field("cursors", of=_CURSOR, key="name"),
        "incarnation": "incarnation",
        "ledgersNotShown": "more_ledgers",
        "leases": Field("leases", of=_LEASE),
        "lapsedLeases": "lapsed_leases",
        "schemaLedgers": Field("schema_ledgers", of=_LEDGER),
    },
    constants={"waitingCursorsCount": 0, "compactedLedger": _NO_LEDGER},
)
# Pulsar's ManagedLedgerInfo.
LEDGER_INFO: Final = Object(
    {
        "ledgers": Field(
            "ledgers",
            of=Object(
                {"ledgerId": "ledger_id", "entries": "entries", "size": "bytes"}, constants={"isOffloaded": False}
            ),
        ),
        "cursors": Field(
            "cursors",
            of=Object(
                {"markDelete": Field("saved_mark_delete", of=Object({"ledgerId": "ledger_id", "entryId": "entry_id"}))}
            ),
            key="name",
        ),
    }
)
# Pulsar's PartitionedTopicMetadata.
PARTITIONED_METADATA: Final = Object(
    {"partitions": "partitions", "properties": Field("properties", absent_if_empty=True)}, constants={"deleted": False}
)
PARTITIONED_INTERNAL_STATS: Final = Object(
    {
        "metadata": PARTITIONED_METADATA,
        "partitions": Field("stats", of=Field("stats", of=INTERNAL_STATS), key="topic"),
    }
)
