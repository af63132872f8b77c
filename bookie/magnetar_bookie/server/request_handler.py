"""The calls of clients: reads, fences, LACs and inventories.

The work of each call is bounded: the entries and bytes of a response, the number of concurrent reads, and the number of
waiting long polls. A request that can't be decoded, or is out of range, is refused with INVALID_ARGUMENT, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.ledger_rules import MAX_ENTRY_ID, MAX_LEDGER_ID, LedgerRules
from magnetar_bookie.server.long_polls import LongPolls
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.settings.server import MAX_ANSWER_BYTES, BookieServerSettings
from magnetar_bookie.storage.interface import Damaged, LedgerStorage, StorageFailed
from magnetar_protos.ledger_pb2 import (
    ConfirmAnswer,
    ConfirmRequest,
    EntryRange,
    FenceAnswer,
    FenceRequest,
    InventoryAnswer,
    InventoryRequest,
    LastAddConfirmedAnswer,
    LastAddConfirmedRequest,
    ReadAnswer,
    ReadRequest,
    Status,
)
from magnetar_wire.protobuf_fields import encode_bytes_fields
from magnetar_wire.transport import Code, Refusal, ServiceFailed

__all__ = ["RequestHandler"]


class RequestHandler:
    def __init__(
        self,
        storage: LedgerStorage,
        rules: LedgerRules,
        commit: GroupCommit,
        reader: RecordReader,
        polls: LongPolls,
        settings: BookieServerSettings,
        counters: BookieCounters,
    ) -> None:
        self._storage = storage
        self._rules = rules
        self._commit = commit
        self._reader = reader
        self._polls = polls
        self._settings = settings
        self._counters = counters
        self.concurrent_reads = 0
        self._methods: dict[str, tuple[type[Message], Callable[[Any], Awaitable[Message | bytes]]]] = {
            "read": (ReadRequest, partial(self._limit_reads, self._read)),
            "fence": (FenceRequest, self._fence),
            "last_add_confirmed": (LastAddConfirmedRequest, self._get_last_add_confirmed),
            "confirm": (ConfirmRequest, self._set_explicit_lac),
            "inventory": (InventoryRequest, partial(self._limit_reads, self._list_inventory)),
        }

    async def handle(self, method: str, request: bytes) -> bytes:
        """Return the encoded response."""
        if method not in self._methods:
            raise Refusal(Code.UNIMPLEMENTED, f"a bookie has no method {method!r:.80}")
        kind, handler = self._methods[method]
        try:
            message: Any = kind.FromString(request)
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the {method} request can't be decoded: {error}") from None
        if not 0 < message.ledger_id <= MAX_LEDGER_ID:
            raise Refusal(Code.INVALID_ARGUMENT, f"{message.ledger_id} is not a ledger id: use 1 … {MAX_LEDGER_ID}")
        try:
            self._commit.check_not_failed()
            response = await handler(message)
            self._commit.check_not_failed()
        except StorageFailed as error:
            self._commit.fail(error)
            raise ServiceFailed(str(error)) from error  # the request may have been carried out
        if isinstance(response, bytes):
            return response
        return response.SerializeToString()

    async def _fence(self, request: FenceRequest) -> FenceAnswer:
        status = await self._fence_ledger(request.ledger_id, request.master_key)
        if status != Status.OK:
            return FenceAnswer(status=status, last_add_confirmed=NO_ENTRY)
        last_add_confirmed = await self._reader.read_last_add_confirmed(request.ledger_id)
        response = FenceAnswer(status=status, last_add_confirmed=last_add_confirmed)
        if request.read_entries:
            first = last_add_confirmed + 1
            read_request = ReadRequest(
                ledger_id=request.ledger_id,
                first_entry_id=first,
                last_entry_id=min(first + request.read_entries - 1, MAX_ENTRY_ID),
                step=1,
                max_bytes=request.max_bytes,
            )
            with suppress(Refusal):  # if too many reads run, the response has no entries
                read = await self._limit_reads(self._read, read_request)
                response.read.MergeFromString(read if isinstance(read, bytes) else read.SerializeToString())
        return response

    async def _fence_ledger(self, ledger_id: int, master_key: bytes) -> Status:
        self._counters.fences += 1
        status, group = self._rules.fence(ledger_id, master_key)
        await self._commit.wait_durable(group)
        return status

    async def _set_explicit_lac(self, request: ConfirmRequest) -> ConfirmAnswer:
        if not NO_ENTRY <= request.last_add_confirmed <= MAX_ENTRY_ID:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"the LAC {request.last_add_confirmed} is out of range: use {NO_ENTRY} … {MAX_ENTRY_ID}",
            )
        status, group = self._rules.set_explicit_lac(request.ledger_id, request.master_key, request.last_add_confirmed)
        await self._commit.wait_durable(group)
        return ConfirmAnswer(status=status)

    async def _get_last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedAnswer:
        ledger_id = request.ledger_id
        last_add_confirmed = await self._reader.read_last_add_confirmed(ledger_id)
        if last_add_confirmed <= request.above and not self._rules.is_deleted(ledger_id):
            wait_ms = min(request.wait_ms, self._settings.max_long_poll_ms)
            if wait_ms:
                await self._polls.wait(ledger_id, request.above, wait_ms / 1000)
            last_add_confirmed = await self._reader.read_last_add_confirmed(ledger_id)
        if self._rules.is_deleted(ledger_id):
            return LastAddConfirmedAnswer(status=Status.DELETED, last_add_confirmed=NO_ENTRY)
        return LastAddConfirmedAnswer(status=Status.OK, last_add_confirmed=last_add_confirmed)

    async def _read(self, request: ReadRequest) -> ReadAnswer | bytes:
        ledger_id, first, step = request.ledger_id, request.first_entry_id, request.step or 1
        ids = self._limit_range(first, request.last_entry_id, step)
        if request.fence:
            status = await self._fence_ledger(ledger_id, request.master_key)
            if status != Status.OK:
                return ReadAnswer(status=status, last_add_confirmed=NO_ENTRY)
        # Before the read: an entry that is repaired during the read may be missing in its result.
        in_limbo = self._rules.is_in_limbo(ledger_id)
        max_bytes = min(request.max_bytes or self._settings.max_read_bytes, MAX_ANSWER_BYTES)
        # Entries above the highest one are absent, and need not be looked up.
        existing = ids[: max(0, (self._rules.get_highest_entry_id(ledger_id) - first) // step + 1)]
        records = await self._reader.read(ledger_id, existing, max_bytes)
        valid = [record for record in records if isinstance(record, bytes)]
        self._counters.reads += 1
        self._counters.records_read += len(valid)
        self._counters.read_bytes += sum(map(len, valid))
        last_add_confirmed = await self._reader.read_last_add_confirmed(ledger_id)
        if self._rules.is_deleted(ledger_id):
            return ReadAnswer(status=Status.DELETED, last_add_confirmed=NO_ENTRY)
        end = existing[len(records)] if len(records) < len(existing) else ids.stop
        missing: list[int] = []
        damaged: list[int] = []
        if len(valid) < len(range(first, end, step)):
            missing = [entry_id for entry_id, record in zip(existing, records, strict=False) if record is None]
            missing += range(first + len(records) * step, end, step)
            damaged = [entry_id for entry_id, one in zip(existing, records, strict=False) if isinstance(one, Damaged)]
        response = ReadAnswer(
            status=Status.OK,
            absent=[] if in_limbo else missing,
            unknown=missing if in_limbo else [],
            damaged=damaged,
            next_entry_id=end,
            last_add_confirmed=last_add_confirmed,
        )
        return b"".join((response.SerializeToString(), *encode_bytes_fields(ReadAnswer.RECORDS_FIELD_NUMBER, valid)))

    async def _list_inventory(self, request: InventoryRequest) -> InventoryAnswer:
        ledger_id, first, last = request.ledger_id, request.first_entry_id, request.last_entry_id
        self._limit_range(first, last, 1)
        limit = self._settings.max_ids_per_answer
        stored = self._storage.list_entry_ids(ledger_id, first, last, limit)
        records = await self._reader.read(ledger_id, stored, self._settings.max_inventory_bytes)
        if self._rules.is_deleted(ledger_id):
            return InventoryAnswer(status=Status.DELETED)
        if len(records) < len(stored):
            end = stored[len(records)]
        else:
            end = stored[-1] + 1 if len(stored) == limit else last + 1
        # Pending records are left out: by the response, a replica may be removed from another bookie.
        valid = [
            entry_id
            for entry_id, record in zip(stored, records, strict=False)
            if isinstance(record, bytes) and self._rules.get_pending_record(ledger_id, entry_id) is None
        ]
        return InventoryAnswer(status=Status.OK, held=_encode_ranges(valid), next_entry_id=end)

    def _limit_range(self, first: int, last: int, step: int) -> range:
        """Return the requested entries that one response covers."""
        if not first <= last <= MAX_ENTRY_ID:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"{first} … {last} is not a range of entries: use at most {MAX_ENTRY_ID}, the lower one first",
            )
        count = min((last - first) // step + 1, self._settings.max_ids_per_answer)
        return range(first, first + count * step, step)

    async def _limit_reads(
        self, handler: Callable[[Any], Awaitable[Message | bytes]], request: Message
    ) -> Message | bytes:
        """Handle the request unless too many reads run already."""
        if self.concurrent_reads >= self._settings.max_concurrent_reads:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                f"the bookie executes {self.concurrent_reads} reads, its maximum (max_concurrent_reads): try again "
                "later",
            )
        self.concurrent_reads += 1
        try:
            return await handler(request)
        finally:
            self.concurrent_reads -= 1


def _encode_ranges(entry_ids: Sequence[int]) -> list[EntryRange]:
    ranges: list[EntryRange] = []
    for entry_id in entry_ids:
        if ranges and ranges[-1].last_entry_id + 1 == entry_id:
            ranges[-1].last_entry_id = entry_id
        else:
            ranges.append(EntryRange(first_entry_id=entry_id, last_entry_id=entry_id))
    return ranges
