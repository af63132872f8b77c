"""Transactions gathered into groups, each made durable with one fsync.

Theory of operation
-------------------
A transaction is judged as it comes, against the table plus all that was accepted before it, and joins the group that
gathers. One group at a time is written: all its changes in one batch, without sync, on the event loop (a write holds
the interpreter's lock in any case); then the log is synced in a thread, which releases it, and the mark
(`locked_folder/durable_mark.py`) is written and synced; then every transaction of the group is answered.
Meanwhile the next group gathers.

Nothing is seen before it is durable. RocksDB shows a write at once, so `visible` is the table with the old state of
what the group under way changes laid over it. A refusal may rest on changes that are not durable either, so it is told
when they are.

A write or a sync that fails is not tried again: what the kernel kept of it is unknown. The store is dead from then on,
what was gathered and under way ends as `OutcomeUnknown`, and the folder has to be opened again. To keep a full disk
from being that, a group is refused before anything is written when less than `RESERVE_BYTES` would be left. Whatever
else fails before the write ends the group as `Refused`, and the store goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from magnetar_metadata.core import tree
from magnetar_metadata.core.records import NodeTable, Overlay, Record
from magnetar_metadata.embedded.rocks_table import RocksTable, new_batch
from magnetar_metadata.errors import OutcomeUnknown, Refused, StoreFull
from magnetar_metadata.locked_folder import DurableMark
from magnetar_metadata.store import Change

log = logging.getLogger(__name__)

RESERVE_BYTES: Final = 16 << 20

Waiting = tuple[asyncio.Future[None], tree.Applied]


class _Group:
    """Transactions that become durable together."""

    def __init__(self, table: RocksTable) -> None:
        self.overlay = Overlay(table)
        self.waiting: list[Waiting] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class GroupCommit:
    """The only writer of a folder."""

    def __init__(
        self,
        folder: Path,
        database: Any,
        mark: DurableMark,
        tell: Callable[[tree.Applied], object],
        died: Callable[[str], object],
    ) -> None:
        self._folder = folder
        self._database = database
        self._mark = mark
        self._tell = tell
        self._died = died
        self._table = RocksTable(database)
        self._executor = ThreadPoolExecutor(1, "metadata-fsync")
        self._gathering = _Group(self._table)
        self._under_way: _Group | None = None
        self._writer: asyncio.Task[None] | None = None
        self._dead: str | None = None
        # What readers see: only what is durable.
        self.visible: NodeTable = self._table

    async def transaction(self, changes: Sequence[Change], session_id: int) -> tree.Applied:
        """Returns when the transaction is durable."""
        return await self._join(lambda table: tree.apply(table, changes, session_id))

    async def end_session(self, session_id: int) -> None:
        """Deletes a session's ephemeral nodes, those that are not durable yet among them."""

        def delete(table: Overlay) -> tree.Applied:
            changed = table.changed
            owned = [path for path in self._table.owned(session_id) if path not in changed]
            owned += [path for path, record in changed.items() if record and record.ephemeral_owner == session_id]
            return tree.delete_all(table, owned)

        await self._join(delete)

    def was_forked(self, because: str) -> None:
        """In the child, where what gathers is the parent's to write. Who waits there waits on the parent's loop."""
        self._dead = because

    async def close(self) -> None:
        """Waits for what is under way."""
        try:
            if self._writer is not None:
                await asyncio.wait([self._writer])
        finally:
            # What is being synced is waited for even if the caller no longer waits: then the files may be closed.
            await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def _join(self, apply: Callable[[Overlay], tree.Applied]) -> tree.Applied:
        if self._dead is not None:
            raise OutcomeUnknown(self._dead)
        group = self._gathering
        try:
            applied = apply(group.overlay)
        except Refused:
            seen = group if group.waiting else self._under_way
            if seen is not None:
                await asyncio.shield(seen.done)
            raise
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiting.append((answer, applied))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_groups(), name="metadata-group-commit")
        await answer
        return applied

    async def _write_groups(self) -> None:
        try:
            while self._gathering.waiting and self._dead is None:
                group, self._gathering = self._gathering, _Group(self._table)
                self._under_way = group
                batch = self._prepare(group)
                if batch is not None:
                    await self._write(group, batch)
                self._under_way = None
        except BaseException as error:
            # Also when this task is cancelled: nobody else would ever answer those who wait.
            self._die(f"the writer of the metadata folder {self._folder} stopped: {error!r}")
            raise

    def _prepare(self, group: _Group) -> Any | None:
        """The group's batch; or None where it can't be written, and all of it is told that nothing was done."""
        changed = group.overlay.changed
        batch = new_batch()
        try:
            if self._is_full():
                full = (
                    f"the disk of the metadata folder {self._folder} is full: less than {RESERVE_BYTES} bytes are free"
                )
                _end(group, lambda applied: StoreFull(full, _first(applied)))
                return None
            before = {path: self._table.get(path) for path in changed}
            self._table.fill(batch, changed, before)
        except Exception as error:  # noqa: BLE001 - RocksDB's errors have no type of their own
            because = f"nothing was written to the metadata folder {self._folder}: {error!r}"
            log.warning("A group of changes was refused: %s", because)
            # Not `NotSent`, which invites to try again at once: it would likely fail again.
            _end(group, lambda applied: Refused(because, _first(applied)))
            return None
        self._hide(before)
        return batch

    async def _write(self, group: _Group, batch: Any) -> None:
        try:
            self._database.write(batch)
            sequence = self._database.latest_sequence_number()
            await asyncio.get_running_loop().run_in_executor(self._executor, self._make_durable, sequence)
        except Exception as error:  # noqa: BLE001 - RocksDB's errors have no type of their own
            self._die(f"writing to the metadata folder {self._folder} failed: {error}")
            return
        self.visible = self._table
        for _, applied in group.waiting:
            self._tell(applied)
        _end(group, None)

    def _make_durable(self, sequence: int) -> None:
        """In the thread."""
        self._database.flush_wal(sync=True)
        self._mark.write(sequence)
        self._mark.sync()

    def _hide(self, before: dict[str, Record | None]) -> None:
        """Lays what was there before over what is about to be written."""
        visible = Overlay(self._table)
        for path, record in before.items():
            if record is None:
                visible.delete(path)
            else:
                visible.put(path, record)
        self.visible = visible

    def _is_full(self) -> bool:
        space = os.statvfs(self._folder)
        return space.f_bavail * space.f_frsize < RESERVE_BYTES

    def _die(self, because: str) -> None:
        self._dead = because
        for group in (self._under_way, self._gathering):
            if group is not None:
                _end(group, lambda _: OutcomeUnknown(because))
        self._died(because)


def _first(applied: tree.Applied) -> str:
    return applied.changed[0] if applied.changed else ""


def _end(group: _Group, error: Callable[[tree.Applied], Exception] | None) -> None:
    for answer, applied in group.waiting:
        if answer.done():
            continue
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error(applied))
    # Refusals that rested on the group wait for this; if it failed they stand all the same.
    if not group.done.done():
        group.done.set_result(None)
