"""The nodes that say who has a bundle, as one metadata session makes, reads and deletes them.

A node is ephemeral, and belongs to the session that made it: whose it is its stat says, not its value. It is made with
ABSENT, along with a check that the namespace's node is as it was read, so that nobody takes a range that a split has
done away with meanwhile.

A bundle whose owner is gone is taken over by replacing the owner's node at the version that was read. The new node has
another version. So of several brokers that found the same owner gone one takes the bundle, and the others find its
node. A node that was released and claimed again in between may have the old version again. To replace it does no harm,
as the fences decide, and its owner finds out (upkeep.py).

A lost answer is settled by reading, after a sync: a session's requests are taken in order and from one connection, so
what was on its way has arrived by then or never will (compare_and_set.py has the argument). Until that read has
succeeded `take` and `drop` go on, however long the store is away: whoever waits for them has a bound of its own, and
what they do ends with the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_metadata.errors import BadVersion, NoNode, NotSent, OutcomeUnknown, Refused, Unavailable
from magnetar_metadata.store import ABSENT, ANY, Check, MetadataStore, Node, Put, SessionState
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName

__all__ = ["NamespaceChanged", "OwnerNode", "OwnerNodes"]

_log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.1


class NamespaceChanged(Exception):
    """Its node is not as it was read: read it again."""


@dataclass(frozen=True, slots=True)
class OwnerNode:
    owner: BundleOwner
    version: int
    session: int
    # By the very call that returned it.
    made: bool = False


class OwnerNodes:
    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def read(self, namespace: NamespaceName, bundle: BundleRange, *, fresh: bool = False) -> OwnerNode | None:
        """Possibly stale, unless it is to be fresh. Raises `MetadataError`."""
        path = paths.owner(namespace, bundle)
        node = await (self._store.get_after_sync(path) if fresh else self._store.get(path))
        return None if node is None else _decoded(namespace, bundle, node)

    def is_ours(self, node: OwnerNode | None) -> bool:
        return node is not None and node.session == self._store.session.id

    @property
    def session_lost(self) -> bool:
        return self._store.session.state is SessionState.LOST

    async def read_for_sure(self, namespace: NamespaceName, bundle: BundleRange) -> OwnerNode | None:
        """Fresh, however long that takes. Raises `SessionLost`."""
        while True:
            try:
                return await self.read(namespace, bundle, fresh=True)
            except Unavailable:
                await self.wait_connected()

    async def take(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        namespace_version: int,
        owner: BundleOwner,
        replaced: OwnerNode | None = None,
    ) -> OwnerNode:
        """Makes the node unless there is one other than `replaced`; returns the one that stands there. Raises
        `NamespaceChanged`, `NotSent`, `SessionLost`, and what refuses the change whatever stands there."""
        path = paths.owner(namespace, bundle)
        value = owner.SerializeToString(deterministic=True)
        # A copy is on its way, or was made.
        unknown = False
        while True:
            try:
                expected = ABSENT if replaced is None else replaced.version
                _, made = await self._store.transaction(
                    [
                        Check(paths.namespace(namespace), namespace_version),
                        Put(path, value, expected, ephemeral=True),
                    ]
                )
                return OwnerNode(owner, made.version, self._store.session.id, made=True)
            except NotSent:
                if not unknown:
                    raise
            except OutcomeUnknown:
                unknown = True
                await self.wait_connected()
            except (BadVersion, NoNode) as error:
                if error.index == 0 and not unknown:
                    raise NamespaceChanged(f"{namespace}: {error}") from None
            except Refused:
                if not unknown:
                    raise
            node = await self.read_for_sure(namespace, bundle)
            if node is not None and not _is_same(node, replaced):
                return node
            # By now no copy can arrive any more.
            unknown = False
            if node is None:
                replaced = None

    async def drop(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Returns when no node of this session stands there. Raises `SessionLost`, and what refuses any change."""
        node = await self._read_patiently(namespace, bundle)
        while self.is_ours(node):
            assert node is not None
            try:
                await self._store.delete(paths.owner(namespace, bundle), node.version)
                return
            except Unavailable:
                await self.wait_connected()
            except (BadVersion, NoNode):
                pass  # it has gone by now, or another one stands there
            node = await self.read_for_sure(namespace, bundle)

    async def tidy(self, namespace: NamespaceName) -> None:
        """Takes away what is left where the nodes of a namespace that is gone stood."""
        # Refused: somebody else's bundles stand there, or somebody else has done it.
        with contextlib.suppress(Refused, Unavailable):
            await self._store.delete(paths.owners(namespace), ANY)

    async def wait_connected(self) -> None:
        """Returns when it is time to ask again, or the session is lost."""
        session = self._store.session
        if session.state is SessionState.CONNECTED:
            await self._clock.sleep(_PAUSE_S)
            return
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(state: SessionState) -> None:
            if not moved.done():
                moved.set_result(None)

        stop = session.listen(wake)
        try:
            if session.state is SessionState.SUSPENDED:
                await moved
        finally:
            stop()

    async def _read_patiently(self, namespace: NamespaceName, bundle: BundleRange) -> OwnerNode | None:
        """As this session has left it. Raises `SessionLost`."""
        try:
            return await self.read(namespace, bundle)
        except Unavailable:
            await self.wait_connected()
            return await self.read_for_sure(namespace, bundle)


def _is_same(node: OwnerNode, other: OwnerNode | None) -> bool:
    return other is not None and (node.session, node.version) == (other.session, other.version)


def _decoded(namespace: NamespaceName, bundle: BundleRange, node: Node) -> OwnerNode:
    try:
        owner = BundleOwner.FromString(node.value)
    except DecodeError:
        # Whose it is its session says; nobody is reached by it.
        _log.warning("The node of bundle %s of %s can't be decoded", bundle, namespace)
        owner = BundleOwner()
    return OwnerNode(owner, node.version, node.stat.ephemeral_owner)
