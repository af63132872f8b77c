"""The durable cursors of one topic, in one broker's life of it.

Opening them takes them from the broker that had them (cursor_nodes.py) and reads their nodes. Then the topic is served,
and the ledgers of those that have one are fenced and read in tasks: a cursor that takes long, or is damaged, holds up
its own subscription alone (unopened_cursor.py). Cursors whose deletion was begun are deleted. When it turns out that
another broker has done the same, `on_lost` is called, once, and from then on everything is refused.

Whoever trims the log asks `slowest_saved`. A cursor that is being made counts from the moment at which it was asked
for, one that is being deleted until the metadata store says that it is, and one that is not opened by its node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.core.ack_state import AckState, LogPlaces
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, DamagedCursor, TopicGivenUp
from magnetar_broker.managed_ledger.cursor import TransientCursor
from magnetar_broker.managed_ledger.cursor_home import CursorHome
from magnetar_broker.managed_ledger.cursor_ledger import (
    damaged_cursor,
    delete_all_ledgers,
    fence_ledger,
    read_cursor_ledger,
)
from magnetar_broker.managed_ledger.cursor_nodes import LOGGED_BYTES, CursorNodes, KnownNode
from magnetar_broker.managed_ledger.cursor_options import CursorOptions
from magnetar_broker.managed_ledger.durable_cursor import DurableCursor
from magnetar_broker.managed_ledger.interface import Unopened
from magnetar_broker.managed_ledger.owned_tasks import OwnedTasks
from magnetar_broker.managed_ledger.unopened_cursor import UnopenedCursor
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode, CursorPlace
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["CursorTable", "delete_cursors"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
MAX_NAME_BYTES: Final = 255
MAX_PROPERTIES_BYTES: Final = 65_536
# Where a cursor's count of its moves begins: below that, so that there is room for more in what clients are told.
_MOST_MOVES: Final = 2**31
# Cursors that are opened, or closed, at a time.
_AT_ONCE: Final = 16
# Between two attempts to open one: the first pause, and the longest.
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class CursorLog(LogPlaces, Protocol):
    """What cursors ask of their log; see `interface.Log`."""

    @property
    def name(self) -> TopicName: ...

    @property
    def incarnation(self) -> str: ...

    @property
    def still_ours(self) -> Sequence[Check]:
        """What goes into a transaction that is to be made only if the topic is still this life's."""


