"""Ledgers that a person makes to try a cluster: written with content that can be checked when it is read back.

They belong to nodes of their own in the metadata store, `/by-hand/<ledger id>`, or they would be swept. Entry n of a
ledger is the two ids and bytes drawn from them, so that one that came from another place, or is torn, shows.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from magnetar_bookie import paths
from magnetar_bookie.errors import AddFailed, LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_metadata import compare_and_set

__all__ = ["NotAsWritten", "Read", "delete", "entry_of", "read_back", "write"]

_OWNERS = "/by-hand"
_KINDS = 64


class NotAsWritten(LedgerError):
    """An entry is not what `write` wrote."""


@dataclass(frozen=True, slots=True)
class Read:
    entries: int
    length_bytes: int
    seconds: float


def entry_of(ledger_id: int, entry_id: int, size: int) -> bytes:
    """What entry n of a ledger by hand is."""
    head = f"{ledger_id}:{entry_id}:".encode()
    # Drawn once for a few: nobody is to wait for random numbers.
    body = random.Random(entry_id % _KINDS).randbytes(size)
    return (head + body)[:size]


async def write(
    client: LedgerClient, striping: Striping, entries: int, size: int, tell: Callable[[int], object], *, claim: bool
) -> tuple[int, Read]:
    """Makes a ledger, writes and closes it; returns its id. Without `claim` it has no owner, and will be swept.

    Raises `AddFailed` and what making and closing a ledger raise.
    """
    made, writer = await client.create(striping, "magnetar ledgers write")
    if claim:
        owner = f"{_OWNERS}/{paths.format_ledger_id(made.ledger_id)}"
        await client.ledgers.claim_ledger(made, owner, lambda payload: payload or b"")
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
        await writer.wait_for_capacity()
        if failed:
            break
        writer.append(entry_of(made.ledger_id, entry_id, size), done)
        tell(completed)
        if not entry_id % _KINDS:
            await asyncio.sleep(0)  # answers come in meanwhile
    metadata = await writer.close()
    if failed:
        raise failed[0]
    return made.ledger_id, Read(entries, metadata.length_bytes, client.clock.monotonic() - began)


async def read_back(client: LedgerClient, ledger_id: int, tell: Callable[[int], object]) -> Read:
    """Reads all that may be read, and checks each entry. Raises `NotAsWritten`."""
    reader = await client.open(ledger_id)
    began = client.clock.monotonic()
    length, expected = 0, 0
    async with aclosing(reader.entries()) as entries:
        async for entry_id, entry in entries:
            if entry_id != expected or entry != entry_of(ledger_id, entry_id, len(entry)):
                raise NotAsWritten(
                    f"ledger {ledger_id}, entry {entry_id} of {len(entry)} bytes: not what `ledgers write` wrote"
                )
            expected += 1
            length += len(entry)
            tell(expected)
    return Read(expected, length, client.clock.monotonic() - began)


async def delete(client: LedgerClient, ledger_id: int) -> None:
    """The owner's note goes first: were the deletion to fail, it can be asked for again."""
    owner = f"{_OWNERS}/{paths.format_ledger_id(ledger_id)}"
    await client.ledgers.read_metadata(ledger_id, fresh=True)
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
        return  # its holders were faster
