"""The bundles that this broker has: what is done with them, and how they are given up.

A bundle is held from when its node was made until its node is gone. So one may be held whose node has vanished, and
never for long (upkeep.py); what others do meanwhile the ledgers' fences make harmless.

One thing at a time is done with a bundle, in a task of its own that its callers wait for. While it is given up, or in
doubt, it does not serve: none of its topics is opened. Work that failed leaves it in doubt, and then its node is looked
at: whatever the outcome was, that tells.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from magnetar_broker.core.bundle_map import BundleMap
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, NothingDone, TopicUnloaded
from magnetar_broker.ownership.interface import BundleTopics
from magnetar_broker.ownership.owner_nodes import OwnerNode, OwnerNodes
from magnetar_broker.ownership.shared_work import outcome
from magnetar_broker.ownership.store_errors import told
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["HeldBundle", "HeldBundles"]

_log = logging.getLogger(__name__)


class HeldBundle:
    __slots__ = ("bundle", "namespace", "namespace_incarnation", "node_version", "serving", "work")

    def __init__(
        self, namespace: NamespaceName, bundle: BundleRange, namespace_incarnation: bytes, node_version: int
    ) -> None:
        self.namespace = namespace
        self.bundle = bundle
        self.namespace_incarnation = namespace_incarnation
        # Of its owner's node, which is not changed once it is made.
        self.node_version = node_version
        # Its topics may be opened.
        self.serving = True
        # What is being done with it. Where there is nothing, it serves.
        self.work: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"bundle {self.bundle} of {self.namespace}"


class HeldBundles:
    def __init__(self, nodes: OwnerNodes, counters: BrokerCounters, changed: Callable[[], object]) -> None:
        """`changed` is called whenever there are more or less of them."""
        # What closes topics; set before the first bundle is held.
        self.topics: BundleTopics = _NoTopics()
        self._nodes = nodes
        self._counters = counters
        self._changed = changed
        self._map: BundleMap[HeldBundle] = BundleMap()
        # What is being done with those that are held, and with those that were, oldest first.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def find(self, namespace: NamespaceName, topic_hash: int) -> HeldBundle | None:
        return self._map.find(namespace, topic_hash)

    def get(self, namespace: NamespaceName, bundle: BundleRange) -> HeldBundle | None:
        return self._map.get(namespace, bundle)

    def all(self) -> list[HeldBundle]:
        return list(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def is_held(self, held: HeldBundle) -> bool:
        return self._map.get(held.namespace, held.bundle) is held

    def add(self, namespace: NamespaceName, bundle: BundleRange, node: OwnerNode) -> None:
        """Its node was made just now, so it is a bundle. Others that lie across it are none any more: their nodes have
        gone, and somebody else has split them; or the namespace was deleted and made again."""
        for other in self._map.across(namespace, bundle):
            self.lose(other, f"bundle {bundle} overlaps it")
        held = HeldBundle(namespace, bundle, node.owner.namespace_incarnation, node.version)
        self._map.add(namespace, bundle, held)
        self._changed()

    async def take_in(self, namespace: NamespaceName, bundle: BundleRange, node: OwnerNode) -> None:
        """A node of this session's own was seen, and it is not held: it was made by something that could not be told,
        or has not been told yet, or was seen when it was gone already. Returns when it is held, or need not be."""
        for held in self._map.across(namespace, bundle):
            # What is being done with them goes first, and what is in its way may be none any more.
            if held.work is None:
                self.verify(held)
            await self.wait_worked(held)
        if not self._map.across(namespace, bundle):
            self.add(namespace, bundle, node)
            for held in self._map.across(namespace, bundle):
                self.verify(held)
                await self.wait_worked(held)

    def replace(self, held: HeldBundle, parts: Sequence[BundleRange]) -> None:
        """In one step, so that no topic is without an owner."""
        self._map.remove(held.namespace, held.bundle)
        for part in parts:
            self._map.add(held.namespace, part, HeldBundle(held.namespace, part, held.namespace_incarnation, 0))
        self._changed()

    # ── one thing at a time ──

    async def free(self, namespace: NamespaceName, bundle: BundleRange) -> HeldBundle:
        """The bundle, with nothing being done with it. Raises `NothingDone` where this broker has it not (any more)."""
        while (held := self._map.get(namespace, bundle)) is not None:
            if held.work is None:
                return held
            await asyncio.wait([held.work])
        raise NothingDone(f"bundle {bundle} of {namespace} is not owned by this broker")

    async def wait_worked(self, held: HeldBundle) -> None:
        """Returns when what is being done with it is done."""
        if held.work is not None:
            await asyncio.wait([held.work])
        elif not held.serving:
            raise TopicUnloaded("the broker is shutting down: look the topic up again")

    async def work_on(self, held: HeldBundle, work: Coroutine[Any, Any, None], *, serving: bool = False) -> None:
        """Nothing is being done with it. Raises what `work` raises."""
        await outcome(self._work_on(held, work, serving))

    def _work_on(self, held: HeldBundle, work: Coroutine[Any, Any, None], serving: bool) -> asyncio.Task[None]:
        assert held.work is None, f"{held} is already being changed"
        held.serving = serving
        task = held.work = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._worked(held, done))
        return task

    def _worked(self, held: HeldBundle, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        held.work = None
        if not task.cancelled():
            task.exception()  # seen, should whoever waited have gone
        if held.serving or self._closed or not self.is_held(held):
            return
        if self._nodes.session_lost:
            self.lose(held, "the session with the metadata store was lost")
        else:
            self._work_on(held, self._verify(held), serving=False)

    # ── giving up ──

    async def release(self, held: HeldBundle, after: Callable[[], Awaitable[None]] | None = None) -> None:
        """Nothing is being done with it. `after` goes before lookups are answered again. Raises `BrokerError`."""
        await self.work_on(held, self._release(held, after), serving=True)

    async def _release(self, held: HeldBundle, after: Callable[[], Awaitable[None]] | None) -> None:
        # While the store gives no answer the topics are better off here, where they go on, than with nobody.
        with told(str(held)):
            if not self._nodes.is_ours(await self._nodes.read(held.namespace, held.bundle, fresh=True)):
                self.lose(held, "its node was deleted")
                return
        held.serving = False
        problem = TopicUnloaded(f"{held} is being unloaded: look the topic up again")
        await self.topics.unload_within(held.namespace, held.bundle, problem)
        with told(str(held)):
            await self._nodes.drop(held.namespace, held.bundle)
        self._counters.bundle_unloads += 1
        try:
            if after is not None:
                await after()
        finally:
            self._remove(held)

    async def release_all(self) -> None:
        """Each as its topics are closed. Those that can't be, since the store gives no answer, are left."""
        tried: dict[HeldBundle, None] = {}
        while left := [held for held in self._map if held not in tried]:
            tried.update(dict.fromkeys(left))
            await asyncio.gather(*(self._release_at_last(held) for held in left))

    async def _release_at_last(self, held: HeldBundle) -> None:
        while held.work is not None:
            await asyncio.wait([held.work])
        if self.is_held(held):
            try:
                await self.release(held)
            except BrokerError as error:
                _log.info("The node of %s is deleted with its session: %s", held, error)

    def lose(self, held: HeldBundle, because: str) -> None:
        """At once: somebody else may have it already."""
        _log.warning("This broker has lost %s: %s", held, because)
        held.serving = False
        self._remove(held)
        self._counters.bundles_lost += 1
        problem = TopicUnloaded(f"{held} is not owned by this broker any more: look the topic up again")
        self.topics.give_up_within(held.namespace, held.bundle, problem)

    def verify(self, held: HeldBundle) -> None:
        """Looks at whether it is still this broker's; whoever wants its topics waits for that."""
        if held.work is None and not self._closed:
            self._work_on(held, self._verify(held), serving=False)

    async def _verify(self, held: HeldBundle) -> None:
        with told(str(held)):
            node = await self._nodes.read_for_sure(held.namespace, held.bundle)
        if node is not None and self._nodes.is_ours(node):
            held.node_version = node.version
            held.serving = True
        elif self.is_held(held):
            self.lose(held, "its node was deleted")

    def _remove(self, held: HeldBundle) -> None:
        """Unless that was done."""
        if self.is_held(held):
            self._map.remove(held.namespace, held.bundle)
            self._changed()

    async def close(self) -> None:
        """Breaks off what is under way. The nodes go with the session."""
        self._closed = True
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(list(self._tasks))


class _NoTopics:
    async def unload_within(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        pass

    def give_up_within(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        pass
