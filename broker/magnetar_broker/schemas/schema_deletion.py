"""Deletes the schema of a topic that is being deleted, in steps that any broker can continue.

1. All versions are removed from the node, and their ledgers named for deletion. Nobody adds a version from then on,
   since the topic is marked.
2. The ledgers are deleted.
3. The node is deleted, in the transaction that deletes the topic's own node.

Several brokers may delete the topic at once, and one of them may be late, when it was deleted and created again. So
each reads the schema node first, and then whether its topic is still being deleted: if it is, that node was the
topic's, and not a later topic's. All changes are of the node that was read then (schema_node.py).

A node that can't be decoded does not prevent the deletion. The ledgers that it names are not deleted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_broker.schemas.schema_node import FoundSchema, SchemaChanged, SchemaNodes
from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import Change, Delete
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import SchemaNode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["prepare_schema_deletion"]

_ROUNDS: Final = 5


async def prepare_schema_deletion(
    topic: TopicName,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    is_being_deleted: Callable[[], Awaitable[bool]],
    *,
    create: bool,
) -> Sequence[Change]:
    """Delete all ledgers of the topic's schema. Return the changes that delete its node, for the transaction that
    deletes the topic's node: if one of them is refused, call this again.

    `is_being_deleted` reads afresh whether the topic still has this incarnation and is marked. `create`: if there is no
    node, one is created, and deleted with the topic's, which a partitioned topic needs (schema_node.py). Raises
    `MetadataError`, and `BrokerError` if something could not be deleted: try again.
    """
    nodes = SchemaNodes(client, clock, randomness)
    for _ in range(_ROUNDS):
        try:
            found = await nodes.read(topic)
        except ForeignValue:
            damaged = await nodes.find_damaged(topic)
            if damaged and await is_being_deleted():
                return damaged
            continue
        if (found.stored is None and not create) or not await is_being_deleted():
            return []
        try:
            found = await _remove_versions(nodes, topic, found)
        except SchemaChanged:
            continue
        await _delete_ledgers(client, topic, list(found.node.deleting))
        assert found.stored is not None
        return [
            Delete(paths.schema_incarnation(topic, found.node.incarnation), 0),
            Delete(paths.schema(topic), found.stored.version),
        ]
    raise BrokerError(
        ErrorCode.METADATA_ERROR, f"{topic} is not deleted yet: its schema was changed at the same time: try again"
    )


async def _remove_versions(nodes: SchemaNodes, topic: TopicName, found: FoundSchema) -> FoundSchema:
    """Name all ledgers for deletion, in the node that was found or a new one."""
    if found.stored is not None and not found.node.versions:
        return found
    node = SchemaNode()
    node.CopyFrom(found.node)
    node.deleting.extend(version.ledger_id for version in node.versions if version.ledger_id)
    del node.versions[:]
    return await nodes.replace(topic, found, node)


async def _delete_ledgers(client: LedgerClient, topic: TopicName, ledger_ids: list[int]) -> None:
    left = len(ledger_ids) - len(await delete_ledgers(client, ledger_ids))
    if left:
        text = f"{left} of {len(ledger_ids)} ledgers of the schema of {topic} could not be deleted: try again"
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, text)
