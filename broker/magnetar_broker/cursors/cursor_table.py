"""The durable cursors of one topic, as its owner has them: found, created, deleted, saved and closed.

Opening them takes them from the broker that had them (cursor_nodes.py) and reads their nodes. Then the topic is served,
and the cursors that have a ledger are opened in tasks (cursor_opener.py): a cursor that takes long, or is damaged,
holds up its own subscription alone. Cursors whose deletion was begun by an earlier owner are deleted. When a change
finds that another broker has opened the cursors since, `on_lost` is called, once, and everything is refused from then
on.

Before the first durable cursor of a topic is created, the log records which ledgers were written without one
(managed_ledger/retention_rules.py).

Trimming keeps the log from `find_slowest_position` on. A cursor that is being created counts from the call on, one that
is being deleted until the metadata store has that, and one that is not open by the position in its node.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.ack_state import AckState, LogPositions
from magnetar_broker.cursors.cursor import Cursor, TransientCursor
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_deletion import log_leaked_ledger
from magnetar_broker.cursors.cursor_nodes import CursorNodes, KnownNode, point_node
from magnetar_broker.cursors.cursor_opener import CursorOpener, begin_state, first_error
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.unopened_cursor import UnopenedCursor
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["CursorTable"]

_log = logging.getLogger(__name__)
MAX_NAME_BYTES: Final = 255
MAX_PROPERTIES_BYTES: Final = 65_536
# Cursors that are saved or closed at a time.
_AT_ONCE: Final = 16


class FirstCursorMark(Protocol):
    """The part of `LogRetention` that cursors need."""

    def mark_unsubscribed(self) -> None: ...

    async def save_mark(self) -> None: ...


class CursorLog(LogPositions, Protocol):
    """The part of `interface.Log` that cursors need."""

    @property
    def name(self) -> TopicName: ...

    @property
    def incarnation(self) -> str: ...

    @property
    def ownership_checks(self) -> Sequence[Check]:
        """Checks of a transaction which hold only while the topic is this owner's."""

    @property
    def retention(self) -> FirstCursorMark: ...

    @property
    def striping(self) -> LedgerStriping: ...


