"""Sample ledgers, with which a user tries a cluster. Their content can be verified when it is read.

Each is owned by a node in the metadata store, `/by-hand/<ledger id>`. Without an owner, the auditor would delete it. An
entry consists of its ledger's id, its own id, and bytes that are derived from it, so that a misplaced or damaged entry
is detected.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.errors import AddFailed, LedgerError, NoSuchLedger
from magnetar_bookie.read.striping import Striping
from magnetar_metadata import compare_and_set

__all__ = ["TransferTotals", "WrongContent", "delete_ledger", "make_entry", "verify_ledger", "write_ledger"]

_OWNERS = "/by-hand"
_BODIES = 64


class WrongContent(LedgerError):
    """An entry is not what `write_ledger` wrote."""


@dataclass(frozen=True, slots=True)
class TransferTotals:
    """What was written or read, and how long it took."""

    entries: int
    length_bytes: int
    seconds: float


def make_entry(ledger_id: int, entry_id: int, size: int) -> bytes:
    """Return the content of an entry."""
    head = f"{ledger_id}:{entry_id}:".encode()
    # There are few different bodies.
    body = random.Random(entry_id % _BODIES).randbytes(size)
    return (head + body)[:size]


async def write_ledger(
    client: LedgerClient,
    striping: Striping,
    entries: int,
    size: int,
    on_progress: Callable[[int], object],
    *,
    claim: bool,
) -> tuple[int, TransferTotals]:
    """Create a ledger, write it and close it. Return its id. Without `claim` it has no owner, and will be deleted.

    Raise `AddFailed`, and the errors of creating and closing a ledger.
    """
    made, writer = await client.create(striping, "magnetar ledgers write")
    if claim:
        owner = f"{_OWNERS}/{paths.name_of(made.ledger_id)}"
        await client.ledgers.record(made, owner, lambda payload: payload or b"")
    began = client.clock.monotonic()
    failed: list[AddFailed] = []
    completed = 0

    def done(result: int | AddFailed) -> None:
        nonlocal completed
        if isinstance(result, AddFailed):
            failed.append(result)
        else:
            completed += 1

    for entry_id in range(entries):
        await writer.room()
        if failed:
            break
        writer.append(make_entry(made.ledger_id, entry_id, size), done)
        on_progress(completed)
        if not entry_id % _BODIES:
            await asyncio.sleep(0)  # process answers
    metadata = await writer.close()
    if failed:
        raise failed[0]
    return made.ledger_id, TransferTotals(entries, metadata.length_bytes, client.clock.monotonic() - began)


async def verify_ledger(client: LedgerClient, ledger_id: int, on_progress: Callable[[int], object]) -> TransferTotals:
    """Read all confirmed entries, and verify each. Raise `WrongContent`."""
    reader = await client.open(ledger_id)
    began = client.clock.monotonic()
    length, expected = 0, 0
    async with aclosing(reader.entries()) as entries:
        async for entry_id, entry in entries:
            if entry_id != expected or entry != make_entry(ledger_id, entry_id, len(entry)):
                raise WrongContent(
                    f"ledger {ledger_id}, entry {entry_id} of {len(entry)} bytes: not what `ledgers write` wrote"
                )
            expected += 1
            length += len(entry)
            on_progress(expected)
    return TransferTotals(expected, length, client.clock.monotonic() - began)


async def delete_ledger(client: LedgerClient, ledger_id: int) -> None:
    """Delete a ledger. Its owner's node is deleted first, so that the call can be repeated if it fails."""
    owner = f"{_OWNERS}/{paths.name_of(ledger_id)}"
    await client.ledgers.read(ledger_id, fresh=True)
    await compare_and_set.change(
        client.ledgers.store,
        owner,
        lambda payload: compare_and_set.LEAVE if payload is None else compare_and_set.DELETE,
        clock=client.clock,
        randomness=client.randomness,
    )
    try:
        await client.delete(ledger_id)
    except NoSuchLedger:
        return  # the bookies have deleted it already
