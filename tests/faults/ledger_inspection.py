"""Read chains in their final state, by the ordinary reader and from every replica alone, and report what is unsettled.

Each entry goes to a `LedgerChecker`. The metadata are decoded from their message and the replicas from a bookie's bare
answers, by none of the rules of the production code's reader.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from magnetar_bookie import paths
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_protos import ledger_pb2
from magnetar_wire.transport import TransportError
from tests.faults.ledger_checker import Closed, LedgerChecker
from tests.faults.ledger_owner import read_chain

__all__ = ["NotReadable", "close_chains", "inspect_chains", "lacking", "metadata_of", "unrest"]

_HEADER: Final = struct.Struct(">QQqQI")
_ANSWER_BYTES: Final = 4_194_304
_PATIENCE_S: Final = 30.0


class NotReadable(Exception):
    """A replica that should be whole is not, or does not answer."""


async def close_chains(client: LedgerClient, chains: Sequence[str]) -> None:
    """Has the last ledger of each recovered, if it is open."""
    for chain in chains:
        ledgers = (await read_chain(client.ledgers.store, chain)).ledgers
        if ledgers:
            await client.recover(ledgers[-1])


async def metadata_of(client: LedgerClient, ledger_id: int) -> ledger_pb2.LedgerMetadata | None:
    stored = await compare_and_set.read(client.ledgers.store, paths.ledger(ledger_id))
    return None if stored is None else ledger_pb2.LedgerMetadata.FromString(stored.payload)


async def unrest(
    client: LedgerClient, chains: Sequence[str], bookies: Sequence[str], whole: dict[int, ledger_pb2.LedgerMetadata]
) -> str:
    """What is not at rest yet, after everything has healed; empty: all is as it should be.

    `whole` has the ledgers that were found so by an earlier look, and their metadata then: they are not read again.

    No intent, no repair task that could go on; all ledgers of the chains closed, on bookies that are there, each of
    which holds all that it should; no other ledger, and none that is half deleted.
    """
    store = client.ledgers.store
    await store.sync()
    if intents := await store.children(paths.INTENTS):
        return f"there are intents still: {intents}"
    if repairs := await store.children(paths.TASKS):
        return f"there are repairs still: {[await _task(client, int(name, 16)) for name in repairs]}"
    listed = [ledger_id for chain in chains for ledger_id in (await read_chain(store, chain)).ledgers]
    async for ledger_id in client.ledgers.ledger_ids():
        metadata = await metadata_of(client, ledger_id)
        if metadata is None:
            continue
        if ledger_id not in listed:
            state = ledger_pb2.LedgerState.Name(metadata.state)
            return f"ledger {ledger_id} is in no chain and {state}; held by {list(metadata.holders)}"
        if metadata.state != ledger_pb2.CLOSED:
            return f"ledger {ledger_id} is not closed"
        for fragment in metadata.fragments:
            for bookie in fragment.bookies:
                if bookie not in bookies:
                    return f"ledger {ledger_id} names {bookie}, which is not there"
        if whole.get(ledger_id) != metadata:
            if lacks := await lacking(client, ledger_id, metadata):
                return lacks
            whole[ledger_id] = metadata
    return ""


async def _task(client: LedgerClient, ledger_id: int) -> str:
    stored = await compare_and_set.read(client.ledgers.store, paths.task(ledger_id))
    if stored is None:
        return f"{ledger_id} (done)"
    task = ledger_pb2.RepairTask.FromString(stored.payload)
    copied = f"{task.entries_copied} of {task.entries_total}"
    return f"{ledger_id} of {list(task.lost_bookies)}, {copied} copied, stuck: {task.stuck or 'no'}"


async def lacking(client: LedgerClient, ledger_id: int, metadata: ledger_pb2.LedgerMetadata) -> str:
    """By the bookies' inventories."""
    closed = _closed(metadata)
    for bookie in closed.sources()[1:]:
        held: list[tuple[int, int]] = []
        at = 0
        while at <= closed.last_entry_id:
            request = ledger_pb2.InventoryRequest(
                ledger_id=ledger_id, first_entry_id=at, last_entry_id=closed.last_entry_id
            )
            try:
                answer = await client.bookies.call(
                    bookie, "inventory", request, ledger_pb2.InventoryAnswer, timeout_s=_PATIENCE_S
                )
            except TransportError as error:
                return f"{bookie} does not say what it holds of ledger {ledger_id}: {error}"
            if answer.status != ledger_pb2.OK or answer.next_entry_id <= at:
                return f"{bookie} does not say what it holds of ledger {ledger_id}: {answer}"
            held += [(one.first_entry_id, one.last_entry_id) for one in answer.held]
            at = answer.next_entry_id
        due = closed.next_on(bookie, 0)
        for first, last in held:
            while first <= due <= last:
                due = closed.next_on(bookie, due + 1)
        if due <= closed.last_entry_id:
            return f"{bookie} lacks entry {due} of ledger {ledger_id}, which ends at {closed.last_entry_id}"
    return ""


