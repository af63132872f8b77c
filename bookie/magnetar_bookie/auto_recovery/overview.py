"""What people are shown: the bookies, who does which office, and the ledgers that nobody has claimed yet.

All of it is read from the metadata store at the moment of asking, and is of the past when it is shown. Nothing is
decided by it: who is lost is for the auditor to say, who waits for a while before it does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import DecommissionProgress, decommission_progress
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.ledger_pb2 import BookieRegistration, LedgerIntent

__all__ = ["Member", "Offices", "Standing", "Unclaimed", "members", "offices", "unclaimed"]


class Standing(enum.Enum):
    """How a bookie stands with the cluster, in the words that people are shown."""

    WRITABLE = "writable"
    # Registered, and takes no new entries: its disk is full, or somebody wants it so.
    READ_ONLY = "read-only"
    # Being emptied; it may be registered or not.
    LEAVING = "leaving"
    # It belongs to the cluster and is not registered.
    LOST = "lost"
    STRUCK_OFF = "struck off"


@dataclass(frozen=True, slots=True)
class Member:
    bookie_id: str
    standing: Standing
    # Empty: it is not registered.
    address: str
    # Likewise, or it answers nowhere over HTTP.
    http_address: str
    # Of one that leaves or has left.
    leaving: DecommissionProgress | None


@dataclass(frozen=True, slots=True)
class Offices:
    """Who is at what. Names are of bookies; of a session that no registered bookie has, its number."""

    # None: there is none at the moment.
    auditor: str | None
    # Ledger id: whose worker has its lock.
    locks: dict[int, str]


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A ledger that was made and that nobody has recorded as his."""

    ledger_id: int
    purpose: str
    created_ms: int
    # It is being deleted, and can't be claimed any more.
    sweeping: bool


async def members(client: LedgerClient) -> list[Member]:
    """All bookies that belong or belonged to the cluster, by name."""
    store = client.ledgers.store
    await store.sync()
    leaving = await store.children(paths.LEAVING)
    registered = await _registrations(client)
    # Read last: a bookie has its cookie before it registers.
    cookies = await store.children(paths.COOKIES)
    found = []
    for bookie_id in sorted({*cookies, *leaving, *registered}):
        progress = None
        if bookie_id in leaving:
            try:
                progress = await decommission_progress(client, bookie_id)
            except ForeignValue as error:
                client.ledgers.undecodable_nodes.log_once(paths.leaving(bookie_id), error)
        registration = registered.get(bookie_id)
        standing = _standing(registration, progress, leaving=bookie_id in leaving)
        where = (registration.address, registration.http_address) if registration else ("", "")
        found.append(Member(bookie_id, standing, *where, progress))
    return found


async def offices(client: LedgerClient) -> Offices:
    store = client.ledgers.store
    await store.sync()
    by_session = {}
    for bookie_id in await store.children(paths.AVAILABLE):
        node = await store.exists(paths.available(bookie_id))
        if node is not None:
            by_session[node.ephemeral_owner] = bookie_id
    auditor = await store.get(paths.AUDITOR)
    locks = {}
    for ledger_id in await client.ledgers.list_ledger_ids(paths.LOCKS):
        lock = await store.exists(paths.lock(ledger_id))
        if lock is not None:
            locks[ledger_id] = by_session.get(lock.ephemeral_owner, f"session {lock.ephemeral_owner:#x}")
    return Offices(auditor.value.decode(errors="replace") if auditor is not None else None, locks)


async def unclaimed(client: LedgerClient) -> list[Unclaimed]:
    """The oldest ledger first."""
    await client.ledgers.store.sync()
    found = []
    for ledger_id in sorted(await client.ledgers.list_ledger_ids(paths.INTENTS)):
        try:
            stored = await compare_and_set.read(client.ledgers.store, paths.intent(ledger_id))
            if stored is None:
                continue  # claimed or swept meanwhile
            intent = decode_node(LedgerIntent, paths.intent(ledger_id), stored.payload)
        except ForeignValue as error:
            client.ledgers.undecodable_nodes.log_once(paths.intent(ledger_id), error)
            continue
        found.append(Unclaimed(ledger_id, intent.purpose, intent.created_ms, intent.sweeping))
    return found


async def _registrations(client: LedgerClient) -> dict[str, BookieRegistration]:
    store = client.ledgers.store
    found = {}
    for bookie_id in await store.children(paths.AVAILABLE):
        node = await store.get(paths.available(bookie_id))
        if node is None:
            continue
        try:
            found[bookie_id] = BookieRegistration.FromString(node.value)
        except DecodeError as error:
            client.ledgers.undecodable_nodes.log_once(paths.available(bookie_id), error)
    return found


def _standing(
    registration: BookieRegistration | None, progress: DecommissionProgress | None, *, leaving: bool
) -> Standing:
    if progress is not None and progress.done:
        return Standing.STRUCK_OFF
    if leaving:
        return Standing.LEAVING
    if registration is None:
        return Standing.LOST
    return Standing.READ_ONLY if registration.read_only else Standing.WRITABLE
