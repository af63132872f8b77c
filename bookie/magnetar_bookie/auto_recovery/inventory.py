"""Ask a bookie for its inventory of a ledger, and find the entries that it lacks."""

from __future__ import annotations

from collections.abc import AsyncIterator

from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair, missing_entries
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import status_name
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_protos.ledger_pb2 import OK, InventoryAnswer, InventoryRequest
from magnetar_wire.transport import TransportError

__all__ = ["find_missing_entries"]


async def find_missing_entries(
    client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int, metadata: LedgerMetadata, step: SlotRepair
) -> AsyncIterator[tuple[int, list[int]]]:
    """Yield for each range of entries where it ends (exclusive), and the slot's entries in it that the target lacks.

    Raises `CannotRepair` if the bookie does not answer, or sends an invalid answer.
    """
    first = step.first_entry_id
    while first <= step.last_entry_id:
        last = min(first + settings.inventory_entries - 1, step.last_entry_id)
        request = InventoryRequest(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)
        try:
            answer = await client.bookies.call(
                step.target, "inventory", request, InventoryAnswer, timeout_s=settings.inventory_timeout_seconds
            )
        except TransportError as error:
            raise CannotRepair(f"bookie {step.target} does not list its entries: {error}") from None
        if answer.status != OK:
            raise CannotRepair(f"bookie {step.target} does not list its entries: {status_name(answer.status)}")
        end = min(answer.next_entry_id, last + 1)
        if end <= first:
            raise CannotRepair(f"bookie {step.target} repeats entry {first} in the list of its entries")
        held = [(one.first_entry_id, one.last_entry_id) for one in answer.held]
        yield end, list(missing_entries(metadata.striping, step.slot, first, end - 1, held))
        first = end
