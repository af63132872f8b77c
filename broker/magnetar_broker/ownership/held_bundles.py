"""The bundles that this broker holds, and the operations on them.

A bundle is held from the creation of its owner node until the node is deleted. So one whose node has vanished may be
held for a while (ownership_verifier.py). What other brokers do in that time is harmless, because of the ledgers'
fences.

One operation at a time runs on a bundle: a release, a split or a verification. It runs in a task of its own, for which
its callers wait. A bundle that is being released or verified does not serve: none of its topics is opened. If an
operation fails in between, the bundle is verified: its owner node is read, which shows the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, NotOwner, TopicUnloaded
from magnetar_broker.ownership.bundle_map import BundleMap
from magnetar_broker.ownership.interface import BundleTopics
from magnetar_broker.ownership.owner_nodes import OwnerNode, OwnerNodes
from magnetar_broker.ownership.store_errors import convert_store_errors
from magnetar_broker.single_flight import wait_for_result
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["HeldBundle", "HeldBundles"]

_log = logging.getLogger(__name__)


class HeldBundle:
    __slots__ = ("bundle", "is_serving", "namespace", "namespace_incarnation", "node_version", "operation")

    def __init__(
        self, namespace: NamespaceName, bundle: BundleRange, namespace_incarnation: bytes, node_version: int
    ) -> None:
        self.namespace = namespace
        self.bundle = bundle
        self.namespace_incarnation = namespace_incarnation
        # The version of the owner node, which is never changed.
        self.node_version = node_version
        # Its topics may be opened.
        self.is_serving = True
        # The operation that runs; None: there is none, and the bundle serves.
        self.operation: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"bundle {self.bundle} of {self.namespace}"


class HeldBundles:
    def __init__(self, nodes: OwnerNodes, counters: BrokerCounters, on_change: Callable[[], object]) -> None:
        """`on_change` is called when the number of bundles has changed."""
        # Closes topics; set before the first bundle is held.
        self.topics: BundleTopics = _NoTopics()
        self._nodes = nodes
        self._counters = counters
        self._on_change = on_change
        self._map: BundleMap[HeldBundle] = BundleMap()
        # The operations on bundles that are or were held, the oldest first.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def find(self, namespace: NamespaceName, topic_hash: int) -> HeldBundle | None:
        return self._map.find(namespace, topic_hash)

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> HeldBundle | None:
        return self._map.get(namespace, bundle)

    def list_all(self) -> list[HeldBundle]:
        return list(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def is_held(self, held: HeldBundle) -> bool:
        return self._map.get(held.namespace, held.bundle) is held

    def add(self, namespace: NamespaceName, bundle: BundleRange, node: OwnerNode) -> None:
        """Add a bundle whose owner node was created just now.

        So it is a bundle of the namespace, and those that overlap it are none any more: another broker has taken them
        over and split them, or the namespace was deleted and created again.
        """
        for other in self._map.find_overlapping(namespace, bundle):
            self.lose(other, f"bundle {bundle} overlaps it")
        held = HeldBundle(namespace, bundle, node.owner.namespace_incarnation, node.version)
        self._map.add(namespace, bundle, held)
        self._on_change()

    async def adopt(self, namespace: NamespaceName, bundle: BundleRange, node: OwnerNode) -> None:
        """Hold a bundle if this session really has its owner node.

        `node` was read, and its bundle is not held: an operation whose outcome is unknown has created the node, or one
        that is still in flight, or the node was deleted after it was read.
        """
        for held in self._map.find_overlapping(namespace, bundle):
            # Wait for operations on overlapping bundles, which may not exist any more.
            if held.operation is None:
                self.verify(held)
            await self.wait_idle(held)
        if not self._map.find_overlapping(namespace, bundle):
            self.add(namespace, bundle, node)
            for held in self._map.find_overlapping(namespace, bundle):
                self.verify(held)
                await self.wait_idle(held)

    def replace(self, held: HeldBundle, parts: Sequence[BundleRange]) -> None:
        """Replace a bundle by the parts that it was split into, in one step, so that no topic is without an owner."""
        self._map.remove(held.namespace, held.bundle)
        for part in parts:
            self._map.add(held.namespace, part, HeldBundle(held.namespace, part, held.namespace_incarnation, 0))
        self._on_change()

    # ── one operation at a time ──

    async def get_idle(self, namespace: NamespaceName, bundle: BundleRange) -> HeldBundle:
        """Return the bundle when no operation runs on it. Raises `NotOwner` if this broker does not hold it."""
        while (held := self._map.get(namespace, bundle)) is not None:
            if held.operation is None:
                return held
            await asyncio.wait([held.operation])
        raise NotOwner(f"bundle {bundle} of {namespace} is not owned by this broker")

    async def wait_idle(self, held: HeldBundle) -> None:
        """Return when the operation that runs has ended. Raises `TopicUnloaded` if the bundle will not serve again."""
        if held.operation is not None:
            await asyncio.wait([held.operation])
        elif not held.is_serving:
            raise TopicUnloaded("the broker is shutting down: look the topic up again")

    async def run_operation(
        self, held: HeldBundle, operation: Coroutine[Any, Any, None], *, is_serving: bool = False
    ) -> None:
        """Run an operation on an idle bundle, which serves in the meantime if `is_serving`. Raises what the operation
        raises."""
        await wait_for_result(self._start_operation(held, operation, is_serving=is_serving))

    def _start_operation(
        self, held: HeldBundle, operation: Coroutine[Any, Any, None], *, is_serving: bool
    ) -> asyncio.Task[None]:
        assert held.operation is None, f"{held} is already being changed"
        held.is_serving = is_serving
        task = held.operation = asyncio.get_running_loop().create_task(operation)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._end_operation(held, done))
        return task

    def _end_operation(self, held: HeldBundle, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        held.operation = None
        if not task.cancelled():
            task.exception()  # retrieved, in case all callers were cancelled
        if held.is_serving or self._closed or not self.is_held(held):
            return
        if self._nodes.is_session_lost:
            self.lose(held, "the session with the metadata store was lost")
        else:
            self.verify(held)

    # ── release and loss ──

    async def release(self, held: HeldBundle, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Unload an idle bundle. `after` runs before lookups of the bundle are answered again. Raises `BrokerError`."""
        await self.run_operation(held, self._release(held, after), is_serving=True)

    async def _release(self, held: HeldBundle, after: Callable[[], Awaitable[None]] | None) -> None:
        # While the store does not answer, the topics stay open: no other broker could serve them.
        with convert_store_errors(str(held)):
            if not self._nodes.is_ours(await self._nodes.read(held.namespace, held.bundle, fresh=True)):
                self.lose(held, "its node was deleted")
                return
        held.is_serving = False
        problem = TopicUnloaded(f"{held} is being unloaded: look the topic up again")
        await self.topics.unload_bundle_topics(held.namespace, held.bundle, problem)
        with convert_store_errors(str(held)):
            await self._nodes.delete_node(held.namespace, held.bundle)
        self._counters.bundle_unloads += 1
        try:
            if after is not None:
                await after()
        finally:
            self._remove(held)

    async def release_all(self) -> None:
        """Release each bundle as soon as its topics are closed, but those for which the store does not answer."""
        tried: dict[HeldBundle, None] = {}
        while left := [held for held in self._map if held not in tried]:
            tried.update(dict.fromkeys(left))
            await asyncio.gather(*(self._release_when_idle(held) for held in left))

    async def _release_when_idle(self, held: HeldBundle) -> None:
        while held.operation is not None:
            await asyncio.wait([held.operation])
        if self.is_held(held):
            try:
                await self.release(held)
            except BrokerError as error:
                _log.info("The node of %s is deleted with its session: %s", held, error)

    def lose(self, held: HeldBundle, reason: str) -> None:
        """Close the topics of a bundle at once, because another broker may already own it."""
        _log.warning("This broker has lost %s: %s", held, reason)
        held.is_serving = False
        self._remove(held)
        self._counters.bundles_lost += 1
        problem = TopicUnloaded(f"{held} is not owned by this broker any more: look the topic up again")
        self.topics.abort_bundle_topics(held.namespace, held.bundle, problem)

    def verify(self, held: HeldBundle) -> None:
        """Begin to read the owner node of a bundle, unless an operation runs on it. Until it is read, none of the
        bundle's topics is opened."""
        if held.operation is None and not self._closed:
            self._start_operation(held, self._verify(held), is_serving=False)

    async def _verify(self, held: HeldBundle) -> None:
        with convert_store_errors(str(held)):
            node = await self._nodes.read_until_answered(held.namespace, held.bundle)
        if node is not None and self._nodes.is_ours(node):
            held.node_version = node.version
            held.is_serving = True
        elif self.is_held(held):
            self.lose(held, "its node was deleted")

    def _remove(self, held: HeldBundle) -> None:
        """Remove the bundle, if it is held."""
        if self.is_held(held):
            self._map.remove(held.namespace, held.bundle)
            self._on_change()

    async def close(self) -> None:
        """Cancel all operations. The owner nodes are deleted with the session."""
        self._closed = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(list(self._tasks))


class _NoTopics:
    async def unload_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        pass

    def abort_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        pass
