"""A durable cursor whose stored state is not read yet, or can't be read.

    opening   Its ledger is being fenced and read, or it waits for that
    (broker/magnetar_broker/cursors/opening_slots.py). An attempt that fails
              because bookies are away is repeated, for as long as the topic is served.
    damaged   Its node can't be decoded, or a record of its ledger is damaged on all bookies: `problem` is a
              `DamagedCursor`. It stays so until an administrator moves the cursor, or deletes it.

Neither delays other subscriptions. The log is retained from `mark_delete` on, the mark-delete position in the cursor's
node in the metadata store. It is at or before the cursor's own, so all entries that the subscription has not
acknowledged are retained. If the node can't be decoded, the whole log is retained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from magnetar_broker.cursors.cursor_nodes import KnownNode
from magnetar_broker.cursors.opening_slots import OpeningSlots
from magnetar_broker.errors import BrokerError, DamagedCursor
from magnetar_broker.managed_ledger.position import Position

__all__ = ["UnopenedCursor"]


class UnopenedCursor:
    __slots__ = ("_attempt_ended", "known", "mark_delete", "name", "places", "problem", "properties", "task")

    def __init__(self, name: str, known: KnownNode, places: OpeningSlots) -> None:
        node = known.node
        self.name = name
        self.known = known
        self.mark_delete: Position = Position(node.mark_delete.ledger_id, node.mark_delete.entry_id)
        self.properties: Mapping[str, str] = dict(node.properties)
        # Why the last attempt failed; None: the first is in flight.
        self.problem: BrokerError | None = None
        # Reads it; None: it is damaged, or is being replaced or deleted.
        self.task: asyncio.Task[None] | None = None
        # Limit how many cursors of the topic are read at a time.
        self.places = places
        self._attempt_ended: asyncio.Future[None] | None = None

    @property
    def is_damaged(self) -> bool:
        return isinstance(self.problem, DamagedCursor)

    @property
    def reason(self) -> str:
        """Why it is not open."""
        return str(self.problem) if self.problem is not None else "its cursor is being opened"

    def end_attempt(self, problem: BrokerError | None = None) -> None:
        """An attempt has failed with `problem`, or the cursor is not unopened any more. Wakes the callers that wait."""
        self.problem = problem
        ended, self._attempt_ended = self._attempt_ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)

    async def wait_for_attempt(self) -> None:
        """Returns when the attempt in flight, or the next one, has ended."""
        if self._attempt_ended is None:
            self._attempt_ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._attempt_ended)
