"""Reads one ledger, closed or still written.

Theory of operation
-------------------
What may be read ends at the last entry of a closed ledger, and at the LAC of one that is not. The LAC is what the last
fragment's bookies say, the highest of them: each tells a true lower bound. A reader's own never falls. That the ledger
was closed, or has a new fragment, stands in the metadata alone, so the two are always asked together.

A range that no replica gives is tried once more with fresh metadata: repair or the writer may have put other bookies in
the place of those that are gone. Where a bookie lacks an entry that it should have, and that is settled (the ledger is
closed, or the fragment is not its last), a repair task is written down, unless one is there already.

An entry is lost (`Unreadable.settled`) once every replica has answered and none has it. In the last fragment of a
ledger that is not closed, replicas that answer "absent" or "unknown" don't settle that, since their copy may still be
in flight. That rule uses the metadata from before the read. Where the fresh metadata say that the entry's fragment has
become final meanwhile, the replicas are asked again.

`entries` reads ahead: while its caller works on one chunk the next ones are fetched. A chunk asks for as many entries
as should fit one answer, by the size of those before; one that came short is read on before those behind it. `tail`
goes on where the entries end for now: it watches the ledger's node and long-polls all bookies of the last fragment, and
whichever knows of more first wakes it. It ends when the ledger is found closed and all of it was read.

Whatever reads raises `Unreadable` where no replica gives an entry. When it looks at the metadata once more it may meet
`NoSuchLedger` and `LedgerDeleted`, `SessionLost`, and `ForeignValue` or a plain `LedgerError` where they can't be read.
A store that gives no answer is no error here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.ledger_repair_rules import repairable_entries
from magnetar_bookie.client.context import LedgerContext
from magnetar_bookie.client.last_add_confirmed import ask_last_add_confirmed, wait_last_add_confirmed
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.errors import ClientClosed, LedgerDeleted, LedgerError, NoSuchEntry, Unreadable
from magnetar_bookie.read.range_reader import EntryReader, Fault, NotRead, RangeRead
from magnetar_bookie.read.record import entry_of
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError, Unavailable
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest, RepairTask

__all__ = ["LedgerReader"]

_log = logging.getLogger(__name__)
# What is read at a time where the caller set no limit.
_READ_BYTES: Final = 4_194_304
# What a chunk of a sequential read holds at most: one answer. And how many are on their way: while the caller works on
# one, the next arrives, another is read by the bookie, and one waits there, so that none of the three is ever idle.
_CHUNK_BYTES: Final = 1_048_576
_CHUNKS_AHEAD: Final = 4

# Up to which entry, and what will come of it; in order.
Asked = deque[tuple[int, asyncio.Task[list[bytes]]]]
# A reader that meets many faults writes one task for them all; and waits only so long for the metadata store.
_REPORT_AGAIN_S: Final = 60.0
_REPORT_TIMEOUT_S: Final = 1.0


class LedgerReader:
    """Made by `LedgerClient.open` and `open_with_recovery`. Owns nothing that would have to be closed."""

    def __init__(self, client: LedgerContext, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledger_id = ledger_id
        self._client = client
        self._metadata = metadata
        # A fragment begins above a LAC of the writer's.
        self._last_add_confirmed = _confirmed_by(metadata)
        self._reported_at: float | None = None
        # What a record has, of those that were read last; None: nobody knows yet.
        self._record_bytes: float | None = None
        settings = client.settings
        self._entries = EntryReader(
            ledger_id,
            metadata.striping,
            metadata.fragments,
            self._ask,
            client.clock,
            timeout_s=settings.read_entry_timeout_seconds,
            speculative_timeout_s=settings.speculative_read_timeout_ms / 1000,
        )

    @classmethod
    async def open(cls, client: LedgerContext, ledger_id: int) -> LedgerReader:
        """A reader that knows the present LAC, as far as a bookie can be reached that tells it."""
        metadata = await client.ledgers.read(ledger_id, fresh=True)
        _check_not_deleted(ledger_id, metadata)
        reader = cls(client, ledger_id, metadata)
        if not metadata.closed:
            try:
                await reader._ask_last_add_confirmed()
            except Unreadable as error:
                _log.warning("%s: starting with the LAC in the metadata", error)
        return reader

    @property
    def metadata(self) -> LedgerMetadata:
        """As it was read last."""
        return self._metadata

    @property
    def last_add_confirmed(self) -> int:
        """The highest entry that may be read; of a closed ledger its last. Never falls."""
        return self._last_add_confirmed

    def told_confirmed(self, entry_id: int) -> None:
        """Up to this entry may be read: its writer says so, or the list that the closed ledger is in."""
        self._raise_to(entry_id)

    async def read(self, first: int, last: int, max_bytes: int | None = None) -> list[bytes]:
        """The entries from `first` to `last`, both included; with `max_bytes` those whose records fit, at least one, up
        to the first that can't be read.

        A record is its entry and RECORD_HEADER_BYTES. Raises `NoSuchEntry` outside the bounds.
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
            entries += map(entry_of, records)
            if left is not None:
                left -= sum(map(len, records))
                if left < len(records[-1]):  # hardly room for one more
                    break
        return entries

    async def read_record(self, entry_id: int) -> bytes:
        """The entry with its header, checked. Raises `NoSuchEntry` outside the bounds."""
        if not 0 <= entry_id <= self._last_add_confirmed:
            raise NoSuchEntry(
                f"entry {entry_id} of ledger {self.ledger_id} can't be read: only 0 to "
                f"{self._last_add_confirmed} are confirmed"
            )
        return (await self._read_records(entry_id, entry_id, _READ_BYTES))[0]

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncGenerator[tuple[int, bytes], None]:
        """Entry ids and entries in order, up to `last` or what may be read when this begins.

        Raises `NoSuchEntry` outside the bounds.
        """
        async with aclosing(self.batches(first, last)) as batches:
            async for begin, entries in batches:
                for place, entry in enumerate(entries):
                    yield begin + place, entry

    async def batches(self, first: int = 0, last: int | None = None) -> AsyncGenerator[tuple[int, list[bytes]], None]:
        """As `entries`, many at a time: the first one's id, and it and those that follow."""
        last = self._last_add_confirmed if last is None else last
        if first < 0 or last > self._last_add_confirmed:
            raise NoSuchEntry(
                f"entries {first} to {last} of ledger {self.ledger_id} can't be read: only 0 to "
                f"{self._last_add_confirmed} are confirmed"
            )
        asked: Asked = deque()
        most = _CHUNKS_AHEAD
        try:
            while first <= last:
                self._ask_ahead(asked, most, first, first, last)
                end, task = asked[0]
                try:
                    records = await task
                except Unreadable:
                    if most == 1:
                        raise
                    # A bookie that has many reads at a time refuses more: one after the other, from here on.
                    most = 1
                    await _drop(asked)
                    continue
                asked.popleft()
                begin, first = first, first + len(records)
                if first <= end:  # it came short: the rest goes before what was asked for behind it
                    asked.appendleft((end, self._ask_for(first, end)))
                self._note_size(records)
                self._ask_ahead(asked, most, begin, first, last)
                yield begin, list(map(entry_of, records))
        finally:
            await _drop(asked)

    def _ask_ahead(self, asked: Asked, most: int, begin: int, first: int, last: int) -> None:
        """Asks for up to `most` chunks. What is passed on begins at `begin`, and is read up to `first`."""
        furthest = begin + self._client.settings.read_ahead_entries
        while len(asked) < most:
            first = asked[-1][0] + 1 if asked else first
            now = begin == first  # and not ahead
            if first > last or not (now or (self._record_bytes is not None and first <= furthest)):
                return
            end = min(last, first + self._chunk_entries() - 1)
            end = end if now else min(end, furthest)
            asked.append((end, self._ask_for(first, end)))

    def _ask_for(self, first: int, last: int) -> asyncio.Task[list[bytes]]:
        return asyncio.create_task(self._read_records(first, last, _CHUNK_BYTES))

    def _chunk_entries(self) -> int:
        """As many as one answer holds where they are like those before; and so few that several are on their way."""
        share = max(1, (self._client.settings.read_ahead_entries + 2) // 3)
        return share if self._record_bytes is None else max(1, min(share, int(_CHUNK_BYTES / self._record_bytes)))

    def _note_size(self, records: list[bytes]) -> None:
        self._record_bytes = sum(map(len, records)) / len(records)

    async def tail(self, first: int = 0) -> AsyncGenerator[tuple[int, bytes], None]:
        """Entry ids and entries in order as they are confirmed; ends at the end of the ledger, once it is closed.

        Raises `NoSuchEntry` below 0, and `ClientClosed` when the client is closed while it waits. That no bookie tells
        of more is no error: it waits on.
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
                if self._metadata.closed:
                    return
                if self._client.bookies.closed:
                    raise ClientClosed(f"the ledger client was closed while it tailed ledger {self.ledger_id}")
                if not await wait_last_add_confirmed(
                    self._client,
                    self.ledger_id,
                    self._metadata.last_fragment,
                    self._last_add_confirmed,
                    self._raise_to,
                    watch,
                ):
                    continue
                with suppress(Unavailable):  # the flag goes up again when the connection is back
                    await self._reread()
        finally:
            watch.close()

    async def read_last_add_confirmed(self) -> int:
        """Asks anew how far may be read. Raises `Unreadable` where no bookie tells."""
        if not self._metadata.closed:
            try:
                await self._reread()
            except Unavailable as error:
                _log.warning(
                    "The metadata store does not answer: the LAC of ledger %d is read from its bookies only: %s",
                    self.ledger_id,
                    error,
                )
        if not self._metadata.closed:
            await self._ask_last_add_confirmed()
        return self._last_add_confirmed

    async def _ask_last_add_confirmed(self) -> None:
        self._raise_to(await ask_last_add_confirmed(self._client, self.ledger_id, self._metadata))

    async def _reread(self, *, fresh: bool = False) -> None:
        metadata = await self._client.ledgers.read(self.ledger_id, fresh=fresh)
        _check_not_deleted(self.ledger_id, metadata)
        if self._metadata.closed and not metadata.closed:
            return  # a server that lags: what is closed stays closed
        self._metadata = metadata
        self._entries.fragments = metadata.fragments
        self._raise_to(_confirmed_by(metadata))

    def _raise_to(self, last_add_confirmed: int) -> None:
        self._last_add_confirmed = max(self._last_add_confirmed, last_add_confirmed)

    async def _read_records(self, first: int, last: int, max_bytes: int) -> list[bytes]:
        """At least the first of them."""
        before = self._metadata
        try:
            read = await self._entries.read(first, last, max_bytes)
        except NotRead as error:
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
            if self._metadata.fragments == before.fragments and not (error.may_arrive and became_final):
                raise _unreadable(error, before) from None
            read = await self._read_again(first, last, max_bytes)
        if read.faults:
            await self._report(read.faults)
        if not self._metadata.closed:
            self._raise_to(read.last_add_confirmed)
        return read.records

    async def _read_again(self, first: int, last: int, max_bytes: int) -> RangeRead:
        before = self._metadata
        try:
            return await self._entries.read(first, last, max_bytes)
        except NotRead as error:
            await self._report(error.faults)
            raise _unreadable(error, before) from None

    async def _ask(self, bookie_id: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
        return await self._client.bookies.call(bookie_id, "read", request, ReadAnswer, timeout_s=timeout_s)

    async def _report(self, faults: dict[Fault, None]) -> None:
        """Write a repair task if repair would mend one of the faults (auto_recovery/ledger_repair_rules.py).

        An entry that a slow bookie has not received yet is none of those. The metadata may be old, and name a bookie
        that repair has replaced: they are read again before the report.
        """
        now = self._client.clock.monotonic()
        if self._reported_at is not None and now < self._reported_at + _REPORT_AGAIN_S:
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
            fault.lack.value,
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
            # The auditor's own checks find it as well.
            _log.warning("The repair of ledger %d could not be requested: %s", self.ledger_id, error)

    def _repairable(self, faults: dict[Fault, None]) -> list[Fault]:
        metadata = self._metadata
        return [fault for fault in faults if repairable_entries(metadata, fault.bookie_id, [fault.entry_id])]


def _is_final(metadata: LedgerMetadata, entry_id: int) -> bool:
    """Return whether neither the writer nor a recovery adds to the entry's fragment any more."""
    return metadata.closed or entry_id < metadata.last_fragment.first_entry_id


def _unreadable(error: NotRead, before: LedgerMetadata) -> Unreadable:
    """`before`: the metadata before the read."""
    settled = error.settled and (not error.may_arrive or _is_final(before, error.entry_id))
    return Unreadable(str(error), error.reasons, settled=settled, entry_id=error.entry_id)


async def _drop(asked: Asked) -> None:
    tasks = [task for _, task in asked]
    asked.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _confirmed_by(metadata: LedgerMetadata) -> int:
    return metadata.last_entry_id if metadata.closed else metadata.last_fragment.first_entry_id - 1


def _check_not_deleted(ledger_id: int, metadata: LedgerMetadata) -> None:
    if metadata.state is LedgerState.TOMBSTONE:
        raise LedgerDeleted(f"ledger {ledger_id} was deleted")
