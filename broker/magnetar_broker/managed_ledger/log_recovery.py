"""Opens a topic's log: claims its node, has its last ledger say where it ends, and learns what the next entry follows.

The claim comes first: after it no other life records a ledger, so the last one listed is the last there is. If it is
not known to be closed it is recovered, which fences it: what its writer was told is stored is below its end, and no
more will be. Closed is for ever: where a read says so, however stale it is, nothing is recovered; so it is after a
peaceful end. A new ledger is not made; the first append does that.

What the list says of the ledger besides its length stands in the ledger's metadata where its writer closed it; else
its first and last entry are read. One that is lost on all bookies costs that entry alone: it is reported, and the topic
goes on at an index that it can't have had (managed_ledger/ledger_ends.py). An entry that can't be read *now* is waited
for: the opening fails, and is tried again.

What needs only that the node is claimed, as the claim of the cursors does, goes beside the rest: it checks that the
node is as this life has left it, and nobody is served before both are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any

from magnetar_bookie.errors import LedgerError, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.managed_ledger.deletion import finish_deletion
from magnetar_broker.managed_ledger.ledger_ends import LISTED, LedgerEnds, ends_from_entries, ends_from_properties
from magnetar_broker.managed_ledger.log_entry import LogEntry, decode_log_entry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.lost_entry_facts import nearest_readable
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.topic_node import BeingDeleted, TopicNode
from magnetar_metadata.compare_and_set import StoredValue
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.errors import WireError
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["recover_log"]


async def recover_log(
    name: TopicName,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    lost: LostEntries,
    *,
    create: bool,
    along: Sequence[Change],
    prefetched: StoredValue | None = None,
    on_claimed: Callable[[TopicNode], Awaitable[None]] | None = None,
) -> TopicNode:
    """Claim the topic's node, close its last ledger, and return the node.

    `on_claimed` is called as soon as the node is claimed. Lost entries at the end of the log are reported to `lost`.
    Raises `BrokerError`.
    """
    try:
        while True:
            node = TopicNode(name, client, clock, randomness)
            try:
                await node.claim(create=create, along=along, prefetched=prefetched)
            except BeingDeleted as deleted:
                (incarnation,) = deleted.args
                prefetched = None
                await finish_deletion(name, incarnation, client, clock, randomness)
                continue
            await _both(_find_end(node, client, lost), on_claimed(node) if on_claimed is not None else None)
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


async def _find_end(node: TopicNode, client: LedgerClient, lost: LostEntries) -> None:
    written = node.ledger_list.open_ledger
    if written is None:
        return
    metadata = await client.recover(written.ledger_id)
    entries = metadata.last_entry_id + 1
    if not entries:
        node.ledger_list.set_closed(metadata.closed_ms)
        return
    ends = ends_from_properties(metadata.properties.get(LISTED), written.ledger_id, entries)
    if ends is None:
        ends = await _read_ends(node, LedgerReader(client, written.ledger_id, metadata), entries, lost)
    node.ledger_list.set_recovered(entries, ends, metadata.length_bytes, metadata.closed_ms)


async def _read_ends(node: TopicNode, reader: LedgerReader, entries: int, lost: LostEntries) -> LedgerEnds:
    """By the first entry and the last one that can be read."""

    async def read(position: Position) -> LogEntry | None:
        try:
            return decode_log_entry(position, (await reader.read(position.entry_id, position.entry_id))[0])
        except WireError as error:
            lost.report(DamagedEntry(position, error))
        except Unreadable as error:
            if not error.is_lost:
                raise
            lost.report(LostEntry(position, error))
        return None

    end = Position(reader.ledger_id, entries - 1)
    first, last = await asyncio.gather(read(Position(reader.ledger_id, 0)), read(end))
    if last is None and entries > 1:
        search: Generator[Position, LogEntry | None, LogEntry | None] = nearest_readable(end, -1)
        try:
            place = next(search)
            while True:
                place = search.send(first if not place.entry_id else await read(place))
        except StopIteration as found:
            last = found.value
    return ends_from_entries(node.ledger_list.next_index, node.ledger_list.last_time_ms, entries, first, last)
