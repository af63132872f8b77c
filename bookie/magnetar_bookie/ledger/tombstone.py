"""Taking bookies off a tombstone: they have dropped the ledger, or do not exist any more. The last one ends it."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_bookie import paths
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["remove_tombstone_holders"]


async def remove_tombstone_holders(
    store: MetadataStore, ledger_id: int, bookies: Sequence[str], clock: Clock, randomness: Randomness
) -> None:
    """Changes nothing where there is no tombstone. The node of one without holders is deleted.

    Raises `OutcomeUnknown` where it may have been done: do it again, it does no harm.
    """

    def without(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
        if payload is None:
            return compare_and_set.LEAVE
        current = ledger_metadata.decode(payload)
        if current.state is not LedgerState.TOMBSTONE:
            return compare_and_set.LEAVE
        left = ledger_metadata.remove_holders(current, bookies)
        if not left.holders:
            return compare_and_set.DELETE
        return compare_and_set.LEAVE if left == current else left.encode()

    await compare_and_set.change(store, paths.ledger(ledger_id), without, clock=clock, randomness=randomness)
