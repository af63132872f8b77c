"""Taking a bookie out of the cluster: marked by an operator, emptied by repair, and struck off by the auditor.

The mark is `/bookies/leaving/<bookie id>`, and its random name stands in the bookie's cookie: both are written in one
transaction. From then on the placement passes over the bookie, and the auditor takes it for lost, while it still serves
reads. When a whole scan that began after the mark was read finds no ledger that names it, the cookie is deleted, in one
transaction with `done`; with that the bookie can't start again.

No ledger comes to name the bookie behind the scan's back. Each transaction that names a bookie in a ledger (a new
ledger, an ensemble change, the close of a recovery, a repair) checks the version at which the cookie was read without a
mark (`Bookies.cookie_checks`), and the mark changes that version. So a client that has not heard of the mark is
refused, and chooses again. Without the check, a ledger with an ack quorum of one could have acknowledged entries on a
bookie that was struck off, and on no other.

The mark can be taken back as long as it is not done: it is deleted, also from the cookie, the bookie takes entries
again, and what was copied from it meanwhile lies elsewhere. Striking off and taking back are compare-and-sets of one
node, so one of them is made. A mark that was made again since a scan began is another one, and that scan says nothing
of it: the bookie may have been given entries in between. So each mark has a random name, which a scan reads before it
reads any ledger.

What counts as naming: a fragment of any ledger, open ones included; and a tombstone, as long as the bookie is alive
to drop what it holds. One that is dead will not, and its tombstones wait for nothing but the end of its cookie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode
from magnetar_metadata.store import Change, Delete, Put
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.ledger_pb2 import Cookie, Decommission

__all__ = [
    "DecommissionProgress",
    "NoSuchBookie",
    "NotLeaving",
    "cancel_decommission",
    "decommission",
    "decommission_progress",
    "note_ledgers_left",
]


class NoSuchBookie(LedgerError):
    """No bookie with this id belongs to the cluster."""


class NotLeaving(LedgerError):
    """There is no decommission that could be taken back: nobody asked for one, or it is done."""


@dataclass(frozen=True, slots=True)
class DecommissionProgress:
    bookie_id: str
    # Which of all decommissions of this bookie that there ever were.
    mark: bytes
    asked_ms: int
    # None: no scan has counted them yet.
    ledgers_left: int | None
    done: bool


async def decommission(client: LedgerClient, bookie_id: str) -> None:
    """Marks the bookie as leaving. Asked again, it changes nothing. Raises `NoSuchBookie`."""
    store = client.ledgers.store
    now_ms, mark = client.clock.time_ms(), client.randomness.token(_MARK_BYTES)

    def marked(payload: bytes | None) -> bytes | UpdateAction:
        if payload is not None:
            return LEAVE
        made = Decommission(asked_ms=now_ms, ledgers_left=_NOT_COUNTED, mark=mark)
        return made.SerializeToString(deterministic=True)

    while True:
        await store.sync()
        if await store.exists(paths.cookie(bookie_id)) is None and await store.exists(paths.leaving(bookie_id)) is None:
            raise NoSuchBookie(f"the cluster has no bookie {bookie_id!r}: `magnetar bookies list` shows its bookies")
        if await _change_with_cookie(client, bookie_id, marked, mark):
            return


async def cancel_decommission(client: LedgerClient, bookie_id: str) -> None:
    """Takes the mark away: the bookie stays. Raises `NotLeaving`, and `ForeignValue` where the mark can't be read."""

    def taken_back(payload: bytes | None) -> UpdateAction:
        if payload is None:
            raise NotLeaving(f"bookie {bookie_id!r} is not being decommissioned")
        if _decoded(bookie_id, payload).done:
            raise NotLeaving(f"bookie {bookie_id!r} is decommissioned for good: it can't be cancelled any more")
        return DELETE

    while not await _change_with_cookie(client, bookie_id, taken_back, b""):
        pass


async def decommission_progress(client: LedgerClient, bookie_id: str) -> DecommissionProgress | None:
    """How far it is; None: nobody asked for it. Raises `ForeignValue` where the mark can't be read."""
    await client.ledgers.store.sync()
    stored = await compare_and_set.read(client.ledgers.store, paths.leaving(bookie_id))
    if stored is None:
        return None
    mark = _decoded(bookie_id, stored.payload)
    left = None if mark.ledgers_left == _NOT_COUNTED else mark.ledgers_left
    return DecommissionProgress(bookie_id, mark.mark, mark.asked_ms, left, mark.done)


async def note_ledgers_left(client: LedgerClient, bookie_id: str, mark: bytes, ledgers_left: int) -> None:
    """The auditor's, after a scan that was whole: writes the number down, and strikes the bookie off at none.

    `mark`: the one that was read before the scan began; it says nothing of any other. Raises `ForeignValue` where what
    stands there can't be read.
    """
    if ledgers_left:
        await _change(client, bookie_id, lambda payload: _counted(bookie_id, payload, mark, ledgers_left))
        return
    store = client.ledgers.store
    cookie = await store.get(paths.cookie(bookie_id))
    along: list[Change] = [Delete(paths.cookie(bookie_id), cookie.version)] if cookie is not None else []
    try:
        await _change(client, bookie_id, lambda payload: _counted(bookie_id, payload, mark, 0), along)
    except (BadVersion, NoNode) as error:
        if not error.index:
            raise  # of the cookie: another auditor was here, or the next scan will tell


async def _change_with_cookie(
    client: LedgerClient, bookie_id: str, update: compare_and_set.Update, mark: bytes
) -> bool:
    """Change the decommission and the mark in the cookie. False: the cookie has changed meanwhile, and nothing else."""
    path, along = paths.cookie(bookie_id), []
    try:
        stored = await compare_and_set.read(client.ledgers.store, path, fresh=True)
        if stored is not None:
            cookie = decode_node(Cookie, path, stored.payload)
            cookie.decommission_mark = mark
            payload = cookie.SerializeToString(deterministic=True)
            value = compare_and_set.encode_next_value(stored, payload, client.randomness)
            along = [Put(path, value, stored.version)]
    except ForeignValue as error:
        # Nobody names a bookie whose cookie can't be read.
        client.ledgers.undecodable_nodes.log_once(path, error)
    try:
        await _change(client, bookie_id, update, along)
    except (BadVersion, NoNode) as error:
        if not error.index:
            raise
        return False
    return True


def _counted(bookie_id: str, payload: bytes | None, mark: bytes, ledgers_left: int) -> bytes | UpdateAction:
    if payload is None:
        return LEAVE
    found = _decoded(bookie_id, payload)
    if found.mark != mark or found.done or found.ledgers_left == ledgers_left != 0:
        return LEAVE
    found.ledgers_left, found.done = ledgers_left, ledgers_left == 0
    return found.SerializeToString(deterministic=True)


def _decoded(bookie_id: str, payload: bytes) -> Decommission:
    return decode_node(Decommission, paths.leaving(bookie_id), payload)


# What stands there until the first scan has counted.
_NOT_COUNTED = 2**32 - 1
_MARK_BYTES = 8


async def _change(
    client: LedgerClient, bookie_id: str, update: compare_and_set.Update, along: Sequence[Change] = ()
) -> None:
    await compare_and_set.change(
        client.ledgers.store,
        paths.leaving(bookie_id),
        update,
        clock=client.clock,
        randomness=client.randomness,
        along=along,
    )
