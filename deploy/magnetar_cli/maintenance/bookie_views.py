"""Views of bookies and their decommission."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from magnetar_bookie.auto_recovery.bookie_overview import BookieState, BookieSummary, RecoveryRoles
from magnetar_bookie.auto_recovery.decommission import DecommissionProgress
from magnetar_cli.cluster.status import count_limbo_ledgers
from magnetar_cli.http_request import request_http

__all__ = ["BookiesView", "DecommissionView", "request_status"]

_COLOURS = {BookieState.WRITABLE: "green", BookieState.LOST: "red", BookieState.DECOMMISSIONED: "dim"}


def request_status(member: BookieSummary) -> dict[str, Any]:
    """Request a bookie's status over HTTP. Return an empty one if it does not answer."""
    if not member.http_address:
        return {}
    _, answer = request_http(member.http_address, "/status")
    return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True, slots=True)
class BookiesView:
    members: list[BookieSummary]
    offices: RecoveryRoles
    # The status that each bookie has reported.
    reported: dict[str, dict[str, Any]]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("bookie", "state", "address", "http", "repairs", "", box=None)
        for one in self.members:
            state = Text(one.state.value, _COLOURS.get(one.state, "yellow"))
            repairs = ", ".join(map(str, self._repairs(one)))
            table.add_row(
                one.bookie_id,
                state,
                one.address,
                one.http_address,
                repairs,
                self._format_details(one),
            )
        return Group(table, f"auditor: {self.offices.auditor or 'none at the moment'}")

    def lines(self) -> list[str]:
        found = []
        for one in self.members:
            repairs = self._repairs(one)
            extras = [
                one.address,
                self._format_details(one),
                f"repairs {', '.join(map(str, repairs))}" if repairs else "",
            ]
            found.append(" ".join(filter(None, [f"{one.bookie_id}: {one.state.value}", *extras])))
        return [*found, f"auditor: {self.offices.auditor or 'none at the moment'}"]

    def json_objects(self) -> list[dict[str, object]]:
        return [
            {
                "bookie_id": one.bookie_id,
                "standing": one.state,
                "address": one.address,
                "http_address": one.http_address,
                "leaving": _decommission_as_json(one.decommission),
                "limbo": self._count_limbo(one),
                "repairs": self._repairs(one),
                "auditor": one.bookie_id == self.offices.auditor,
            }
            for one in self.members
        ]

    def _repairs(self, one: BookieSummary) -> list[int]:
        return [ledger_id for ledger_id, holder in self.offices.repair_locks.items() if holder == one.bookie_id]

    def _count_limbo(self, one: BookieSummary) -> int | str | None:
        """Return the number of ledgers of which it may have lost entries, or None if there are none, or it is
        unknown."""
        return count_limbo_ledgers(self.reported.get(one.bookie_id, {}))

    def _format_details(self, one: BookieSummary) -> str:
        status = self.reported.get(one.bookie_id, {})
        parts = []
        if one.decommission is not None and not one.decommission.done:
            left = one.decommission.ledgers_left
            parts.append("its ledgers are not counted yet" if left is None else f"{left} ledgers left")
        if one.state is BookieState.READ_ONLY and status.get("read_only_because"):
            parts.append(", ".join(status["read_only_because"]))
        if limbo := self._count_limbo(one):
            parts.append(f"in limbo: {limbo} ledgers")
        return "; ".join(parts)


def _decommission_as_json(progress: DecommissionProgress | None) -> dict[str, object] | None:
    if progress is None:
        return None
    fields = dataclasses.asdict(progress)
    return {("asked_ms" if name == "started_ms" else name): value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class DecommissionView:
    bookie_id: str
    # Number of ledgers that it still has. None: not counted yet.
    left: int | None
    # The maximum of this number.
    first: int | None
    is_decommissioned: bool
    # The decommission was cancelled.
    is_cancelled: bool = False
    # Why ledgers can't be copied, if some can't.
    stuck: str = ""

    @property
    def is_final(self) -> bool:
        return self.is_decommissioned or self.is_cancelled

    def table(self) -> RenderableType:
        first = self.first or 0
        done = first if self.is_decommissioned else first - (self.left or 0)
        table = Table.grid(padding=(0, 1))
        counted = first > 0 or self.is_decommissioned
        table.add_row(
            ProgressBar(first or 1, done if first else int(self.is_decommissioned), width=40, pulse=not counted)
        )
        table.add_row(self.lines()[0])
        return table

    def lines(self) -> list[str]:
        if self.is_decommissioned:
            return [f"{self.bookie_id} is decommissioned: no ledger names it any more"]
        if self.is_cancelled:
            return [f"{self.bookie_id} stays: its decommission was cancelled"]
        if self.left is None:
            return [f"{self.bookie_id} is leaving; its ledgers are not counted yet"]
        stuck = f"; stuck: {self.stuck}" if self.stuck else ""
        return [f"{self.bookie_id} is leaving: {self.left} ledgers left, of {self.first}{stuck}"]

    def json_objects(self) -> list[dict[str, object]]:
        return [
            {
                "bookie_id": self.bookie_id,
                "ledgers_left": self.left,
                "struck_off": self.is_decommissioned,
                "taken_back": self.is_cancelled,
                "stuck": self.stuck,
            }
        ]
