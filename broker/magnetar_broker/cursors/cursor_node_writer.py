"""Changes the node of one durable cursor, and deletes the former ledgers that the node names.

Changes are made one at a time, whichever task makes them. Each is completed even if its caller is cancelled, so that
the node's content stays known.

Former ledgers are deleted by housekeeping, in a task: no save waits for the metadata store to delete them. Ledgers that
can't be deleted now stay in the node until the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_deletion import delete_all_ledgers
from magnetar_broker.cursors.cursor_nodes import StoredNode, point_node
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_broker.position import Position
from magnetar_protos.cursor_pb2 import CursorNode

__all__ = ["CursorNodeWriter"]

_log = logging.getLogger(__name__)


class CursorNodeWriter:
    __slots__ = ("_context", "_deleter", "_lock", "_name", "_stored")

    def __init__(self, context: CursorContext, name: str, stored: StoredNode) -> None:
        self._context = context
        self._name = name
        self._stored = stored
        # Held while the node is changed. Created with the first change: most cursors of idle topics have none.
        self._lock: asyncio.Lock | None = None
        # Deletes former ledgers.
        self._deleter: asyncio.Task[None] | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger that the node points at; 0: none."""
        return self._stored.ledger_id

    @property
    def former_ledger_count(self) -> int:
        return self._stored.former_ledger_count

    async def point_at(
        self,
        ledger_id: int,
        mark_delete: Position,
        moves: int,
        take_overs: int,
        attachment: bytes,
        new_ledger: NewLedger | None = None,
    ) -> None:
        """Point the node at another ledger, or at none (0). Raises `BrokerError`."""
        await self._write(
            lambda node: point_node(node, ledger_id, mark_delete, moves, take_overs, attachment), new_ledger
        )

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties. Raises `BrokerError`."""

        def replace(node: CursorNode) -> None:
            node.properties.clear()
            node.properties.update(properties)

        await self._write(replace)

    @property
    def unused_ms(self) -> int:
        return self._stored.unused_ms

    async def set_unused(self, unused_ms: int) -> None:
        """Store how long the subscription was not used. Raises `BrokerError`."""

        def set_time(node: CursorNode) -> None:
            node.unused_ms = unused_ms

        await self._write(set_time)

    async def mark_deleted(self) -> None:
        """Mark the cursor as deleted: no broker opens it any more. Raises `BrokerError`."""
        if self._stored.exists and not self._stored.node.deleted:
            await self._write(_mark_deleted)

    async def _write(self, change: Callable[[CursorNode], object], new_ledger: NewLedger | None = None) -> None:
        await self._context.tasks.shielded(self._write_in_turn(change, new_ledger))

    async def _write_in_turn(self, change: Callable[[CursorNode], object], new_ledger: NewLedger | None) -> None:
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            node = self._stored.node
            change(node)
            await self._context.nodes.write(self._name, self._stored, node, new_ledger)

    # Deleting ledgers.

    @property
    def is_deleting_ledgers(self) -> bool:
        return self._deleter is not None

    def begin_deleting_former_ledgers(self) -> bool:
        """Begin to delete the former ledgers in a task. Return False if there are none, or if that has begun."""
        if not self._stored.former_ledger_count or self._deleter is not None:
            return False
        self._deleter = self._context.tasks.spawn(self._run_deleter())
        return True

    async def _run_deleter(self) -> None:
        try:
            await self.delete_former_ledgers()
        finally:
            self._deleter = None

    def cancel_deletion(self) -> None:
        """Cancel the task that deletes former ledgers."""
        if self._deleter is not None:
            self._deleter.cancel()

    async def stop_deletion(self) -> None:
        """Cancel the task that deletes former ledgers, and wait until it has ended."""
        if self._deleter is not None:
            self._deleter.cancel()
            await asyncio.wait([self._deleter])
            self._deleter = None  # a task that was cancelled before it began does not reset it

    async def delete_former_ledgers(self) -> None:
        """Delete the former ledgers that can be deleted now. The others stay in the node. Raises `TopicUnloaded`."""
        deleted = await delete_ledgers(self._context.client, list(self._stored.node.deleting))
        if not deleted:
            return

        def remove_deleted(node: CursorNode) -> None:
            left = [ledger_id for ledger_id in node.deleting if ledger_id not in deleted]
            del node.deleting[:]
            node.deleting.extend(left)

        try:
            await self._write(remove_deleted)
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.warning("The node of %s still names deleted ledgers: %s", self, error)

    async def delete(self) -> None:
        """Delete all ledgers of the cursor, then its node; after `mark_deleted`. It can be called again.

        Raises `BrokerError`: then the node still names the ledgers that are left.
        """
        node = self._stored.node
        ledgers = [ledger_id for ledger_id in (*node.deleting, node.ledger_id) if ledger_id]
        await delete_all_ledgers(self._context.client, ledgers, str(self))
        if self._stored.exists:
            await self._context.nodes.remove(self._name, self._stored)

    def __str__(self) -> str:
        return self._context.describe(self._name)


def _mark_deleted(node: CursorNode) -> None:
    node.deleted = True
