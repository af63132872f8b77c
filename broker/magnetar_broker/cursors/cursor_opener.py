"""Opens a topic's durable cursors, and holds the cursors that are not open.

The nodes are read at once (`read_nodes`). A cursor without a ledger is open then. The ledgers of the others are fenced
and read in tasks, `_OPENED_AT_ONCE` at a time (broker/magnetar_broker/cursors/opening_slots.py). An attempt that fails
because of its bookies or the metadata store, or that others need the place of, is repeated for as long as the topic is
served. A cursor that is damaged, its node or a record of its ledger, is not retried. Its subscription is refused until
an administrator moves the cursor (`replace`) or deletes it. See unopened_cursor.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from magnetar_broker.cursors.ack_state import AckState, LogPositions
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_deletion import log_leaked_ledger
from magnetar_broker.cursors.cursor_ledger import damaged_cursor, read_cursor_ledger
from magnetar_broker.cursors.cursor_nodes import KnownNode, point_node
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.opening_slots import FIRST_SLICE_S, OpeningSlots
from magnetar_broker.cursors.unopened_cursor import UnopenedCursor
from magnetar_broker.errors import BrokerError, DamagedCursor, TopicUnloaded
from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["CursorOpener", "begin_state", "first_error"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
_OPENED_AT_ONCE: Final = 16
# Between two attempts to open one: the first pause, and the longest.
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
# How long an administrator's change waits for the first attempt.
_CHANGE_WAITS_S: Final = 3.0
# A cursor's count of its moves begins below this, so that it stays within the field that clients get it in.
_MAX_FIRST_MOVES: Final = 2**31


class CursorOpener:
    __slots__ = ("_ended", "_home", "_log", "_on_open", "_randomness", "_unopened")

    def __init__(
        self, home: CursorContext, log: LogPositions, randomness: Randomness, on_open: Callable[[DurableCursor], object]
    ) -> None:
        """`on_open` is called for each cursor, in the turn of the event loop in which it is open."""
        self._home = home
        self._log = log
        self._randomness = randomness
        self._on_open = on_open
        # Being opened, replaced or deleted, or damaged.
        self._unopened: dict[str, UnopenedCursor] = {}
        # Why nothing is opened any more.
        self._ended: TopicUnloaded | None = None

    def names(self) -> list[str]:
        return list(self._unopened)

    def unopened(self) -> list[UnopenedCursor]:
        return list(self._unopened.values())

    def find(self, name: str) -> UnopenedCursor | None:
        return self._unopened.get(name)

    # Opening.

    async def read_nodes(self) -> list[DurableCursor]:
        """Read all nodes and begin to open the cursors, once. Returns those whose deletion was begun in an earlier
        owner epoch, for the caller to delete. Raises `BrokerError`."""
        gate = asyncio.Semaphore(_OPENED_AT_ONCE)
        places = OpeningSlots(_OPENED_AT_ONCE, self._home.clock)

        async def read_one(name: str) -> KnownNode:
            async with gate:
                return await self._home.nodes.read(name)

        names = await self._home.nodes.names()
        try:
            async with OrderedTaskGroup() as tasks:
                reading = [(name, tasks.create_task(read_one(name))) for name in names]
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        deleted = []
        for name, task in reading:
            known = task.result()
            unopened = UnopenedCursor(name, known, places)
            # A cursor of a former topic of this name: the deletion of that topic has left it.
            if known.foreign:
                self._keep_damaged(unopened, damaged_cursor(self._describe(name), known.foreign))
            elif known.exists and (known.node.deleted or known.node.incarnation != self._home.incarnation):
                deleted.append(self.make_deletable(unopened))
            elif known.exists:
                self._begin_opening(unopened)
        return deleted

    def _begin_opening(self, unopened: UnopenedCursor) -> None:
        if unopened.known.ledger_id:
            self._unopened[unopened.name] = unopened
            unopened.task = self._home.tasks.spawn(self._open(unopened))
        else:
            self._on_open(self._make_cursor(unopened, self._make_state(unopened)))

    async def _open(self, unopened: UnopenedCursor) -> None:
        """Try until it is open, or found damaged. Raises `TopicUnloaded`."""
        pause_s, slice_s = _PAUSE_S, FIRST_SLICE_S
        while True:
            try:
                cursor = await unopened.places.run_read(lambda: self._read(unopened), slice_s)
                break
            except TopicUnloaded:
                raise
            except DamagedCursor as error:
                unopened.task = None
                self._keep_damaged(unopened, error)
                return
            except (BrokerError, TimeoutError) as error:
                if isinstance(error, TimeoutError):
                    error = self._not_opened_within(unopened, slice_s)
                    slice_s *= 2
                _log.warning("%s; retrying in %.1f s", error, pause_s)
                unopened.end_attempt(error)
            await self._home.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        del self._unopened[unopened.name]
        self._on_open(cursor)
        unopened.end_attempt()

    async def _read(self, unopened: UnopenedCursor) -> DurableCursor:
        state = self._make_state(unopened)
        name, ledger_id = unopened.name, unopened.known.ledger_id
        await read_cursor_ledger(self._home.client, ledger_id, state, self._describe(name))
        return self._make_cursor(unopened, state)

    def _make_state(self, unopened: UnopenedCursor) -> AckState:
        """The state in the node; the ledger may have a later one."""
        state = AckState(self._log, unopened.mark_delete, durable=True)
        state.moves, state.take_overs = unopened.known.node.moves, unopened.known.node.take_overs
        return state

    def _make_cursor(self, unopened: UnopenedCursor, state: AckState) -> DurableCursor:
        state.settle()
        return DurableCursor(self._home, unopened.name, state, unopened.properties, unopened.known)

    def _keep_damaged(self, unopened: UnopenedCursor, problem: DamagedCursor) -> None:
        self._unopened[unopened.name] = unopened
        unopened.end_attempt(problem)
        _log.error("%s; the log is retained from %s on for it", unopened.reason, unopened.mark_delete)

    def _not_opened_within(self, unopened: UnopenedCursor, seconds: float) -> BrokerError:
        return BrokerError(
            ErrorCode.SERVICE_NOT_READY,
            f"{self._describe(unopened.name)} can't be opened now: its ledger {unopened.known.ledger_id} "
            f"was not read within {seconds:g} s",
        )

    def _describe(self, name: str) -> str:
        return f"cursor {name!r} of {self._home.topic}"

    # Waiting.

    async def wait_until_open(self, name: str, *, wait_again: bool) -> None:
        """See `interface.CursorTable`."""
        while (unopened := self._unopened.get(name)) is not None:
            if self._ended is not None:
                raise self._ended.again()
            if not wait_again:
                await self._wait_for_first_attempt(unopened)
            elif unopened.problem is None or unopened.task is not None:
                await unopened.wait_for_attempt()
            if self._ended is not None:
                raise self._ended.again()
            if unopened.problem is not None:
                raise unopened.problem.again()

    async def _wait_for_first_attempt(self, unopened: UnopenedCursor) -> None:
        """Return when an attempt has failed, or the cursor is not unopened any more. Raises `BrokerError` where that
        takes longer than `_CHANGE_WAITS_S`."""
        if unopened.problem is not None:
            return
        loop = asyncio.get_running_loop()
        timer = self._home.clock.call_later(_CHANGE_WAITS_S, lambda: deadline.reschedule(loop.time()))
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
        """Stop the opening of the cursor and run the change, to its end even if the caller is cancelled. Then open the
        cursor again if it is still there."""
        # Cancelled before anything is awaited: it can't become open meanwhile.
        task, unopened.task = unopened.task, None
        if task is not None:
            task.cancel()

        async def run() -> T:
            try:
                if task is not None:
                    await asyncio.wait([task])
                return await change()
            finally:
                if self.find(unopened.name) is unopened and not unopened.is_damaged and self._ended is None:
                    unopened.task = self._home.tasks.spawn(self._open(unopened))

        return await self._home.tasks.shielded(run())

    async def replace(self, unopened: UnopenedCursor, mark_delete: Position) -> DurableCursor:
        """Point the node at this position and no ledger, durably; within `run_with_opening_stopped`. The former ledger
        is left to the cursor to delete.

        Raises `BrokerError`: then the cursor is as before.
        """
        # A new number of moves: the node has an old one, and clients drop deliveries of before the move by the number.
        state = begin_state(self._log, mark_delete, self._randomness)
        undecoded = unopened.known.value if unopened.known.foreign else None
        node = unopened.known.node
        node.incarnation = self._home.incarnation
        point_node(node, 0, state.mark_delete, state.moves, 0)
        await self._home.nodes.write(unopened.name, unopened.known, node)
        if self._ended is not None:
            raise self._ended.again()
        cursor = DurableCursor(self._home, unopened.name, state, unopened.properties, unopened.known)
        self._on_open(cursor)
        self.remove(unopened.name)
        _log.warning("%s continues from %s: its later acknowledgements are lost", cursor, state.mark_delete)
        if undecoded is not None:
            log_leaked_ledger(str(cursor), undecoded)
        return cursor

    def make_deletable(self, unopened: UnopenedCursor) -> DurableCursor:
        """A cursor that is only good for being deleted: it knows the node, and not its acknowledgements."""
        return DurableCursor(self._home, unopened.name, self._make_state(unopened), {}, unopened.known)

    def remove(self, name: str) -> None:
        """Removes it, if it is there, and wakes the callers that wait for it."""
        if (unopened := self._unopened.pop(name, None)) is not None:
            unopened.end_attempt()

    def end(self, error: TopicUnloaded) -> None:
        """Wakes all callers that wait. The owner of the tasks cancels them."""
        self._ended = self._ended or error
        for unopened in self._unopened.values():
            unopened.task = None
            unopened.end_attempt(error)


def begin_state(log: LogPositions, mark_delete: Position, randomness: Randomness) -> AckState:
    """The state of a cursor that begins at a position, or at the next one that the log still has.

    Its number of moves is drawn at random: a cursor of the same name that was there before had another one, and clients
    tell the two apart by it.
    """
    state = AckState(log, mark_delete, durable=True)
    state.settle()
    state.moves = randomness.below(_MAX_FIRST_MOVES)
    return state


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to raise: one that ends the topic, if there is any."""
    for error in group.exceptions:
        if isinstance(error, TopicUnloaded):
            return error
    return group.exceptions[0]
