"""Check the writes of bookies' disks: one record per entry, written once (4), nothing behind a fence (11, 17) or a
tombstone (27), and nothing deleted without a tombstone in the metadata store (26).
"""

from __future__ import annotations

from zlib import crc32

from magnetar_bookie.storage.interface import Changes
from tests.sim.invariants.history import Disk, History, Violation, payload_of, record_fields

__all__ = ["disk_writes"]


def disk_writes(history: History, disk: Disk, changes: Changes) -> None:
    """The bookie is about to write this group."""
    bookie = disk.bookie_id
    remembered = disk.disk.ledgers
    for ledger_id, after in changes.ledgers.items():
        state = remembered.get(ledger_id)
        before = state.record if state is not None else None
        if before is None:
            continue
        history.look("10")
        if before.fenced and not after.fenced:
            raise Violation("10", f"{bookie} forgets that ledger {ledger_id} is fenced")
        if before.deleted and not after.deleted:
            raise Violation("27", f"{bookie} forgets that ledger {ledger_id} was deleted")
        if before.last_add_confirmed > after.last_add_confirmed:
            raise Violation("6", f"{bookie} lowers the LAC of ledger {ledger_id}: {before} becomes {after}")
    for ledger_id in changes.dropped:
        history.look("26")
        if not history.ledger(ledger_id).buried:
            raise Violation("26", f"{bookie} drops ledger {ledger_id}, of which there never was a tombstone")
    for ledger_id, entry_id in changes.discarded:
        if entry_id not in disk.lost.get(ledger_id, ()):
            raise Violation("15", f"{bookie} discards entry {entry_id} of ledger {ledger_id}, which is not damaged")
    discarded = set(changes.discarded)
    for (ledger_id, entry_id), record in changes.records.items():
        _record_written(history, disk, ledger_id, entry_id, record)
        state = remembered.get(ledger_id)
        if state is not None and entry_id in state.entries and ledger_id not in changes.dropped:
            history.look("4")
            if (ledger_id, entry_id) not in discarded:
                raise Violation(
                    "4",
                    f"{bookie} writes entry {entry_id} of ledger {ledger_id} over the record that it holds, which it "
                    "has not compared and discarded",
                )
        written = changes.ledgers.get(ledger_id) or (state.record if state is not None else None)
        history.look("27")
        if written is not None and written.deleted:
            raise Violation("27", f"{bookie} writes entry {entry_id} of ledger {ledger_id}, which is a tombstone here")
        if ledger_id in disk.fenced:
            history.look("11, 17")
            if entry_id not in disk.recovered.get(ledger_id, ()):
                raise Violation(
                    "11, 17", f"{bookie} writes entry {entry_id} of ledger {ledger_id} after it has answered its fence"
                )


def _record_written(history: History, disk: Disk, ledger_id: int, entry_id: int, record: bytes) -> None:
    ledger = history.ledger(ledger_id)
    known = ledger.records.get(entry_id)
    if known is None:
        history.look("4")
        fields = record_fields(record)
        if fields[:2] != (ledger_id, entry_id) or not fields[2] < entry_id:
            raise Violation("4", f"{disk.bookie_id} keeps {fields} as entry {entry_id} of ledger {ledger_id}")
        if entry_id >= len(ledger.payloads) or ledger.payloads[entry_id] != payload_of(record):
            raise Violation(
                "4", f"{disk.bookie_id}: entry {entry_id} of ledger {ledger_id} is not what its writer appended"
            )
        ledger.records[entry_id] = record
    elif known != record:
        raise Violation(
            "4",
            f"{disk.bookie_id}: entry {entry_id} of ledger {ledger_id} has the CRC {crc32(record):08x}, and "
            f"elsewhere {crc32(known):08x}",
        )
