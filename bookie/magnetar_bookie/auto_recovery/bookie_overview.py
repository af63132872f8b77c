"""What commands show of bookies: their state, which one is the auditor, and which ledgers each repairs.

Everything is read from the metadata store when it is requested, and may have changed when it is shown. No decision is
based on it: which bookies are lost is decided by the auditor, after a delay.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import DecommissionProgress, read_decommission_progress
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_metadata.errors import ForeignValue
from magnetar_protos.ledger_pb2 import BookieRegistration

__all__ = ["BookieState", "BookieSummary", "RecoveryRoles", "read_recovery_roles", "summarize_bookies"]


class BookieState(enum.Enum):
    """The values are shown to users."""

    WRITABLE = "writable"
    # Registered, and refuses new entries: its disk is full, or an operator has requested it.
    READ_ONLY = "read-only"
    # Being decommissioned, registered or not.
    LEAVING = "leaving"
    # It belongs to the cluster, and is not registered.
    LOST = "lost"
    DECOMMISSIONED = "struck off"


@dataclass(frozen=True, slots=True)
class BookieSummary:
    bookie_id: str
    state: BookieState
    # "": it is not registered.
    address: str
    # "": it is not registered, or serves no HTTP.
    http_address: str
    # None: no decommission was started.
    decommission: DecommissionProgress | None


@dataclass(frozen=True, slots=True)
class RecoveryRoles:
    """Who does what in auto-recovery: ids of bookies, or the number of a session that no registered bookie has."""

    # None: there is none at the moment.
    auditor: str | None
    # By ledger: who has its repair lock.
    repair_locks: dict[int, str]


async def summarize_bookies(client: LedgerClient) -> list[BookieSummary]:
    """Return all bookies that belong or belonged to the cluster, by id."""
    store = client.ledgers.store
    await store.sync()
    leaving = await store.children(paths.LEAVING)
    registrations = await _read_registrations(client)
    # Read last: a bookie writes its cookie before it registers.
    cookies = await store.children(paths.COOKIES)
    found = []
    for bookie_id in sorted({*cookies, *leaving, *registrations}):
        progress = None
        if bookie_id in leaving:
            try:
                progress = await read_decommission_progress(client, bookie_id)
            except ForeignValue as error:
                client.ledgers.foreign.pass_over(paths.leaving(bookie_id), error)
        registration = registrations.get(bookie_id)
        state = _state(registration, progress, leaving=bookie_id in leaving)
        addresses = (registration.address, registration.http_address) if registration else ("", "")
        found.append(BookieSummary(bookie_id, state, *addresses, progress))
    return found


async def read_recovery_roles(client: LedgerClient) -> RecoveryRoles:
    store = client.ledgers.store
    await store.sync()
    by_session = {}
    for bookie_id in await store.children(paths.AVAILABLE):
        node = await store.exists(paths.available(bookie_id))
        if node is not None:
            by_session[node.ephemeral_owner] = bookie_id
    auditor = await store.get(paths.AUDITOR)
    locks = {}
    for ledger_id in await client.ledgers.ids_under(paths.LOCKS):
        lock = await store.exists(paths.lock(ledger_id))
        if lock is not None:
            locks[ledger_id] = by_session.get(lock.ephemeral_owner, f"session {lock.ephemeral_owner:#x}")
    return RecoveryRoles(auditor.value.decode(errors="replace") if auditor is not None else None, locks)


async def _read_registrations(client: LedgerClient) -> dict[str, BookieRegistration]:
    store = client.ledgers.store
    found = {}
    for bookie_id in await store.children(paths.AVAILABLE):
        node = await store.get(paths.available(bookie_id))
        if node is None:
            continue
        try:
            found[bookie_id] = BookieRegistration.FromString(node.value)
        except DecodeError as error:
            client.ledgers.foreign.pass_over(paths.available(bookie_id), error)
    return found


def _state(
    registration: BookieRegistration | None, progress: DecommissionProgress | None, *, leaving: bool
) -> BookieState:
    if progress is not None and progress.done:
        return BookieState.DECOMMISSIONED
    if leaving:
        return BookieState.LEAVING
    if registration is None:
        return BookieState.LOST
    return BookieState.READ_ONLY if registration.read_only else BookieState.WRITABLE
