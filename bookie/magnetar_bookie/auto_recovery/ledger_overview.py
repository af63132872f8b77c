"""What people are shown of ledgers: their metadata, which replicas are out of reach, and which entries are lacking.

Which bookies a ledger names and who of them is registered costs a read of its node. Whether each holds what it should
is another matter: the bookies are asked, and read all that they hold of the ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import lacking
from magnetar_bookie.auto_recovery.ledger_nodes import decoded, ledger_nodes
from magnetar_bookie.core.repair import FillSlot, entries_of_slot
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue

__all__ = ["LedgerSummary", "Replica", "held", "ledgers", "replicas", "summary"]


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    ledger_id: int
    metadata: LedgerMetadata
    # Bookies that it names and that are not registered; of a tombstone, those that are to drop it still.
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """One slot of one fragment."""

    first_entry_id: int
    # None: the fragment still grows.
    last_entry_id: int | None
    slot: int
    bookie_id: str
    registered: bool


async def ledgers(client: LedgerClient) -> AsyncIterator[LedgerSummary]:
    """All, in order. What can't be read is logged and passed over."""
    await client.ledgers.store.sync()
    async for ledger_id, read in ledger_nodes(client.ledgers):
        if read is None:
            continue
        try:
            metadata, _ = decoded(read)
        except (LedgerError, ForeignValue) as error:
            client.ledgers.undecodable_nodes.log_once(paths.ledger(ledger_id), error)
            continue
        yield summary(client, ledger_id, metadata)


def summary(client: LedgerClient, ledger_id: int, metadata: LedgerMetadata) -> LedgerSummary:
    alive = client.bookies.registered()
    tombstone = metadata.state is LedgerState.TOMBSTONE
    named = metadata.holders if tombstone else [one for one in metadata.bookies() if one not in alive]
    return LedgerSummary(ledger_id, metadata, tuple(named))


def replicas(client: LedgerClient, metadata: LedgerMetadata) -> list[Replica]:
    """Where each lies, fragment by fragment."""
    alive = client.bookies.registered()
    return [
        Replica(fragment.first_entry_id, metadata.last_entry_of_fragment(index), slot, bookie_id, bookie_id in alive)
        for index, fragment in enumerate(metadata.fragments)
        for slot, bookie_id in enumerate(fragment.bookies)
    ]


async def held(
    client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int, metadata: LedgerMetadata, replica: Replica
) -> tuple[int, int]:
    """How many entries of this replica the bookie holds whole, and of how many. The fragment must not grow any more.

    Raises `CannotRepair` where the bookie does not say.
    """
    if replica.last_entry_id is None:
        raise CannotRepair("the fragment is still being written")
    first, last = replica.first_entry_id, replica.last_entry_id
    total = entries_of_slot(metadata.striping, replica.slot, first, last)
    step = FillSlot(first, last, replica.slot, replica.bookie_id, replica.bookie_id)
    missing = 0
    async for _, entries in lacking(client, settings, ledger_id, metadata, step):
        missing += len(entries)
    return total - missing, total
