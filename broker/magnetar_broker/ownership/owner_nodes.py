"""The owner nodes, which say which broker owns a bundle, as one metadata session creates, reads and deletes them.

A node is ephemeral. Its stat, not its value, shows the session that it belongs to. It is created with ABSENT and a
check that the namespace's node is as it was read, so that no broker claims a range that a split has
removed in the meantime.

A bundle of a dead owner is taken over by replacing the node at the version that was read. The new node has another
version. So if several brokers found the same owner dead, one of them takes the bundle, and the others find its node. A
node that was released and claimed again in between may have the old version again. Replacing that one does no harm,
because of the fences, and its owner notices (ownership_verifier.py).

If an answer is lost, the node is read after a sync. The store handles a session's requests in order and from one
connection, so a change in flight has arrived by then or never will (compare_and_set.py has the argument).
`claim_node` and `delete_node` go on until that read succeeds, however long the store is unavailable: their callers have
timeouts of their own, and what they do ends with the session.
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
    """The namespace's node has another version than the one that was read: read it again."""


@dataclass(frozen=True, slots=True)
class OwnerNode:
    owner: BundleOwner
    version: int
    session_id: int
    # The call that returned it has created it.
    is_new: bool = False


class OwnerNodes:
    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def read(self, namespace: NamespaceName, bundle: BundleRange, *, fresh: bool = False) -> OwnerNode | None:
        """Read a node, possibly stale unless `fresh`. Raises `MetadataError`."""
        path = paths.owner(namespace, bundle)
        node = await (self._store.get_after_sync(path) if fresh else self._store.get(path))
        return None if node is None else _decode(namespace, bundle, node)

    def is_ours(self, node: OwnerNode | None) -> bool:
        return node is not None and node.session_id == self._store.session.id

    @property
    def is_session_lost(self) -> bool:
        return self._store.session.state is SessionState.LOST

    async def read_until_answered(self, namespace: NamespaceName, bundle: BundleRange) -> OwnerNode | None:
        """Read a node afresh, however long that takes. Raises `SessionLost`."""
        while True:
            try:
                return await self.read(namespace, bundle, fresh=True)
            except Unavailable:
                await self.wait_connected()

    async def claim_node(
        self,
        namespace: NamespaceName,
        bundle: BundleRange,
        namespace_version: int,
        owner: BundleOwner,
        replaced: OwnerNode | None = None,
    ) -> OwnerNode:
        """Create the node, or replace `replaced`. Return it, or the other node that is there.

        Raises `NamespaceChanged`, `NotSent`, `SessionLost`, and `MetadataError` if the store refuses any change.
        """
        path = paths.owner(namespace, bundle)
        value = owner.SerializeToString(deterministic=True)
        # A transaction that creates the node is in flight, or was carried out.
        is_unknown = False
        while True:
            try:
                expected = ABSENT if replaced is None else replaced.version
                _, created = await self._store.transaction(
                    [
                        Check(paths.namespace(namespace), namespace_version),
                        Put(path, value, expected, ephemeral=True),
                    ]
                )
                return OwnerNode(owner, created.version, self._store.session.id, is_new=True)
            except NotSent:
                if not is_unknown:
                    raise
            except OutcomeUnknown:
                is_unknown = True
                await self.wait_connected()
            except (BadVersion, NoNode) as error:
                if error.index == 0 and not is_unknown:
                    raise NamespaceChanged(f"{namespace}: {error}") from None
            except Refused:
                if not is_unknown:
                    raise
            node = await self.read_until_answered(namespace, bundle)
            if node is not None and not _is_same(node, replaced):
                return node
            # No transaction can be in flight any more.
            is_unknown = False
            if node is None:
                replaced = None

    async def delete_node(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        """Return when there is no node of this session. Raises `SessionLost`, and `MetadataError` if the store refuses
        any change."""
        node = await self._read_own(namespace, bundle)
        while self.is_ours(node):
            assert node is not None
            try:
                await self._store.delete(paths.owner(namespace, bundle), node.version)
                return
            except Unavailable:
                await self.wait_connected()
            except (BadVersion, NoNode):
                pass  # it was deleted, or replaced by another broker
            node = await self.read_until_answered(namespace, bundle)

    async def delete_parent(self, namespace: NamespaceName) -> None:
        """Delete the parent of the owner nodes of a deleted namespace."""
        # Refused: other brokers still have nodes below it, or have deleted it.
        with contextlib.suppress(Refused, Unavailable):
            await self._store.delete(paths.owners(namespace), ANY)

    async def wait_connected(self) -> None:
        """Return when it is time to retry, or the session is lost."""
        session = self._store.session
        if session.state is SessionState.CONNECTED:
            await self._clock.sleep(_PAUSE_S)
            return
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(state: SessionState) -> None:
            if not changed.done():
                changed.set_result(None)

        stop = session.listen(wake)
        try:
            if session.state is SessionState.SUSPENDED:
                await changed
        finally:
            stop()

    async def _read_own(self, namespace: NamespaceName, bundle: BundleRange) -> OwnerNode | None:
        """Read a node that only this session changes, so that a stale read will do. Raises `SessionLost`."""
        try:
            return await self.read(namespace, bundle)
        except Unavailable:
            await self.wait_connected()
            return await self.read_until_answered(namespace, bundle)


def _is_same(node: OwnerNode, other: OwnerNode | None) -> bool:
    return other is not None and (node.session_id, node.version) == (other.session_id, other.version)


def _decode(namespace: NamespaceName, bundle: BundleRange, node: Node) -> OwnerNode:
    try:
        owner = BundleOwner.FromString(node.value)
    except DecodeError:
        # The stat shows the session that owns it. Without addresses, no broker is reached by it.
        _log.warning("The node of bundle %s of %s can't be decoded", bundle, namespace)
        owner = BundleOwner()
    return OwnerNode(owner, node.version, node.stat.ephemeral_owner)
