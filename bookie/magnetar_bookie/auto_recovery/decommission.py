"""Decommissioning: an operator marks a bookie, repair copies its entries to others, the auditor deletes its cookie.

The mark is the node `/bookies/leaving/<bookie id>`, and its random name is in the bookie's cookie; both are written in
one transaction. From then on, placement does not choose the bookie, and the auditor counts it as lost, while it still
serves reads. When a complete scan that began after the mark was read finds no ledger that names the bookie, its cookie
is deleted, in one transaction with `done`. Without a cookie the bookie can't start again.

No ledger comes to name the bookie behind a scan. Each transaction that names a bookie in a ledger (a new ledger, an
ensemble change, the close of a recovery, a repair) checks the version at which the cookie was read without a mark
(`Bookies.cookie_checks`), and the mark changes that version. So a client that does not know of the mark yet is refused,
and chooses another bookie. Without this check, a ledger with an ack quorum of one could have acknowledged entries on a
decommissioned bookie, and on no other.

A decommission can be cancelled until it is done. The mark is deleted, also from the cookie, and the bookie accepts
entries again; the copies made so far stay at the other bookies. Completing and cancelling are compare-and-sets of the
same node, so only one of them succeeds. If the mark was set again during a scan, the scan's count is not used: the
bookie may have received entries in between. Therefore each mark has a random name, which a scan reads before any
ledger.

A bookie is named by the fragments of ledgers, open ones included, and by tombstones as long as it is registered to drop
what it stores. An unregistered bookie will not do that; its tombstones only wait until its cookie is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.errors import NoSuchBookie, NotLeaving
from magnetar_bookie.client.foreign_nodes import decode_node
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode
from magnetar_metadata.store import Change, Delete, Put
from magnetar_protos.ledger_pb2 import Cookie, Decommission

__all__ = [
    "DecommissionProgress",
    "cancel_decommission",
    "read_decommission_progress",
    "record_ledgers_left",
    "start_decommission",
]

# The stored count before the first scan.
_NOT_COUNTED: Final = 2**32 - 1
_MARK_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class DecommissionProgress:
    bookie_id: str
    # The random name of this decommission: the bookie may have had earlier ones, which were cancelled.
    mark: bytes
    started_ms: int
    # None: no scan has counted them yet.
    ledgers_left: int | None
    done: bool


async def start_decommission(client: LedgerClient, bookie_id: str) -> None:
    """Mark the bookie as leaving, unless it is already. Raises `NoSuchBookie`."""
    store = client.ledgers.store
    now_ms, mark = client.clock.time_ms(), client.randomness.token(_MARK_BYTES)

    def update(payload: bytes | None) -> bytes | UpdateAction:
        if payload is not None:
            return LEAVE
        new = Decommission(asked_ms=now_ms, ledgers_left=_NOT_COUNTED, mark=mark)
        return new.SerializeToString(deterministic=True)

    while True:
        await store.sync()
        if await store.exists(paths.cookie(bookie_id)) is None and await store.exists(paths.leaving(bookie_id)) is None:
            raise NoSuchBookie(f"the cluster has no bookie {bookie_id!r}: `magnetar bookies list` shows its bookies")
        if await _change_with_cookie(client, bookie_id, update, mark):
            return


async def cancel_decommission(client: LedgerClient, bookie_id: str) -> None:
    """Delete the mark. Raises `NotLeaving`, and `ForeignValue` if the mark can't be decoded."""

    def update(payload: bytes | None) -> UpdateAction:
        if payload is None:
            raise NotLeaving(f"bookie {bookie_id!r} is not being decommissioned")
        if _decode(bookie_id, payload).done:
            raise NotLeaving(f"bookie {bookie_id!r} is decommissioned for good: it can't be cancelled any more")
        return DELETE

    while not await _change_with_cookie(client, bookie_id, update, b""):
        pass


async def read_decommission_progress(client: LedgerClient, bookie_id: str) -> DecommissionProgress | None:
    """Return None if no decommission was started. Raises `ForeignValue` if the mark can't be decoded."""
    await client.ledgers.store.sync()
    stored = await compare_and_set.read(client.ledgers.store, paths.leaving(bookie_id))
    if stored is None:
        return None
    found = _decode(bookie_id, stored.payload)
    left = None if found.ledgers_left == _NOT_COUNTED else found.ledgers_left
    return DecommissionProgress(bookie_id, found.mark, found.asked_ms, left, found.done)


async def record_ledgers_left(client: LedgerClient, bookie_id: str, mark: bytes, ledgers_left: int) -> None:
    """Store the auditor's count after a complete scan. If it is 0, delete the cookie: the decommission is done.

    `mark`: the one that was read before the scan. If there is another one by now, nothing is changed. Raises
    `ForeignValue` if it can't be decoded.
    """
    if ledgers_left:
        await _change(client, bookie_id, lambda payload: _with_count(bookie_id, payload, mark, ledgers_left))
        return
    store = client.ledgers.store
    cookie = await store.get(paths.cookie(bookie_id))
    along: list[Change] = [Delete(paths.cookie(bookie_id), cookie.version)] if cookie is not None else []
    try:
        await _change(client, bookie_id, lambda payload: _with_count(bookie_id, payload, mark, 0), along)
    except (BadVersion, NoNode) as error:
        if not error.index:
            raise
        # The cookie has changed: another auditor was faster, or the next scan tries again.


async def _change_with_cookie(
    client: LedgerClient, bookie_id: str, update: compare_and_set.Update, mark: bytes
) -> bool:
    """Change the decommission, and set the mark in the cookie. Return False if the cookie was changed in between."""
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
        # No client names a bookie whose cookie can't be decoded, so the mark is not needed there.
        client.ledgers.foreign.pass_over(path, error)
    try:
        await _change(client, bookie_id, update, along)
    except (BadVersion, NoNode) as error:
        if not error.index:
            raise
        return False
    return True


def _with_count(bookie_id: str, payload: bytes | None, mark: bytes, ledgers_left: int) -> bytes | UpdateAction:
    if payload is None:
        return LEAVE
    found = _decode(bookie_id, payload)
    if found.mark != mark or found.done or found.ledgers_left == ledgers_left != 0:
        return LEAVE
    found.ledgers_left, found.done = ledgers_left, ledgers_left == 0
    return found.SerializeToString(deterministic=True)


def _decode(bookie_id: str, payload: bytes) -> Decommission:
    return decode_node(Decommission, paths.leaving(bookie_id), payload)


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