def _closed(metadata: ledger_pb2.LedgerMetadata) -> Closed:
    return Closed(
        metadata.last_entry_id,
        metadata.length_bytes,
        metadata.ensemble_size,
        metadata.write_quorum,
        [(fragment.first_entry_id, list(fragment.bookies)) for fragment in metadata.fragments],
    )


async def inspect_chains(client: LedgerClient, checker: LedgerChecker, chains: Sequence[str]) -> int:
    """Pass everything to the checker, and return the number of ledgers."""
    ledgers = 0
    for chain in chains:
        listed = (await read_chain(client.ledgers.store, chain)).ledgers
        checker.chain(chain, listed)
        for ledger_id in listed:
            metadata = await metadata_of(client, ledger_id)
            if metadata is None or metadata.state != ledger_pb2.CLOSED:
                continue  # the checker misses it
            ledgers += 1
            closed = _closed(metadata)
            checker.closed(ledger_id, closed)
            try:
                reader = await client.open(ledger_id)
                async for entry_id, entry in reader.entries():
                    checker.entry(ledger_id, entry_id, entry)
            except LedgerError as error:
                checker.violations.append(f"acknowledged: ledger {ledger_id} can't be read: {error}")
            for bookie in closed.sources()[1:]:
                try:
                    await _read_alone(client, checker, ledger_id, closed, bookie)
                except NotReadable as error:
                    checker.violations.append(f"replica: {error}")
    return ledgers


async def _read_alone(
    client: LedgerClient, checker: LedgerChecker, ledger_id: int, closed: Closed, bookie: str
) -> None:
    """Every entry of which the bookie is to have a replica, from it and nobody else."""
    at = closed.next_on(bookie, 0)
    while at <= closed.last_entry_id:
        last = at
        while last < closed.last_entry_id and last - at < 1000 and bookie in closed.where(last + 1):
            last += 1
        request = ledger_pb2.ReadRequest(
            ledger_id=ledger_id, first_entry_id=at, last_entry_id=last, step=1, max_bytes=_ANSWER_BYTES
        )
        try:
            answer = await client.bookies.call(bookie, "read", request, ledger_pb2.ReadAnswer, timeout_s=_PATIENCE_S)
        except TransportError as error:
            raise NotReadable(f"{bookie} does not give entries {at} … {last} of ledger {ledger_id}: {error}") from None
        where = f"{bookie} was sent a read of entries {at} … {last} of ledger {ledger_id}"
        if answer.status != ledger_pb2.OK or answer.absent or answer.unknown or answer.damaged:
            raise NotReadable(
                f"{where}: status {answer.status}, absent {list(answer.absent)[:9]}, unknown "
                f"{list(answer.unknown)[:9]}, damaged {list(answer.damaged)[:9]}"
            )
        if not answer.records or answer.next_entry_id != at + len(answer.records):
            raise NotReadable(f"{where}: {len(answer.records)} records up to {answer.next_entry_id}")
        for entry_id, record in enumerate(answer.records, at):
            named, number, _, _, stated = _HEADER.unpack_from(record)
            entry = record[_HEADER.size :]
            if (named, number) != (ledger_id, entry_id) or stated != crc32c(entry, crc32c(record[: _HEADER.size - 4])):
                raise NotReadable(f"{where}: entry {entry_id} is torn: {record[:60]!r}, CRC {zlib.crc32(record)}")
            checker.entry(ledger_id, entry_id, entry, bookie)
        at = closed.next_on(bookie, answer.next_entry_id)
