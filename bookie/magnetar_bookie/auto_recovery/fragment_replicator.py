"""Copy the entries that a bookie lacks from other replicas, a batch at a time.

A batch is written by recovery adds, which are accepted despite a fence and limbo, and replace damaged records. The next
batch is read when the target has acknowledged all of this one, which it does when the entries are synced to its disk.
If two workers write the same entry, or one writes it late, the bytes and the entry id are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from magnetar_bookie.auto_recovery.errors import CannotRepair, ReadOnlyTarget, TargetFailed
from magnetar_bookie.auto_recovery.inventory import find_missing_entries
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair, count_slot_entries
from magnetar_bookie.auto_recovery.replica_reader import ReplicaReader
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.read_answer import status_name
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_protos.ledger_pb2 import OK

__all__ = ["Progress", "copy_missing_entries"]

# Called with the number of the slot's entries that were copied, or found at the target, since the last call.
Progress = Callable[[int], Awaitable[None]]


async def copy_missing_entries(
    client: LedgerClient,
    settings: AutoRecoverySettings,
    ledger_id: int,
    metadata: LedgerMetadata,
    step: SlotRepair,
    progress: Progress,
    *,
    read_only: bool = False,
) -> None:
    """Copy entries until the target has all of the slot on its disk. Raises `CannotRepair` if that is impossible.

    If some entries can't be read, the others are copied. `read_only`: the target accepts no entries, so the first
    missing one raises `ReadOnlyTarget`.
    """
    reader = ReplicaReader(client, ledger_id, metadata, step)
    first = step.first_entry_id
    async for end, missing in find_missing_entries(client, settings, ledger_id, metadata, step):
        if missing and read_only:
            raise ReadOnlyTarget(f"bookie {step.target} lacks entry {missing[0]}, and is read-only")
        in_range = count_slot_entries(metadata.striping, step.slot, first, end - 1)
        if in_range > len(missing):
            await progress(in_range - len(missing))
        while missing:
            batch = missing[: settings.rereplication_entry_batch_size]
            records = await reader.read(batch, settings.rereplication_batch_bytes)
            if records:
                await _write(client, ledger_id, metadata.master_key, step.target, records)
                await progress(len(records))
            missing = [one for one in missing if one not in records and one not in reader.unreadable]
            if len(reader.unreadable) >= settings.rereplication_entry_batch_size:
                break  # enough to report
        if missing:
            break
        first = end
    if reader.unreadable:
        raise CannotRepair(_describe_unreadable(reader.unreadable))


def _describe_unreadable(unreadable: Mapping[int, Mapping[str, str]]) -> str:
    entry_id, answers = next(iter(unreadable.items()))
    more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
    reasons = "; ".join(f"{bookie}: {answer}" for bookie, answer in answers.items()) or "there is no other replica"
    return f"no replica of entry {entry_id}{more} could be read: {reasons}"


async def _write(
    client: LedgerClient, ledger_id: int, master_key: bytes, target: str, records: Mapping[int, bytes]
) -> None:
    channel = client.bookies.adds(target, recovery=True)
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
    """The `AddSink` of one batch."""

    def __init__(self, records: Mapping[int, bytes]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure = ""
        self._pending = dict.fromkeys(sorted(records))

    def answered(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        last = first_entry_id + count - 1
        decided = [one for one in self._pending if first_entry_id <= one <= last]
        if decided and status != OK:
            self._fail(f"{status_name(status)} for entry {decided[0]}")
        for entry_id in decided:
            del self._pending[entry_id]
        if not self._pending:
            self._finish()

    def bookie_failed(self, bookie_id: str, reason: str) -> None:
        self._fail(reason)

    def bookie_lags(self, bookie_id: str, reason: str) -> None:
        """Ignore it: a batch is small, and the next one waits for its answers."""

    def bookie_caught_up(self, bookie_id: str) -> None:
        pass

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
