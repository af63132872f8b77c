"""Acknowledged entries stay in the ledger (1), where the metadata name them (2, 3, 13, 14, 62), and in their chain (5).

This is checked whenever an entry is acknowledged to its writer, and whenever a ledger's metadata change.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import History, Ledger, Violation

__all__ = ["check_acked", "check_acked_unlisted", "check_held", "check_last_entry"]


def check_acked(history: History, ledger: Ledger, entry_id: int) -> None:
    """This entry was just acknowledged to its writer."""
    check_acked_unlisted(history, ledger, entry_id)
    history.look("5")
    if ledger.may_go:
        return  # the writer hears late of what completed before its ledger was closed, and deleted since
    if not ledger.chain:
        raise Violation("5", f"ledger {ledger.ledger_id}: entry {entry_id} completed, and no chain lists the ledger")
    listed, metadata = history.chains[ledger.chain].ledgers, ledger.metadata
    if metadata is None or ledger.ledger_id not in listed:
        raise Violation("5", f"ledger {ledger.ledger_id}: entry {entry_id} completed, and {ledger.chain} lost it")
    # One in a closed ledger is reported late; item 1 requires that the entry is in it.
    if listed[-1] != ledger.ledger_id and metadata.state != ledger_pb2.CLOSED:
        raise Violation(
            "5", f"ledger {ledger.ledger_id}: entry {entry_id} completed, and {ledger.chain} lists {listed}"
        )


def check_acked_unlisted(history: History, ledger: Ledger, entry_id: int) -> None:
    """Likewise, of a ledger that is written before it is listed."""
    if entry_id != ledger.acked + 1:
        raise Violation("6", f"ledger {ledger.ledger_id}: entry {entry_id} completed after {ledger.acked}")
    ledger.acked = entry_id
    check_last_entry(history, ledger)
    check_held(history, ledger, (entry_id,))


def check_last_entry(history: History, ledger: Ledger) -> None:
    metadata = ledger.metadata
    history.look("1")
    if metadata is not None and metadata.state == ledger_pb2.CLOSED and ledger.acked > metadata.last_entry_id:
        raise Violation(
            "1",
            f"ledger {ledger.ledger_id} is closed at {metadata.last_entry_id}, and {ledger.acked} was acknowledged",
        )


def check_held(history: History, ledger: Ledger, entry_ids: Iterable[int]) -> None:
    metadata = ledger.metadata
    if metadata is None or metadata.state == ledger_pb2.TOMBSTONE:
        return
    disks, quorum, ledger_id = history.disks, metadata.ack_quorum, ledger.ledger_id
    for entry_id in entry_ids:
        if (ledger_id, entry_id) in history.destroyed:
            continue
        history.look("2, 3")
        named = ledger.where(entry_id)
        holders = sum(disks[bookie].has(ledger_id, entry_id) for bookie in named)
        if holders < quorum:
            raise Violation(
                "2, 3",
                f"ledger {ledger_id}: entry {entry_id} was acknowledged or recovered, and of {named}, which are named, "
                f"{[bookie for bookie in named if disks[bookie].has(ledger_id, entry_id)]} hold it: {quorum} must",
            )
