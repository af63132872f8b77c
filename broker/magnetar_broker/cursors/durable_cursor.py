"""A durable cursor: saves its changes to its ledger, and its position to its node in the metadata store.

Theory of operation
-------------------
A cursor's state is stored in two parts. Its node has a mark-delete position and the id of the cursor's ledger. The
ledger begins with a snapshot and continues with changes. A cursor that was never saved has no ledger. One without holes
needs none: its mark-delete position is written to the node when it is closed or idle, and its ledger is dropped. So ten
thousand idle topics have almost no cursor ledgers.

One task saves, and only while there are unsaved changes. It saves them as one group; changes made in the meantime go
into the next group. A group begins at once if a caller waits for it, else once a second or so. When its last record is
durable, the calls of `wait_until_saved` and `call_when_saved` that it covers are completed.

A new ledger begins with a snapshot of the whole state: at the first save, when the current ledger is full, or when an
add to it has failed. Then the node is pointed at it, in a transaction which checks that this broker still owns the
cursors (cursor_nodes.py), and the former ledger is named in the node for deletion. The failed add may be in the former
ledger or not: the snapshot has the change in any case. Until the node points at the new ledger, the former one is a
valid, older state.

Former ledgers are deleted later, one cursor of a topic at a time (`begin_deleting_former_ledgers`), by the broker that
owns the topic then. Neither opening nor closing a cursor waits for that, nor does a save unless there are many.

Overloaded bookies fail one ledger after another. So the next ledger is created after a pause that each failure makes
longer (ledger_pause.py), and acknowledgements wait for it. Deleting, closing or resetting a cursor does not wait. The
position of a cursor without holes is written to the node, which needs no bookie: on a close or reset, and after each
ledger that failed. So consumers free the space of bookies whose disks are full: what they acknowledge can be deleted. A
cursor with holes needs a ledger. On a close or reset it creates that at once.

An add that is fenced is handled like any other failed add: the next change of the node finds out whether another broker
has opened the cursors, and then the topic is unloaded, or whether only a recovery has closed the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from magnetar_bookie.errors import AddFailed, ClientClosed, LedgerError, LedgerNotClaimed, NotEnoughBookies
from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import Cursor, SaveDone, report_saved
from magnetar_broker.cursors.cursor_context import CursorContext
from magnetar_broker.cursors.cursor_ledger import CursorLedger
from magnetar_broker.cursors.cursor_node_writer import CursorNodeWriter
from magnetar_broker.cursors.cursor_nodes import StoredNode
from magnetar_broker.cursors.cursor_record import encode_changes, encode_snapshot
from magnetar_broker.cursors.ledger_pause import LedgerPause
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_metadata.errors import MetadataError, SessionLost, StoreFull, Unavailable
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Timer

__all__ = ["DurableCursor"]

_log = logging.getLogger(__name__)
# Maximum number of former ledgers in a node before a save deletes them itself.
_MAX_FORMER_LEDGERS: Final = 4


class DurableCursor(Cursor):
    __slots__ = (
        "_context",
        "_idle_changes",
        "_idle_since",
        "_is_paused",
        "_ledger",
        "_ledger_pause",
        "_node",
        "_problem",
        "_saved_changes",
        "_saved_mark_delete",
        "_saver",
        "_timer",
        "_waiting",
    )

    is_durable = True

    def __init__(
        self, context: CursorContext, name: str, state: AckState, properties: Mapping[str, str], stored: StoredNode
    ) -> None:
        super().__init__(name, state, properties)
        self._context = context
        self._node = CursorNodeWriter(context, name, stored)
        # The ledger that this object writes. None: the next save creates one; the node may point at an older one.
        self._ledger: CursorLedger | None = None
        self._ledger_pause = LedgerPause(context.clock, context.client.randomness)
        # All changes up to this number of `AckState.changes` are durable; and the mark-delete position then.
        self._saved_changes = state.changes
        self._saved_mark_delete = state.mark_delete
        # The task that saves, or the timer that starts it. At most one of the two exists.
        self._saver: asyncio.Task[None] | None = None
        self._timer: Timer | None = None
        # Callers that wait until changes up to a number are saved, in order of the numbers.
        self._waiting: list[tuple[int, SaveDone]] | None = None
        # `AckState.changes` at the last tick, and the time since which it is the same.
        self._idle_changes = -1
        self._idle_since = 0.0
        # Why nothing is saved any more; and whether saving is paused because the cursor is being deleted.
        self._problem: BrokerError | None = None
        self._is_paused = False

    @property
    def ledger_id(self) -> int:
        return self._node.ledger_id

    @property
    def saved_mark_delete(self) -> Position:
        return min(self._saved_mark_delete, self._state.mark_delete)

    @property
    def _has_unsaved(self) -> bool:
        return self._state.changes > self._saved_changes

    def call_when_saved(self, done: SaveDone) -> None:
        if self._problem is not None:
            asyncio.get_running_loop().call_soon(done, self._problem.again())
        elif not self._has_unsaved:
            asyncio.get_running_loop().call_soon(done, None)
        else:
            if self._waiting is None:
                self._waiting = []
            self._waiting.append((self._state.changes, done))
            self._begin_save()

    async def move_to(self, position: Position) -> None:
        if self._problem is not None:
            raise self._problem.again()
        self._state.move_to(position)
        self._saved_mark_delete = self.saved_mark_delete
        with self._ledger_pause.skip():
            await self.wait_until_saved()

    @property
    def attachment(self) -> bytes:
        """Bytes that are stored together with the mark-delete position, as of an internal cursor."""
        return self._state.attachment

    def attach(self, position: Position, attachment: bytes) -> None:
        """Acknowledge all entries up to and including this one, and replace the attachment, which belongs to it."""
        self._state.attach(position, attachment)
        self._schedule_save()

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the properties, durably. Raises `BrokerError`."""
        await self._node.set_properties(properties)
        self.properties = dict(properties)

    @property
    def unused_ms(self) -> int:
        return self._node.unused_ms

    async def set_unused(self, unused_ms: int) -> None:
        """Store how long the subscription was not used, durably. Raises `BrokerError`."""
        await self._node.set_unused(unused_ms)

    # When changes are saved.

    @property
    def _may_begin_save(self) -> bool:
        return self._saver is None and self._problem is None and not self._is_paused

    def _schedule_save(self) -> None:
        if self._timer is None and self._may_begin_save:
            delay_s = 1 / self._context.settings.managed_ledger_default_mark_delete_rate_limit
            self._timer = self._context.clock.call_later(delay_s, self._begin_save)

    def _begin_save(self) -> None:
        self._cancel_timer()
        if self._may_begin_save:
            self._saver = self._context.tasks.spawn(self._save_groups())

    def _resume_saving(self) -> None:
        """Save the changes that were made while the saver did something else."""
        if self._waiting:
            self._begin_save()
        elif self._has_unsaved:
            self._schedule_save()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _wait_for_saver(self) -> None:
        assert self._saver is not None
        await asyncio.wait([self._saver])

    # Saving to the ledger.

    async def _save_groups(self) -> None:
        """Save one group, and further ones as long as callers wait for them. Raises `TopicUnloaded`."""
        try:
            while self._has_unsaved:
                ledger, settings = self._ledger, self._context.settings
                if ledger is None or ledger.is_full(
                    settings.managed_ledger_cursor_max_entries_per_ledger,
                    settings.managed_ledger_cursor_max_size_per_ledger_bytes,
                ):
                    await self._save_to_new_ledger()
                    if self._node.former_ledger_count > _MAX_FORMER_LEDGERS:
                        await self._node.delete_former_ledgers()
                else:
                    await self._save_to_ledger(ledger)
                if not self._waiting:
                    break
        except asyncio.CancelledError:
            self._drop_ledger()  # an add may be in flight: the next ledger begins with the whole state
            raise
        finally:
            self._saver = None
        if self._has_unsaved:
            self._schedule_save()

    async def _save_to_ledger(self, ledger: CursorLedger) -> None:
        state = self._state
        changes, mark_delete = state.changes, state.mark_delete
        try:
            await ledger.add_records(encode_changes(state, state.take_unsaved()))
        except AddFailed as error:
            _log.warning("%s continues in another ledger: %s", self, error)
            self._drop_ledger()
            self._count_failure(error)
            return
        self._complete_save(changes, mark_delete)

    async def _save_to_new_ledger(self) -> None:
        """Create a ledger with the whole state after the pause that is due, and point the node at it."""
        context, state = self._context, self._state
        while True:
            if await self._pause_before_ledger():
                return
            changes, mark_delete, attachment = state.changes, state.mark_delete, state.node_attachment
            state.take_unsaved()
            try:
                ledger = await CursorLedger.create(
                    context.client, context.striping.current, str(self), encode_snapshot(state)
                )
                try:
                    await self._point_node_at(ledger, mark_delete, attachment)
                except BaseException:
                    ledger.writer.abandon()
                    raise
                break
            except TopicUnloaded:
                raise
            except (NotEnoughBookies, AddFailed) as error:
                self._count_failure(error)
                if await self._try_save_to_node():
                    return
                if isinstance(error, NotEnoughBookies):  # for the ledger, or for an add to it
                    await self._wait_for_bookies()
            except (LedgerNotClaimed, Unavailable, StoreFull, BrokerError) as error:
                self._count_failure(error)
            except (LedgerError, SessionLost) as error:
                raise TopicUnloaded(f"{self} can't be saved any more: {error}") from error
        self.waiting_for = ""
        self._drop_ledger()
        self._ledger = ledger
        self._complete_save(changes, mark_delete)

    async def _point_node_at(self, ledger: CursorLedger | None, mark_delete: Position, attachment: bytes) -> None:
        new_ledger = ledger.new_ledger if ledger is not None else None
        ledger_id = new_ledger.ledger_id if new_ledger is not None else 0
        state = self._state
        await self._node.point_at(ledger_id, mark_delete, state.moves, state.take_overs, attachment, new_ledger)

    def _count_failure(self, error: Exception) -> None:
        self._ledger_pause.count_failure()
        self.waiting_for = str(error)

    async def _pause_before_ledger(self) -> bool:
        """Pause before the next ledger if a pause is due. Return True if no ledger is needed after all: the cursor is
        being closed or reset, and its position was saved to its node."""
        pause = self._ledger_pause
        while pause.is_due:
            if pause.is_skipped and await self._try_save_to_node():
                return True
            if await pause.wait() and self._state.needs_ledger:
                break
        return False

    async def _wait_for_bookies(self) -> None:
        try:
            await self._context.striping.wait_for_bookies(self._context.client)
        except ClientClosed as error:
            raise TopicUnloaded(f"{self} can't be saved any more: {error}") from error

    def _drop_ledger(self) -> None:
        """Write to the ledger no more. As long as the node points at it, it is what the next owner reads."""
        if self._ledger is not None:
            self._ledger.writer.abandon()
            self._ledger = None

    def _complete_save(self, changes: int, mark_delete: Position) -> None:
        """All changes up to this number are durable: notify the callers that wait for them."""
        self._saved_changes = changes
        self._saved_mark_delete = min(mark_delete, self._state.mark_delete)
        waiting, self._waiting = self._waiting or [], None
        count = len(waiting)
        for number, (wanted, _) in enumerate(waiting):
            if wanted > changes:
                self._waiting = waiting[number:]
                count = number
                break
        for _, done in waiting[:count]:
            report_saved(done, None)

    # Saving to the node, without a ledger.

    async def _save_to_node(self) -> None:
        """Write the mark-delete position to the node, and drop the ledger. Not while there are holes."""
        state = self._state
        assert not state.needs_ledger, "the node can't hold the whole state"
        changes, mark_delete = state.changes, state.mark_delete
        await self._point_node_at(None, mark_delete, state.attachment)
        self._drop_ledger()
        self._complete_save(changes, mark_delete)

    async def _try_save_to_node(self) -> bool:
        """Save without a ledger if that is possible now. Return whether everything is saved. Raises `TopicUnloaded`."""
        if self._state.needs_ledger:
            return False
        try:
            await self._save_to_node()
        except TopicUnloaded:
            raise
        except BrokerError as error:
            self.waiting_for = str(error)
            return False
        self.waiting_for = ""
        return True

    async def _save_to_node_and_resume(self) -> None:
        """The saver's work for an idle or flushed cursor. Changes made in the meantime are saved after it."""
        try:
            if not self._state.needs_ledger:  # it may by now
                await self._save_to_node()
        except TopicUnloaded:
            raise
        except BrokerError as error:
            _log.info("%s still uses its ledger: %s", self, error)
        except asyncio.CancelledError:
            self._drop_ledger()
            raise
        finally:
            self._saver = None
        self._resume_saving()

    # Housekeeping.

    def tick(self, now: float) -> None:
        """Drop the ledger if the cursor is idle. Called at intervals with the time of the monotonic clock."""
        state, idle_s = self._state, self._context.settings.managed_ledger_cursor_idle_time_seconds
        if state.changes != self._idle_changes or not idle_s:
            self._idle_changes, self._idle_since = state.changes, now
            return
        if not self._node.ledger_id or now - self._idle_since < idle_s or state.needs_ledger or self._has_unsaved:
            return
        if self._may_begin_save:
            self._saver = self._context.tasks.spawn(self._save_to_node_and_resume())

    @property
    def is_deleting_ledgers(self) -> bool:
        return self._node.is_deleting_ledgers

    def begin_deleting_former_ledgers(self) -> bool:
        """Begin to delete former ledgers in a task. Return False if there are none, or if that has begun."""
        if self._problem is not None or self._is_paused:
            return False
        return self._node.begin_deleting_former_ledgers()

    async def delete_former_ledgers(self) -> None:
        """Delete former ledgers now, as far as possible. Raises `TopicUnloaded`."""
        await self._node.delete_former_ledgers()

    # Closing.

    async def flush(self) -> None:
        """Save everything. A cursor without holes drops its ledger, so the next owner has none to recover."""
        with self._ledger_pause.skip():
            while self._saver is not None:
                await self._wait_for_saver()
            if self._problem is None and self._has_unsaved:
                if self._state.needs_ledger:
                    await self.wait_until_saved()
                else:
                    self._cancel_timer()
                    self._saver = self._context.tasks.spawn(self._save_to_node_and_resume())
                    await self._wait_for_saver()

    async def close(self) -> None:
        """Save everything, and close the ledger. A cursor without holes drops it.

        Raises `BrokerError`, and then the caller may call it again, or `abandon`.
        """
        self._cancel_timer()
        with self._ledger_pause.skip():
            while self._saver is not None:
                await self._wait_for_saver()
            if self._problem is None:
                if self._state.needs_ledger:
                    await self.wait_until_saved()
                elif self._has_unsaved or self._node.ledger_id:
                    await self._save_to_node()
        if self._problem is None and self._ledger is not None:
            try:
                await self._ledger.writer.close()
            except (LedgerError, MetadataError) as error:  # everything is in it: the next owner recovers it
                _log.info("%s leaves its ledger open: %s", self, error)
        self.abandon(TopicUnloaded(f"{self} was closed"))

    def abandon(self, problem: BrokerError) -> None:
        """Save nothing any more. Callers that wait get the error. Further calls have no effect."""
        if self._problem is not None:
            return
        self._problem = problem
        self._cancel_timer()
        if self._saver is not None:
            self._saver.cancel()
        self._node.cancel_deletion()
        self._drop_ledger()
        waiting, self._waiting = self._waiting or [], None
        for _, done in waiting:
            report_saved(done, problem.again())

    # Deleting.

    async def mark_deleted(self) -> None:
        """Mark the cursor as deleted in its node: no broker opens it any more. It can be called again.

        Raises `BrokerError`: then the cursor continues as before.
        """
        await self._pause_saving()
        try:
            await self._node.mark_deleted()
        except TopicUnloaded:
            raise
        except BrokerError:
            self._is_paused = False
            self._resume_saving()
            raise
        self.abandon(BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{self} was deleted"))

    async def _pause_saving(self) -> None:
        """Stop saving for now. Callers of `wait_until_saved` continue to wait."""
        self._is_paused = True
        self._cancel_timer()
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait([self._saver])
            self._saver = None  # a task that was cancelled before it began does not reset it
        await self._node.stop_deletion()

    async def delete(self) -> None:
        """Delete the cursor's ledgers, then its node; after `mark_deleted`. It can be called again.

        Raises `BrokerError`: then the node still names the ledgers that are left.
        """
        await self._node.delete()

    def __str__(self) -> str:
        return self._context.describe(self.name)
