"""The metadata store of a cluster: ZooKeeper.

The tree is ZooKeeper's own, below a `chroot` if one is given. This module translates the store's requests. The session
with its threads is in `kazoo_session.py`, watches in `watches.py`, the conversion of a transaction into a multi in
`multi_plan.py`, and the meaning of errors in `kazoo_errors.py`.

All changes are multis, even single ones: there is one way to fail instead of five. `ping` is a multi, too, which checks
nothing: its answer always requires the agreement of a majority.

`sync` is a ping, because ZooKeeper's own sync does not fulfil the contract. A leader treats a sync as a read, and
answers from its own tree without asking the other servers. This tree may lack a change that a follower has already
applied and answered, and lacks all changes of the next leader if this one has not noticed yet that it was deposed.
Servers apply changes in one order, so after a ping's answer the tree has every change that was answered before.

Each ping is a write by a majority, and clients can cause a broker to sync. So concurrent calls share one
(`shared_sync.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from magnetar_metadata.errors import InvalidPath, NodeExists, NoNode, NoStore, NotSent, OutcomeUnknown, Unavailable
from magnetar_metadata.paths import (
    ROOT,
    ancestors_of,
    check_declared,
    check_path,
    check_roots,
    counter_path,
    list_visible_names,
)
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import ABSENT, ANY, Change, ChangeResult, MetadataStore, Node, SessionState, Stat
from magnetar_metadata.transaction_check import MAX_CHROOT_BYTES, check_transaction
from magnetar_metadata.watch_flags import WatchFlag
from magnetar_metadata.zookeeper.kazoo_errors import find_failed_operation, refused, to_metadata_error, to_refusal
from magnetar_metadata.zookeeper.kazoo_session import KazooSession
from magnetar_metadata.zookeeper.multi_plan import Kind, MultiPlan, Next, Operation, Role
from magnetar_metadata.zookeeper.shared_sync import SharedSync
from magnetar_metadata.zookeeper.watches import ZooKeeperWatches
from magnetar_wire.clock import Clock

# The maximum number of corrected plans. Each needs another writer that creates or deletes a node at the wrong moment.
_ROUNDS: Final = 50
_ANY_VERSION: Final = -1


async def open_zookeeper(
    hosts: str,
    clock: Clock,
    *,
    chroot: str = ROOT,
    subtree_roots: Sequence[str] = (),
    session_timeout_s: float = 10.0,
    connect_timeout_s: float = 15.0,
    create: bool = True,
) -> ZooKeeperStore:
    """Open a session. `hosts` is "host:port,host:port,…". Raises `Unavailable` if no server answers, and `NoStore` if
    the chroot doesn't exist and `create` is false.

    The chroot has at most `MAX_CHROOT_BYTES`, since it is part of each path of a transaction.
    """
    check_path(chroot)
    if len(chroot.encode()) > MAX_CHROOT_BYTES:
        raise InvalidPath(
            f"the chroot {chroot!r} has {len(chroot.encode())} bytes, above the limit of {MAX_CHROOT_BYTES}"
        )
    roots = check_roots(subtree_roots)
    kazoo = KazooSession(hosts, clock, session_timeout_s)
    await kazoo.start(connect_timeout_s)
    try:
        store = ZooKeeperStore(kazoo, clock, chroot, roots)
        if not create:
            await store.check_chroot()
        await store.create_own_nodes()
    except BaseException:
        await kazoo.close()
        raise
    return store


class ZooKeeperStore(MetadataStore):
    """One ZooKeeper session. `open_zookeeper` creates it."""

    def __init__(self, kazoo: KazooSession, clock: Clock, chroot: str, roots: tuple[str, ...]) -> None:
        self._kazoo = kazoo
        self._chroot = "" if chroot == ROOT else chroot
        self._roots = roots
        self._watches = ZooKeeperWatches(kazoo, clock)
        self._syncs = SharedSync(self.ping)
        kazoo.on_reconnected = self._watches.reconnected
        kazoo.on_lost = lambda: self._watches.end(self.session.over)

    @property
    def session(self) -> StoreSession:
        return self._kazoo.session

    async def get(self, path: str) -> Node | None:
        check_path(path)
        try:
            value, stat = await self._read(path, self._kazoo.client.get_async)
        except NoNode:
            return None
        return Node(value, _stat(stat))

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        stat = await self._read(path, self._kazoo.client.exists_async)
        return _stat(stat) if stat else None

    async def children(self, path: str) -> list[str]:
        check_path(path)
        try:
            return list_visible_names(path, await self._read(path, self._kazoo.client.get_children_async))
        except NoNode:
            return []

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        check_transaction(changes, self._roots)
        plan = MultiPlan(tuple(changes), self._roots)
        for _ in range(_ROUNDS):
            operations = plan.operations()
            results = await self._multi(changes[0].path, operations)
            blamed = find_failed_operation(results)
            if blamed is None:
                return self._build_results(operations, results)
            operation, error = operations[blamed[0]], blamed[1]
            why = to_refusal(error)
            if why is None:
                raise to_metadata_error(error, operation.path, operation.index)
            following = plan.learn(operation, why)
            if following is Next.REPORT:
                raise refused(why, operation.path, operation.index)
            try:
                await self._prepare(plan, following)
            except Unavailable as unavailable:
                # So far, the changes were refused.
                raise NotSent(f"{operation.path!r}: {unavailable}") from unavailable
        raise NotSent(
            f"{changes[0].path!r} was not changed: other clients created and deleted its nodes {_ROUNDS} times in a row"
        )

    async def sync(self) -> None:
        await self._syncs.sync()

    async def ping(self) -> None:
        multi = self._kazoo.client.transaction()
        multi.check(self._full(ROOT), _ANY_VERSION)
        results = await self._kazoo.request(ROOT, multi.commit_async, agreed=True)
        blamed = find_failed_operation(results)
        if blamed is not None:
            raise to_metadata_error(blamed[1], ROOT)

    def watch(self, path: str) -> WatchFlag:
        check_path(path)
        return self._watch(self._full(path), with_children=True)

    def watch_subtree(self, root: str) -> WatchFlag:
        check_declared(root, self._roots)
        return self._watch(self._full(counter_path(root)), with_children=False)

    async def close(self) -> None:
        try:
            await self._kazoo.close()
        finally:
            await self._syncs.wait_ended()
            await self._watches.close()

    async def check_chroot(self) -> None:
        """Raise `NoStore` if the chroot doesn't exist."""
        try:
            await self.sync()  # the server may lag behind
            found = await self.exists(ROOT) is not None
        except NoNode:
            found = False
        if not found:
            raise NoStore(f"ZooKeeper has no node {self._chroot}: check the path; nothing was created")

    async def create_own_nodes(self) -> None:
        """Create the chroot and the change counters of the declared roots."""
        wanted = [self._chroot] if self._chroot else []
        wanted += [self._full(counter_path(root)) for root in self._roots]
        for path in dict.fromkeys(path for node in wanted for path in [*ancestors_of(node), node]):
            await self._create(path)

    async def _create(self, path: str) -> None:
        if await self._kazoo.request(path, lambda: self._kazoo.client.exists_async(path)) is not None:
            return
        try:
            await self._kazoo.request(path, lambda: self._kazoo.client.create_async(path, b""), agreed=True)
        except NodeExists:
            # Another process has created it.
            return

    async def _prepare(self, plan: MultiPlan, following: Next) -> None:
        if following is Next.MAKE_COUNTERS:
            await self.create_own_nodes()
        if following is not Next.LOOK_FOR_PARENTS:
            return
        # A server that lags behind would return the same again.
        await self.sync()
        parents = plan.parents()
        there = await asyncio.gather(*(self.exists(path) for path in parents))
        plan.set_missing_parents(path for path, stat in zip(parents, there, strict=True) if stat is None)

    async def _multi(self, path: str, operations: list[Operation]) -> list[Any]:
        multi = self._kazoo.client.transaction()
        for operation in operations:
            self._add(multi, operation)
        results: list[Any] = await self._kazoo.request(path, multi.commit_async, agreed=True)
        if len(results) != len(operations):
            raise OutcomeUnknown(f"{path!r}: ZooKeeper answered {len(results)} of {len(operations)} operations")
        return results

    def _add(self, multi: Any, operation: Operation) -> None:
        path = self._full(operation.path)
        version = _ANY_VERSION if operation.version == ANY else operation.version
        match operation.kind:
            case Kind.CREATE:
                multi.create(path, operation.value, ephemeral=operation.ephemeral, sequence=operation.sequential)
            case Kind.SET:
                multi.set_data(path, operation.value, version)
            case Kind.DELETE:
                multi.delete(path, version)
            case Kind.CHECK:
                multi.check(path, version)

    def _build_results(self, operations: list[Operation], results: list[Any]) -> list[ChangeResult]:
        results_by_index: dict[int, ChangeResult] = {}
        for operation, result in zip(operations, results, strict=True):
            # The operations of parents come before those of the change, counters after them.
            if operation.role is not Role.CHANGE:
                continue
            match operation.kind:
                case Kind.CREATE:
                    results_by_index[operation.index] = ChangeResult(result[len(self._chroot) :], 0)
                case Kind.SET:
                    results_by_index[operation.index] = ChangeResult(operation.path, result.version)
                case Kind.DELETE:
                    results_by_index[operation.index] = ChangeResult(operation.path, ABSENT)
                case Kind.CHECK:
                    results_by_index[operation.index] = ChangeResult(operation.path, operation.version)
        return [results_by_index[index] for index in range(len(results_by_index))]

    async def _read(self, path: str, call: Any) -> Any:
        return await self._kazoo.request(path, lambda: call(self._full(path)))

    def _watch(self, path: str, *, with_children: bool) -> WatchFlag:
        if self.session.state is SessionState.LOST:
            ended = WatchFlag(lambda _: None)
            ended.end(self.session.over)
            return ended
        return self._watches.watch(path, with_children=with_children)

    def _full(self, path: str) -> str:
        return (self._chroot or ROOT) if path == ROOT else self._chroot + path


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner)
