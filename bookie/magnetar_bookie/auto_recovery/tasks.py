"""The repair tasks in the metadata store: who writes one, who takes it, how it goes on and ends.

A task says that somebody should look at a ledger, and no more: what is to be done is planned from the ledger's metadata
each time. So a task that is too many costs a look, and one that two workers hold costs some copies made twice: all that
they do is idempotent or a compare-and-set. The lock only keeps them apart as a rule.

A task ends when its ledger is whole or deleted, and only as it was when the work on it began: a report that came
meanwhile (it names more lost bookies) is not lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, NodeExists, NoNode, StoreFull, Unavailable
from magnetar_metadata.store import ABSENT
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.ledger_pb2 import RepairTask

__all__ = ["LedgerLock", "RepairProgress", "Tasks", "repair_progress"]

_GIVE_BACK_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """One ledger's repair, for people to see."""

    ledger_id: int
    lost_bookies: tuple[str, ...]
    entries_copied: int
    entries_total: int
    # Why it can't go on; empty: it can, or has not been tried.
    stuck: str
    found_ms: int
    tried_ms: int


async def repair_progress(client: LedgerClient) -> list[RepairProgress]:
    """All ledgers that lack replicas, as far as is known."""
    tasks = Tasks(client)
    progress = []
    for ledger_id in await tasks.ledger_ids():
        try:
            task = await tasks.read(ledger_id)
        except ForeignValue as error:
            client.ledgers.undecodable_nodes.log_once(paths.task(ledger_id), error)
            continue
        if task is not None:
            progress.append(
                RepairProgress(
                    ledger_id,
                    tuple(task.lost_bookies),
                    task.entries_copied,
                    task.entries_total,
                    task.stuck,
                    task.found_ms,
                    task.tried_ms,
                )
            )
    return progress


class Tasks:
    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._store = client.ledgers.store

    async def ledger_ids(self) -> list[int]:
        return await self._client.ledgers.list_ledger_ids(paths.TASKS)

    async def read(self, ledger_id: int) -> RepairTask | None:
        """Raises `ForeignValue`. The others pass over what is no task of ours."""
        stored = await compare_and_set.read(self._store, paths.task(ledger_id))
        return _decoded(ledger_id, stored.payload) if stored else None

    async def report(self, ledger_id: int, lost_bookies: Iterable[str] = ()) -> None:
        """Makes the task, or adds the bookies to the one that is there."""
        names = sorted(lost_bookies)
        now_ms = self._client.clock.time_ms()

        def reported(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return RepairTask(found_ms=now_ms, lost_bookies=names).SerializeToString(deterministic=True)
            task = _decoded(ledger_id, payload)
            more = [name for name in names if name not in task.lost_bookies]
            if not more:
                return LEAVE
            task.lost_bookies.extend(more)
            return task.SerializeToString(deterministic=True)

        await self._change(ledger_id, reported)

    async def note(self, ledger_id: int, copied: int, total: int, stuck: str) -> None:
        """How far the work is. A task that is gone meanwhile stays so."""
        now_ms = self._client.clock.time_ms()

        def noted(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return LEAVE
            task = _decoded(ledger_id, payload)
            task.entries_copied, task.entries_total, task.stuck, task.tried_ms = copied, total, stuck, now_ms
            return task.SerializeToString(deterministic=True)

        await self._change(ledger_id, noted)

    async def finish(self, ledger_id: int, worked_on: RepairTask) -> bool:
        """Takes the task away; False: another report has come, and the ledger must be looked at once more."""
        found, names = worked_on.found_ms, list(worked_on.lost_bookies)
        done = False

        def finished(payload: bytes | None) -> bytes | UpdateAction:
            nonlocal done
            done = payload is None
            if payload is None:
                return LEAVE
            task = _decoded(ledger_id, payload)
            done = task.found_ms == found and list(task.lost_bookies) == names
            return DELETE if done else LEAVE

        await self._change(ledger_id, finished)
        return done

    async def _change(self, ledger_id: int, update: compare_and_set.Update) -> None:
        path, clock, randomness = paths.task(ledger_id), self._client.clock, self._client.randomness
        try:
            await compare_and_set.change(self._store, path, update, clock=clock, randomness=randomness)
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(path, error)


def _decoded(ledger_id: int, payload: bytes) -> RepairTask:
    return decode_node(RepairTask, paths.task(ledger_id), payload)


class LedgerLock:
    """The ephemeral lock on one ledger's repair: `async with LedgerLock(…) as mine`.

    It saves work and guards nothing: it may be taken by another while its former holder, paused, still goes on. A lock
    whose making got no answer is known by its session and holder, and is taken up again: a session has one of each kind
    of holder. It is given back before anything else is done, however long the store gives no answer: as long as the
    session lives it would keep all others from the ledger, and its holder may never come to that ledger again.
    """

    def __init__(self, client: LedgerClient, ledger_id: int, holder: bytes) -> None:
        self._store = client.ledgers.store
        self._clock = client.clock
        self._path = paths.lock(ledger_id)
        self._holder = holder
        self._mine = False

    async def __aenter__(self) -> bool:
        try:
            await self._store.put(self._path, self._holder, ABSENT, ephemeral=True)
            self._mine = True
        except NodeExists:
            node = await self._store.get(self._path)
            own_session = node is not None and node.stat.ephemeral_owner == self._store.session.id
            self._mine = own_session and node is not None and node.value == self._holder
        return self._mine

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._mine:
            return
        while True:
            try:
                await self._store.delete(self._path, 0)
            except NoNode:
                pass
            except (Unavailable, StoreFull):
                if kind is None or issubclass(kind, Exception):
                    await self._clock.sleep(_GIVE_BACK_RETRY_S)
                    continue
                # Cancelled: the session ends with whoever is.
            return
