"""Asking a bookie which entries of a ledger it holds whole, and what a slot lacks by its answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.core.repair import FillSlot, missing_entries
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_protos.ledger_pb2 import OK, InventoryAnswer, InventoryRequest
from magnetar_wire.transport import TransportError

__all__ = ["lacking"]


async def lacking(
    client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int, metadata: LedgerMetadata, step: FillSlot
) -> AsyncIterator[tuple[int, list[int]]]:
    """Piece by piece, where the piece ends (excluded) and which entries of the slot the target lacks in it.

    Raises `CannotRepair` if it does not answer, or not as it should.
    """
    at = step.first_entry_id
    while at <= step.last_entry_id:
        last = min(at + settings.inventory_entries - 1, step.last_entry_id)
        request = InventoryRequest(ledger_id=ledger_id, first_entry_id=at, last_entry_id=last)
        try:
            answer = await client.bookies.call(
                step.target, "inventory", request, InventoryAnswer, timeout_s=settings.inventory_timeout_seconds
            )
        except TransportError as error:
            raise CannotRepair(f"bookie {step.target} does not list its entries: {error}") from None
        if answer.status != OK:
            raise CannotRepair(f"bookie {step.target} does not list its entries: {format_status(answer.status)}")
        end = min(answer.next_entry_id, last + 1)
        if end <= at:
            raise CannotRepair(f"bookie {step.target} repeats entry {at} in the list of its entries")
        held = [(one.first_entry_id, one.last_entry_id) for one in answer.held]
        yield end, list(missing_entries(metadata.striping, step.slot, at, end - 1, held))
        at = end
