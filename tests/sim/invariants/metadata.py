"""Changes of the metadata: which may follow which.

A ledger's state goes forward only, its end is decided once (1), only its writer changes the last fragment of an open
one (62), that of one in recovery stays (16), a writer's new fragment begins behind what it acknowledged (18), and it is
deleted on purpose only (26, 58). No ledger comes to name a bookie that is being decommissioned (STO-2), and that one is
not removed before it is empty (28). A chain's list grows at its end and shrinks at its head (5).
"""

from __future__ import annotations

from magnetar_protos import ledger_pb2
from tests.sim.invariants.acknowledged import check_held, check_last_entry
from tests.sim.invariants.history import (
    CHAINS,
    COOKIES,
    INTENTS,
    LEAVING,
    LEDGERS,
    TASKS,
    TOPIC_GOES,
    Chain,
    History,
    Ledger,
    Violation,
    stored_payload,
)
from tests.sim.invariants.saturation import ledger_created
from tests.sim.process import Process

__all__ = ["change_chain", "metadata_changed"]

_OPEN, _RECOVERING = ledger_pb2.OPEN, ledger_pb2.IN_RECOVERY
_CLOSED, _TOMBSTONE = ledger_pb2.CLOSED, ledger_pb2.TOMBSTONE


def metadata_changed(history: History, path: str, value: bytes | None, by: Process) -> None:
    """A session of this process has set or deleted (None) this node."""
    if path.startswith(LEDGERS):
        ledger = history.ledger(int(path.removeprefix(LEDGERS).replace("/", ""), 16))
        _ledger_changed(history, ledger, value, by)
        _names_changed(history, ledger)
    elif path.startswith(CHAINS) and value is not None:
        change_chain(history, path.removeprefix(CHAINS), Chain.of(stored_payload(value)))
    elif path.startswith(INTENTS):
        _intent_changed(history, int(path.removeprefix(INTENTS), 16), value)
    elif path.startswith(TASKS):
        ledger_id = int(path.removeprefix(TASKS), 16)
        if value is None:
            history.tasks.pop(ledger_id, None)
        else:
            history.tasks[ledger_id] = ledger_pb2.RepairTask.FromString(stored_payload(value))
    elif path.startswith(LEAVING):
        _leaving_changed(history, path.removeprefix(LEAVING), value)
    elif path.startswith(COOKIES) and value is None:
        _decommissioned(history, path.removeprefix(COOKIES))


def _ledger_changed(history: History, ledger: Ledger, value: bytes | None, by: Process) -> None:
    old = ledger.metadata
    new = None if value is None else ledger_pb2.LedgerMetadata.FromString(stored_payload(value))
    ledger.metadata = new
    if new is None:
        _removed(history, ledger, old)
        return
    _names_none_that_leaves(history, ledger, old, new)
    if old is None:
        if new.state != _OPEN or ledger.records:
            raise Violation("26", f"ledger {ledger.ledger_id} was made in state {new.state}, or made again")
        ledger.maker = by
        ledger_created(history, ledger)
        return
    _state_changed(history, ledger, old, new, by)
    if new.state == _TOMBSTONE:
        ledger.buried = True
        return
    check_last_entry(history, ledger)
    if new.state == _CLOSED != old.state:
        # Entries that a recovery has restored count as well, from now on.
        check_held(history, ledger, range(new.last_entry_id + 1))
    else:
        check_held(history, ledger, _moved(old, new, max(ledger.acked, new.last_entry_id)))


def _names_none_that_leaves(
    history: History, ledger: Ledger, old: ledger_pb2.LedgerMetadata | None, new: ledger_pb2.LedgerMetadata
) -> None:
    """A slot is not given to a bookie that was marked before; one that stays in its slot is nobody's change."""
    for fragment in new.fragments if history.leaving and new.state != _TOMBSTONE else ():
        before = [one for one in old.fragments if one.first_entry_id <= fragment.first_entry_id] if old else []
        had = before[-1].bookies if before else ()
        history.look("STO-2")
        for bookie in fragment.bookies:
            if bookie in history.leaving and bookie not in had:
                raise Violation(
                    "STO-2",
                    f"ledger {ledger.ledger_id} names {bookie} from entry {fragment.first_entry_id} on, "
                    f"and {bookie} is being decommissioned",
                )


