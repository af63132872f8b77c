"""Whether a bookie can be let go: whether there would be enough others for what it stores.

A ledger keeps the width of its ensembles when it is repaired. So as many bookies that take entries must be left as the
widest ensemble names that the bookie is in; with fewer, its decommission waits for others to come, perhaps for ever.

That is advice for whoever asks, not a rule: bookies may come and go the moment after, and no entry is in danger
either way.
"""

from __future__ import annotations

from magnetar_bookie.auto_recovery.ledger_overview import ledgers
from magnetar_bookie.auto_recovery.overview import Standing, members
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState

__all__ = ["CannotLeave", "check_farewell"]


class CannotLeave(LedgerError):
    """Without this bookie there would be too few for its ledgers."""


async def check_farewell(client: LedgerClient, bookie_id: str) -> None:
    """Raises `CannotLeave`. Goes through all ledgers."""
    widest, ledger = 0, 0
    async for one in ledgers(client):
        if one.metadata.state is LedgerState.TOMBSTONE:
            continue
        width = max((len(found.bookies) for found in one.metadata.fragments if bookie_id in found.bookies), default=0)
        if width > widest:
            widest, ledger = width, one.ledger_id
    others = [one for one in await members(client) if one.bookie_id != bookie_id]
    left = [one for one in others if one.standing is Standing.WRITABLE]
    if len(left) < widest:
        out = [f"{one.bookie_id} is {one.standing.value}" for one in others if one.standing not in _NOT_TOLD]
        because = f" ({', '.join(out)})" if out else ""
        raise CannotLeave(
            f"without {bookie_id} only {len(left)} bookies accept entries{because}, but ledger {ledger} needs {widest}"
        )


_NOT_TOLD = (Standing.WRITABLE, Standing.STRUCK_OFF)
