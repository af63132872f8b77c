"""Filling a slot: what the target lacks is read elsewhere and put on its disk, a batch at a time.

A batch is written as recovery adds, which pass a fence and limbo, and take the place of a damaged record; the next one
is read when the target has acknowledged all of it, which it does when it is on its disk. Written twice, by two workers
or by one that woke up late, it is the same bytes under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import lacking
from magnetar_bookie.auto_recovery.reading import SlotReader
from magnetar_bookie.core.repair import FillSlot, entries_of_slot
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_protos.ledger_pb2 import OK

__all__ = ["ReadOnlyTarget", "TargetFailed", "fill_slot"]

# How many more of the slot's entries are there now.
Progress = Callable[[int], Awaitable[None]]


class TargetFailed(CannotRepair):
    """The bookie that is copied to does not take the entries."""


class ReadOnlyTarget(CannotRepair):
    """It lacks entries, and takes none."""


async def fill_slot(
    client: LedgerClient,
    settings: AutoRecoverySettings,
    ledger_id: int,
    metadata: LedgerMetadata,
    step: FillSlot,
    progress: Progress,
    *,
    read_only: bool = False,
) -> None:
    """When it returns, the target has on its disk all that the slot holds. Raises `CannotRepair` if that can't be.

    Entries that can be copied are, even if some others can't.
    """
    reader = SlotReader(client, ledger_id, metadata, step)
    at = step.first_entry_id
    async for end, missing in lacking(client, settings, ledger_id, metadata, step):
        if missing and read_only:
            raise ReadOnlyTarget(f"bookie {step.target} lacks entry {missing[0]}, and is read-only")
        in_piece = entries_of_slot(metadata.striping, step.slot, at, end - 1)
        if in_piece > len(missing):
            await progress(in_piece - len(missing))
        while missing:
            batch = missing[: settings.rereplication_entry_batch_size]
            records = await reader.read(batch, settings.rereplication_batch_bytes)
            if records:
                await _write(client, ledger_id, metadata.master_key, step.target, records)
                await progress(len(records))
            missing = [one for one in missing if one not in records and one not in reader.unreadable]
            if len(reader.unreadable) >= settings.rereplication_entry_batch_size:
                break  # enough to know of
        if missing:
            break
        at = end
    if reader.unreadable:
        raise CannotRepair(_unreadable(reader.unreadable))


def _unreadable(unreadable: Mapping[int, Mapping[str, str]]) -> str:
    entry_id, answers = next(iter(unreadable.items()))
    more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
    said = (
        "there is no other replica".join(f"{bookie}: {answer}" for bookie, answer in answers.items())
        or "there is no other replica"
    )
    return f"no replica of entry {entry_id}{more} could be read: {said}"


async def _write(
    client: LedgerClient, ledger_id: int, master_key: bytes, target: str, records: Mapping[int, bytes]
) -> None:
    channel = client.bookies.get_add_channel(target, recovery=True)
    batch = _Batch(records)
    detach = channel.attach(ledger_id, batch)
    try:
        for entry_id in sorted(records):
            if batch.done.done():
                break
            channel.send(ledger_id, master_key, entry_id, [records[entry_id]], recovery=True)
        await batch.done
    finally:
        detach()
    if batch.failure:
        raise TargetFailed(f"bookie {target} did not store the ledger's entries: {batch.failure}")


class _Batch:
    """The `AddCallbacks` of one batch."""

    def __init__(self, records: Mapping[int, bytes]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure = ""
        self._pending = dict.fromkeys(sorted(records))

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        last = first_entry_id + count - 1
        decided = [one for one in self._pending if first_entry_id <= one <= last]
        if decided and status != OK:
            self._fail(f"{format_status(status)} for entry {decided[0]}")
        for entry_id in decided:
            del self._pending[entry_id]
        if not self._pending:
            self._end()

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        self._fail(reason)

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        """There is nothing to do: a batch is small, and the next one waits for it."""

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        pass

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