def _state_changed(
    history: History, ledger: Ledger, old: ledger_pb2.LedgerMetadata, new: ledger_pb2.LedgerMetadata, by: Process
) -> None:
    name = f"ledger {ledger.ledger_id}"
    if new.state < old.state or old.state == _TOMBSTONE != new.state:
        raise Violation("1", f"{name} went from state {old.state} back to {new.state}")
    quorums = (old.ensemble_size, old.write_quorum, old.ack_quorum, old.master_key)
    if quorums != (new.ensemble_size, new.write_quorum, new.ack_quorum, new.master_key):
        raise Violation("2, 3", f"{name} has other quorums or another key than it was made with")
    if new.state == _TOMBSTONE:
        history.look("26")
        if not ledger.may_go:
            raise Violation("26", f"{name} was deleted, without a request")
        return
    if old.state == _CLOSED:
        history.look("1")
        if (old.last_entry_id, old.length_bytes) != (new.last_entry_id, new.length_bytes):
            raise Violation("1", f"{name} was closed at {old.last_entry_id}, and then at {new.last_entry_id}")
    elif new.state == _CLOSED:
        known = len(ledger.payloads)
        if new.last_entry_id >= known:
            raise Violation("1", f"{name} was closed at {new.last_entry_id}, and has {known} entries")
        length = sum(map(len, ledger.payloads[: new.last_entry_id + 1]))
        # Where the last entries are destroyed, no bookie knows it: then it is a lower bound.
        if new.length_bytes != length and not (new.length_bytes < length and history.lost_of(ledger.ledger_id)):
            raise Violation("1", f"{name} was closed with {new.length_bytes} bytes, and has {length}")
    if old.state == _OPEN == new.state or (old.state, new.state) == (_OPEN, _CLOSED):
        history.look("62")
    if old.state == _OPEN and new.state == _CLOSED and by is not ledger.maker:
        raise Violation("62", f"{name} was open, and {by.name} closed it, which did not make it")
    last_old, last_new = old.fragments[-1] if old.fragments else None, new.fragments[-1] if new.fragments else None
    if old.state == _RECOVERING == new.state:
        history.look("16")
    if last_old == last_new:
        return
    if old.state == _OPEN and by is not ledger.maker:
        raise Violation("62", f"{name} was open, and its last fragment became {last_new} by {by.name}: {last_old}")
    if old.state == _RECOVERING == new.state:
        raise Violation("16", f"{name} is being recovered, and its last fragment became {last_new} from {last_old}")
    if new.state != _OPEN:
        return
    history.look("18")
    if last_new is None or last_new.first_entry_id != ledger.acked + 1:
        raise Violation(
            "18", f"{name} has {ledger.acked} acknowledged, and its new fragment is {last_new} after {last_old}"
        )


def _moved(old: ledger_pb2.LedgerMetadata, new: ledger_pb2.LedgerMetadata, acked: int) -> list[int]:
    """The entries up to `acked` of fragments that are not what they were."""
    known = {(fragment.first_entry_id, tuple(fragment.bookies)) for fragment in old.fragments}
    moved: list[int] = []
    firsts = [fragment.first_entry_id for fragment in new.fragments] + [acked + 1]
    for index, fragment in enumerate(new.fragments):
        if (fragment.first_entry_id, tuple(fragment.bookies)) not in known:
            moved += range(fragment.first_entry_id, min(firsts[index + 1], acked + 1))
    return moved


def _removed(history: History, ledger: Ledger, old: ledger_pb2.LedgerMetadata | None) -> None:
    if old is None:
        return
    name = f"ledger {ledger.ledger_id}"
    history.look("26")
    if old.state != _TOMBSTONE or not ledger.may_go:
        raise Violation("26", f"{name} is missing in the metadata, and was in state {old.state}")
    if ledger.may_go != TOPIC_GOES and any(ledger.ledger_id in chain.ledgers for chain in history.chains.values()):
        raise Violation("58", f"{name} is deleted, and a chain lists it")


def _names_changed(history: History, ledger: Ledger) -> None:
    """A bookie's requests for a ledger end when the ledger does not name it any more."""
    ledger_id = ledger.ledger_id
    named: list[str] | None = None
    for disk in history.disks.values():
        if ledger_id in disk.owes:
            if named is None:
                alive = ledger.metadata is not None and ledger.metadata.state != _TOMBSTONE
                named = ledger.names() if alive else []
            if disk.bookie_id not in named:
                del disk.owes[ledger_id]


def _leaving_changed(history: History, bookie: str, value: bytes | None) -> None:
    if value is None:
        history.leaving.pop(bookie, None)
    else:
        history.leaving[bookie] = None


def _decommissioned(history: History, bookie: str) -> None:
    history.look("28")
    if left := list(history.naming(bookie)):
        raise Violation("28", f"{bookie} is decommissioned, and ledgers {left} name it")


def _intent_changed(history: History, ledger_id: int, value: bytes | None) -> None:
    if value is None:
        history.intents.pop(ledger_id, None)
        return
    intent = history.intents[ledger_id] = ledger_pb2.LedgerIntent.FromString(stored_payload(value))
    if intent.sweeping:
        history.look("58")
        ledger = history.ledger(ledger_id)
        if ledger.chain:
            raise Violation("58", f"ledger {ledger_id} is in {ledger.chain}, and the sweeper takes it")
        ledger.may_go = "the sweeper took it"


def change_chain(history: History, name: str, new: Chain) -> None:
    """Record the new list of a chain. Raises `Violation` where the old one can't become it."""
    old = history.chains.get(name, Chain())
    history.chains[name] = new
    history.look("5")
    retained = [ledger_id for ledger_id in new.ledgers if ledger_id in old.ledgers]
    added = [ledger_id for ledger_id in new.ledgers if ledger_id not in old.ledgers]
    if new.ledgers != retained + added or retained != old.ledgers[len(old.ledgers) - len(retained) :] or len(added) > 1:
        raise Violation("5", f"{name} listed {old.ledgers}, and now {new.ledgers}")
    for ledger_id in added:
        ledger = history.ledger(ledger_id)
        if ledger.metadata is None or ledger.may_go:
            raise Violation("58", f"{name} lists ledger {ledger_id}, which was deleted")
        ledger.chain = name
        for before in new.ledgers[:-1]:
            earlier = history.ledger(before).metadata
            if earlier is None or earlier.state != _CLOSED:
                raise Violation("5", f"{name} lists ledger {ledger_id} behind ledger {before}, which is not closed")
    for ledger_id in old.ledgers[: len(old.ledgers) - len(retained)]:
        history.ledger(ledger_id).may_go = "it was taken off its chain"
