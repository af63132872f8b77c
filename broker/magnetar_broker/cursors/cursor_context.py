"""The dependencies that all cursors of a topic share: storage, settings, clock and tasks."""

from __future__ import annotations

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_wire.clock import Clock

__all__ = ["CursorContext"]


class CursorContext:
    __slots__ = ("client", "clock", "incarnation", "nodes", "settings", "striping", "tasks", "topic")

    def __init__(
        self,
        topic: str,
        incarnation: str,
        client: LedgerClient,
        nodes: CursorNodes,
        settings: CursorSettings,
        striping: LedgerStriping,
        clock: Clock,
        tasks: OwnedTasks,
    ) -> None:
        self.topic = topic
        self.incarnation = incarnation
        self.client = client
        self.nodes = nodes
        self.settings = settings
        self.clock = clock
        self.tasks = tasks
        self.striping = striping
