"""Decommission a bookie: mark it, and wait until auto-recovery has copied its ledgers and the auditor removes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_bookie.auto_recovery.decommission import read_decommission_progress, start_decommission
from magnetar_bookie.auto_recovery.decommission_check import check_decommission
from magnetar_bookie.auto_recovery.errors import CannotDecommission
from magnetar_bookie.auto_recovery.underreplicated_ledgers import list_repair_progress
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.errors import ClusterError, how_to_cancel
from magnetar_cli.ledger_connection import open_ledger_client, shorten_connect_timeout

__all__ = ["decommission_bookie"]

_POLL_S: Final = 0.1


async def decommission_bookie(
    location: str, bookie_id: str, on_progress: Callable[[str], None], *, wait: bool, timeout_s: float | None
) -> None:
    """Return when it is decommissioned. Without `wait`, return when it is marked, even if too few bookies are left."""
    async with open_ledger_client(shorten_connect_timeout(location)) as client:
        if wait and await read_decommission_progress(client, bookie_id) is None:
            try:
                await check_decommission(client, bookie_id)
            except CannotDecommission as error:
                raise ClusterError(
                    f"{error}: `magnetar cluster add --bookie` adds one; --force removes it at once"
                ) from None
        await start_decommission(client, bookie_id)
        if not wait:
            return
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    progress = await read_decommission_progress(client, bookie_id)
                    if progress is None:
                        raise ClusterError(f"{bookie_id} stays: its decommission was cancelled")
                    if progress.done:
                        return
                    left = _format_ledgers_left(progress.ledgers_left)
                    on_progress(f"{bookie_id} is leaving: {left}{await _format_stuck(client)}")
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ClusterError(
                f"{bookie_id} still stores ledgers after {timeout_s:g} s: `magnetar ledgers repairs` shows why; "
                f"it stays marked as leaving, and {how_to_cancel(bookie_id)}"
            ) from None


def _format_ledgers_left(left: int | None) -> str:
    return "its ledgers are not counted yet" if left is None else f"{left} ledgers left"


async def _format_stuck(client: LedgerClient) -> str:
    """Return why ledgers can't be copied, if some can't."""
    stuck = [one for one in await list_repair_progress(client) if one.stuck]
    return f"; {len(stuck)} of them can't be copied: {stuck[0].stuck}" if stuck else ""
