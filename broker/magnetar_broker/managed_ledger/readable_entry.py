"""Reads an entry of which little is needed, and without which its caller goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from magnetar_broker.errors import UnreadableEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.position import Position

__all__ = ["ReadsEntries", "read_if_readable"]


class ReadsEntries(Protocol):
    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry | None]: ...


async def read_if_readable(log: ReadsEntries, position: Position) -> LogEntry | None:
    """None where there is none (any more), or it is lost. Raises `BrokerError` where it can't be read now."""
    try:
        (entry,) = await log.read_at([position])
    except UnreadableEntry:
        return None
    return entry
