"""Deletes a topic, whoever owned it, and whoever began: first its node says so, and goes last.

From the moment when the node says DELETING no life changes it any more, and nobody opens the topic: who would, goes on
with the deletion and then finds no topic. Cursors and ledgers go, then the pages that named ledgers, then the node. So
at each moment either all that there still is can be found from the node, or there is nothing.
"""

from __future__ import annotations

import logging
from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.errors import LedgerError
from magnetar_broker import paths
from magnetar_broker.core.ledger_list import ForeignList, LedgerList
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.cursor_table import delete_cursors
from magnetar_broker.managed_ledger.topic_node import decode_topic, page_path, read_pages
from magnetar_broker.managed_ledger.trimming import delete_ledgers
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import DELETE, LEAVE, Instead
from magnetar_metadata.errors import ForeignValue, NoNode, NotEmpty
from magnetar_metadata.store import ANY, MetadataStore
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["delete_topic", "topic_exists"]

_log = logging.getLogger(__name__)
_ROUNDS: Final = 3


async def topic_exists(store: MetadataStore, name: TopicName) -> bool:
    """One that is being deleted does not."""
    path = paths.topic(name)
    stored = await compare_and_set.read(store, path)
    return stored is not None and decode_topic(path, stored.payload).state != pb.DELETING


async def delete_topic(name: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
    """Returns when there is nothing left of it, or nothing was there.

    Raises `MetadataError`, and PERSISTENCE_ERROR where something could not be deleted: then it is half deleted, and is
    served no more; the next attempt, or the next who opens the topic, goes on.
    """
    store, path = client.ledgers.store, paths.topic(name)

    def deleting(payload: bytes | None) -> bytes | Instead:
        if payload is None:
            return LEAVE
        node = decode_topic(path, payload)
        if node.state == pb.DELETING:
            return LEAVE
        node.state, node.life = pb.DELETING, b""
        return node.SerializeToString()

    def deleted(payload: bytes | None) -> Instead:
        current = None if payload is None else decode_topic(path, payload)
        ours = current is not None and current.state == pb.DELETING and current.incarnation == node.incarnation
        return DELETE if ours else LEAVE

    stored = await compare_and_set.change(store, path, deleting, clock=clock, randomness=randomness)
    if stored is None:
        return
    node = decode_topic(path, stored.payload)
    await delete_cursors(name, client, clock, randomness)
    try:
        listed = LedgerList.decode(node, await read_pages(store, name, node))
    except ForeignList as error:
        raise ForeignValue(f"{path!r}: {error}") from None
    if listed.written is not None:
        await _fence(client, listed.written.ledger_id)
    ledgers = [*listed.deleting, *(one.ledger_id for one in listed.ledgers)]
    left = len(ledgers) - len(await delete_ledgers(client, ledgers))
    if left:
        text = f"{left} of {len(ledgers)} ledgers of topic {name} could not be deleted; try again"
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, text)
    for page in node.pages:
        await _remove(store, page_path(name, page.number))
    for _ in range(_ROUNDS):
        await _remove(store, paths.pages(name))
        await _remove(store, paths.cursors(name))
        try:
            await compare_and_set.change(store, path, deleted, clock=clock, randomness=randomness)
            return
        except NotEmpty:
            await delete_cursors(name, client, clock, randomness)  # one was being made just now
    raise BrokerError(
        ErrorCode.PERSISTENCE_ERROR, f"topic {name} is deleted, but cursors are made in it again and again"
    )


async def _fence(client: LedgerClient, ledger_id: int) -> None:
    """Whoever wrote it does not go on to take what nobody will ever read; as far as its bookies can be reached."""
    try:
        await client.recover(ledger_id)
    except LedgerError as error:
        _log.warning("ledger %d is deleted, and could not be closed before: %s", ledger_id, error)


async def _remove(store: MetadataStore, path: str) -> None:
    try:
        await store.delete(path, ANY)
    except (NoNode, NotEmpty):
        return
