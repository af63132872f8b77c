"""The durable cursors of one topic while this broker owns it: finds, creates, deletes, saves and closes them.

Opening the cursors claims them (cursor_nodes.py) and reads their nodes. Then the topic is served, and the cursors that
have a ledger are opened in tasks (cursor_opener.py). Cursors that an earlier owner began to delete are deleted. When a
change finds that another broker has claimed the cursors since, `on_lost` is called once, and all further calls raise
`TopicUnloaded`.

Before the first durable cursor of a topic is created, the log records which ledgers were written without one
(managed_ledger/ledger_lifetime_rules.py).

Trimming retains the log from `find_slowest_position` on, and from `find_internal_position` on. A cursor that is being
created counts as soon as `create` is called, one that is being deleted until its node is marked, and an unopened one
with the position in its node.

Internal cursors (subscription_limits.py) are no subscriptions. Only the methods that name them return them.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import Cursor, TransientCursor
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_deletion import log_leaked_ledger
from magnetar_broker.cursors.cursor_nodes import CursorNodes, StoredNode, point_node
from magnetar_broker.cursors.cursor_opener import CursorOpener, UnopenedCursor, create_state, first_error
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.subscription_limits import (
    DEDUPLICATION_CURSOR,
    check_properties,
    check_subscription_name,
    is_internal_cursor,
    measure_name,
)
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.interface import LogPositions
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["CursorLog", "CursorTable"]

_log = logging.getLogger(__name__)
# Maximum number of cursors that are saved or closed at a time.
_SAVED_AT_ONCE: Final = 16
# That many names of any length can be listed, and more if they are shorter together.
_LISTED_IN_ANY_CASE: Final = 1000
_MAX_LISTED_BYTES: Final = 780_000


class FirstCursorMark(Protocol):
    """The part of `LogRetention` that the first cursor of a topic needs."""

    def mark_unsubscribed(self) -> None: ...

    async def save_mark(self) -> None: ...


class CursorLog(LogPositions, Protocol):
    """The part of `ManagedLedger` that cursors need."""

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
        "_context",
        "_creating",
        "_cursors",
        "_deleting",
        "_listed",
        "_log",
        "_lost",
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
        self._context = CursorContext(
            str(log.name), log.incarnation, client, nodes, settings, log.striping, clock, self._tasks
        )
        self._cursors: dict[str, DurableCursor] = {}
        self._opener = CursorOpener(self._context, log, randomness, self._add_open)
        # Set when the names of all cursors are known, or the table is closed.
        self._listed = asyncio.Event()
        # Cursors that are being created, with their first positions; and those that are being deleted.
        self._creating: dict[str, Position] = {}
        self._deleting: dict[str, DurableCursor] = {}
        # Index of the cursor whose former ledgers were deleted last.
        self._turn = 0
        # Transient cursors that are still in use, in the order in which they were created.
        self._transient: weakref.WeakValueDictionary[int, TransientCursor] | None = None
        # Why all calls are refused.
        self._lost: TopicUnloaded | None = None

    async def open_all(self) -> None:
        """Read all nodes and begin to open the cursors. Called once, first. Raises `BrokerError`."""
        for deleted in await self._opener.read_nodes():
            self._deleting[deleted.name] = deleted
            self._tasks.spawn(self._finish_deletion(deleted))
        self._listed.set()

    async def wait_until_listed(self) -> None:
        """Return when the names of all cursors are known. Raises `TopicUnloaded`."""
        await self._listed.wait()
        self._check_open()

    def _add_open(self, cursor: DurableCursor) -> None:
        self._cursors[cursor.name] = cursor

    # Finding.

    def get(self, name: str) -> Cursor | None:
        """Return an open durable cursor."""
        return None if is_internal_cursor(name) else self._cursors.get(name)

    def get_internal(self, name: str) -> DurableCursor | None:
        """Return an open internal cursor."""
        assert is_internal_cursor(name)
        return self._cursors.get(name)

    def has_internal(self, name: str) -> bool:
        """Whether the internal cursor exists, open or not. Before all are listed: whether it did at the claim."""
        if not self._listed.is_set():
            return name == DEDUPLICATION_CURSOR and self._context.nodes.has_deduplication
        return name in self._cursors or self._opener.find(name) is not None

    def durable_cursors(self) -> Sequence[Cursor]:
        """Return all open durable cursors."""
        return [cursor for cursor in self._cursors.values() if not is_internal_cursor(cursor.name)]

    def names(self) -> list[str]:
        """Return the names of all durable cursors, including unopened ones."""
        return [name for name in (*self._cursors, *self._opener.names()) if not is_internal_cursor(name)]

    def unopened_cursors(self) -> Sequence[UnopenedCursor]:
        return [one for one in self._opener.unopened_cursors() if not is_internal_cursor(one.name)]

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        """Return when the cursor is open, or does not exist.

        Raises `BrokerError`: it can't be opened now, and is retried; `DamagedCursor`: it can't be opened. Without
        `wait_again` only the first attempt is waited for, at most some seconds.
        """
        await self._opener.wait_until_open(name, wait_again=wait_again)

    def find_slowest_position(self) -> Position | None:
        """Return the position up to which no durable cursor needs the log. None: there is no durable cursor."""
        return self._find_slowest(is_internal=False)

    def find_internal_position(self) -> Position | None:
        """Return the position up to which no internal cursor needs the log. None: there is no internal cursor."""
        return self._find_slowest(is_internal=True)

    def _find_slowest(self, *, is_internal: bool) -> Position | None:
        positions = [(cursor.name, cursor.saved_mark_delete) for cursor in self._cursors.values()]
        positions += self._creating.items()
        positions += [(unopened.name, unopened.mark_delete) for unopened in self._opener.unopened_cursors()]
        return min((one for name, one in positions if is_internal_cursor(name) is is_internal), default=None)

    def drop_trimmed_ledgers(self) -> None:
        """Move all cursors out of ledgers that the log has deleted."""
        for cursor in self._cursors.values():
            cursor.drop_trimmed_ledgers()
        for transient in list((self._transient or {}).values()):
            transient.drop_trimmed_ledgers()

    def tick(self, now: float) -> None:
        """Drop ledgers of idle cursors, and delete former ledgers. Called at intervals with the time of the monotonic
        clock."""
        for cursor in self._cursors.values():
            cursor.tick(now)
        # One cursor at a time, since all of them have former ledgers after a change of the owner; in turn, since a
        # cursor whose ledgers can't be deleted would block the others.
        cursors = list(self._cursors.values())
        if any(cursor.is_deleting_ledgers for cursor in cursors):
            return
        for _ in cursors:
            self._turn = (self._turn + 1) % len(cursors)
            if cursors[self._turn].begin_deleting_former_ledgers():
                break

    # Creating, moving and deleting.

    def check_capacity(self, transient: int = 0) -> None:
        """Raise `BrokerError` if the topic has as many subscriptions as allowed. `transient`: those without a cursor
        here that are in use."""
        names = [*(one for one in self._creating if not is_internal_cursor(one)), *self.names()]
        count, limit = len(names) + transient, self._context.settings.max_subscriptions_per_topic
        if is_system_topic(self._log.name):
            limit = 0
        if 0 < limit <= count:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{self._context.topic} has {count:,} subscriptions, and max_subscriptions_per_topic (policy or "
                f"setting) is {limit:,}: delete one, or raise the limit",
            )
        if len(names) >= _LISTED_IN_ANY_CASE and sum(map(measure_name, names)) >= _MAX_LISTED_BYTES:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{self._context.topic} has {len(names):,} durable subscriptions, and their names have together "
                f"{_MAX_LISTED_BYTES:,} bytes, the maximum that the metadata store can list: delete one",
            )

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> Cursor:
        """Create a durable cursor. Raises `BrokerError`, also ALREADY_EXISTS."""
        self._check_open()
        check_subscription_name(name)
        check_properties("subscription", properties)
        names = self.names()
        if name in self._creating or name in names:
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"{self._context.topic} already has a subscription {name!r}: use another name"
            )
        self.check_capacity()
        if not names:
            self._log.retention.mark_unsubscribed()
        # Trimming retains its entries from now on.
        state = create_state(self._log, mark_delete, self._randomness)
        self._creating[name] = state.mark_delete
        return await self._tasks.shielded(self._create(name, state, properties))

    async def create_internal(self, name: str, mark_delete: Position) -> DurableCursor:
        """Create an internal cursor, which does not exist. Raises `BrokerError`."""
        self._check_open()
        assert is_internal_cursor(name)
        assert name not in self._creating
        assert not self.has_internal(name)
        state = create_state(self._log, mark_delete, self._randomness)
        self._creating[name] = state.mark_delete
        return await self._tasks.shielded(self._create(name, state, {}))

    async def replace_internal(self, name: str, mark_delete: Position) -> DurableCursor:
        """Replace an internal cursor that is damaged. Raises `BrokerError`."""
        assert is_internal_cursor(name)
        return await self._replace_named(name, mark_delete)

    async def delete_internal(self, name: str) -> None:
        """Delete an internal cursor, if it exists, and its ledgers. Raises `BrokerError`: then it exists as before."""
        assert is_internal_cursor(name)
        if self.has_internal(name):
            await self._delete_named(name)

    async def _create(self, name: str, state: AckState, properties: Mapping[str, str]) -> DurableCursor:
        try:
            with self._notify_if_unloaded():
                deleted = self._deleting.get(name)
                if deleted is not None:
                    await deleted.delete()
                    self._deleting.pop(name, None)
                if not is_internal_cursor(name):
                    await self._log.retention.save_mark()
                node = CursorNode(incarnation=self._context.incarnation, properties=properties)
                point_node(node, 0, state.mark_delete, state.moves, 0)
                stored = StoredNode()
                await self._context.nodes.write(name, stored, node)
                self._check_open()
                cursor = self._cursors[name] = DurableCursor(self._context, name, state, dict(properties), stored)
                return cursor
        finally:
            del self._creating[name]

    async def replace(self, name: str, mark_delete: Position) -> Cursor:
        """Move an unopened cursor, durably, and open it. Its other acknowledgements are lost.

        Raises `BrokerError`: then it is as before; SUBSCRIPTION_NOT_FOUND if there is no unopened cursor of this name.
        """
        if is_internal_cursor(name):
            raise self._no_subscription(name)
        return await self._replace_named(name, mark_delete)

    async def _replace_named(self, name: str, mark_delete: Position) -> DurableCursor:
        self._check_open()
        unopened = self._opener.find(name)
        if unopened is None:
            raise self._no_subscription(name)
        return await self._opener.run_with_opening_stopped(unopened, lambda: self._replace(unopened, mark_delete))

    async def _replace(self, unopened: UnopenedCursor, mark_delete: Position) -> DurableCursor:
        with self._notify_if_unloaded():
            cursor = await self._opener.replace(unopened, mark_delete)
            await cursor.delete_former_ledgers()
            return cursor

    def create_transient(self, name: str, mark_delete: Position) -> Cursor:
        """Create a cursor that is not durable. It needs no deletion."""
        state = AckState(self._log, mark_delete)
        state.match_log()
        cursor = TransientCursor(name, state, {})
        if self._transient is None:
            self._transient = weakref.WeakValueDictionary()
        self._transient[max(self._transient, default=0) + 1] = cursor
        return cursor

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a durable cursor, durably. Raises `BrokerError`."""
        self._check_open()
        check_properties("subscription", properties)
        cursor = self._cursors.get(name)
        if cursor is None:
            raise self._no_subscription(name)
        with self._notify_if_unloaded():
            await cursor.set_properties(properties)

    async def set_unused(self, name: str, unused_ms: int) -> None:
        """Store how long a durable subscription was not used. Raises `BrokerError`."""
        self._check_open()
        cursor = self._cursors.get(name)
        if cursor is None:
            raise self._no_subscription(name)
        with self._notify_if_unloaded():
            await cursor.set_unused(unused_ms)

    def _no_subscription(self, name: str) -> BrokerError:
        return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self._context.topic} has no subscription {name!r}")

    async def delete(self, name: str) -> None:
        """Delete a durable cursor and its ledgers. Raises `BrokerError`: then it exists as before."""
        if is_internal_cursor(name):
            raise self._no_subscription(name)
        await self._delete_named(name)

    async def _delete_named(self, name: str) -> None:
        self._check_open()
        if (unopened := self._opener.find(name)) is not None:
            await self._opener.run_with_opening_stopped(unopened, lambda: self._delete_unopened(unopened))
        elif (cursor := self._cursors.get(name)) is not None:
            await self._tasks.shielded(self._delete(cursor))
        else:
            raise self._no_subscription(name)

    async def _delete_unopened(self, unopened: UnopenedCursor) -> None:
        undecoded = unopened.stored.value if unopened.stored.decode_error else None
        cursor = self._opener.create_deletable(unopened)
        await self._delete(cursor)
        if undecoded is not None:
            log_leaked_ledger(str(cursor), undecoded)

    async def _delete(self, cursor: DurableCursor) -> None:
        """Mark the cursor as deleted in its node. Its ledgers and the node are deleted now, or by the next owner."""
        with self._notify_if_unloaded():
            await cursor.mark_deleted()
            self._cursors.pop(cursor.name, None)
            self._opener.remove(cursor.name)
            self._deleting[cursor.name] = cursor
            await self._finish_deletion(cursor)

    async def _finish_deletion(self, cursor: DurableCursor) -> None:
        """Delete the ledgers and the node of a cursor that is marked as deleted."""
        try:
            await cursor.delete()
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.warning("%s is not deleted completely yet: %s", cursor, error)
        else:
            self._deleting.pop(cursor.name, None)

    # Saving and closing.

    async def flush(self) -> None:
        """Save everything, so that acknowledgements are answered before consumers are notified of the unload."""

        async def flush(cursor: DurableCursor) -> None:
            with suppress(BrokerError):  # it answers the acknowledgements that wait
                await cursor.flush()

        await self._run_for_each(flush)

    async def close(self) -> None:
        """Save everything, and close the cursors. Raises `BrokerError` if one is not saved, but closes all."""
        try:
            await self._run_for_each(DurableCursor.close)
        finally:
            self.abandon()

    async def _run_for_each(self, work: Callable[[DurableCursor], Coroutine[Any, Any, None]]) -> None:
        """Run the work for all open durable cursors, a limited number at a time."""
        gate = asyncio.Semaphore(_SAVED_AT_ONCE)

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
        """Close the cursors at once. Acknowledgements that were not answered may be saved or not."""
        self._abandon(TopicUnloaded(f"{self._context.topic} was closed"))

    def _task_failed(self, error: BaseException) -> None:
        if not isinstance(error, TopicUnloaded):
            _log.error("%s is closed because of an internal error", self._context.topic, exc_info=error)
            error = TopicUnloaded(f"{self._context.topic} was closed because of an internal error: {error!r}")
        self._lose(error)

    @contextmanager
    def _notify_if_unloaded(self) -> Iterator[None]:
        try:
            yield
        except TopicUnloaded as error:
            self._lose(error)
            raise

    def _lose(self, error: TopicUnloaded) -> None:
        if self._lost is None:
            self._abandon(error)
            self.on_lost(error)

    def _abandon(self, error: TopicUnloaded) -> None:
        if self._lost is None:
            self._lost = error
        self._listed.set()
        for cursor in list(self._cursors.values()):  # the callbacks of saves may change it
            cursor.abandon(error)
        self._tasks.cancel(error)
        self._opener.abandon(error)

    def _check_open(self) -> None:
        if self._lost is not None:
            raise self._lost.again()
