"""The durable cursors of one topic, in one broker's life of it.

Opening them takes them from the broker that had them (cursor_nodes.py), fences their ledgers and reads them; cursors
whose deletion was begun are deleted. When it turns out that another broker has done the same, `on_lost` is called,
once, and from then on everything is refused.

Whoever trims the log asks `slowest_saved`. A cursor that is being made counts from the moment at which it was asked
for, and one that is being deleted until the metadata store says that it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.core.ack_state import AckState, LogPlaces
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.managed_ledger.cursor import TransientCursor
from magnetar_broker.managed_ledger.cursor_home import CursorHome
from magnetar_broker.managed_ledger.cursor_ledger import delete_ledger, fence_ledger, read_cursor_ledger
from magnetar_broker.managed_ledger.cursor_nodes import CursorNodes, KnownNode
from magnetar_broker.managed_ledger.cursor_options import CursorOptions
from magnetar_broker.managed_ledger.durable_cursor import DurableCursor
from magnetar_broker.managed_ledger.owned_tasks import OwnedTasks
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode, CursorPlace
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["CursorTable", "delete_cursors"]

_log = logging.getLogger(__name__)
MAX_NAME_BYTES: Final = 255
MAX_PROPERTIES_BYTES: Final = 65_536
# Where a cursor's count of its moves begins: below that, so that there is room for more in what clients are told.
_MOST_MOVES: Final = 2**31
# Cursors that are opened, or closed, at a time.
_AT_ONCE: Final = 16


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
            await nodes.claim(lambda: log.still_ours)
        table = cls(log, client, options, clock, randomness, nodes)
        await table.open_all()
        return table

    async def open_all(self) -> None:
        """Opens all cursors, once; `nodes` are claimed. Nothing else is called before. Raises `BrokerError`."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def open_one(name: str) -> DurableCursor | None:
            async with gate:
                return await self._open_cursor(name)

        names = await self._home.nodes.names()
        try:
            async with OrderedTaskGroup() as tasks:
                opening = [(name, tasks.create_task(open_one(name))) for name in names]
        except BaseExceptionGroup as group:
            raise _first(group) from group
        for name, task in opening:
            cursor = task.result()
            if cursor is not None:
                self._cursors[name] = cursor

    async def _open_cursor(self, name: str) -> DurableCursor | None:
        home = self._home
        known = await home.nodes.read(name)
        if known.payload is None:
            return None
        node = known.node
        mark_delete = Position(node.mark_delete.ledger_id, node.mark_delete.entry_id)
        state = AckState(self._log, mark_delete, durable=True)
        state.moves, state.take_overs = node.moves, node.take_overs
        if node.deleted or node.incarnation != home.incarnation:
            # Of a topic that was deleted, so it was to go with it.
            await DurableCursor(home, name, state, {}, known).delete()
            return None
        if node.ledger_id:
            await read_cursor_ledger(home.client, node.ledger_id, state, f"cursor {name!r} of {home.topic}")
        state.settle()
        return DurableCursor(home, name, state, dict(node.properties), known)

    # ── what there is ──

    def get(self, name: str) -> DurableCursor | None:
        return self._cursors.get(name)

    def durable(self) -> list[DurableCursor]:
        return list(self._cursors.values())

    def slowest_saved(self) -> Position | None:
        places = [cursor.saved_mark_delete for cursor in self._cursors.values()]
        places += self._making.values()
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
        # One at a time, since all of them have such ledgers after a take-over.
        for cursor in self._cursors.values():
            if cursor.delete_left_ledgers():
                break

    # ── what comes and goes ──

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> DurableCursor:
        self._check_open()
        _check_name(name)
        _check_properties(properties)
        if name in self._cursors or name in self._making:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"{self._home.topic} has a subscription {name!r} already")
        limit = self._home.options.max_subscriptions_per_topic
        if len(self._cursors) + len(self._making) >= limit:
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
        if cursor is None:
            raise self._not_there(name)
        await self._tasks.shielded(self._delete(cursor))

    async def _delete(self, cursor: DurableCursor) -> None:
        """It is deleted when its node says so. What is left of it goes now, or with the next chance."""
        try:
            await cursor.mark_deleted()
            self._cursors.pop(cursor.name, None)
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

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost.again()


async def delete_cursors(
    name: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness, still: Sequence[Check] = ()
) -> None:
    """Of a topic that is being deleted: all of them, ledgers first. It may be called again. Raises `BrokerError`.

    `still`: what must hold as long as that topic is being deleted; `TopicGivenUp`: it does not any more.
    """
    nodes = CursorNodes(name, client, clock, randomness)
    await nodes.claim(lambda: still)
    for cursor in await nodes.names():
        known = await nodes.read(cursor)
        if known.payload is not None:
            node = known.node
            if node.ledger_id:
                # A broker that does not know that it has lost the topic must not acknowledge anything any more.
                await fence_ledger(client, node.ledger_id)
            for ledger_id in (*node.deleting, node.ledger_id):
                if ledger_id:
                    await delete_ledger(client, ledger_id)
            await nodes.remove(cursor, known)
    await nodes.remove_table()


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
