"""Views of ledgers, their replicas, and ledgers without an owner."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from magnetar_bookie.auto_recovery.ledger_overview import LedgerSummary, Replica
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedger
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_cli.output import format_bytes, format_duration

__all__ = ["LedgerView", "LedgersView", "OrphansView", "metadata_to_json"]


def _format_state(metadata: LedgerMetadata) -> str:
    return metadata.state.name.lower().replace("_", "-") + (" (degraded)" if metadata.is_degraded else "")


def _format_entries(metadata: LedgerMetadata) -> str:
    return f"{metadata.last_entry_id + 1}" if metadata.is_closed else ""


def metadata_to_json(metadata: LedgerMetadata) -> dict[str, object]:
    """Return the metadata without the master key, which permits writing."""
    return {
        "state": metadata.state.name.lower(),
        **dataclasses.asdict(metadata.striping),
        "wanted_ensemble_size": metadata.wanted_ensemble_size,
        "fragments": [dataclasses.asdict(one) for one in metadata.fragments],
        "last_entry_id": metadata.last_entry_id,
        "length_bytes": metadata.length_bytes,
        "created_ms": metadata.created_ms,
        "closed_ms": metadata.closed_ms,
        "former_bookies": metadata.former_bookies,
        "holders": metadata.holders,
        "properties": dict(metadata.properties),
    }


@dataclass(frozen=True, slots=True)
class LedgersView:
    ledgers: list[LedgerSummary]
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("ledger", "state", "entries", "bytes", "E/Qw/Qa", "fragments", "bookies", "missing", box=None)
        for one in self.ledgers:
            metadata = one.metadata
            table.add_row(
                str(one.ledger_id),
                _format_state(metadata),
                _format_entries(metadata),
                format_bytes(metadata.length_bytes) if metadata.is_closed else "",
                _format_striping(metadata),
                str(len(metadata.fragments)),
                ", ".join(metadata.bookies()),
                Text(", ".join(one.missing), "red"),
            )
        return Group(table, f"{len(self.ledgers)} ledgers")

    def lines(self) -> list[str]:
        found = []
        for one in self.ledgers:
            metadata = one.metadata
            entries = (
                f"{_format_entries(metadata)} entries of {metadata.length_bytes} bytes" if metadata.is_closed else ""
            )
            missing = f"missing {', '.join(one.missing)}" if one.missing else ""
            parts = [
                _format_state(metadata),
                _format_striping(metadata),
                entries,
                f"on {', '.join(metadata.bookies())}" if metadata.bookies() else "",
                missing,
            ]
            found.append(f"ledger {one.ledger_id}: " + ", ".join(filter(None, parts)))
        return [*found, f"{len(self.ledgers)} ledgers"]

    def json_objects(self) -> list[dict[str, object]]:
        return [
            {"ledger_id": one.ledger_id, **metadata_to_json(one.metadata), "missing": one.missing}
            for one in self.ledgers
        ]


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One ledger. `held` has for each checked replica how many of its entries it has, or why they can't be counted."""

    ledger_id: int
    metadata: LedgerMetadata
    replicas: list[Replica]
    held: dict[Replica, tuple[int, int] | str] = field(default_factory=dict)
    is_final: bool = True

    def table(self) -> RenderableType:
        table = Table("entries", "slot", "bookie", "registered", "holds", box=None)
        for one in self.replicas:
            registered = "yes" if one.registered else "[red]no[/]"
            table.add_row(_format_range(one), str(one.slot), one.bookie_id, registered, self._format_held(one))
        return Group(*self._format_head(), table)

    def lines(self) -> list[str]:
        replicas = []
        for one in self.replicas:
            held = self._format_held(one)
            bookie = one.bookie_id if one.registered else f"{one.bookie_id}, which is not registered"
            replicas.append(
                f"entries {_format_range(one)}, slot {one.slot}: {bookie}" + (f"; holds {held}" if held else "")
            )
        return [*self._format_head(), *replicas]

    def json_objects(self) -> list[dict[str, object]]:
        replicas = []
        for one in self.replicas:
            held = self.held.get(one)
            holds, of = held if isinstance(held, tuple) else (None, None)
            problem = held if isinstance(held, str) else ""
            replicas.append({**dataclasses.asdict(one), "holds": holds, "of": of, "problem": problem})
        return [{"ledger_id": self.ledger_id, **metadata_to_json(self.metadata), "replicas": replicas}]

    def _format_head(self) -> list[str]:
        metadata = self.metadata
        size = f", {_format_entries(metadata)} entries of {metadata.length_bytes} bytes" if metadata.is_closed else ""
        head = [f"ledger {self.ledger_id}: {_format_state(metadata)}, E/Qw/Qa {_format_striping(metadata)}{size}"]
        if metadata.former_bookies:
            head.append(f"may also store entries: {', '.join(metadata.former_bookies)}")
        if metadata.holders:
            head.append(f"deleted; still stored by: {', '.join(metadata.holders)}")
        return head

    def _format_held(self, one: Replica) -> str:
        held = self.held.get(one, "")
        return held if isinstance(held, str) else f"{held[0]} of {held[1]}"


@dataclass(frozen=True, slots=True)
class OrphansView:
    unclaimed: list[UnclaimedLedger]
    auditor: str | None
    now_ms: int

    @property
    def is_final(self) -> bool:
        return not self.unclaimed

    def table(self) -> RenderableType:
        table = Table("ledger", "created for", "age", "", box=None)
        for one in self.unclaimed:
            age = format_duration((self.now_ms - one.created_ms) / 1000)
            table.add_row(str(one.ledger_id), Text(one.purpose), age, self._format_deletion(one))
        return Group(table, *self._format_tail())

    def lines(self) -> list[str]:
        """Return lines without ages, which would change each time."""
        orphans = [
            f"ledger {one.ledger_id}, created for {one.purpose}: {self._format_deletion(one)}" for one in self.unclaimed
        ]
        return [*orphans, *self._format_tail()]

    def json_objects(self) -> list[dict[str, object]]:
        return [{"unclaimed": [dataclasses.asdict(one) for one in self.unclaimed], "auditor": self.auditor}]

    def _format_tail(self) -> list[str]:
        if not self.unclaimed:
            return ["every ledger has an owner"]
        return [] if self.auditor else ["there is no auditor at the moment that would delete them"]

    def _format_deletion(self, one: UnclaimedLedger) -> str:
        if one.sweeping:
            return "is being deleted"
        return "is deleted if no owner claims it within intent_grace_period_seconds after the auditor first saw it"


def _format_striping(metadata: LedgerMetadata) -> str:
    striping = metadata.striping
    return f"{striping.ensemble_size}/{striping.write_quorum}/{striping.ack_quorum}"


def _format_range(one: Replica) -> str:
    return f"{one.first_entry_id} … {'' if one.last_entry_id is None else one.last_entry_id}".strip()
