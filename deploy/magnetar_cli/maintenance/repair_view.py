"""The progress of auto-recovery: for each ledger, and for all (STO-2)."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from magnetar_bookie.auto_recovery.bookie_overview import (
    BookieState,
    BookieSummary,
    RecoveryRoles,
    read_recovery_roles,
    summarize_bookies,
)
from magnetar_bookie.auto_recovery.ledger_overview import summarize_ledgers
from magnetar_bookie.auto_recovery.underreplicated_ledgers import RepairProgress, list_repair_progress
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_protos.ledger_pb2 import LastAddConfirmedAnswer, LastAddConfirmedRequest
from magnetar_wire.transport import Rejected, TransportError

__all__ = ["RepairTracker", "RepairsView"]

# Without a repair task, all ledgers are scanned at this interval. There may be very many.
_SCAN_INTERVAL_S: Final = 2.0
_ANSWER_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class RepairsView:
    repairs: list[RepairProgress]
    offices: RecoveryRoles
    # Ledgers that had a task in an earlier view.
    finished: tuple[int, ...] = ()
    # Unavailable bookies with their numbers of ledgers, for which tasks will be created.
    awaited: dict[str, int] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        return not self.repairs and not self.awaited

    def table(self) -> RenderableType:
        table = Table("ledger", "progress", "entries", "lost", "at", "", box=None)
        for one in self.repairs:
            done, total = _count_copied(one)
            table.add_row(
                str(one.ledger_id),
                ProgressBar(total or 1, done, width=30),
                f"{done}/{total}" if total else "",
                ", ".join(one.lost_bookies),
                self.offices.repair_locks.get(one.ledger_id, ""),
                Text(one.stuck, "red"),
            )
        repaired, total = self._count_repaired()
        overall = Table.grid(padding=(0, 1))
        if total:
            overall.add_row("all", ProgressBar(total, repaired, width=30), f"{repaired} of {total} ledgers are whole")
        return Group(*([table] if self.repairs else []), overall, *self._format_tail())

    def lines(self) -> list[str]:
        found = []
        for one in self.repairs:
            done, total = _count_copied(one)
            lost = f" (lost: {', '.join(one.lost_bookies)})" if one.lost_bookies else ""
            figure = f"{done} of {total} entries copied" if total else "waits"
            found.append(f"ledger {one.ledger_id}: {figure}{lost}" + (f"; stuck: {one.stuck}" if one.stuck else ""))
        found += [f"ledger {ledger_id}: whole" for ledger_id in self.finished]
        repaired, total = self._count_repaired()
        return [*found, *([f"{repaired} of {total} ledgers are whole"] if total else []), *self._format_tail()]

    def json_objects(self) -> list[dict[str, object]]:
        repaired, total = self._count_repaired()
        return [
            {
                "repairs": [
                    {**dataclasses.asdict(one), "worker": self.offices.repair_locks.get(one.ledger_id)}
                    for one in self.repairs
                ],
                "whole": repaired,
                "ledgers": total,
                "finished": self.finished,
                "awaited": self.awaited,
                "auditor": self.offices.auditor,
            }
        ]

    def _count_repaired(self) -> tuple[int, int]:
        return len(self.finished), len(self.finished) + len(self.repairs)

    def _format_tail(self) -> list[str]:
        found = [
            f"{bookie_id} is unavailable, and {count} ledgers name it: its entries are copied from other replicas "
            "after lost_bookie_recovery_delay_seconds, those of open ledgers later"
            for bookie_id, count in self.awaited.items()
        ]
        if not self.offices.auditor:
            found.append("there is no auditor at the moment")
        return found or ([] if self.repairs else ["no ledger is known to lack a replica"])


class RepairTracker:
    """Takes views, and remembers the repairs of earlier ones."""

    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._finished: dict[int, None] = {}
        self._open: dict[int, None] = {}
        self._awaited: dict[str, int] = {}
        self._scan_due = client.clock.monotonic()

    async def take_view(self) -> RepairsView:
        found = sorted(await list_repair_progress(self._client), key=lambda one: one.ledger_id)
        now = dict.fromkeys(one.ledger_id for one in found)
        self._finished |= dict.fromkeys(one for one in self._open if one not in now)
        self._finished = {one: None for one in self._finished if one not in now}
        self._open = now
        if found:
            self._awaited = {}
            self._scan_due = self._client.clock.monotonic()
        elif self._client.clock.monotonic() >= self._scan_due:
            self._awaited = await self._find_unavailable()
            self._scan_due = self._client.clock.monotonic() + _SCAN_INTERVAL_S
        return RepairsView(found, await read_recovery_roles(self._client), tuple(self._finished), self._awaited)

    async def _find_unavailable(self) -> dict[str, int]:
        """Return the bookies that are lost, leaving or don't answer, with their numbers of ledgers."""
        found = await summarize_bookies(self._client)
        answers = await asyncio.gather(*(self._is_available(one) for one in found))
        unavailable = {one.bookie_id: 0 for one, available in zip(found, answers, strict=True) if not available}
        if not unavailable:
            return {}
        async for one in summarize_ledgers(self._client):
            if one.metadata.state is not LedgerState.TOMBSTONE:
                for bookie_id in one.metadata.bookies():
                    if bookie_id in unavailable:
                        unavailable[bookie_id] += 1
        return {bookie_id: count for bookie_id, count in unavailable.items() if count}

    async def _is_available(self, one: BookieSummary) -> bool:
        """Return whether a bookie answers. A bookie that was just killed is registered until its session ends."""
        if one.state not in (BookieState.WRITABLE, BookieState.READ_ONLY):
            return False
        request = LastAddConfirmedRequest(ledger_id=0, above=-1)
        try:
            await self._client.bookies.call(
                one.bookie_id, "last_add_confirmed", request, LastAddConfirmedAnswer, timeout_s=_ANSWER_TIMEOUT_S
            )
        except Rejected:
            return True  # there is no ledger 0, but the bookie has answered
        except TransportError:
            return False
        return True


def _count_copied(one: RepairProgress) -> tuple[int, int]:
    return min(one.entries_copied, one.entries_total), one.entries_total
