"""The metadata store of a standalone: a folder with RocksDB, without a server.

`EmbeddedDatabase` is the open folder, which only one process can have; `connect` returns sessions on it.
`open_embedded` does both, for one session. Nodes are read from RocksDB each time, so memory does not grow with the
tree. `group_commit.py` describes how changes become durable; `locked_folder/durable_mark.py` and `rocks_table.py` how
missing changes are detected when a folder is opened.

A session never expires, because there is no server that could expire it: `safe_until` is infinite. It is lost when the
process ends, when it is closed, when a write fails, and in a forked child. Ephemeral nodes of earlier processes are
deleted before the folder is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from magnetar_metadata.embedded.group_commit import GroupCommit
from magnetar_metadata.embedded.rocks_table import RocksTable, new_batch, open_database
from magnetar_metadata.errors import NoStore, OutcomeUnknown, Refused, StoreDamaged, StoreInUse
from magnetar_metadata.locked_folder import DurableMark, FolderInUse, fork_handling
from magnetar_metadata.locked_folder.durable_mark import MARK_NAME
from magnetar_metadata.paths import check_declared, check_path, check_roots, list_visible_names
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import Change, ChangeResult, MetadataStore, Node, SessionState, Stat
from magnetar_metadata.transaction_check import check_transaction
from magnetar_metadata.tree import Applied
from magnetar_metadata.watch_flags import WatchFlag, WatchFlags
from magnetar_wire.clock import Clock

log = logging.getLogger(__name__)

# The low bits of a session's id number the sessions of one opening; the high bits are the number of openings.
_SESSIONS_BITS = 24

_COPY = "its folder belongs to the process that this one was forked from"


async def open_embedded(
    folder: str | os.PathLike[str], clock: Clock, subtree_roots: Sequence[str] = (), *, create: bool = True
) -> EmbeddedStore:
    """Open a folder with one session. Closing the session closes the folder."""
    database = await EmbeddedDatabase.open(folder, clock, subtree_roots, create=create)
    return database.connect(owns_database=True)


class EmbeddedDatabase:
    """An open folder with its sessions."""

    def __init__(
        self, folder: Path, clock: Clock, roots: tuple[str, ...], database: Any, mark: DurableMark, opened: int
    ) -> None:
        self._clock = clock
        self._roots = roots
        self._database = database
        self._mark = mark
        self._next_session_id = (opened << _SESSIONS_BITS) + 1
        self._stores: list[EmbeddedStore] = []
        self.commit = GroupCommit(folder, database, mark, self._notify_watches, self._died)
        # Whether this is a copy in a forked process, where nothing may touch the folder.
        self.is_copy = False
        fork_handling.register(self)

    @classmethod
    async def open(
        cls, folder: str | os.PathLike[str], clock: Clock, subtree_roots: Sequence[str] = (), *, create: bool = True
    ) -> EmbeddedDatabase:
        """Open the folder. If it doesn't exist, create it, or raise `NoStore` if `create` is false. Raises `StoreInUse`
        and `StoreDamaged`."""
        roots = check_roots(subtree_roots)
        path = Path(folder)
        opening = asyncio.ensure_future(asyncio.to_thread(_open, path, create))
        try:
            database, mark, opened = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread continues. The folder that it opens must be closed again.
            opening.add_done_callback(_close_unused)
            raise
        return cls(path, clock, roots, database, mark, opened)

    def connect(self, *, owns_database: bool = False) -> EmbeddedStore:
        """Return a new session on the folder."""
        session = StoreSession(self._clock, self._next_session_id, math.inf)
        self._next_session_id += 1
        store = EmbeddedStore(self, self._clock, session, self._roots, owns_database)
        self._stores.append(store)
        return store

    def abandon_after_fork(self) -> None:
        """Mark this as a copy. The sessions are lost when they are next used: no listener is called during a fork."""
        self.is_copy = True
        self.commit.abandon_after_fork(_COPY)
        # RocksDB hangs if it is destroyed in the child. This reference is never released, so it isn't, even at the
        # exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._database))

    async def close(self) -> None:
        """Close all sessions, then the folder. It is closed even after errors, since nobody else could open it."""
        if self.is_copy:
            self._died(_COPY)
            return
        try:
            for store in list(self._stores):
                await store.end()
        finally:
            try:
                await self.commit.close()
            finally:
                # If the caller is cancelled, the lock must not be released before the database is closed.
                await asyncio.shield(asyncio.to_thread(self._close_folder))

    def _close_folder(self) -> None:
        """Close the database, then release the lock. Runs in a thread."""
        try:
            self._database.close()
        except Exception as error:  # noqa: BLE001 - RocksDB's errors have no type of their own
            # It syncs its log again. After a failed write it can't, but it has closed its files.
            log.warning("The metadata folder was closed with an error: %s", error)
        finally:
            self._mark.close()

    def forget(self, store: EmbeddedStore) -> None:
        self._stores.remove(store)

    def _notify_watches(self, applied: Applied) -> None:
        for store in self._stores:
            store.flags.set_flags(applied.changed, applied.children_changed)

    def _died(self, because: str) -> None:
        for store in list(self._stores):
            store.lost(because)


class EmbeddedStore(MetadataStore):
    """One session on an open folder."""

    def __init__(
        self,
        database: EmbeddedDatabase,
        clock: Clock,
        session: StoreSession,
        roots: tuple[str, ...],
        owns_database: bool,
    ) -> None:
        self._database = database
        self._clock = clock
        self._session = session
        self._roots = roots
        self._owns_database = owns_database
        self.flags = WatchFlags()

    @property
    def session(self) -> StoreSession:
        return self._session

    async def get(self, path: str) -> Node | None:
        check_path(path)
        self._answer()
        record = self._database.commit.visible.get(path)
        return record.node() if record else None

    async def exists(self, path: str) -> Stat | None:
        node = await self.get(path)
        return node.stat if node else None

    async def children(self, path: str) -> list[str]:
        check_path(path)
        self._answer()
        return list_visible_names(path, self._database.commit.visible.child_names(path))

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        check_transaction(changes, self._roots)
        self._answer()
        applied = await self._database.commit.transaction(tuple(changes), self._session.id)
        return applied.results

    async def sync(self) -> None:
        self._answer()

    async def ping(self) -> None:
        self._answer()

    def watch(self, path: str) -> WatchFlag:
        check_path(path)
        return self._started(self.flags.watch(path))

    def watch_subtree(self, root: str) -> WatchFlag:
        check_declared(root, self._roots)
        return self._started(self.flags.watch_subtree(root))

    async def close(self) -> None:
        try:
            await self.end()
        finally:
            if self._owns_database:
                self._owns_database = False
                await self._database.close()

    async def end(self) -> None:
        """End the session, and leave the folder open."""
        self._lose_copy()
        if self._session.state is SessionState.LOST:
            return
        self._session.close()
        self.flags.end(self._session.over)
        self._database.forget(self)
        # If writing has failed or the disk is full, the ephemeral nodes are deleted when the folder is opened again.
        with contextlib.suppress(OutcomeUnknown, Refused):
            await self._database.commit.end_session(self._session.id)

    def lost(self, because: str) -> None:
        self._database.forget(self)
        self._session.lose(because)
        self.flags.end(self._session.over)

    def _lose_copy(self) -> None:
        if self._database.is_copy and self._session.state is not SessionState.LOST:
            self.lost(_COPY)

    def _started(self, flag: WatchFlag) -> WatchFlag:
        self._lose_copy()
        if self._session.state is SessionState.LOST:
            flag.end(self._session.over)
        return flag

    def _answer(self) -> None:
        """Count a request: this process answers it at once."""
        self._lose_copy()
        self._session.check()
        self._session.answered(self._clock.monotonic())


def _open(folder: Path, create: bool) -> tuple[Any, DurableMark, int]:
    """Lock and check the folder, and delete the ephemeral nodes of earlier processes. Runs in a thread."""
    if not create and not (folder / MARK_NAME).exists() and not (folder / "CURRENT").exists():
        raise NoStore(f"there is no metadata store in {folder}: check the path; nothing was created")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        mark = DurableMark.open(folder)
    except FolderInUse as error:
        raise StoreInUse(f"the metadata store can't be opened: {error}") from None
    try:
        if mark.number is None:
            if (folder / "CURRENT").exists():
                lost = (
                    f"{folder / MARK_NAME} is damaged or missing, so it is unknown which changes the folder "
                    "should have. Restore a copy of the folder, or start with an empty one"
                )
                raise StoreDamaged(lost)
            mark.begin(folder, 0)
        database = open_database(folder, mark.number or 0)
        try:
            table = RocksTable(database)
            batch = new_batch()
            opened = table.count_opening(batch)
            table.sweep(batch)
            database.write(batch)
            database.flush_wal(sync=True)
            mark.write(database.latest_sequence_number())
            mark.sync()
        except BaseException:
            database.close()
            raise
    except BaseException:
        mark.close()
        raise
    return database, mark, opened


def _close_unused(opening: asyncio.Future[tuple[Any, DurableMark, int]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        database, mark, _ = opening.result()
        database.close()
        mark.close()
