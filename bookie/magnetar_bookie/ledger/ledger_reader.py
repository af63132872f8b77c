"""Reads one ledger, closed or still written.

Theory of operation
-------------------
The highest entry that may be read is the last entry of a closed ledger, or the LAC of an open one: the highest that the
bookies of its last fragment report, each of which is a true lower bound. A reader's LAC never decreases. That the
ledger was closed or has a new fragment is only in the metadata, so both are read together.

If no replica returns a range, it is read again with fresh metadata: repair or the writer may have replaced the
failed bookies. If a bookie lacks an entry that it should have, and the entry is final (the ledger is closed, or the
fragment is not its last), a repair task is written unless there is one.

An entry is lost (`Unreadable.is_lost`) if every replica has answered and none has it. In the last fragment of a ledger
that is not closed, answers "absent" and "unknown" don't prove that, since a copy may be in flight. The metadata from
before the read decide. If fresh metadata show that the fragment became final in the meantime, the replicas are read
again.

`entries` reads ahead: while its caller processes a chunk, the next ones are fetched. A chunk has as many entries as
should fit into one answer, by the size of the last ones; the rest of a chunk that was truncated is read first. `tail`
waits at the LAC: it watches the ledger's node and polls all bookies of the last fragment until one reports a higher
LAC. It ends when the ledger is closed and all of it was read.

Methods that read raise `Unreadable` if no replica returns an entry. When they read the metadata again they may also
raise `NoSuchLedger`, `LedgerDeleted`, `SessionLost`, and `ForeignValue` or a plain `LedgerError` for metadata that
can't be decoded. A store that doesn't answer is no error.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import ClientClosed, LedgerDeleted, LedgerError, NoSuchEntry, Unreadable
from magnetar_bookie.ledger.context import LedgerContext
from magnetar_bookie.ledger.last_add_confirmed import poll_last_add_confirmed, read_last_add_confirmed
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.entry_reader import EntriesNotRead, Fault, RangeRead
from magnetar_bookie.read.record import extract_entries
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError, Unavailable
from magnetar_protos.ledger_pb2 import RepairTask

__all__ = ["LedgerReader"]

_log = logging.getLogger(__name__)
# Size of a read if the caller sets no limit.
_READ_BYTES: Final = 4_194_304
# Maximum size of a chunk of a sequential read, which is one answer, and the number of chunks in flight: while the
# caller processes one, the next arrives, another is read by the bookie, and one waits there, so that none of the three
# is idle.
_CHUNK_BYTES: Final = 1_048_576
_CHUNKS_AHEAD: Final = 4
# Interval of repair tasks, which are for all faults of a ledger, and the timeout of writing one.
_REPORT_INTERVAL_S: Final = 60.0
_REPORT_TIMEOUT_S: Final = 1.0

# Requested chunks in order: the last entry and the read of each.
_Chunks = deque[tuple[int, asyncio.Task[list[bytes]]]]


class LedgerReader:
    """Reads one ledger. Created by `LedgerClient.open` and `open_with_recovery`. Needs no closing."""

    def __init__(self, client: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledger_id = ledger_id
        self._client = client
        self._metadata = metadata
        self._last_add_confirmed = _find_confirmed(metadata)
        self._reported_at: float | None = None
        # The mean size of the last records of `batches`; None: not known yet.
        self._record_bytes: float | None = None
        self._entries = client.create_entry_reader(ledger_id, metadata)

    @classmethod
    async def open(cls, client: LedgerContext, ledger_id: int) -> LedgerReader:
        """Return a reader that knows the present LAC if a bookie reports it."""
        metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
        _check_not_deleted(ledger_id, metadata)
        reader = cls(client, ledger_id, metadata)
        if not metadata.is_closed:
            try:
                await reader._fetch_last_add_confirmed()
            except Unreadable as error:
                _log.warning("%s: starting with the LAC in the metadata", error)
        return reader

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata as read last."""
        return self._metadata

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry that may be read. Never decreases."""
        return self._last_add_confirmed

    def raise_last_add_confirmed(self, entry_id: int) -> None:
        """Let entries up to this one be read, which is known to be confirmed."""
        self._last_add_confirmed = max(self._last_add_confirmed, entry_id)

    async def read(self, first: int, last: int, max_bytes: int | None = None) -> list[bytes]:
        """Return the entries from `first` to `last`, inclusive. With `max_bytes`: those whose records fit, but at least
        one, up to the first that can't be read.

        A record is an entry and RECORD_HEADER_BYTES. Raises `NoSuchEntry` above the LAC.
        """
        if first < 0 or last > self._last_add_confirmed:
            raise NoSuchEntry(
                f"entries {first} to {last} of ledger {self.ledger_id} can't be read: only 0 to "
                f"{self._last_add_confirmed} are confirmed. Wait for more with `tail`, or call "
                "`read_last_add_confirmed`"
            )
        entries: list[bytes] = []
        left = max_bytes
        while first + len(entries) <= last:
            try:
                records = await self._read_records(first + len(entries), last, _READ_BYTES if left is None else left)
            except Unreadable:
                if left is None or not entries:
                    raise
                break
            if left is not None and entries and len(records[0]) > left:
                break
            entries += extract_entries(records)
            if left is not None:
                left -= sum(map(len, records))
                if left < len(records[-1]):  # the next one would hardly fit
                    break
        return entries

    async def read_record(self, entry_id: int) -> bytes:
        """Return the valid record of an entry. Raises `NoSuchEntry` above the LAC."""
        if not 0 <= entry_id <= self._last_add_confirmed:
            raise NoSuchEntry(
                f"entry {entry_id} of ledger {self.ledger_id} can't be read: only 0 to "
                f"{self._last_add_confirmed} are confirmed"
            )
        return (await self._read_records(entry_id, entry_id, _READ_BYTES))[0]

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncGenerator[tuple[int, bytes], None]:
        """Iterate over entry ids and entries, in order, up to `last` or the LAC at the beginning.

        Raises `NoSuchEntry` above the LAC.
        """
        async with aclosing(self.batches(first, last)) as batches:
            async for begin, entries in batches:
                for entry_id, entry in enumerate(entries, begin):
                    yield entry_id, entry

    async def batches(self, first: int = 0, last: int | None = None) -> AsyncGenerator[tuple[int, list[bytes]], None]:
        """Iterate as `entries` does, over chunks: the first entry id of each, and its entries."""
        last = self._last_add_confirmed if last is None else last
        if first < 0 or last > self._last_add_confirmed:
            raise NoSuchEntry(
                f"entries {first} to {last} of ledger {self.ledger_id} can't be read: only 0 to "
                f"{self._last_add_confirmed} are confirmed"
            )
        chunks: _Chunks = deque()
        max_chunks = _CHUNKS_AHEAD
        try:
            while first <= last:
                self._read_ahead(chunks, max_chunks, first, first, last)
                end, task = chunks[0]
                try:
                    records = await task
                except Unreadable:
                    if max_chunks == 1:
                        raise
                    # A bookie with many reads refuses more: read one chunk at a time from now on.
                    max_chunks = 1
                    await _cancel(chunks)
                    continue
                chunks.popleft()
                begin, first = first, first + len(records)
                if first <= end:  # the chunk was truncated: its rest comes before the chunks that follow
                    chunks.appendleft((end, self._start_read(first, end)))
                self._record_bytes = sum(map(len, records)) / len(records)
                self._read_ahead(chunks, max_chunks, begin, first, last)
                yield begin, extract_entries(records)
        finally:
            await _cancel(chunks)

    def _read_ahead(self, chunks: _Chunks, max_chunks: int, begin: int, first: int, last: int) -> None:
        """Request up to `max_chunks` chunks. The caller's chunk begins at `begin` and ends before `first`."""
        furthest = begin + self._client.settings.read_ahead_entries
        while len(chunks) < max_chunks:
            first = chunks[-1][0] + 1 if chunks else first
            is_ahead = begin != first
            if first > last or (is_ahead and (self._record_bytes is None or first > furthest)):
                return
            end = min(last, first + self._chunk_entries() - 1)
            end = min(end, furthest) if is_ahead else end
            chunks.append((end, self._start_read(first, end)))

    def _start_read(self, first: int, last: int) -> asyncio.Task[list[bytes]]:
        return asyncio.create_task(self._read_records(first, last, _CHUNK_BYTES))

    def _chunk_entries(self) -> int:
        """Return how many entries should fit into one answer, but at most a third of what is read ahead."""
        share = max(1, (self._client.settings.read_ahead_entries + 2) // 3)
        return share if self._record_bytes is None else max(1, min(share, int(_CHUNK_BYTES / self._record_bytes)))

    async def tail(self, first: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """Iterate over entry ids and entries, in order, as they are confirmed, until the ledger is closed and read.

        Raises `NoSuchEntry` below 0, and `ClientClosed` if the client is closed while it waits. While no bookie
        answers, it continues to wait.
        """
        if first < 0:
            raise NoSuchEntry(f"there is no entry {first} in ledger {self.ledger_id}: its first is 0")
        watch = self._client.ledgers.store.watch(paths.ledger(self.ledger_id))
        try:
            while True:
                while first <= self._last_add_confirmed:
                    async with aclosing(self.entries(first)) as entries:
                        async for entry_id, entry in entries:
                            first = entry_id + 1
                            yield entry_id, entry
                if self._metadata.is_closed:
                    return
                if self._client.bookies.is_closed:
                    raise ClientClosed(f"the ledger client was closed while it tailed ledger {self.ledger_id}")
                if not await poll_last_add_confirmed(
                    self._client,
                    self.ledger_id,
                    self._metadata.last_fragment,
                    self._last_add_confirmed,
                    self.raise_last_add_confirmed,
                    watch,
                ):
                    continue
                with suppress(Unavailable):  # the watch is raised again after the reconnection
                    await self._reread()
        finally:
            watch.close()

    async def read_last_add_confirmed(self) -> int:
        """Read the LAC again, and return it. Raises `Unreadable` if no bookie answers."""
        if not self._metadata.is_closed:
            try:
                await self._reread()
            except Unavailable as error:
                _log.warning(
                    "The metadata store does not answer: the LAC of ledger %d is read from its bookies only: %s",
                    self.ledger_id,
                    error,
                )
        if not self._metadata.is_closed:
            await self._fetch_last_add_confirmed()
        return self._last_add_confirmed

    async def _fetch_last_add_confirmed(self) -> None:
        self.raise_last_add_confirmed(await read_last_add_confirmed(self._client, self.ledger_id, self._metadata))

    async def _reread(self, *, fresh: bool = False) -> None:
        metadata = await self._client.ledgers.read_metadata(self.ledger_id, fresh=fresh)
        _check_not_deleted(self.ledger_id, metadata)
        if self._metadata.is_closed and not metadata.is_closed:
            return  # from a server that lags
        self._metadata = metadata
        self._entries.fragments = metadata.fragments
        self.raise_last_add_confirmed(_find_confirmed(metadata))

    async def _read_records(self, first: int, last: int, max_bytes: int) -> list[bytes]:
        """Return records from `first` on, at least one."""
        before = self._metadata
        try:
            read = await self._entries.read(first, last, max_bytes)
        except EntriesNotRead as error:
            await self._report(error.faults)
            try:
                await self._reread(fresh=True)
            except Unavailable as unavailable:
                raise Unreadable(
                    f"{error}; and its metadata can't be read again: {unavailable}",
                    error.reasons,
                    entry_id=error.entry_id,
                ) from None
            became_final = _is_final(self._metadata, error.entry_id) and not _is_final(before, error.entry_id)
            if self._metadata.fragments == before.fragments and not (error.may_still_arrive and became_final):
                raise _unreadable(error, before) from None
            read = await self._read_again(first, last, max_bytes)
        if read.faults:
            await self._report(read.faults)
        if not self._metadata.is_closed:
            self.raise_last_add_confirmed(read.last_add_confirmed)
        return read.records

    async def _read_again(self, first: int, last: int, max_bytes: int) -> RangeRead:
        before = self._metadata
        try:
            return await self._entries.read(first, last, max_bytes)
        except EntriesNotRead as error:
            await self._report(error.faults)
            raise _unreadable(error, before) from None

    async def _report(self, faults: dict[Fault, None]) -> None:
        """Write a repair task if a repair would fix one of the faults.

        It would not fix an entry that a slow bookie has not received yet. The metadata may be old, and contain a bookie
        that repair has replaced: they are read again first.
        """
        now = self._client.clock.monotonic()
        if self._reported_at is not None and now < self._reported_at + _REPORT_INTERVAL_S:
            return
        if not self._repairable(faults):
            return
        self._reported_at = now
        try:
            await self._reread(fresh=True)
        except (LedgerError, MetadataError) as error:
            _log.warning("Whether ledger %d needs a repair is unknown: %s", self.ledger_id, error)
            return
        repairable = self._repairable(faults)
        if not repairable:
            return
        fault = repairable[0]
        _log.warning(
            "Bookie %s can't serve entry %d of ledger %d: %s",
            fault.bookie_id,
            fault.entry_id,
            self.ledger_id,
            fault.reason.value,
        )
        task = RepairTask(found_ms=self._client.clock.time_ms()).SerializeToString()
        try:
            await compare_and_set.change(
                self._client.ledgers.store,
                paths.task(self.ledger_id),
                lambda payload: task if payload is None else compare_and_set.LEAVE,
                clock=self._client.clock,
                randomness=self._client.randomness,
                timeout_s=_REPORT_TIMEOUT_S,
            )
        except MetadataError as error:
            # The auditor's checks will find the fault, too.
            _log.warning("The repair of ledger %d could not be requested: %s", self.ledger_id, error)

    def _repairable(self, faults: dict[Fault, None]) -> list[Fault]:
        metadata = self._metadata
        return [fault for fault in faults if metadata.list_final_entries(fault.bookie_id, [fault.entry_id])]


def _is_final(metadata: LedgerMetadata, entry_id: int) -> bool:
    """Return whether nothing is added to the entry's fragment any more."""
    return metadata.is_closed or entry_id < metadata.last_fragment.first_entry_id


def _unreadable(error: EntriesNotRead, before: LedgerMetadata) -> Unreadable:
    """`before`: the metadata before the read."""
    is_lost = error.all_answered and (not error.may_still_arrive or _is_final(before, error.entry_id))
    return Unreadable(str(error), error.reasons, is_lost=is_lost, entry_id=error.entry_id)


async def _cancel(chunks: _Chunks) -> None:
    tasks = [task for _, task in chunks]
    chunks.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _find_confirmed(metadata: LedgerMetadata) -> int:
    """Return an entry that the metadata prove to be confirmed: a fragment begins above an LAC of its writer."""
    return metadata.last_entry_id if metadata.is_closed else metadata.last_fragment.first_entry_id - 1


def _check_not_deleted(ledger_id: int, metadata: LedgerMetadata) -> None:
    if metadata.state is LedgerState.TOMBSTONE:
        raise LedgerDeleted(f"ledger {ledger_id} was deleted")
