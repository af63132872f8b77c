"""What must hold at the end: every replica of every closed ledger is whole, and on bookies that stay (28), none of them
is in limbo (22), auto-recovery rests and is stuck with nothing that is whole (29), no ledger is without an owner and
none is missing (58), nothing is left of those that were deleted (26), and the chains hold what was acknowledged, once
and in order (5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import Disk, History, Ledger, Violation

if TYPE_CHECKING:
    from tests.sim.disk import SimulatedDisk
    from tests.sim.world.metadata import SimulatedMetadata

__all__ = ["check_chain_entries", "unrest"]


def unrest(history: History, metadata: SimulatedMetadata, serving: Sequence[str]) -> tuple[str, str] | None:
    """What is not at rest yet: item and words. None: everything is as it should be."""
    lost = [bookie for bookie in history.disks if bookie not in serving]
    if intents := metadata.names("/ledger-intents"):
        return "58", f"there are intents still: {intents}"
    for item in ("26", "29"):
        history.look(item)
    members, leaving = metadata.names("/bookies/cookies"), metadata.names("/bookies/leaving")
    stays = [bookie for bookie in serving if bookie in members and bookie not in leaving]
    listed = [ledger_id for chain in history.chains.values() for ledger_id in chain.ledgers]
    for ledger_id, ledger in history.ledgers.items():
        state = ledger.metadata
        if ledger_id in listed:
            if state is None or state.state == ledger_pb2.TOMBSTONE:
                raise Violation("58", f"ledger {ledger_id} is in {ledger.chain}, and was deleted")
            if state.state != ledger_pb2.CLOSED:
                return "29", f"ledger {ledger_id} is in {ledger.chain} and not closed"
            if missing := _missing(history, ledger, state, lost):
                return "28", missing
            for bookie in ledger.names():
                if bookie not in stays and len(stays) >= state.ensemble_size:
                    return "28", f"ledger {ledger_id} names {bookie}, which is lost or leaving, and {stays} are there"
                known = history.disks[bookie]
                in_limbo = bookie in serving and ledger_id in known.owes and _in_limbo(known.disk, ledger_id)
                if in_limbo and not history.lost_of(ledger_id):
                    return "22", f"ledger {ledger_id} is in limbo at {bookie}, which it names"
        elif state is not None:
            if state.state != ledger_pb2.TOMBSTONE:
                deleting = [ledger_id for chain in history.chains.values() for ledger_id in chain.deleting]
                if ledger_id not in deleting:
                    return "58", f"ledger {ledger_id} is in no chain ({ledger.chain or 'never was'}), and is there"
            elif any(holder not in lost for holder in state.holders) or not state.holders:
                return "26", f"ledger {ledger_id} is a tombstone still, and waits for {list(state.holders)}"
    for ledger_id, task in history.tasks.items():
        if not task.stuck:
            return "29", f"ledger {ledger_id} has a repair task that is not stuck: {task}".replace("\n", " ")
        ledger = history.ledger(ledger_id)
        # All that is listed is closed, and every entry where it should be: of what it was stuck with nothing is left.
        if history.lost_of(ledger_id):
            continue
        if ledger_id in listed and all(bookie in stays for bookie in ledger.names()):
            return "29", f"ledger {ledger_id} is whole, and its repair is stuck: {task.stuck}"
    for bookie in serving:
        if bookie in members and (left := _left_over(history, history.disks[bookie])):
            return "26", f"{bookie} holds entries of ledgers {left}, which the metadata don't have"
    return None


def _in_limbo(disk: SimulatedDisk, ledger_id: int) -> bool:
    """As it stands on the disk."""
    bookie = ledger_pb2.BookieRecord.FromString(disk.bookie_record or b"")
    remembered = disk.durable_ledger(ledger_id)
    cleared = remembered.limbo_cleared if remembered is not None else 0
    return ledger_id < bookie.limbo_below and cleared < bookie.limbo_generation


def _left_over(history: History, known: Disk) -> list[int]:
    """What was written there after the end of the tombstone, or was not named by it: nobody will delete it.

    Not those whose tombstone the disk itself has lost.
    """
    return [
        ledger_id
        for ledger_id, held in known.disk.ledgers.items()
        if held.ids and history.ledger(ledger_id).metadata is None and ledger_id not in known.revived
    ]


def _missing(history: History, ledger: Ledger, state: ledger_pb2.LedgerMetadata, lost: Sequence[str]) -> str:
    """The first incomplete replica; one on a lost bookie must be incomplete if no other bookie can replace it."""
    spare = len(history.disks) - len(lost) >= state.ensemble_size
    for entry_id in range(state.last_entry_id + 1):
        if (ledger.ledger_id, entry_id) in history.destroyed:
            continue
        history.look("28")
        for bookie in ledger.where(entry_id):
            if bookie in lost and not spare:
                continue
            # While the metadata store has forgotten a ledger, a bookie may leave its limbo without repairing it.
            # The weekly check of the auditor finds what is missing.
            if ledger.ledger_id in history.forgotten and history.disks[bookie].lost.get(ledger.ledger_id):
                continue
            if history.disks[bookie].disk.durable_record(ledger.ledger_id, entry_id) != ledger.records.get(entry_id):
                return f"{bookie} does not hold entry {entry_id} of ledger {ledger.ledger_id}, which is closed"
    return ""


def check_chain_entries(history: History, chain: str, payloads: Sequence[bytes]) -> None:
    """The chain as the production's reader gave it: what was acknowledged and not deleted, once, in order."""
    history.look("5")
    known: dict[bytes, None] = {}
    order: dict[bytes, int] = {}
    for payload in payloads:
        if payload in known:
            raise Violation("5", f"{chain} holds {payload!r} twice")
        known[payload] = None
        _, writer, number, *_ = payload.split(b" ")
        if int(number) < order.get(writer, 0):
            raise Violation("5", f"{chain} holds {payload!r} behind number {order[writer]} of its writer")
        order[writer] = int(number)
    for ledger_id in history.chains[chain].ledgers:
        ledger = history.ledger(ledger_id)
        for entry_id in range(ledger.acked + 1):
            history.look("2, 3")
            if ledger.payloads[entry_id] not in known:
                raise Violation("2", f"{chain}: entry {entry_id} of ledger {ledger_id} was acknowledged and not read")
