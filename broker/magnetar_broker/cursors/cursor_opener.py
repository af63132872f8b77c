"""Opens a topic's durable cursors, and holds those that are not open.

All nodes are read first (`read_nodes`). A cursor without a ledger is open then. The other cursors are unopened, in one
of two states:

    opening    Its ledger is being fenced and read, or it waits for a slot (opening_slots.py). If its bookies or the
               metadata store are unavailable, it is retried for as long as the topic is served.
    damaged    Its node can't be decoded, or a record of its ledger is damaged on all bookies: `problem` is a
               `DamagedCursor`. It is not retried. An administrator resets the cursor (`replace`) or deletes it.

An unopened cursor does not delay other subscriptions. The log is retained from the mark-delete position in its node on.
That is at or before the cursor's own, so all entries that the subscription has not acknowledged are retained. If the
node can't be decoded, the whole log is retained.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_deletion import log_leaked_ledger
from magnetar_broker.cursors.cursor_ledger import damaged_cursor, read_cursor_ledger
from magnetar_broker.cursors.cursor_nodes import StoredNode, point_node
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.opening_slots import FIRST_SLICE_S, OpeningSlots
from magnetar_broker.errors import BrokerError, DamagedCursor, TopicUnloaded
from magnetar_broker.managed_ledger.interface import LogPositions
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["CursorOpener", "UnopenedCursor", "create_state", "first_error"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_OPENED_AT_ONCE: Final = 16
# The first pause between two attempts to open a cursor, and the longest.
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
# How long an administrator's change waits for the first attempt.
_CHANGE_WAITS_S: Final = 3.0
# The number of moves of a new cursor is below this, so that it stays within its field in the clients' protocol.
_MAX_FIRST_MOVES: Final = 2**31


class UnopenedCursor:
    """A durable cursor whose ledger is not read yet, or which is damaged."""

    __slots__ = ("_attempt_ended", "mark_delete", "name", "problem", "properties", "slots", "stored", "task")

    def __init__(self, name: str, stored: StoredNode, slots: OpeningSlots) -> None:
        node = stored.node
        self.name = name
        self.stored = stored
        # Limits how many cursors of the topic are read at a time.
        self.slots = slots
        # Everything up to here is acknowledged, perhaps more.
        self.mark_delete = Position(node.mark_delete.ledger_id, node.mark_delete.entry_id)
        self.properties: Mapping[str, str] = dict(node.properties)
        # Why the last attempt failed; None: the first is in progress.
        self.problem: BrokerError | None = None
        # Opens the cursor. None: it is damaged, or is being replaced or deleted.
        self.task: asyncio.Task[None] | None = None
        self._attempt_ended: asyncio.Future[None] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether the cursor can't be read until it is replaced."""
        return isinstance(self.problem, DamagedCursor)

    @property
    def reason(self) -> str:
        """Why it is not open."""
        return str(self.problem) if self.problem is not None else "its cursor is being opened"

    def end_attempt(self, problem: BrokerError | None = None) -> None:
        """Wake the callers of `wait_for_attempt`. None: the cursor is not unopened any more."""
        self.problem = problem
        ended, self._attempt_ended = self._attempt_ended, None
        if ended is not None and not ended.done():
            ended.set_result(None)

    async def wait_for_attempt(self) -> None:
        """Wait until the current attempt, or else the next one, has ended."""
        if self._attempt_ended is None:
            self._attempt_ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._attempt_ended)


