"""The repair tasks in the metadata store: one node for each underreplicated ledger.

A task only requests that a worker looks at the ledger; the repair is planned from the ledger's metadata each time. So
a superfluous task costs one read, and if two workers have the same task, some entries are copied twice: all that they
do is idempotent or a compare-and-set. The lock only keeps them apart in most cases.

A task is deleted when its ledger is fully replicated or deleted, but only if it is the same as when the repair began.
If the ledger was reported again in the meantime, with more lost bookies, the task stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.client.foreign_nodes import decode_node
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, NodeExists, NoNode, StoreFull, Unavailable
from magnetar_metadata.store import ABSENT
from magnetar_protos.ledger_pb2 import RepairTask

__all__ = ["RepairLock", "RepairProgress", "UnderreplicatedLedgers", "list_repair_progress"]

_UNLOCK_RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """The progress of one ledger's repair, for commands."""

    ledger_id: int
    lost_bookies: tuple[str, ...]
    entries_copied: int
    entries_total: int
    # Why it can't continue. Empty if it can, or was not tried yet.
    stuck: str
    found_ms: int
    tried_ms: int


async def list_repair_progress(client: LedgerClient) -> list[RepairProgress]:
    """Return the progress of all repair tasks."""
    underreplicated = UnderreplicatedLedgers(client)
    progress = []
    for ledger_id in await underreplicated.list_ledger_ids():
        try:
            task = await underreplicated.read_task(ledger_id)
        except ForeignValue as error:
            client.ledgers.foreign.pass_over(paths.task(ledger_id), error)
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


class UnderreplicatedLedgers:
    def __init__(self, client: LedgerClient) -> None:
        self._client = client
        self._store = client.ledgers.store

    async def list_ledger_ids(self) -> list[int]:
        return await self._client.ledgers.ids_under(paths.TASKS)

    async def read_task(self, ledger_id: int) -> RepairTask | None:
        """Raises `ForeignValue` if the node can't be decoded. The other methods skip such a node."""
        stored = await compare_and_set.read(self._store, paths.task(ledger_id))
        return _decode_task(ledger_id, stored.payload) if stored else None

    async def mark_underreplicated(self, ledger_id: int, lost_bookies: Iterable[str] = ()) -> None:
        """Create the ledger's task, or add the bookies to the task that exists."""
        names = sorted(lost_bookies)
        now_ms = self._client.clock.time_ms()

        def update(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return RepairTask(found_ms=now_ms, lost_bookies=names).SerializeToString(deterministic=True)
            task = _decode_task(ledger_id, payload)
            new = [name for name in names if name not in task.lost_bookies]
            if not new:
                return LEAVE
            task.lost_bookies.extend(new)
            return task.SerializeToString(deterministic=True)

        await self._change(ledger_id, update)

    async def record_progress(self, ledger_id: int, copied: int, total: int, stuck: str) -> None:
        """Store the progress of the repair. A task that was deleted in the meantime is not created again."""
        now_ms = self._client.clock.time_ms()

        def update(payload: bytes | None) -> bytes | UpdateAction:
            if payload is None:
                return LEAVE
            task = _decode_task(ledger_id, payload)
            task.entries_copied, task.entries_total, task.stuck, task.tried_ms = copied, total, stuck, now_ms
            return task.SerializeToString(deterministic=True)

        await self._change(ledger_id, update)

    async def mark_replicated(self, ledger_id: int, repaired: RepairTask) -> bool:
        """Delete the task if it is still the one that was `repaired`, and return whether there is none any more.

        Otherwise the ledger was reported again, and must be repaired again.
        """
        found_ms, names = repaired.found_ms, list(repaired.lost_bookies)
        done = False

        def update(payload: bytes | None) -> bytes | UpdateAction:
            nonlocal done
            done = payload is None
            if payload is None:
                return LEAVE
            task = _decode_task(ledger_id, payload)
            done = task.found_ms == found_ms and list(task.lost_bookies) == names
            return DELETE if done else LEAVE

        await self._change(ledger_id, update)
        return done

    async def _change(self, ledger_id: int, update: compare_and_set.Update) -> None:
        path, clock, randomness = paths.task(ledger_id), self._client.clock, self._client.randomness
        try:
            await compare_and_set.change(self._store, path, update, clock=clock, randomness=randomness)
        except ForeignValue as error:
            self._client.ledgers.foreign.pass_over(path, error)


def _decode_task(ledger_id: int, payload: bytes) -> RepairTask:
    return decode_node(RepairTask, paths.task(ledger_id), payload)


class RepairLock:
    """The ephemeral lock on one ledger's repair: `async with RepairLock(…) as acquired`.

    It saves work but guards nothing: another process may acquire it while its former holder, which was paused,
    continues. If the request that created the node got no answer, the lock is recognised by its session and holder,
    since a session has only one holder of each kind. The lock is released before anything else is done, however long
    the store does not answer: as long as the session exists, it would keep all other workers from the ledger, and its
    own worker may never try that ledger again.
    """

    def __init__(self, client: LedgerClient, ledger_id: int, holder: bytes) -> None:
        self._store = client.ledgers.store
        self._clock = client.clock
        self._path = paths.lock(ledger_id)
        self._holder = holder
        self._acquired = False

    async def __aenter__(self) -> bool:
        try:
            await self._store.put(self._path, self._holder, ABSENT, ephemeral=True)
            self._acquired = True
        except NodeExists:
            node = await self._store.get(self._path)
            own_session = node is not None and node.stat.ephemeral_owner == self._store.session.id
            self._acquired = own_session and node is not None and node.value == self._holder
        return self._acquired

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._acquired:
            return
        while True:
            try:
                await self._store.delete(self._path, 0)
            except NoNode:
                pass
            except (Unavailable, StoreFull):
                if kind is None or issubclass(kind, Exception):
                    await self._clock.sleep(_UNLOCK_RETRY_S)
                    continue
                # Cancelled: the owner ends the session, and with it the lock.
            return
