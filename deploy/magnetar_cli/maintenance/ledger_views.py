"""How ledgers are shown."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from magnetar_bookie.auto_recovery.ledger_overview import LedgerSummary, Replica
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedger
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_cli.shown import bytes_shown, seconds_shown

__all__ = ["LedgerView", "LedgersView", "OrphansView", "metadata_as_json"]


def state_shown(metadata: LedgerMetadata) -> str:
    return metadata.state.name.lower().replace("_", "-") + (" (degraded)" if metadata.degraded else "")


def entries_shown(metadata: LedgerMetadata) -> str:
    return f"{metadata.last_entry_id + 1}" if metadata.closed else ""


def metadata_as_json(metadata: LedgerMetadata) -> dict[str, object]:
    """Without the master key: whoever has it may write."""
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
    over: bool = True

    def table(self) -> RenderableType:
        table = Table("ledger", "state", "entries", "bytes", "E/Qw/Qa", "fragments", "bookies", "missing", box=None)
        for one in self.ledgers:
            metadata = one.metadata
            table.add_row(
                str(one.ledger_id),
                state_shown(metadata),
                entries_shown(metadata),
                bytes_shown(metadata.length_bytes) if metadata.closed else "",
                _striping(metadata),
                str(len(metadata.fragments)),
                ", ".join(metadata.bookies()),
                Text(", ".join(one.missing), "red"),
            )
        return Group(table, f"{len(self.ledgers)} ledgers")

    def lines(self) -> list[str]:
        found = []
        for one in self.ledgers:
            metadata = one.metadata
            entries = f"{entries_shown(metadata)} entries of {metadata.length_bytes} bytes" if metadata.closed else ""
            missing = f"missing {', '.join(one.missing)}" if one.missing else ""
            parts = [
                state_shown(metadata),
                _striping(metadata),
                entries,
                f"on {', '.join(metadata.bookies())}" if metadata.bookies() else "",
                missing,
            ]
            found.append(f"ledger {one.ledger_id}: " + ", ".join(filter(None, parts)))
        return [*found, f"{len(self.ledgers)} ledgers"]

    def json_objects(self) -> list[dict[str, object]]:
        return [
            {"ledger_id": one.ledger_id, **metadata_as_json(one.metadata), "missing": one.missing}
            for one in self.ledgers
        ]


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One ledger. `held`: of each replica that was asked after, how many entries it has of how many, or why not."""

    ledger_id: int
    metadata: LedgerMetadata
    replicas: list[Replica]
    held: dict[Replica, tuple[int, int] | str] = field(default_factory=dict)
    over: bool = True

    def table(self) -> RenderableType:
        table = Table("entries", "slot", "bookie", "registered", "holds", box=None)
        for one in self.replicas:
            registered = "yes" if one.registered else "[red]no[/]"
            table.add_row(_range(one), str(one.slot), one.bookie_id, registered, self._held(one))
        return Group(*self._head(), table)

    def lines(self) -> list[str]:
        replicas = []
        for one in self.replicas:
            held = self._held(one)
            where = one.bookie_id if one.registered else f"{one.bookie_id}, which is not registered"
            replicas.append(f"entries {_range(one)}, slot {one.slot}: {where}" + (f"; holds {held}" if held else ""))
        return [*self._head(), *replicas]

    def json_objects(self) -> list[dict[str, object]]:
        replicas = []
        for one in self.replicas:
            held = self.held.get(one)
            holds, of = held if isinstance(held, tuple) else (None, None)
            problem = held if isinstance(held, str) else ""
            replicas.append({**dataclasses.asdict(one), "holds": holds, "of": of, "problem": problem})
        return [{"ledger_id": self.ledger_id, **metadata_as_json(self.metadata), "replicas": replicas}]

    def _head(self) -> list[str]:
        metadata = self.metadata
        size = f", {entries_shown(metadata)} entries of {metadata.length_bytes} bytes" if metadata.closed else ""
        head = [f"ledger {self.ledger_id}: {state_shown(metadata)}, E/Qw/Qa {_striping(metadata)}{size}"]
        if metadata.former_bookies:
            head.append(f"may also store entries: {', '.join(metadata.former_bookies)}")
        if metadata.holders:
            head.append(f"deleted; still stored by: {', '.join(metadata.holders)}")
        return head

    def _held(self, one: Replica) -> str:
        held = self.held.get(one, "")
        return held if isinstance(held, str) else f"{held[0]} of {held[1]}"


@dataclass(frozen=True, slots=True)
class OrphansView:
    unclaimed: list[UnclaimedLedger]
    auditor: str | None
    now_ms: int

    @property
    def over(self) -> bool:
        return not self.unclaimed

    def table(self) -> RenderableType:
        table = Table("ledger", "created for", "age", "", box=None)
        for one in self.unclaimed:
            age = seconds_shown((self.now_ms - one.created_ms) / 1000)
            table.add_row(str(one.ledger_id), Text(one.purpose), age, self._fate(one))
        return Group(table, *self._tail())

    def lines(self) -> list[str]:
        """Without the age, which would be another each time."""
        orphans = [f"ledger {one.ledger_id}, created for {one.purpose}: {self._fate(one)}" for one in self.unclaimed]
        return [*orphans, *self._tail()]

    def json_objects(self) -> list[dict[str, object]]:
        return [{"unclaimed": [dataclasses.asdict(one) for one in self.unclaimed], "auditor": self.auditor}]

    def _tail(self) -> list[str]:
        if not self.unclaimed:
            return ["every ledger has an owner"]
        return [] if self.auditor else ["there is no auditor at the moment that would delete them"]

    def _fate(self, one: UnclaimedLedger) -> str:
        if one.sweeping:
            return "is being deleted"
        return "is deleted if no owner claims it within intent_grace_period_seconds after the auditor first saw it"


def _striping(metadata: LedgerMetadata) -> str:
    striping = metadata.striping
    return f"{striping.ensemble_size}/{striping.write_quorum}/{striping.ack_quorum}"


def _range(one: Replica) -> str:
    return f"{one.first_entry_id} … {'' if one.last_entry_id is None else one.last_entry_id}".strip()
