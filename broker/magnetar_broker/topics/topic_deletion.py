"""Deletes a topic, in steps that any broker can continue.

1. The topic's node is marked as DELETING. From then on no owner changes it, and a broker that opens the topic finishes
   the deletion, and finds no topic.
2. Cursors and ledgers are deleted, then the pages of the list. Ledgers that leases protect stay, and another node has
   their ids before (managed_ledger/orphaned_ledgers.py). The ledgers of the topic's schema are deleted, unless it is a
   partition (schemas/schema_deletion.py).
3. The topic's node is deleted, with that of its schema.

So everything that still exists can be found from the node, at any time. Several brokers may delete the topic at once,
and one of them may be late, when the topic was deleted and created again. So each node below is deleted with a check
that the topic's node is still the one that was found.

A broker that deletes a topic only if it is unused must own it, since only the owner knows who uses it. It passes its
owner epoch, and the deletion is begun only while the node has that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker import paths
from magnetar_broker.cursors.cursor_deletion import delete_cursors, fence_ledger
from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_list import ForeignList, LedgerList
from magnetar_broker.managed_ledger.orphaned_ledgers import record_leased_ledgers
from magnetar_broker.managed_ledger.topic_node import decode_topic, page_path, read_pages
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_broker.schemas.schema_deletion import prepare_schema_deletion
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, UpdateAction
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode, NotEmpty
from magnetar_metadata.store import ANY, Change, Check, Delete, MetadataStore
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["delete_topic", "finish_deletion"]

_ROUNDS: Final = 5


async def delete_topic(
    name: TopicName,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    owner_epoch: bytes | None = None,
    incarnation: str = "",
) -> None:
    """Delete the topic and everything of it, if it exists.

    With `owner_epoch` the deletion is begun only while the topic has that epoch: else this raises `RequestNotStarted`.
    With `incarnation` a later topic of the same name is left alone (CHK-69).

    Raises `MetadataError`, and `BrokerError` if something could not be deleted. Then the topic is half deleted and not
    served any more. The next attempt to delete or open it continues.
    """
    path = paths.topic(name)
    stored = await compare_and_set.read(client.ledgers.store, path, fresh=True)
    if stored is not None:
        found = decode_topic(path, stored.payload).incarnation
        if incarnation in ("", found):
            await finish_deletion(name, found, client, clock, randomness, begin=True, owner_epoch=owner_epoch)


async def finish_deletion(
    name: TopicName,
    incarnation: str,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    *,
    begin: bool = False,
    owner_epoch: bytes | None = None,
) -> None:
    """Finish the deletion of this incarnation if it was begun. With `begin` it is begun. Raises as `delete_topic`."""
    store, path = client.ledgers.store, paths.topic(name)
    marker = Check(paths.incarnation(name, incarnation), 0)

    def deleting(payload: bytes | None) -> bytes | UpdateAction:
        node = None if payload is None else decode_topic(path, payload)
        if node is None or node.incarnation != incarnation or node.state == pb.DELETING or not begin:
            return LEAVE
        if owner_epoch is not None and node.owner_epoch != owner_epoch:
            raise RequestNotStarted(
                f"topic {name} was not deleted: it was reopened in the meantime, by this broker or another one"
            )
        node.state, node.owner_epoch = pb.DELETING, b""
        return node.SerializeToString()

    for last in (False,) * (_ROUNDS - 1) + (True,):
        try:
            stored = await compare_and_set.change(
                store, path, deleting, clock=clock, randomness=randomness, along=[marker]
            )
            if stored is None:
                return
            node = decode_topic(path, stored.payload)
            if node.incarnation != incarnation or node.state != pb.DELETING:
                return
            check = Check(path, stored.version)
            await delete_cursors(name, incarnation, client, clock, randomness, (check, marker))
            await _delete_ledgers(name, client, node, clock, randomness, (check, marker))
            pages = [page_path(name, page.number) for page in node.pages]
            for below in (*pages, paths.pages(name), paths.cursors(name)):
                await _remove(store, below, check, marker)
            schema = await _delete_schema(name, incarnation, client, clock, randomness)
            await store.transaction([*schema, Delete(marker.path, marker.expected), Delete(path, stored.version)])
            return
        except RequestNotStarted:
            raise
        except (BadVersion, NoNode, NotEmpty, TopicUnloaded):
            # Another broker deletes the topic, too: it was faster, or has just claimed the cursors.
            if last:
                raise


async def _delete_schema(
    name: TopicName, incarnation: str, client: LedgerClient, clock: Clock, randomness: Randomness
) -> Sequence[Change]:
    """Delete the ledgers of the topic's schema. Return the changes that delete its node."""
    if name.is_partition:
        return []
    path = paths.topic(name)

    async def is_being_deleted() -> bool:
        stored = await compare_and_set.read(client.ledgers.store, path, fresh=True)
        node = None if stored is None else decode_topic(path, stored.payload)
        return node is not None and node.incarnation == incarnation and node.state == pb.DELETING

    return await prepare_schema_deletion(name, client, clock, randomness, is_being_deleted, create=False)


async def _delete_ledgers(
    name: TopicName,
    client: LedgerClient,
    node: pb.ManagedLedgerNode,
    clock: Clock,
    randomness: Randomness,
    checks: Sequence[Check],
) -> None:
    try:
        ledger_list = LedgerList.decode(node, await read_pages(client.ledgers.store, name, node))
    except ForeignList as error:
        raise ForeignValue(f"{paths.topic(name)!r}: {error}") from None
    if ledger_list.current_ledger is not None:
        await fence_ledger(client, ledger_list.current_ledger.ledger_id)
    leased = await record_leased_ledgers(
        name, node, [one.ledger_id for one in ledger_list.ledgers], client, clock, randomness, checks
    )
    # A lease protects all ledgers from one on.
    not_leased = ledger_list.ledgers[: len(ledger_list.ledgers) - len(leased)]
    ledgers = [*ledger_list.deleting, *(one.ledger_id for one in not_leased)]
    failed = len(ledgers) - len(await delete_ledgers(client, ledgers))
    if failed:
        text = f"{failed} of {len(ledgers)} ledgers of topic {name} could not be deleted: try again"
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, text)


async def _remove(store: MetadataStore, path: str, *checks: Check) -> None:
    """Delete a node below the topic's, if it is empty and the checks hold."""
    try:
        await store.transaction([*checks, Delete(path, ANY)])
    except NoNode as error:
        if error.index < len(checks):
            raise
