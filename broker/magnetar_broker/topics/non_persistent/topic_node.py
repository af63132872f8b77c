"""The record that a non-persistent topic exists: an ephemeral node, at the path that a persistent topic would have.

A broker that loads the topic creates the node, or replaces that of another session, with its owner epoch in it. So any
broker finds and lists the topics that are loaded anywhere, and a topic whose broker has died ends with its session,
unless another broker has loaded it before. A topic that is unloaded while clients are connected keeps its node, which
its next owner replaces. No message depends on the node.

Each change replaces the whole node, with the version that was read, and the next one has another version. A change with
an unknown outcome is found by reading again: the store handles a session's requests in order (compare_and_set.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, NamespaceChanged, RequestNotStarted
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import StoredValue, encode_first_value
from magnetar_metadata.errors import BadVersion, NoNode, NotSent, OutcomeUnknown, Refused, StoreFull
from magnetar_metadata.store import ABSENT, Change, Delete, MetadataStore, Put
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["NON_PERSISTENT_INCARNATION", "NonPersistentTopicNode"]

_OWNER_EPOCH_BYTES: Final = 8
# Policies belong to an incarnation: those of a non-persistent topic hold when it is loaded again.
NON_PERSISTENT_INCARNATION: Final = "non-persistent"
_ROUNDS: Final = 10


class NonPersistentTopicNode:
    """The node as one session of the store reads and writes it. All methods raise `MetadataError`."""

    def __init__(self, name: TopicName, store: MetadataStore, randomness: Randomness) -> None:
        self._name = name
        self._path = paths.topic(name)
        self._store = store
        self._randomness = randomness

    async def claim(self, if_absent: NewTopic | None = None) -> bytes:
        """Write a new owner epoch into the node, and return it.

        `if_absent`: create the topic so if it does not exist; None: it must exist. Raises `BrokerError`:
        TOPIC_NOT_FOUND, also if the topic is being deleted and `if_absent` is None; `NamespaceChanged` if a check of
        `if_absent` was refused.
        """
        epoch = self._randomness.token(_OWNER_EPOCH_BYTES)
        while True:
            stored = await self._read()
            node = None if stored is None else self._decode(stored)
            if node is not None and node.owner_epoch == epoch:
                return epoch  # the answer was lost
            if node is None or node.state == pb.DELETING:
                if if_absent is None:
                    raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {self._name}")
                node = pb.ManagedLedgerNode(incarnation=NON_PERSISTENT_INCARNATION, properties=if_absent.properties)
                checks = list(if_absent.checks)
            else:
                checks = []
            node.owner_epoch = epoch
            try:
                await self._write(node, ABSENT if stored is None else stored.version, checks)
                return epoch
            except NotSent:
                raise
            except OutcomeUnknown:
                continue
            except StoreFull:
                raise
            except Refused as error:
                if error.index < len(checks):
                    raise NamespaceChanged(
                        f"topic {self._name} was not created, since its namespace was changed at the same time: try "
                        "again"
                    ) from error

    async def release(self, owner_epoch: bytes) -> None:
        """Delete the node, unless another broker has claimed it since."""
        stored = await self._read()
        if stored is not None and self._decode(stored).owner_epoch == owner_epoch:
            await self._store.delete(self._path, stored.version)

    async def delete(
        self, owner_epoch: bytes | None, prepare: Callable[[Callable[[], Awaitable[bool]]], Awaitable[Sequence[Change]]]
    ) -> None:
        """Mark the node, and delete it in a transaction with the changes that `prepare` returns.

        `owner_epoch`: raise `RequestNotStarted` if the node has another one. The argument of `prepare` returns whether
        the topic is still being deleted.
        """
        for last in (False,) * (_ROUNDS - 1) + (True,):
            stored = await self._read()
            if stored is None:
                return
            node = self._decode(stored)
            if owner_epoch is not None and node.state != pb.DELETING and node.owner_epoch != owner_epoch:
                raise RequestNotStarted(f"topic {self._name} was not deleted: it was loaded in the meantime")
            try:
                if node.state != pb.DELETING:
                    node.state, node.owner_epoch = pb.DELETING, b""
                    await self._write(node, stored.version)
                    continue
                changes = await prepare(self._is_being_deleted)
                await self._store.transaction([*changes, Delete(self._path, stored.version)])
                return
            except (BadVersion, NoNode):
                if last:
                    raise

    async def _is_being_deleted(self) -> bool:
        stored = await self._read()
        return stored is not None and self._decode(stored).state == pb.DELETING

    async def _read(self) -> StoredValue | None:
        return await compare_and_set.read(self._store, self._path, fresh=True)

    def _decode(self, stored: StoredValue) -> pb.ManagedLedgerNode:
        return decode_node(pb.ManagedLedgerNode, self._path, stored.payload)

    async def _write(self, node: pb.ManagedLedgerNode, expected: int, checks: Sequence[Change] = ()) -> None:
        value = encode_first_value(node.SerializeToString(), self._randomness)
        await self._store.transaction([*checks, Put(self._path, value, expected, ephemeral=True)])
