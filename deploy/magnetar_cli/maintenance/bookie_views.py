"""Views of bookies and their decommission."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from magnetar_bookie.auto_recovery.overview import Member, Offices, Standing
from magnetar_cli.cluster.status import count_limbo_ledgers
from magnetar_cli.http_request import request_http

__all__ = ["BookiesView", "DecommissionView", "request_status"]

_COLOURS = {Standing.WRITABLE: "green", Standing.LOST: "red", Standing.STRUCK_OFF: "dim"}


def request_status(member: Member) -> dict[str, Any]:
    """Request a bookie's status over HTTP. Return an empty one if it does not answer."""
    if not member.http_address:
        return {}
    _, answer = request_http(member.http_address, "/status")
    return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True, slots=True)
class BookiesView:
    members: list[Member]
    offices: Offices
    # The status that each bookie has reported.
    reported: dict[str, dict[str, Any]]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("bookie", "state", "address", "http", "repairs", "", box=None)
        for one in self.members:
            state = Text(one.standing.value, _COLOURS.get(one.standing, "yellow"))
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
            found.append(" ".join(filter(None, [f"{one.bookie_id}: {one.standing.value}", *extras])))
        return [*found, f"auditor: {self.offices.auditor or 'none at the moment'}"]

    def json_objects(self) -> list[dict[str, object]]:
        return [
            {
                **dataclasses.asdict(one),
                "limbo": self._count_limbo(one),
                "repairs": self._repairs(one),
                "auditor": one.bookie_id == self.offices.auditor,
            }
            for one in self.members
        ]

    def _repairs(self, one: Member) -> list[int]:
        return [ledger_id for ledger_id, holder in self.offices.locks.items() if holder == one.bookie_id]

    def _count_limbo(self, one: Member) -> int | str | None:
        """Return the number of ledgers of which it may have lost entries, or None if there are none, or it is
        unknown."""
        return count_limbo_ledgers(self.reported.get(one.bookie_id, {}))

    def _format_details(self, one: Member) -> str:
        status = self.reported.get(one.bookie_id, {})
        parts = []
        if one.leaving is not None and not one.leaving.done:
            left = one.leaving.ledgers_left
            parts.append("its ledgers are not counted yet" if left is None else f"{left} ledgers left")
        if one.standing is Standing.READ_ONLY and status.get("read_only_because"):
            parts.append(", ".join(status["read_only_because"]))
        if limbo := self._count_limbo(one):
            parts.append(f"in limbo: {limbo} ledgers")
        return "; ".join(parts)


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