class CursorOpener:
    __slots__ = ("_context", "_log", "_on_open", "_problem", "_randomness", "_unopened")

    def __init__(
        self,
        context: CursorContext,
        log: LogPositions,
        randomness: Randomness,
        on_open: Callable[[DurableCursor], object],
    ) -> None:
        """`on_open` is called for each cursor as soon as it is open."""
        self._context = context
        self._log = log
        self._randomness = randomness
        self._on_open = on_open
        # Cursors that are being opened, replaced or deleted, or are damaged.
        self._unopened: dict[str, UnopenedCursor] = {}
        # Why no cursor is opened any more.
        self._problem: TopicUnloaded | None = None

    def names(self) -> list[str]:
        return list(self._unopened)

    def unopened_cursors(self) -> list[UnopenedCursor]:
        return list(self._unopened.values())

    def find(self, name: str) -> UnopenedCursor | None:
        return self._unopened.get(name)

    # Opening.

    async def read_nodes(self) -> list[DurableCursor]:
        """Read all nodes and begin to open the cursors, once. Raises `BrokerError`.

        Return the cursors that an earlier owner began to delete: the caller deletes them.
        """
        gate = asyncio.Semaphore(_OPENED_AT_ONCE)
        slots = OpeningSlots(_OPENED_AT_ONCE, self._context.clock)

        async def read_one(name: str) -> StoredNode:
            async with gate:
                return await self._context.nodes.read(name)

        names = await self._context.nodes.list_names()
        try:
            async with OrderedTaskGroup() as tasks:
                reads = [(name, tasks.create_task(read_one(name))) for name in names]
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        deleted = []
        for name, task in reads:
            stored = task.result()
            unopened = UnopenedCursor(name, stored, slots)
            if stored.decode_error:
                self._add_damaged(unopened, damaged_cursor(self._context.describe(name), stored.decode_error))
            # A node of another incarnation was left by the deletion of an earlier topic of this name.
            elif stored.exists and (stored.node.deleted or stored.node.incarnation != self._context.incarnation):
                deleted.append(self.create_deletable(unopened))
            elif stored.exists:
                self._begin_opening(unopened)
        return deleted

    def _begin_opening(self, unopened: UnopenedCursor) -> None:
        if unopened.stored.ledger_id:
            self._unopened[unopened.name] = unopened
            unopened.task = self._context.tasks.spawn(self._open(unopened))
        else:
            self._on_open(self._create_cursor(unopened, self._create_state(unopened)))

    async def _open(self, unopened: UnopenedCursor) -> None:
        """Try until the cursor is open, or found damaged. Raises `TopicUnloaded`."""
        pause_s, slice_s = _PAUSE_S, FIRST_SLICE_S
        while True:
            try:
                cursor = await unopened.slots.run_read(lambda: self._read(unopened), slice_s)
                break
            except TopicUnloaded:
                raise
            except DamagedCursor as error:
                unopened.task = None
                self._add_damaged(unopened, error)
                return
            except (BrokerError, TimeoutError) as error:
                if isinstance(error, TimeoutError):
                    error = self._not_opened_within(unopened, slice_s)
                    slice_s *= 2
                _log.warning("%s; retrying in %.1f s", error, pause_s)
                unopened.end_attempt(error)
            await self._context.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        del self._unopened[unopened.name]
        self._on_open(cursor)
        unopened.end_attempt()

    async def _read(self, unopened: UnopenedCursor) -> DurableCursor:
        state = self._create_state(unopened)
        description = self._context.describe(unopened.name)
        await read_cursor_ledger(self._context.client, unopened.stored.ledger_id, state, description)
        return self._create_cursor(unopened, state)

    def _create_state(self, unopened: UnopenedCursor) -> AckState:
        """Return the state in the node. The ledger may have a later one."""
        state = AckState(self._log, unopened.mark_delete, durable=True)
        node = unopened.stored.node
        state.moves, state.take_overs, state.attachment = node.moves, node.take_overs, node.attachment
        return state

    def _create_cursor(self, unopened: UnopenedCursor, state: AckState) -> DurableCursor:
        state.match_log()
        return DurableCursor(self._context, unopened.name, state, unopened.properties, unopened.stored)

    def _add_damaged(self, unopened: UnopenedCursor, problem: DamagedCursor) -> None:
        self._unopened[unopened.name] = unopened
        unopened.end_attempt(problem)
        _log.error("%s; the log is retained from %s on for it", unopened.reason, unopened.mark_delete)

    def _not_opened_within(self, unopened: UnopenedCursor, seconds: float) -> BrokerError:
        return BrokerError(
            ErrorCode.SERVICE_NOT_READY,
            f"{self._context.describe(unopened.name)} can't be opened now: its ledger {unopened.stored.ledger_id} "
            f"was not read within {seconds:g} s",
        )

    # Waiting.

    async def wait_until_open(self, name: str, *, wait_again: bool) -> None:
        while (unopened := self._unopened.get(name)) is not None:
            if self._problem is not None:
                raise self._problem.again()
            if not wait_again:
                await self._wait_for_first_attempt(unopened)
            elif unopened.problem is None or unopened.task is not None:
                await unopened.wait_for_attempt()
            if self._problem is not None:
                raise self._problem.again()
            if unopened.problem is not None:
                raise unopened.problem.again()

    async def _wait_for_first_attempt(self, unopened: UnopenedCursor) -> None:
        """Wait until an attempt has failed, or the cursor is not unopened any more. Raises `BrokerError` if that takes
        longer than `_CHANGE_WAITS_S`."""
        if unopened.problem is not None:
            return
        loop = asyncio.get_running_loop()
        timer = self._context.clock.call_later(_CHANGE_WAITS_S, lambda: deadline.reschedule(loop.time()))
        try:
            async with asyncio.timeout(None) as deadline:
                await unopened.wait_for_attempt()
        except TimeoutError:
            raise self._not_opened_within(unopened, _CHANGE_WAITS_S) from None
        finally:
            timer.cancel()

    # Replacing and deleting.

    async def run_with_opening_stopped(
        self, unopened: UnopenedCursor, change: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Stop opening the cursor, and run the change, even if the caller is cancelled. Then open the cursor if it is
        still unopened."""
        # Cancelled before the first await, so the cursor can't be opened in between.
        task, unopened.task = unopened.task, None
        if task is not None:
            task.cancel()

        async def run() -> T:
            try:
                if task is not None:
                    await asyncio.wait([task])
                return await change()
            finally:
                if self.find(unopened.name) is unopened and not unopened.is_damaged and self._problem is None:
                    unopened.task = self._context.tasks.spawn(self._open(unopened))

        return await self._context.tasks.shielded(run())

    async def replace(self, unopened: UnopenedCursor, mark_delete: Position) -> DurableCursor:
        """Point the node at this position and no ledger, durably; within `run_with_opening_stopped`. The caller deletes
        the former ledger.

        Raises `BrokerError`: then the cursor is as before.
        """
        # A new random number of moves: the one in the node is an old one, and clients compare it to drop messages that
        # were delivered before the move.
        state = create_state(self._log, mark_delete, self._randomness)
        undecoded = unopened.stored.value if unopened.stored.decode_error else None
        node = unopened.stored.node
        node.incarnation = self._context.incarnation
        point_node(node, 0, state.mark_delete, state.moves, 0)
        await self._context.nodes.write(unopened.name, unopened.stored, node)
        if self._problem is not None:
            raise self._problem.again()
        cursor = DurableCursor(self._context, unopened.name, state, unopened.properties, unopened.stored)
        self._on_open(cursor)
        self.remove(unopened.name)
        _log.warning("%s continues from %s: its later acknowledgements are lost", cursor, state.mark_delete)
        if undecoded is not None:
            log_leaked_ledger(str(cursor), undecoded)
        return cursor

    def create_deletable(self, unopened: UnopenedCursor) -> DurableCursor:
        """Return a cursor that can only be deleted: it has the node, but not the acknowledgements."""
        return DurableCursor(self._context, unopened.name, self._create_state(unopened), {}, unopened.stored)

    def remove(self, name: str) -> None:
        """Remove an unopened cursor if there is one of this name, and wake the callers that wait for it."""
        if (unopened := self._unopened.pop(name, None)) is not None:
            unopened.end_attempt()

    def abandon(self, problem: TopicUnloaded) -> None:
        """Wake all callers that wait. The owner of the tasks cancels them."""
        self._problem = self._problem or problem
        for unopened in self._unopened.values():
            unopened.task = None
            unopened.end_attempt(problem)


def create_state(log: LogPositions, mark_delete: Position, randomness: Randomness) -> AckState:
    """Return the state of a new cursor at this position, or at the next one that the log has.

    Its number of moves is random: clients distinguish it from an earlier cursor of the same name by that number.
    """
    state = AckState(log, mark_delete, durable=True)
    state.match_log()
    state.moves = randomness.below(_MAX_FIRST_MOVES)
    return state


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to raise: a `TopicUnloaded` if there is one, else the first."""
    for error in group.exceptions:
        if isinstance(error, TopicUnloaded):
            return error
    return group.exceptions[0]
