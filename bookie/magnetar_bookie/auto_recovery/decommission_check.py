"""The check whether enough other bookies accept entries for a bookie to be decommissioned.

Repair does not change the ensemble size of a ledger. So at least as many writable bookies must be left as the largest
ensemble has that names the bookie. With fewer, the decommission waits until others join, perhaps for ever.

The check is advice for operators, not a rule: bookies may register and leave at any moment, and no entry is at risk.
"""

from __future__ import annotations

from magnetar_bookie.auto_recovery.bookie_overview import BookieState, summarize_bookies
from magnetar_bookie.auto_recovery.errors import CannotDecommission
from magnetar_bookie.auto_recovery.ledger_overview import summarize_ledgers
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerState

__all__ = ["check_decommission"]


async def check_decommission(client: LedgerClient, bookie_id: str) -> None:
    """Read the metadata of all ledgers, and raise `CannotDecommission` if too few other bookies are writable."""
    widest, ledger = 0, 0
    async for one in summarize_ledgers(client):
        if one.metadata.state is LedgerState.TOMBSTONE:
            continue
        width = max((len(found.bookies) for found in one.metadata.fragments if bookie_id in found.bookies), default=0)
        if width > widest:
            widest, ledger = width, one.ledger_id
    others = [one for one in await summarize_bookies(client) if one.bookie_id != bookie_id]
    writable = [one for one in others if one.state is BookieState.WRITABLE]
    if len(writable) < widest:
        named = (one for one in others if one.state not in (BookieState.WRITABLE, BookieState.DECOMMISSIONED))
        unusable = ", ".join(f"{one.bookie_id} is {one.state.value}" for one in named)
        because = f" ({unusable})" if unusable else ""
        raise CannotDecommission(
            f"without {bookie_id} only {len(writable)} bookies accept entries{because}, "
            f"but ledger {ledger} needs {widest}"
        )
