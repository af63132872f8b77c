"""A bookie takes its leave: marked, emptied by repair, struck off by the auditor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_bookie.auto_recovery.decommission import decommission, decommission_progress
from magnetar_bookie.auto_recovery.tasks import repair_progress
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.errors import ClusterError
from magnetar_cli.connection import connected

__all__ = ["leave"]

_LOOK_S: Final = 0.1


async def leave(
    location: str, bookie_id: str, say: Callable[[str], None], *, wait: bool, timeout_s: float | None
) -> None:
    """Returns when it is struck off; without `wait` when it is marked."""
    async with connected(location) as client:
        await decommission(client, bookie_id)
        if not wait:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    progress = await decommission_progress(client, bookie_id)
                    if progress is not None and progress.done:
                        return
                    left = None if progress is None else progress.ledgers_left
                    say(f"{bookie_id} is leaving: {_left_shown(left)}{await _stuck(client)}")
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise ClusterError(
                f"{bookie_id} is not empty after {timeout_s:g} s: `magnetar ledgers repairs` says what keeps it; "
                "it stays marked as leaving"
            ) from None


def _left_shown(left: int | None) -> str:
    return "its ledgers are not counted yet" if left is None else f"{left} ledgers left"


async def _stuck(client: LedgerClient) -> str:
    """Why it takes so long, where something can't go on."""
    stuck = [one for one in await repair_progress(client) if one.stuck]
    return f"; {len(stuck)} of them can't be copied: {stuck[0].stuck}" if stuck else ""