class CursorTable:
    __slots__ = (
        "_cursors",
        "_deleting",
        "_home",
        "_log",
        "_lost",
        "_making",
        "_randomness",
        "_tasks",
        "_transient",
        "_turn",
        "_unopened",
        "on_lost",
    )

    def __init__(
        self,
        log: CursorLog,
        client: LedgerClient,
        options: CursorOptions,
        clock: Clock,
        randomness: Randomness,
        nodes: CursorNodes,
    ) -> None:
        self.on_lost: Callable[[TopicGivenUp], object] = lambda _: None
        self._log = log
        self._randomness = randomness
        self._tasks = OwnedTasks(self._task_failed)
        self._home = CursorHome(str(log.name), log.incarnation, client, nodes, options, clock, self._tasks)
        self._cursors: dict[str, DurableCursor] = {}
        # Being made, from where; and being deleted.
        self._making: dict[str, Position] = {}
        self._deleting: dict[str, DurableCursor] = {}
        # Being opened, or damaged.
        self._unopened: dict[str, UnopenedCursor] = {}
        # The place among the cursors of the one whose former ledgers were deleted last.
        self._turn = 0
        # Those that somebody still holds, by the order in which they were made.
        self._transient: weakref.WeakValueDictionary[int, TransientCursor] | None = None
        # Why all is refused.
        self._lost: TopicGivenUp | None = None

    @classmethod
    async def open(
        cls,
        log: CursorLog,
        client: LedgerClient,
        options: CursorOptions,
        clock: Clock,
        randomness: Randomness,
        nodes: CursorNodes | None = None,
    ) -> CursorTable:
        """`nodes` are claimed, if they are given. Raises `BrokerError`."""
        if nodes is None:
            nodes = CursorNodes(log.name, client, clock, randomness)
            await nodes.claim(log.incarnation, lambda: log.still_ours)
        table = cls(log, client, options, clock, randomness, nodes)
        await table.open_all()
        return table

    async def open_all(self) -> None:
        """Reads all nodes and begins to open the cursors, once. Nothing else is called before. Raises `BrokerError`."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def read_one(name: str) -> KnownNode:
            async with gate:
                return await self._home.nodes.read(name)

        names = await self._home.nodes.names()
        try:
            async with OrderedTaskGroup() as tasks:
                reading = [(name, tasks.create_task(read_one(name))) for name in names]
        except BaseExceptionGroup as group:
            raise _first(group) from group
        for name, task in reading:
            if task.result().exists:
                self._begin_opening(name, task.result(), gate)

    def _begin_opening(self, name: str, known: KnownNode, gate: asyncio.Semaphore) -> None:
        node = known.node
        unopened = UnopenedCursor(name, known, gate)
        if known.foreign:
            unopened.attempted(damaged_cursor(self._described(name), known.foreign))
            self._damaged(unopened)
        elif node.deleted or node.incarnation != self._home.incarnation:
            # Of a topic that was deleted, so it was to go with it.
            left = self._deleting[name] = DurableCursor(self._home, name, self._state_of(unopened), {}, known)
            self._tasks.spawn(self._finish_deletion(left))
        elif not node.ledger_id:
            state = self._state_of(unopened)
            state.settle()
            self._cursors[name] = DurableCursor(self._home, name, state, unopened.properties, known)
        else:
            self._unopened[name] = unopened
            unopened.task = self._tasks.spawn(self._open_cursor(unopened))

    def _state_of(self, unopened: UnopenedCursor) -> AckState:
        """As the node knows it."""
        state = AckState(self._log, unopened.place, durable=True)
        state.moves, state.take_overs = unopened.known.node.moves, unopened.known.node.take_overs
        return state

    async def _open_cursor(self, unopened: UnopenedCursor) -> None:
        """Until it is opened, or found damaged. Raises `TopicGivenUp`."""
        pause_s = _PAUSE_S
        while True:
            try:
                async with unopened.gate:
                    cursor = await self._read_cursor(unopened)
                break
            except TopicGivenUp:
                raise
            except DamagedCursor as error:
                unopened.task = None
                unopened.attempted(error)
                self._damaged(unopened)
                return
            except BrokerError as error:
                _log.warning("%s, again in %.1f s", error, pause_s)
                unopened.attempted(error)
            await self._home.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        del self._unopened[unopened.name]
        self._cursors[unopened.name] = cursor
        unopened.attempted()

    async def _read_cursor(self, unopened: UnopenedCursor) -> DurableCursor:
        home, name, known = self._home, unopened.name, unopened.known
        node, state = known.node, self._state_of(unopened)
        if node.ledger_id:
            await read_cursor_ledger(home.client, node.ledger_id, state, self._described(name))
        state.settle()
        return DurableCursor(home, name, state, unopened.properties, known)

    def _damaged(self, unopened: UnopenedCursor) -> None:
        self._unopened[unopened.name] = unopened
        _log.error("%s; the log is kept from %s on for it", unopened.reason, unopened.place)

    def _described(self, name: str) -> str:
        return f"cursor {name!r} of {self._home.topic}"

    # ── what there is ──

    def get(self, name: str) -> DurableCursor | None:
        return self._cursors.get(name)

    def durable(self) -> list[DurableCursor]:
        return list(self._cursors.values())

    def names(self) -> list[str]:
        return [*self._cursors, *self._unopened]

    def unopened(self) -> Sequence[Unopened]:
        return list(self._unopened.values())

    async def opened(self, name: str, *, wait_again: bool = True) -> None:
        while (unopened := self._unopened.get(name)) is not None:
            if unopened.problem is None or (wait_again and unopened.task is not None):
                await unopened.wait()
            self._check_open()
            if unopened.problem is not None:
                raise unopened.problem.again()

    async def all_attempted(self) -> None:
        """Returns when each cursor is opened, or one attempt at it has failed."""
        for unopened in list(self._unopened.values()):
            while self._lost is None and unopened.task is not None and unopened.problem is None:
                if self._unopened.get(unopened.name) is not unopened:
                    break
                await unopened.wait()

    def slowest_saved(self) -> Position | None:
        places = [cursor.saved_mark_delete for cursor in self._cursors.values()]
        places += self._making.values()
        places += [unopened.place for unopened in self._unopened.values()]
        return min(places, default=None)

    def log_was_trimmed(self) -> None:
        for cursor in self._cursors.values():
            cursor.log_was_trimmed()
        for transient in list((self._transient or {}).values()):
            transient.log_was_trimmed()

    def tick(self, now: float) -> None:
        """To be called now and then, with the monotonic clock's time."""
        for cursor in self._cursors.values():
            cursor.tick(now)
        # One at a time, since all of them have such ledgers after a take-over; in turn, since one that can't be deleted
        # would keep the others waiting.
        cursors = list(self._cursors.values())
        if any(cursor.is_deleting_ledgers for cursor in cursors):
            return
        for _ in cursors:
            self._turn = (self._turn + 1) % len(cursors)
            if cursors[self._turn].delete_left_ledgers():
                break

    # ── what comes and goes ──

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> DurableCursor:
        self._check_open()
        _check_name(name)
        _check_properties(properties)
        if name in self._cursors or name in self._making or name in self._unopened:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"{self._home.topic} has a subscription {name!r} already")
        limit = self._home.options.max_subscriptions_per_topic
        if len(self._cursors) + len(self._making) + len(self._unopened) >= limit:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{self._home.topic} has {limit} subscriptions, and may have no more: delete one, or raise "
                "max_subscriptions_per_topic",
            )
        # It is held against trimming from now on, at a place that there is now.
        state = AckState(self._log, mark_delete, durable=True)
        state.settle()
        # Another number than a cursor of the same name had that was deleted: clients tell the two apart by it.
        state.moves = self._randomness.below(_MOST_MOVES)
        self._making[name] = state.mark_delete
        return await self._tasks.shielded(self._create(name, state, properties))

    async def _create(self, name: str, state: AckState, properties: Mapping[str, str]) -> DurableCursor:
        try:
            left = self._deleting.get(name)
            if left is not None:
                await left.delete()
                self._deleting.pop(name, None)
            mark_delete = state.mark_delete
            node = CursorNode(
                incarnation=self._home.incarnation,
                mark_delete=CursorPlace(ledger_id=mark_delete.ledger_id, entry_id=mark_delete.entry_id),
                properties=properties,
                moves=state.moves,
            )
            known = KnownNode()
            await self._home.nodes.write(name, known, node)
            self._check_open()
            cursor = self._cursors[name] = DurableCursor(self._home, name, state, dict(properties), known)
            return cursor
        except TopicGivenUp as error:
            self._lose(error)
            raise
        finally:
            del self._making[name]

    async def replace(self, name: str, mark_delete: Position) -> DurableCursor:
        """Moves a cursor that is damaged, or can't be opened now, durably. Its other acknowledgements are lost.

        Raises `BrokerError`; then it is as before, and is being opened unless it is damaged.
        """
        self._check_open()
        unopened = self._unopened.get(name)
        if unopened is None:
            raise self._not_there(name)
        return await self._with_opening_stopped(unopened, lambda: self._replace(unopened, mark_delete))

    async def _replace(self, unopened: UnopenedCursor, mark_delete: Position) -> DurableCursor:
        name = unopened.name
        state = AckState(self._log, mark_delete, durable=True)
        state.settle()
        # The node knows too few of its moves, and clients tell what was before the move by another number.
        state.moves = self._randomness.below(_MOST_MOVES)
        foreign = unopened.known.value if unopened.known.foreign else None
        node = unopened.known.node
        node.incarnation = self._home.incarnation
        if node.ledger_id:
            node.deleting.append(node.ledger_id)
        node.ledger_id, node.moves, node.take_overs = 0, state.moves, 0
        place = state.mark_delete
        node.mark_delete.CopyFrom(CursorPlace(ledger_id=place.ledger_id, entry_id=place.entry_id))
        try:
            await self._home.nodes.write(name, unopened.known, node)
            self._check_open()
            cursor = self._cursors[name] = DurableCursor(self._home, name, state, unopened.properties, unopened.known)
            self._drop_unopened(name)
            _log.warning("%s goes on from %s: what it knew was given up", cursor, place)
            if foreign is not None:
                _log_leaked_ledger(str(cursor), foreign)
            await cursor.delete_former_ledgers()
        except TopicGivenUp as error:
            self._lose(error)
            raise
        return cursor

    async def _with_opening_stopped(self, unopened: UnopenedCursor, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Stops the opening of the cursor and runs the change, to its end even if the caller is cancelled. Opens the
        cursor again if it is still there then."""
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
                if self._unopened.get(unopened.name) is unopened and not unopened.damaged and self._lost is None:
                    unopened.task = self._tasks.spawn(self._open_cursor(unopened))

        return await self._tasks.shielded(run())

    def _drop_unopened(self, name: str) -> None:
        """Removes it, if it is there, and wakes who waits for it."""
        if (unopened := self._unopened.pop(name, None)) is not None:
            unopened.attempted()

    def create_transient(self, name: str, mark_delete: Position) -> TransientCursor:
        state = AckState(self._log, mark_delete)
        state.settle()
        cursor = TransientCursor(name, state, {})
        if self._transient is None:
            self._transient = weakref.WeakValueDictionary()
        self._transient[max(self._transient, default=0) + 1] = cursor
        return cursor

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replaces a subscription's properties, durably. Raises `BrokerError`."""
        self._check_open()
        _check_properties(properties)
        cursor = self._cursors.get(name)
        if cursor is None:
            raise self._not_there(name)
        try:
            await cursor.set_properties(properties)
        except TopicGivenUp as error:
            self._lose(error)
            raise

    def _not_there(self, name: str) -> BrokerError:
        return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self._home.topic} has no subscription {name!r}")

    async def delete(self, name: str) -> None:
        """Raises `BrokerError`; then it is there as before."""
        self._check_open()
        cursor = self._cursors.get(name)
        if (unopened := self._unopened.get(name)) is not None:
            await self._with_opening_stopped(unopened, lambda: self._delete_unopened(unopened))
        elif cursor is not None:
            await self._tasks.shielded(self._delete(cursor))
        else:
            raise self._not_there(name)

    async def _delete_unopened(self, unopened: UnopenedCursor) -> None:
        foreign = unopened.known.value if unopened.known.foreign else None
        await self._delete(DurableCursor(self._home, unopened.name, self._state_of(unopened), {}, unopened.known))
        if foreign is not None:
            _log_leaked_ledger(self._described(unopened.name), foreign)

    async def _delete(self, cursor: DurableCursor) -> None:
        """It is deleted when its node says so. What is left of it goes now, or with the next chance."""
        try:
            await cursor.mark_deleted()
            self._cursors.pop(cursor.name, None)
            self._drop_unopened(cursor.name)
            self._deleting[cursor.name] = cursor
            await cursor.delete()
            self._deleting.pop(cursor.name, None)
        except TopicGivenUp as error:
            self._lose(error)
            raise
        except BrokerError as error:
            if cursor.name not in self._deleting:
                raise
            _log.warning("%s is not all gone yet: %s", cursor, error)

    async def _finish_deletion(self, cursor: DurableCursor) -> None:
        """Of one whose deletion was begun in another life."""
        try:
            await cursor.delete()
        except TopicGivenUp:
            raise
        except BrokerError as error:
            _log.warning("%s is not all gone yet: %s", cursor, error)
        else:
            self._deleting.pop(cursor.name, None)

    # ── its end ──

    async def settle(self) -> None:
        """Saves everything before consumers are told that it is over: those who wait for receipts get them."""

        async def settle(cursor: DurableCursor) -> None:
            with contextlib.suppress(BrokerError):  # those who wait for a receipt are told
                await cursor.settle()

        await self._with_each(settle)

    async def close(self) -> None:
        """Saves everything. Raises `BrokerError`, and has then given up what could not be saved."""
        try:
            await self._with_each(DurableCursor.close)
        finally:
            self.abandon()

    async def _with_each(self, work: Callable[[DurableCursor], Coroutine[Any, Any, None]]) -> None:
        """For all cursors, some at a time."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def work_on(cursor: DurableCursor) -> None:
            async with gate:
                await work(cursor)

        try:
            async with OrderedTaskGroup() as tasks:
                for cursor in list(self._cursors.values()):
                    tasks.create_task(work_on(cursor))
        except BaseExceptionGroup as group:
            raise _first(group) from group

    def abandon(self) -> None:
        """Stops at once. What had no receipt is saved or not."""
        self._end(TopicGivenUp(f"{self._home.topic} was closed"))

    def _task_failed(self, error: BaseException) -> None:
        if not isinstance(error, TopicGivenUp):
            _log.error("%s is given up", self._home.topic, exc_info=error)
            error = TopicGivenUp(f"{self._home.topic} was given up: {error!r}")
        self._lose(error)

    def _lose(self, error: TopicGivenUp) -> None:
        if self._lost is None:
            self._end(error)
            self.on_lost(error)

    def _end(self, error: TopicGivenUp) -> None:
        if self._lost is None:
            self._lost = error
        for cursor in self._cursors.values():
            cursor.end(error)
        self._tasks.cancel(error)
        for unopened in self._unopened.values():
            unopened.attempted(error)

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost.again()


async def delete_cursors(
    name: TopicName,
    incarnation: str,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    still: Sequence[Check] = (),
) -> None:
    """Deletes all cursors of a topic that is being deleted, ledgers first. Can be called again. Raises `BrokerError`.

    `still`: what must hold as long as that topic is being deleted; `TopicGivenUp`: it does not any more.
    """
    nodes = CursorNodes(name, client, clock, randomness)
    await nodes.claim(incarnation, lambda: still)
    for cursor in await nodes.names():
        known = await nodes.read(cursor)
        if known.exists:
            if known.foreign:
                _log_leaked_ledger(f"cursor {cursor!r} of {name}", known.value)
            node = known.node
            if node.ledger_id:
                # A broker that does not know that it has lost the topic must not acknowledge anything any more.
                await fence_ledger(client, node.ledger_id)
            ledgers = [ledger_id for ledger_id in (*node.deleting, node.ledger_id) if ledger_id]
            await delete_all_ledgers(client, ledgers, f"cursor {cursor!r} of {name}")
            await nodes.remove(cursor, known)
    await nodes.remove_table()


def _log_leaked_ledger(whose: str, value: bytes) -> None:
    """Logs that the ledger which a damaged node named is not deleted: nothing else names it."""
    _log.error(
        "%s: its node can't be decoded and is replaced or deleted, and the ledger that it named, if any, is kept; "
        "the node's %d bytes begin with %s",
        whose, len(value), value[:LOGGED_BYTES].hex(),
    )  # fmt: skip


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"a subscription can't be called {name!r}: half a character is no text"
        ) from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a subscription's name has 1 to {MAX_NAME_BYTES} bytes, and this one has {size}: choose another",
        )


def _check_properties(properties: Mapping[str, str]) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > MAX_PROPERTIES_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a subscription's properties have at most {MAX_PROPERTIES_BYTES} bytes, and these have {size}",
        )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one to be told: what ends the topic, if anything does."""
    for error in group.exceptions:
        if isinstance(error, TopicGivenUp):
            return error
    return group.exceptions[0]
