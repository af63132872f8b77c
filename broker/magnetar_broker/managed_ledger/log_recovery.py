"""Opens a topic's log: claims its node, recovers its last ledger, and finds the index and time of its last entry.

1. **The node is claimed** (topic_node.py). After that no other broker adds a ledger, so the last one in the list is the
   last of the topic.
2. **The last ledger is recovered** unless it is known to be closed. Recovery fences it and closes it behind all entries
   that its writer reported as persisted, and no more will be added. A closed ledger stays closed: if any read says that
   it is, however stale, nothing is recovered. So it is after a graceful close.
3. **Its last index and times** are in the ledger's metadata if its writer closed it; else its first and last entry are
   read. If one of them is lost on all bookies, it is reported, and the topic continues at an index that it can't have
   had (managed_ledger/ledger_ends.py). If it can't be read *now*, the opening fails, and is tried again.

No ledger is created: the first append does that.

`on_claimed` runs beside steps 2 and 3. It claims the cursors, which needs only the claim of the node: its transactions
check that the node is as this owner has written it. No client is served before both are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

from magnetar_bookie.errors import LedgerError, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.managed_ledger.ledger_ends import LISTED, LedgerEnds, ends_from_entries, ends_from_properties
from magnetar_broker.managed_ledger.log_entry import LogEntry, decode_log_entry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.lost_entry_facts import find_nearest_readable
from magnetar_broker.managed_ledger.readable_entries import run_search
from magnetar_broker.managed_ledger.topic_node import BeingDeleted, NewTopic, TopicNode
from magnetar_broker.position import Position
from magnetar_metadata.compare_and_set import StoredValue
from magnetar_metadata.errors import MetadataError
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
    finish_deletion: Callable[[str], Awaitable[None]],
    if_absent: NewTopic | None,
    prefetched: StoredValue | None = None,
    on_claimed: Callable[[TopicNode], Awaitable[None]] | None = None,
) -> TopicNode:
    """Claim the topic's node, close its last ledger, and return the node.

    `if_absent`: create the topic so if it does not exist; None: it must exist. `finish_deletion` finishes a deletion of
    an incarnation that was begun. `on_claimed` is called as soon as the node is claimed. Lost entries at the end of the
    log are reported to `lost`.
    Raises `BrokerError`.
    """
    try:
        while True:
            node = TopicNode(name, client, clock, randomness)
            try:
                await node.claim(if_absent, prefetched)
            except BeingDeleted as deleted:
                (incarnation,) = deleted.args
                prefetched = None
                await finish_deletion(incarnation)
                continue
            await _run_both(_find_end(node, client, lost), on_claimed(node) if on_claimed is not None else None)
            return node
    except MetadataError as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be opened now: {error}") from error
    except (LedgerError, WireError) as error:
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, f"topic {name} can't be opened now: {error}") from error


async def _run_both(one: Coroutine[Any, Any, None], other: Awaitable[None] | None) -> None:
    """Run both at the same time. The first error cancels the other."""
    if other is None:
        await one
        return

    async def wait_for_other() -> None:
        await other

    try:
        async with OrderedTaskGroup() as tasks:
            tasks.create_task(one)
            tasks.create_task(wait_for_other())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _find_end(node: TopicNode, client: LedgerClient, lost: LostEntries) -> None:
    last_ledger = node.ledger_list.current_ledger
    if last_ledger is None:
        return
    metadata = await client.recover(last_ledger.ledger_id)
    entries = metadata.last_entry_id + 1
    if not entries:
        node.ledger_list.set_closed(metadata.closed_ms)
        return
    ends = ends_from_properties(metadata.properties.get(LISTED), last_ledger.ledger_id, entries)
    if ends is None:
        ends = await _read_ends(node, LedgerReader(client, last_ledger.ledger_id, metadata), entries, lost)
    node.ledger_list.set_recovered(entries, ends, metadata.length_bytes, metadata.closed_ms)


async def _read_ends(node: TopicNode, reader: LedgerReader, entries: int, lost: LostEntries) -> LedgerEnds:
    """Return the last index and the times by the first entry and the last readable one."""

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
        search: Generator[Position, LogEntry | None, LogEntry | None] = find_nearest_readable(end, -1)

        async def read_next(position: Position) -> LogEntry | None:
            return await read(position) if position.entry_id else first

        last = await run_search(search, read_next)
    return ends_from_entries(node.ledger_list.next_index, node.ledger_list.last_time_ms, entries, first, last)
