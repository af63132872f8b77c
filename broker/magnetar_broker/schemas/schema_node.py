"""The node of a topic's schema, and its changes.

A change replaces exactly the node that it was decided by: it is refused if the node has changed since it was read. Each
node has a random incarnation, and a node of its own below for it, which each change checks: a topic can be deleted and
created again, and the versions of the later node are those of the earlier one.

A change also checks the topic's own node, at the version at which it was read and was not marked for deletion. After a
deletion has marked the topic, its schema is not changed by others. So the deletion can delete the ledgers, and then the
node. A partitioned topic has no node for its incarnation, and the version at which its node was read may return after a
deletion and a creation. A change that comes so late may create a schema node, or change one that the deletion is about
to delete. Therefore the deletion makes sure that there is a schema node, and deletes both in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import StoredValue
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode
from magnetar_metadata.store import ABSENT, ANY, Change, Check, Delete, MetadataStore, Put
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion, PartitionedTopicNode
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode, TopicState
from magnetar_protos.schema_pb2 import SchemaNode, SchemaVersion
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["FoundSchema", "SchemaChanged", "SchemaNodes", "read_incarnation", "read_topic_checks"]

M = TypeVar("M", bound=Message)

_log = logging.getLogger(__name__)
_INCARNATION_BYTES: Final = 16
# How many bytes of a node that can't be decoded are logged.
_LOGGED_BYTES: Final = 1_024


class SchemaChanged(Exception):
    """The schema or its topic has changed since it was read: nothing was done."""


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema node as it was read. It must not be altered."""

    node: SchemaNode = field(default_factory=SchemaNode)
    # None: there is no node.
    stored: StoredValue | None = None

    @property
    def next_version(self) -> int:
        return self.node.versions[-1].version + 1 if self.node.versions else 0

    def list_live(self) -> list[SchemaVersion]:
        """Return the versions that no deletion has marked, oldest first."""
        live: list[SchemaVersion] = []
        for version in reversed(self.node.versions):
            if not version.ledger_id:
                break
            live.append(version)
        return live[::-1]

    def find_live(self, number: int) -> SchemaVersion | None:
        return next((version for version in self.list_live() if version.version == number), None)

    def find_fingerprint(self, fingerprint: bytes) -> SchemaVersion | None:
        return next((version for version in self.list_live() if version.fingerprint == fingerprint), None)


