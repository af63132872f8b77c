"""What commands show of ledgers: their metadata, unregistered bookies, and which entries the bookies hold.

The bookies of a ledger, and which of them are registered, cost one read of its node. Which entries they hold is known
only to them: each returns an inventory, for which it reads all that it holds of the ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import find_missing_entries
from magnetar_bookie.auto_recovery.ledger_nodes import decode_ledger_node, read_ledger_nodes
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair, count_slot_entries
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue

__all__ = ["LedgerSummary", "Replica", "count_held_entries", "list_replicas", "summarize_ledgers"]


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    ledger_id: int
    metadata: LedgerMetadata
    # The bookies that it names and that are not registered. Of a tombstone: those that have not dropped it yet.
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """One slot of one fragment."""

    first_entry_id: int
    # None: entries may still be added.
    last_entry_id: int | None
    slot: int
    bookie_id: str
    registered: bool


async def summarize_ledgers(client: LedgerClient) -> AsyncIterator[LedgerSummary]:
    """Yield all ledgers, in order. Nodes that can't be decoded are logged and skipped."""
    await client.ledgers.store.sync()
    async for ledger_id, node in read_ledger_nodes(client.ledgers):
        if node is None:
            continue
        try:
            metadata, _ = decode_ledger_node(node)
        except (LedgerError, ForeignValue) as error:
            client.ledgers.foreign.pass_over(paths.ledger(ledger_id), error)
            continue
        alive = client.bookies.alive()
        tombstone = metadata.state is LedgerState.TOMBSTONE
        missing = metadata.holders if tombstone else [one for one in metadata.bookies() if one not in alive]
        yield LedgerSummary(ledger_id, metadata, tuple(missing))


def list_replicas(client: LedgerClient, metadata: LedgerMetadata) -> list[Replica]:
    """Return all slots, fragment by fragment."""
    alive = client.bookies.alive()
    return [
        Replica(fragment.first_entry_id, metadata.last_entry_of(index), slot, bookie_id, bookie_id in alive)
        for index, fragment in enumerate(metadata.fragments)
        for slot, bookie_id in enumerate(fragment.bookies)
    ]


async def count_held_entries(
    client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int, metadata: LedgerMetadata, replica: Replica
) -> tuple[int, int]:
    """Return how many undamaged entries of the replica the bookie holds, and how many it should hold.

    Raises `CannotRepair` if the fragment is still being written, or the bookie does not answer.
    """
    if replica.last_entry_id is None:
        raise CannotRepair("the fragment is still being written")
    first, last = replica.first_entry_id, replica.last_entry_id
    total = count_slot_entries(metadata.striping, replica.slot, first, last)
    slot = SlotRepair(first, last, replica.slot, replica.bookie_id, replica.bookie_id)
    missing = 0
    async for _, entries in find_missing_entries(client, settings, ledger_id, metadata, slot):
        missing += len(entries)
    return total - missing, total
