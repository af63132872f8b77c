"""Opens a topic's log: claims its node, has its last ledger say where it ends, and learns what the next entry follows.

The claim comes first: after it no other life records a ledger, so the last one listed is the last there is. If it is
not known to be closed it is recovered, which fences it: what its writer was told is stored is below its end, and no
more will be. Closed is for ever: where a read says so, however stale it is, nothing is recovered; so it is after a
peaceful end. A new ledger is not made; the first append does that.

What needs only that the node is claimed, as the claim of the cursors does, goes beside the rest: it checks that the
node is as this life has left it, and nobody is served before both are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.ledger_reader import LedgerReader
from magnetar_bookie.errors import LedgerError
from magnetar_broker.core.log_entry import LogEntry, log_entry
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.deletion import finish_deletion
from magnetar_broker.managed_ledger.topic_node import BeingDeleted, TopicNode
from magnetar_metadata.compare_and_set import Stored
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.errors import WireError
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["open_node"]


async def open_node(
    name: TopicName,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    *,
    create: bool,
    along: Sequence[Change],
    seen: Stored | None = None,
    claimed: Callable[[TopicNode], Awaitable[None]] | None = None,
) -> TopicNode:
    """`claimed` is called as soon as the node is this life's. Raises `BrokerError`."""
    try:
        while True:
            node = TopicNode(name, client, clock, randomness)
            try:
                await node.take_over(create=create, along=along, seen=seen)
            except BeingDeleted as deleted:
                (incarnation,) = deleted.args
                seen = None
                await finish_deletion(name, incarnation, client, clock, randomness)
                continue
            await _both(_find_end(node, client), claimed(node) if claimed is not None else None)
            return node
    except MetadataError as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be opened now: {error}") from error
    except (LedgerError, WireError) as error:
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, f"topic {name} can't be opened now: {error}") from error


async def _both(one: Coroutine[Any, Any, None], other: Awaitable[None] | None) -> None:
    """At the same time; the first error of either ends both."""
    if other is None:
        await one
        return

    async def waited() -> None:
        await other

    try:
        async with OrderedTaskGroup() as tasks:
            tasks.create_task(one)
            tasks.create_task(waited())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _find_end(node: TopicNode, client: LedgerClient) -> None:
    written = node.list.written
    if written is None:
        return
    metadata = await client.recover(written.ledger_id)
    last_place = Position(written.ledger_id, metadata.last_entry_id)
    if last_place.entry_id < 0:
        node.list.closed(metadata.closed_ms)
        return
    reader = LedgerReader(client, written.ledger_id, metadata)
    first_place = Position(written.ledger_id, 0)
    if first_place == last_place:
        first = last = await _entry(reader, last_place)
    else:
        first, last = await asyncio.gather(_entry(reader, first_place), _entry(reader, last_place))
    node.list.recovered(first, last, metadata.length_bytes, metadata.closed_ms)


async def _entry(reader: LedgerReader, place: Position) -> LogEntry:
    return log_entry(place, (await reader.read(place.entry_id, place.entry_id))[0])
