"""Group commit: transactions are gathered into groups, and each group is made durable with one fsync.

Theory of operation
-------------------
A transaction is checked when it arrives, against the table and all transactions that were accepted before it, and joins
the gathering group. One group at a time is written. All its changes are written to RocksDB in one batch without sync,
on the event loop (a write holds the interpreter's lock in any case). Then a thread, which does not hold that lock,
syncs the log, and writes and syncs the mark (`locked_folder/durable_mark.py`). Then all transactions of the group are
answered. The next group gathers in the meantime.

No change is visible before it is durable. RocksDB shows a write at once, so `visible` is the table, covered with the
old records of the group in flight. A refusal may be caused by changes that are not durable either, so it is raised
after they are.

A failed write or sync is not retried: it is unknown which part the kernel has written. The store accepts nothing more,
transactions in flight and gathered ones fail with `OutcomeUnknown`, and the folder has to be opened again. So that a
full disk does not cause this, a group is refused before it is written if less than `RESERVE_BYTES` would be left. Any
other error before the write refuses the group with `Refused`, and the store continues.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from magnetar_metadata import tree
from magnetar_metadata.embedded.rocks_table import RocksTable, new_batch
from magnetar_metadata.errors import OutcomeUnknown, Refused, StoreFull
from magnetar_metadata.locked_folder import DurableMark
from magnetar_metadata.node_table import NodeTable, Overlay, Record
from magnetar_metadata.store import Change

log = logging.getLogger(__name__)

RESERVE_BYTES: Final = 16 << 20

Waiting = tuple[asyncio.Future[None], tree.Applied]


class _Group:
    """Transactions that are made durable together."""

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
        notify_watches: Callable[[tree.Applied], object],
        died: Callable[[str], object],
    ) -> None:
        self._folder = folder
        self._database = database
        self._mark = mark
        self._notify_watches = notify_watches
        self._died = died
        self._table = RocksTable(database)
        self._executor = ThreadPoolExecutor(1, "metadata-fsync")
        self._gathering = _Group(self._table)
        self._in_flight: _Group | None = None
        self._writer: asyncio.Task[None] | None = None
        self._dead: str | None = None
        # The table for readers, with durable changes only.
        self.visible: NodeTable = self._table

    async def transaction(self, changes: Sequence[Change], session_id: int) -> tree.Applied:
        """Make a transaction. Returns when it is durable."""
        return await self._join(lambda table: tree.apply_changes(table, changes, session_id))

    async def end_session(self, session_id: int) -> None:
        """Delete a session's ephemeral nodes, including those that are not durable yet."""

        def delete(table: Overlay) -> tree.Applied:
            changed = table.changed
            owned = [path for path in self._table.owned(session_id) if path not in changed]
            owned += [path for path, record in changed.items() if record and record.ephemeral_owner == session_id]
            return tree.delete_nodes(table, owned)

        await self._join(delete)

    def abandon_after_fork(self, because: str) -> None:
        """Refuse all further changes. Called in a forked child: the gathered changes are the parent's."""
        self._dead = because

    async def close(self) -> None:
        """Wait for the group in flight."""
        try:
            if self._writer is not None:
                await asyncio.wait([self._writer])
        finally:
            # A sync in progress is waited for even if the caller is cancelled: the files are closed after this.
            await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    async def _join(self, apply: Callable[[Overlay], tree.Applied]) -> tree.Applied:
        if self._dead is not None:
            raise OutcomeUnknown(self._dead)
        group = self._gathering
        try:
            applied = apply(group.overlay)
        except Refused:
            seen = group if group.waiting else self._in_flight
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
                self._in_flight = group
                batch = self._prepare(group)
                if batch is not None:
                    await self._write(group, batch)
                self._in_flight = None
        except BaseException as error:
            # Also if this task is cancelled: otherwise the waiting transactions would never be answered.
            self._die(f"the writer of the metadata folder {self._folder} stopped: {error!r}")
            raise

    def _prepare(self, group: _Group) -> Any | None:
        """Return the group's batch. If it can't be written, refuse all of its transactions and return None."""
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
            # Not `NotSent`, which callers retry at once: it would probably fail again.
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
            self._notify_watches(applied)
        _end(group, None)

    def _make_durable(self, sequence: int) -> None:
        """Sync the log and the mark. Runs in the thread."""
        self._database.flush_wal(sync=True)
        self._mark.write(sequence)
        self._mark.sync()

    def _hide(self, before: dict[str, Record | None]) -> None:
        """Cover the records that are about to be written with the old ones, for readers."""
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
        for group in (self._in_flight, self._gathering):
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
    # Refusals that were caused by the group wait for this; if the group failed, they are still refusals.
    if not group.done.done():
        group.done.set_result(None)
