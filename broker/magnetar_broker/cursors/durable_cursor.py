"""A durable cursor: what a subscription has acknowledged, in a ledger and a node of the metadata store.

Theory of operation
-------------------
A cursor's state is in two places: its node in the metadata store holds the mark-delete position at which the node was
written; a ledger, which the node points at, begins with a snapshot and goes on with the changes. A cursor that was
never saved has no ledger, and one without holes drops its ledger when it is closed, or idle for long: ten thousand idle
topics have next to none.

One task saves, and only while there are changes to save: it writes them as one group, and acknowledgements that come
meanwhile go into the next group. While no caller waits, a group is begun once a second or so; else at once. A group is
done when its last record is durable, and then the calls of `saved` that it covers return.

A new ledger begins with a snapshot of the whole state: at the first save, when the ledger before has become long or an
add to it failed. Then the node is pointed at it, in a transaction that checks that the cursor is still this broker's
(cursor_nodes.py), and names the former ledger as one to delete. An add to that one which failed may be in it or not:
the change is in the snapshot in any case, and until the node points there the former ledger says nothing that was not
so.

Neither opening nor closing a cursor waits for the deletion of former ledgers, nor does a save while the node names few:
`begin_deleting_former_ledgers` does it later, one cursor of a topic at a time, at the broker that has the topic then.
It runs in a task of its own, so that an acknowledgement that needs only bookies does not wait for the metadata store.
Changes of the node are made one at a time (`_write_node`), whichever task makes them.

A bookie that is overloaded fails each ledger soon. So the next ledger is created after a pause (ledger_pause.py), which
each failed ledger and each failed attempt to begin one makes longer, as for a topic's log. The acknowledgements that
came before wait for it. A cursor that is deleted does not wait; nor does one that is closed or reset: if it has no
holes, its mark-delete position is written to its node, which needs no bookie; else it begins its ledger at once.

An add that meets a fence is no different: the node tells whether another broker has opened the cursor, or repair has
closed its ledger. In the first case it can't be changed any more, and the topic is unloaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from magnetar_bookie.errors import AddFailed, ClientClosed, LedgerError, LedgerNotClaimed, NotEnoughBookies
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_ledger import CursorLedger, delete_all_ledgers
from magnetar_broker.cursors.cursor_nodes import KnownNode, point_node
from magnetar_broker.cursors.cursor_record import encode_changes, encode_snapshot
from magnetar_broker.cursors.ledger_pause import LedgerPause
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_metadata.errors import MetadataError, SessionLost, StoreFull, Unavailable
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_wire.clock import Timer

__all__ = ["DurableCursor"]

_log = logging.getLogger(__name__)
# Ledgers that a cursor's node names to be deleted later.
_MOST_LEFT_LEDGERS: Final = 4


class DurableCursor(Cursor):
    __slots__ = (
        "_deleter",
        "_home",
        "_idle_changes",
        "_idle_since",
        "_known",
        "_ledger",
        "_ledger_pause",
        "_paused",
        "_problem",
        "_saved_changes",
        "_saved_mark_delete",
        "_saver",
        "_timer",
        "_turns",
        "_waiting",
    )

    is_durable = True

    def __init__(
        self, home: CursorContext, name: str, state: AckState, properties: Mapping[str, str], known: KnownNode
    ) -> None:
        super().__init__(name, state, properties)
        self._home = home
        # The node as this owner has it; and the ledger that it points at, once this owner has begun one.
        self._known = known
        self._ledger: CursorLedger | None = None
        self._ledger_pause = LedgerPause(home.clock, home.client.randomness)
        # `AckState.changes` of which all are durable, and the mark-delete position then.
        self._saved_changes = state.changes
        self._saved_mark_delete = state.mark_delete
        # At most one of the two is there.
        self._saver: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        # Deletes former ledgers.
        self._deleter: asyncio.Task[None] | None = None
        # The calls of `saved` that wait, and for which changes; in order.
        self._waiting: list[tuple[int, asyncio.Future[None]]] | None = None
        # `AckState.changes` at the last tick, and since when it is the same.
        self._idle_changes = -1
        self._idle_since = 0.0
        # Why nothing is saved any more; and whether nothing is for now, since it is to be deleted.
        self._problem: BrokerError | None = None
        self._paused = False
        # Held while the node is written.
        self._turns: asyncio.Lock | None = None

    @property
    def saved_mark_delete(self) -> Position:
        return min(self._saved_mark_delete, self._state.mark_delete)

    @property
    def _dirty(self) -> bool:
        return self._state.changes > self._saved_changes

    def _schedule_save(self) -> None:
        if self._saver is None and self._timer is None and self._problem is None and not self._paused:
            delay_s = 1 / self._home.settings.managed_ledger_default_mark_delete_rate_limit
            self._timer = self._home.clock.call_later(delay_s, self._save)

    async def wait_until_saved(self) -> None:
        if self._problem is not None:
            raise self._problem.again()
        if not self._dirty:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((self._state.changes, done))
        self._save()
        await done

    async def move_to(self, position: Position) -> None:
        if self._problem is not None:
            raise self._problem.again()
        self._state.move_to(position)
        self._saved_mark_delete = self.saved_mark_delete
        with self._ledger_pause.hurry():
            await self.wait_until_saved()

    def begin_deleting_former_ledgers(self) -> bool:
        """Begin to delete this cursor's former ledgers, unless there are none or they are being deleted. Returns
        whether it began."""
        if not self._known.left_ledgers or self._deleter is not None or self._problem is not None or self._paused:
            return False
        self._deleter = self._home.tasks.spawn(self._run_deleter())
        return True

    @property
    def is_deleting_ledgers(self) -> bool:
        return self._deleter is not None

    async def _run_deleter(self) -> None:
        try:
            await self.delete_former_ledgers()
        finally:
            self._deleter = None

    def tick(self, now: float) -> None:
        """Drop the ledger of a cursor that is idle. Called every now and then with the monotonic clock's time."""
        state, idle_s = self._state, self._home.settings.managed_ledger_cursor_idle_time_seconds
        if state.changes != self._idle_changes or not idle_s:
            self._idle_changes, self._idle_since = state.changes, now
            return
        if not self._known.ledger_id or now - self._idle_since < idle_s or state.has_holes or self._dirty:
            return
        if self._saver is None and self._problem is None and not self._paused:
            self._saver = self._home.tasks.spawn(self._rest())

    async def _rest(self) -> None:
        """Drop the ledger. Acknowledgements that come meanwhile are saved after it."""
        try:
            if not self._state.has_holes:  # there may be some by now
                await self._leave_place()
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.info("%s still uses its ledger: %s", self, error)
        except asyncio.CancelledError:
            self._drop_ledger()
            raise
        finally:
            self._saver = None
        self._go_on()

    def _go_on(self) -> None:
        """Save the changes that came while the saver did something else."""
        if self._waiting:
            self._save()
        elif self._dirty:
            self._schedule_save()

    def _save(self) -> None:
        self._cancel_timer()
        if self._saver is None and self._problem is None and not self._paused:
            self._saver = self._home.tasks.spawn(self._save_all())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _save_all(self) -> None:
        """Save groups as long as callers wait for one. Raises `TopicUnloaded`."""
        try:
            while self._dirty:
                ledger, settings = self._ledger, self._home.settings
                if ledger is None or ledger.is_long(
                    settings.managed_ledger_cursor_max_entries_per_ledger,
                    settings.managed_ledger_cursor_max_size_per_ledger_bytes,
                ):
                    await self._begin_ledger()
                    if self._known.left_ledgers > _MOST_LEFT_LEDGERS:
                        await self.delete_former_ledgers()
                else:
                    await self._add_changes(ledger)
                if not self._waiting:
                    break
        except asyncio.CancelledError:
            self._drop_ledger()  # an add may be in flight: the next ledger begins with the whole state
            raise
        finally:
            self._saver = None
        if self._dirty:
            self._schedule_save()

    async def _add_changes(self, ledger: CursorLedger) -> None:
        state = self._state
        changes, mark_delete = state.changes, state.mark_delete
        try:
            await ledger.add(encode_changes(state, state.take_unsaved()))
        except AddFailed as error:
            _log.warning("%s continues in another ledger: %s", self, error)
            self._drop_ledger()
            self._count_failure(error)
            return
        self._now_saved(changes, mark_delete)

    async def _begin_ledger(self) -> None:
        """Begin a ledger with the whole state, in the place of the present one, after the pause that is due."""
        home, state = self._home, self._state
        while True:
            if await self._is_saved_by_place():
                self.waiting_for = ""
                return
            changes, mark_delete = state.changes, state.mark_delete
            state.take_unsaved()
            try:
                ledger = await CursorLedger.begin(home.client, home.striping.current, str(self), encode_snapshot(state))
                try:
                    await self._write_node(self._pointing_at(ledger.made.ledger_id, mark_delete), ledger.made)
                except BaseException:
                    ledger.writer.abandon()
                    raise
                break
            except TopicUnloaded:
                raise
            except NotEnoughBookies as error:  # of the creation, or of an add to a ledger that was created
                self._count_failure(error)
                await self._wait_for_bookies()
            except (AddFailed, LedgerNotClaimed, Unavailable, StoreFull, BrokerError) as error:
                self._count_failure(error)
            except (LedgerError, SessionLost) as error:
                raise TopicUnloaded(f"{self} can't be saved any more: {error}") from error
        self.waiting_for = ""
        self._drop_ledger()
        self._ledger = ledger
        self._now_saved(changes, mark_delete)

    def _count_failure(self, error: Exception) -> None:
        self._ledger_pause.count_failure()
        self.waiting_for = str(error)

    async def _is_saved_by_place(self) -> bool:
        """Pause before the next ledger, if a pause is due. Return whether the cursor needs no ledger after all: it is
        closed or reset meanwhile, and its position alone was saved."""
        pause = self._ledger_pause
        while pause.is_due:
            if pause.is_hurried and not self._state.has_holes:
                try:
                    await self._leave_place()
                    return True
                except TopicUnloaded:
                    raise
                except BrokerError as error:
                    self.waiting_for = str(error)
            if await pause.wait() and self._state.has_holes:
                break
        return False

    async def _wait_for_bookies(self) -> None:
        try:
            await self._home.striping.wait_for_bookies(self._home.client)
        except ClientClosed as error:
            raise TopicUnloaded(f"{self} can't be saved any more: {error}") from error

    def _drop_ledger(self) -> None:
        """Write to it no more. Its records are read all the same, as long as the node points at it."""
        if self._ledger is not None:
            self._ledger.writer.abandon()
            self._ledger = None

    def _pointing_at(self, ledger_id: int, mark_delete: Position) -> Callable[[CursorNode], object]:
        moves, take_overs = self._state.moves, self._state.take_overs
        return lambda node: point_node(node, ledger_id, mark_delete, moves, take_overs)

    async def _write_node(self, change: Callable[[CursorNode], object], made: NewLedger | None = None) -> None:
        """Make one change after the other, each to its end: a caller that is cancelled leaves the node known."""
        await self._home.tasks.shielded(self._change_node(change, made))

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replaces the properties, durably. Raises `BrokerError`."""

        def replaced(node: CursorNode) -> None:
            node.properties.clear()
            node.properties.update(properties)

        await self._write_node(replaced)
        self.properties = dict(properties)

    async def _change_node(self, change: Callable[[CursorNode], object], made: NewLedger | None) -> None:
        if self._turns is None:
            self._turns = asyncio.Lock()
        async with self._turns:
            node = self._known.node
            change(node)
            await self._home.nodes.write(self.name, self._known, node, made)

    async def delete_former_ledgers(self) -> None:
        """Delete this cursor's former ledgers. Those that can't be deleted now stay in the node, for the next call:
        one of them keeps none of the others."""
        deleted = await delete_ledgers(self._home.client, list(self._known.node.deleting))
        if not deleted:
            return

        def strike_off(node: CursorNode) -> None:
            left = [ledger_id for ledger_id in node.deleting if ledger_id not in deleted]
            del node.deleting[:]
            node.deleting.extend(left)

        try:
            await self._write_node(strike_off)
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.warning("The node of %s still names deleted ledgers: %s", self, error)

    def _now_saved(self, changes: int, mark_delete: Position) -> None:
        self._saved_changes = changes
        self._saved_mark_delete = min(mark_delete, self._state.mark_delete)
        waiting, self._waiting = self._waiting or [], None
        for place, (wanted, done) in enumerate(waiting):
            if wanted > changes:
                self._waiting = waiting[place:]
                break
            if not done.done():
                done.set_result(None)

    # ── its end ──

    async def flush(self) -> None:
        """Save everything. A cursor without holes drops its ledger with that, so that no broker has to recover it."""
        with self._ledger_pause.hurry():
            while self._saver is not None:
                await self._wait_for_saver()
            if self._problem is None and self._dirty:
                if self._state.has_holes:
                    await self.wait_until_saved()
                else:
                    self._cancel_timer()
                    self._saver = self._home.tasks.spawn(self._rest())
                    await self._wait_for_saver()

    async def close(self) -> None:
        """Save everything. A cursor without holes leaves no ledger behind.

        Raises `BrokerError`, and then it may be called again, or `end`.
        """
        self._cancel_timer()
        with self._ledger_pause.hurry():
            while self._saver is not None:
                await self._wait_for_saver()
            if self._problem is None:
                if self._state.has_holes:
                    await self.wait_until_saved()
                elif self._dirty or self._known.ledger_id:
                    await self._leave_place()
        if self._problem is None and self._ledger is not None:
            try:
                await self._ledger.writer.close()
            except (LedgerError, MetadataError) as error:  # all is in it: the next opening closes it
                _log.info("%s leaves its ledger open: %s", self, error)
        self.end(TopicUnloaded(f"{self} was closed"))

    async def _leave_place(self) -> None:
        """Write the mark-delete position to the node, and drop the ledger. Not while there are holes."""
        state = self._state
        assert not state.has_holes, "a position can't represent holes"
        changes, mark_delete = state.changes, state.mark_delete
        await self._write_node(self._pointing_at(0, mark_delete))
        self._drop_ledger()
        self._now_saved(changes, mark_delete)

    async def _wait_for_saver(self) -> None:
        assert self._saver is not None
        await asyncio.wait([self._saver])

    def end(self, problem: BrokerError) -> None:
        """Save nothing any more, and fail the calls that wait. The first reason stays."""
        if self._problem is not None:
            return
        self._problem = problem
        self._cancel_timer()
        for task in (self._saver, self._deleter):
            if task is not None:
                task.cancel()
        self._drop_ledger()
        waiting, self._waiting = self._waiting or [], None
        for _, done in waiting:
            if not done.done():
                done.set_exception(problem.again())
                done.exception()  # seen, should its waiter be gone

    # ── its deletion ──

    async def mark_deleted(self) -> None:
        """Have the node say that the cursor is deleted: no broker opens it any more. It may be called again.

        Raises `BrokerError`: then it goes on as before.
        """
        if self._known.exists and not self._known.node.deleted:
            await self._pause()
            try:
                await self._write_node(_mark_deleted)
            except TopicUnloaded:
                raise
            except BrokerError:
                self._paused = False
                self._go_on()
                raise
        self.end(BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self} was deleted"))

    async def _pause(self) -> None:
        """Save nothing for now: calls of `saved` wait."""
        self._paused = True
        self._cancel_timer()
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait([self._saver])
            self._saver = None  # it may not have begun
        if self._deleter is not None:
            self._deleter.cancel()
            await asyncio.wait([self._deleter])
            self._deleter = None

    async def delete(self) -> None:
        """Delete its ledgers, and then its node; after `mark_deleted`. It can be called again.

        Raises `BrokerError`: then the node still names the ledgers that are left.
        """
        node = self._known.node
        ledgers = [ledger_id for ledger_id in (*node.deleting, node.ledger_id) if ledger_id]
        await delete_all_ledgers(self._home.client, ledgers, str(self))
        if self._known.exists:
            await self._home.nodes.remove(self.name, self._known)

    def __str__(self) -> str:
        return f"cursor {self.name!r} of {self._home.topic}"


def _mark_deleted(node: CursorNode) -> None:
    node.deleted = True