class SchemaNodes:
    """Reads and changes schema nodes. All methods take topics that are no partitions, and raise `MetadataError`."""

    def __init__(self, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
        self._client = client
        self._clock = clock
        self._randomness = randomness

    async def read(self, topic: TopicName) -> FoundSchema:
        """Read the node afresh."""
        path = paths.schema(topic)
        stored = await compare_and_set.read(self._store, path, fresh=True)
        return FoundSchema() if stored is None else FoundSchema(decode_node(SchemaNode, path, stored.payload), stored)

    async def find_damaged(self, topic: TopicName) -> list[Delete]:
        """Return the changes that delete a node that can't be decoded, the last one, and the nodes below; empty: it can
        be decoded by now, or does not exist. Logs the node."""
        path = paths.schema(topic)
        node = await self._store.get_after_sync(path)
        if node is None:
            return []
        below = await self._store.children(path)
        try:
            decode_node(SchemaNode, path, compare_and_set.decode_stored(node.value).payload)
        except ForeignValue as error:
            _log.error(
                "%s: it is deleted or replaced, the ledgers that it names are not deleted. Its %d bytes begin with %s",
                error, len(node.value), node.value[:_LOGGED_BYTES].hex(),
            )  # fmt: skip
            return [*(Delete(f"{path}/{name}", ANY) for name in below), Delete(path, node.version)]
        return []

    async def replace_damaged(self, topic: TopicName, node: SchemaNode, checks: Sequence[Check]) -> None:
        """Replace a node that can't be decoded. Raises `SchemaChanged`."""
        damaged = await self.find_damaged(topic)
        if not damaged:
            raise SchemaChanged
        *below, old = damaged
        node.incarnation = self._randomness.token(_INCARNATION_BYTES)
        value = compare_and_set.encode_first_value(node.SerializeToString(deterministic=True), self._randomness)
        marker = Put(paths.schema_incarnation(topic, node.incarnation), b"", ABSENT)
        try:
            await self._store.transaction([Put(old.path, value, old.expected), marker, *below, *checks])
        except (BadVersion, NoNode) as error:
            raise SchemaChanged from error

    async def replace(
        self,
        topic: TopicName,
        found: FoundSchema,
        node: SchemaNode,
        checks: Sequence[Check] = (),
        new_ledger: NewLedger | None = None,
    ) -> FoundSchema:
        """Replace the node that was found, and claim the new ledger, in one transaction with `checks`.

        Raises `SchemaChanged`, and `LedgerNotClaimed`.
        """
        path, stored = paths.schema(topic), found.stored
        marker: Change
        if stored is None:
            node.incarnation = self._randomness.token(_INCARNATION_BYTES)
            marker = Put(paths.schema_incarnation(topic, node.incarnation), b"", ABSENT)
        else:
            marker = Check(paths.schema_incarnation(topic, node.incarnation), 0)
        payload = node.SerializeToString(deterministic=True)

        def update(current: bytes | None) -> bytes:
            if current != (None if stored is None else stored.payload):
                raise SchemaChanged
            return payload

        along = [marker, *checks]
        try:
            if new_ledger is not None:
                changed = await self._client.ledgers.claim_ledger(new_ledger, path, update, along, stored)
            else:
                changed = await compare_and_set.change(
                    self._store, path, update, clock=self._clock, randomness=self._randomness, along=along, known=stored
                )
        except (BadVersion, NoNode) as error:
            if not error.index:
                raise
            raise SchemaChanged from error
        return FoundSchema(node, changed)

    @property
    def _store(self) -> MetadataStore:
        return self._client.ledgers.store


async def read_topic_checks(store: MetadataStore, topic: TopicName) -> list[Check]:
    """Return checks of a transaction that hold while the topic, partitioned or not, is as it is now.

    Raises TOPIC_NOT_FOUND if there is none, or it is being deleted.
    """
    await store.sync()
    path = paths.topic(topic)
    # In this order: a partitioned topic that is created is undone if there is a plain one (partitioned_topics.py).
    partitioned = await compare_and_set.read(store, paths.partitioned(topic))
    plain = await compare_and_set.read(store, path)
    if plain is not None:
        node = _decode_topic(ManagedLedgerNode, path, plain)
        if node.state == TopicState.LIVE:
            # The node of a non-persistent topic is replaced as a whole (topics/non_persistent/topic_node.py).
            marker = [Check(paths.incarnation(topic, node.incarnation), 0)] if topic.is_persistent else []
            return [Check(path, plain.version), *marker]
    elif partitioned is not None:
        path = paths.partitioned(topic)
        if _decode_topic(PartitionedTopicNode, path, partitioned).deletion == Deletion.DELETION_NONE:
            return [Check(path, partitioned.version)]
    state = "no topic" if plain is None and partitioned is None else "no topic any more: it is being deleted:"
    raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is {state} {topic}")


async def read_incarnation(store: MetadataStore, topic: TopicName) -> str | None:
    """Return the incarnation of a topic without partitions or of a partition, not older than anything that this broker
    has read before; None: it does not exist."""
    path = paths.topic(topic)
    stored = await compare_and_set.read(store, path)
    return None if stored is None else _decode_topic(ManagedLedgerNode, path, stored).incarnation


def _decode_topic(kind: type[M], path: str, stored: StoredValue) -> M:
    try:
        return decode_node(kind, path, stored.payload)
    except ForeignValue as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, str(error)) from error