class CursorTable:
    __slots__ = (
        "_cursors",
        "_deleting",
        "_home",
        "_log",
        "_lost",
        "_making",
        "_opener",
        "_randomness",
        "_tasks",
        "_transient",
        "_turn",
        "on_lost",
    )

    def __init__(
        self,
        log: CursorLog,
        client: LedgerClient,
        settings: CursorSettings,
        clock: Clock,
        randomness: Randomness,
        nodes: CursorNodes,
    ) -> None:
        self.on_lost: Callable[[TopicUnloaded], object] = lambda _: None
        self._log = log
        self._randomness = randomness
        self._tasks = OwnedTasks(self._task_failed)
        self._home = CursorContext(
            str(log.name), log.incarnation, client, nodes, settings, log.striping, clock, self._tasks
        )
        self._cursors: dict[str, DurableCursor] = {}
        self._opener = CursorOpener(self._home, log, randomness, self._add_open)
        # Being created, with the position at which it begins; and being deleted.
        self._making: dict[str, Position] = {}
        self._deleting: dict[str, DurableCursor] = {}
        # The index among the cursors of the one whose former ledgers were deleted last.
        self._turn = 0
        # Transient cursors that are still in use, by the order in which they were created.
        self._transient: weakref.WeakValueDictionary[int, TransientCursor] | None = None
        # Why everything is refused.
        self._lost: TopicUnloaded | None = None

    @classmethod
    async def open(
        cls,
        log: CursorLog,
        client: LedgerClient,
        settings: CursorSettings,
        clock: Clock,
        randomness: Randomness,
        nodes: CursorNodes | None = None,
    ) -> CursorTable:
        """`nodes` are claimed, if they are given. Raises `BrokerError`."""
        if nodes is None:
            nodes = CursorNodes(log.name, client, clock, randomness)
            await nodes.claim(log.incarnation, lambda: log.ownership_checks)
        table = cls(log, client, settings, clock, randomness, nodes)
        await table.open_all()
        return table

    async def open_all(self) -> None:
        """Reads all nodes and begins to open the cursors, once. Nothing else is called before. Raises `BrokerError`."""
        for deleted in await self._opener.read_nodes():
            self._deleting[deleted.name] = deleted
            self._tasks.spawn(self._finish_deletion(deleted))

    def _add_open(self, cursor: DurableCursor) -> None:
        self._cursors[cursor.name] = cursor

    # ── finding ──

    def get(self, name: str) -> Cursor | None:
        return self._cursors.get(name)

    def durable_cursors(self) -> Sequence[Cursor]:
        return list(self._cursors.values())

    def names(self) -> list[str]:
        return [*self._cursors, *self._opener.names()]

    def unopened_cursors(self) -> Sequence[UnopenedCursor]:
        return self._opener.unopened()

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        await self._opener.wait_until_open(name, wait_again=wait_again)

    def find_slowest_position(self) -> Position | None:
        places = [cursor.saved_mark_delete for cursor in self._cursors.values()]
        places += self._making.values()
        places += [unopened.mark_delete for unopened in self._opener.unopened()]
        return min(places, default=None)

    def drop_trimmed_ledgers(self) -> None:
        for cursor in self._cursors.values():
            cursor.drop_trimmed_ledgers()
        for transient in list((self._transient or {}).values()):
            transient.drop_trimmed_ledgers()

    def tick(self, now: float) -> None:
        """Drop ledgers of idle cursors, and delete former ones. Called every now and then with the monotonic clock's
        time."""
        for cursor in self._cursors.values():
            cursor.tick(now)
        # One cursor at a time, since all of them have former ledgers after a take-over; in turn, since one whose
        # ledgers can't be deleted would keep the others waiting.
        cursors = list(self._cursors.values())
        if any(cursor.is_deleting_ledgers for cursor in cursors):
            return
        for _ in cursors:
            self._turn = (self._turn + 1) % len(cursors)
            if cursors[self._turn].begin_deleting_former_ledgers():
                break

    # ── creating, moving, deleting ──

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> Cursor:
        self._check_open()
        _check_name(name)
        _check_properties(properties)
        if name in self._making or name in self.names():
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"{self._home.topic} already has a subscription {name!r}: use another name"
            )
        limit = self._home.settings.max_subscriptions_per_topic
        if len(self._making) + len(self.names()) >= limit:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{self._home.topic} has {limit} subscriptions, its maximum (max_subscriptions_per_topic): "
                "delete one, or raise the limit",
            )
        if not self.names():
            self._log.retention.mark_unsubscribed()
        # Trimming keeps its entries from now on.
        state = begin_state(self._log, mark_delete, self._randomness)
        self._making[name] = state.mark_delete
        return await self._tasks.shielded(self._create(name, state, properties))

    async def _create(self, name: str, state: AckState, properties: Mapping[str, str]) -> DurableCursor:
        try:
            with self._lost_if_given_up():
                left = self._deleting.get(name)
                if left is not None:
                    await left.delete()
                    self._deleting.pop(name, None)
                await self._log.retention.save_mark()
                node = CursorNode(incarnation=self._home.incarnation, properties=properties)
                point_node(node, 0, state.mark_delete, state.moves, 0)
                known = KnownNode()
                await self._home.nodes.write(name, known, node)
                self._check_open()
                cursor = self._cursors[name] = DurableCursor(self._home, name, state, dict(properties), known)
                return cursor
        finally:
            del self._making[name]

    async def replace(self, name: str, mark_delete: Position) -> Cursor:
        """Move a cursor that is damaged, or can't be opened now, durably. Its other acknowledgements are lost.

        Raises `BrokerError`; then it is as before, and is being opened unless it is damaged.
        """
        self._check_open()
        unopened = self._opener.find(name)
        if unopened is None:
            raise self._not_there(name)
        return await self._opener.run_with_opening_stopped(unopened, lambda: self._replace(unopened, mark_delete))

    async def _replace(self, unopened: UnopenedCursor, mark_delete: Position) -> DurableCursor:
        with self._lost_if_given_up():
            cursor = await self._opener.replace(unopened, mark_delete)
            await cursor.delete_former_ledgers()
            return cursor

    def create_transient(self, name: str, mark_delete: Position) -> Cursor:
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
        with self._lost_if_given_up():
            await cursor.set_properties(properties)

    def _not_there(self, name: str) -> BrokerError:
        return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self._home.topic} has no subscription {name!r}")

    async def delete(self, name: str) -> None:
        """Raises `BrokerError`; then it is there as before."""
        self._check_open()
        if (unopened := self._opener.find(name)) is not None:
            await self._opener.run_with_opening_stopped(unopened, lambda: self._delete_unopened(unopened))
        elif (cursor := self._cursors.get(name)) is not None:
            await self._tasks.shielded(self._delete(cursor))
        else:
            raise self._not_there(name)

    async def _delete_unopened(self, unopened: UnopenedCursor) -> None:
        undecoded = unopened.known.value if unopened.known.foreign else None
        cursor = self._opener.make_deletable(unopened)
        await self._delete(cursor)
        if undecoded is not None:
            log_leaked_ledger(str(cursor), undecoded)

    async def _delete(self, cursor: DurableCursor) -> None:
        """It is deleted when its node says so. Its ledgers and the node are deleted now, or by the next opening."""
        with self._lost_if_given_up():
            await cursor.mark_deleted()
            self._cursors.pop(cursor.name, None)
            self._opener.remove(cursor.name)
            self._deleting[cursor.name] = cursor
            await self._finish_deletion(cursor)

    async def _finish_deletion(self, cursor: DurableCursor) -> None:
        """Delete the ledgers and the node of a cursor whose node says that it is deleted."""
        try:
            await cursor.delete()
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.warning("%s is not deleted completely yet: %s", cursor, error)
        else:
            self._deleting.pop(cursor.name, None)

    # ── saving and closing ──

    async def flush(self) -> None:
        """Save everything before consumers are told that the topic is unloaded: acknowledgements are answered."""

        async def flush(cursor: DurableCursor) -> None:
            with suppress(BrokerError):  # the acknowledgements that wait are answered with it
                await cursor.flush()

        await self._with_each(flush)

    async def close(self) -> None:
        """Save everything, and close. Raises `BrokerError` where something could not be saved, and is closed then."""
        try:
            await self._with_each(DurableCursor.close)
        finally:
            self.abandon()

    async def _with_each(self, work: Callable[[DurableCursor], Coroutine[Any, Any, None]]) -> None:
        """Do the work with all cursors, some at a time."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def work_on(cursor: DurableCursor) -> None:
            async with gate:
                await work(cursor)

        try:
            async with OrderedTaskGroup() as tasks:
                for cursor in list(self._cursors.values()):
                    tasks.create_task(work_on(cursor))
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    def abandon(self) -> None:
        """Stop at once. Acknowledgements that were not answered are saved or not."""
        self._end(TopicUnloaded(f"{self._home.topic} was closed"))

    def _task_failed(self, error: BaseException) -> None:
        if not isinstance(error, TopicUnloaded):
            _log.error("%s is closed because of an internal error", self._home.topic, exc_info=error)
            error = TopicUnloaded(f"{self._home.topic} was closed because of an internal error: {error!r}")
        self._lose(error)

    @contextmanager
    def _lost_if_given_up(self) -> Iterator[None]:
        try:
            yield
        except TopicUnloaded as error:
            self._lose(error)
            raise

    def _lose(self, error: TopicUnloaded) -> None:
        if self._lost is None:
            self._end(error)
            self.on_lost(error)

    def _end(self, error: TopicUnloaded) -> None:
        if self._lost is None:
            self._lost = error
        for cursor in self._cursors.values():
            cursor.end(error)
        self._tasks.cancel(error)
        self._opener.end(error)

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost.again()


def _check_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"invalid subscription name {name!r}: it contains an unpaired surrogate"
        ) from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a subscription's name can't have {size} bytes: use 1 … {MAX_NAME_BYTES}",
        )


def _check_properties(properties: Mapping[str, str]) -> None:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > MAX_PROPERTIES_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the subscription's properties have {size} bytes, above the limit of {MAX_PROPERTIES_BYTES}",
        )
