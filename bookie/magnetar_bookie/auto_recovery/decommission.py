"""Taking a bookie out of the cluster: marked by an operator, emptied by repair, and struck off by the auditor.

The mark is `/bookies/leaving/<bookie id>`. From then on the placement passes over the bookie, and the auditor takes it
for lost, while it still serves reads. When a whole scan that began after the mark was read finds no ledger that names
it, the cookie is deleted, in one transaction with `done`; with that the bookie can't start again.

A ledger that comes to name the bookie behind the scan's back (its maker had not heard of the mark) names one without a
cookie from then on: it is lost, and repaired like any other. What was acknowledged lies on others as well.

What counts as naming: a fragment of any ledger, open ones included; and a tombstone, as long as the bookie is alive
to drop what it holds. One that is dead will not, and its tombstones wait for nothing but the end of its cookie.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.client.foreign_nodes import decode_node
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.errors import LedgerError
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, Instead
from magnetar_metadata.errors import BadVersion, NoNode
from magnetar_metadata.store import Change, Delete
from magnetar_protos.ledger_pb2 import Decommission

__all__ = ["DecommissionProgress", "NoSuchBookie", "decommission", "decommission_progress", "note_ledgers_left"]


class NoSuchBookie(LedgerError):
    """No bookie with this id belongs to the cluster."""


@dataclass(frozen=True, slots=True)
class DecommissionProgress:
    bookie_id: str
    asked_ms: int
    # None: no scan has counted them yet.
    ledgers_left: int | None
    done: bool


async def decommission(client: LedgerClient, bookie_id: str) -> None:
    """Marks the bookie as leaving. Asked again, it changes nothing."""
    store = client.ledgers.store
    await store.sync()
    if await store.exists(paths.cookie(bookie_id)) is None and await store.exists(paths.leaving(bookie_id)) is None:
        raise NoSuchBookie(f"no bookie {bookie_id!r} belongs to the cluster: /bookies/cookies names those that do")
    now_ms = client.clock.time_ms()

    def marked(payload: bytes | None) -> bytes | Instead:
        if payload is not None:
            return LEAVE
        return Decommission(asked_ms=now_ms, ledgers_left=_NOT_COUNTED).SerializeToString(deterministic=True)

    await _change(client, bookie_id, marked)


async def decommission_progress(client: LedgerClient, bookie_id: str) -> DecommissionProgress | None:
    """How far it is; None: nobody asked for it. Raises `ForeignValue` where the mark can't be read."""
    await client.ledgers.store.sync()
    stored = await compare_and_set.read(client.ledgers.store, paths.leaving(bookie_id))
    if stored is None:
        return None
    mark = _decoded(bookie_id, stored.payload)
    left = None if mark.ledgers_left == _NOT_COUNTED else mark.ledgers_left
    return DecommissionProgress(bookie_id, mark.asked_ms, left, mark.done)


async def note_ledgers_left(client: LedgerClient, bookie_id: str, ledgers_left: int) -> None:
    """The auditor's, after a scan that was whole: writes the number down, and strikes the bookie off at none.

    Raises `ForeignValue` where the mark can't be read.
    """
    if ledgers_left:
        await _change(client, bookie_id, lambda payload: _counted(bookie_id, payload, ledgers_left, done=False))
        return
    store = client.ledgers.store
    cookie = await store.get(paths.cookie(bookie_id))
    along: list[Change] = [Delete(paths.cookie(bookie_id), cookie.version)] if cookie is not None else []
    try:
        await _change(client, bookie_id, lambda payload: _counted(bookie_id, payload, 0, done=True), along)
    except (BadVersion, NoNode) as error:
        if not error.index:
            raise  # of the cookie: another auditor was here, or the next scan will tell


def _counted(bookie_id: str, payload: bytes | None, ledgers_left: int, *, done: bool) -> bytes | Instead:
    if payload is None:
        return LEAVE
    mark = _decoded(bookie_id, payload)
    if mark.done or (mark.ledgers_left, mark.done) == (ledgers_left, done):
        return LEAVE
    mark.ledgers_left, mark.done = ledgers_left, done
    return mark.SerializeToString(deterministic=True)


def _decoded(bookie_id: str, payload: bytes) -> Decommission:
    return decode_node(Decommission, paths.leaving(bookie_id), payload)


# What stands there until the first scan has counted.
_NOT_COUNTED = 2**32 - 1


async def _change(
    client: LedgerClient, bookie_id: str, update: compare_and_set.Update, along: list[Change] | None = None
) -> None:
    await compare_and_set.change(
        client.ledgers.store,
        paths.leaving(bookie_id),
        update,
        clock=client.clock,
        randomness=client.randomness,
        along=along or [],
    )
