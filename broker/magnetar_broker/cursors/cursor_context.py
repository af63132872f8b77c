"""The dependencies that all cursors of a topic share: storage, settings, clock and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_wire.clock import Clock

__all__ = ["CursorContext"]


@dataclass(frozen=True, slots=True)
class CursorContext:
    topic: str
    incarnation: str
    client: LedgerClient
    nodes: CursorNodes
    settings: CursorSettings
    striping: LedgerStriping
    clock: Clock
    tasks: OwnedTasks

    def describe(self, name: str) -> str:
        """Return what log lines and errors call a cursor."""
        return f"cursor {name!r} of {self.topic}"
