"""The bookie's service: requests in, answers out, around the rules of server/ledger_rules.py.

What a request can make the bookie do is bounded: ids and bytes per answer, reads at a time, polls that wait, answers
that nobody takes, and what is in line for the disk. What can't be read, or asks for something that there is not, is
refused with INVALID_ARGUMENT; nothing of it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.server.add_stream import AddStream
from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.entry_ranges import ranges_of
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.ledger_rules import MAX_ENTRY_ID, MAX_LEDGER_ID, CommittedGroup, LedgerRules
from magnetar_bookie.server.long_polls import LongPolls
from magnetar_bookie.server.read_only_reasons import CONFIGURED, FULL, OPERATOR, ReadOnlyReasons
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.settings.server import MAX_ANSWER_BYTES, BookieServerSettings
from magnetar_bookie.storage.interface import Damaged, LedgerRecord, LedgerStorage, StorageFailed
from magnetar_protos.ledger_pb2 import (
    BookieRecord,
    ConfirmAnswer,
    ConfirmRequest,
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
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.protobuf_fields import encode_bytes_fields
from magnetar_wire.transport import Code, Disconnected, Peer, Refusal, ServiceFailed, Stream

__all__ = ["Bookie"]

# So many ledgers are listed at a time.
_PORTION: Final = 1000
# Between two looks whether answers have left.
_LOOK_S: Final = 0.01


class Bookie:
    def __init__(
        self, bookie_id: str, storage: LedgerStorage, clock: Clock, settings: BookieServerSettings | None = None
    ) -> None:
        self.bookie_id = bookie_id
        self.storage = storage
        self._clock = clock
        self.settings = settings or BookieServerSettings()
        self.record = BookieRecord.FromString(storage.bookie() or b"")
        self._replicas = LedgerRules(storage, self.settings.max_ledgers_in_memory)
        self._replicas.limbo_below = self.record.limbo_below
        self._replicas.limbo_generation = self.record.limbo_generation
        self.counters = BookieCounters()
        self._commit = GroupCommit(storage, self._replicas, self._durable, self._disk_is_full, clock, self.counters)
        self.reader = RecordReader(storage, self._replicas, self._commit, self.counters)
        self._polls = LongPolls(clock, self.settings.max_long_polls)
        self._reads = 0
        # Streams that are served, oldest first.
        self._streams: dict[AddStream, None] = {}
        self._read_only = ReadOnlyReasons(partial(setattr, self._replicas, "read_only"))
        # Looks for room on a full disk.
        self._room_timer: Timer | None = None
        self._methods: dict[str, tuple[type[Message], Callable[[Any], Awaitable[Message | bytes]]]] = {
            "read": (ReadRequest, partial(self._bounded, self._read)),
            "fence": (FenceRequest, self._fence),
            "last_add_confirmed": (LastAddConfirmedRequest, self._last_add_confirmed),
            "confirm": (ConfirmRequest, self._confirm),
            "inventory": (InventoryRequest, partial(self._bounded, self._inventory)),
        }
        storage.when_failed(self.fail)
        self.set_read_only(CONFIGURED, self.settings.read_only)
        self.read_only = self.record.read_only

    # The service.

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method not in self._methods:
            raise Refusal(Code.UNIMPLEMENTED, f"a bookie has no method {method!r:.80}")
        kind, answer = self._methods[method]
        try:
            message: Any = kind.FromString(request)
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the {method} request can't be decoded: {error}") from None
        if not 0 < message.ledger_id <= MAX_LEDGER_ID:
            raise Refusal(Code.INVALID_ARGUMENT, f"{message.ledger_id} is not a ledger id: use 1 … {MAX_LEDGER_ID}")
        try:
            self._commit.check()
            answered = await answer(message)
            self._commit.check()
        except StorageFailed as error:
            self.fail(error)
            raise ServiceFailed(str(error)) from error  # what was asked may have been done
        if isinstance(answered, bytes):
            return answered
        return answered.SerializeToString()

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        if method != "add":
            raise Refusal(Code.UNIMPLEMENTED, f"a bookie has no stream {method!r:.80}")
        serving = AddStream(stream, self._replicas, self._commit, self.reader, self.settings, self.counters)
        self._streams[serving] = None
        try:
            await serving.serve()
        except Disconnected:
            pass  # the client has gone, as clients do: nobody is left to be told
        except StorageFailed as error:
            self.fail(error)
            raise ServiceFailed(str(error)) from error
        finally:
            del self._streams[serving]

    async def close(self) -> None:
        """Takes nothing more to the disk. The storage is its owner's to close."""
        if self._room_timer is not None:
            self._room_timer.cancel()
        self._commit.close()

    # What the process around it asks.

    @property
    def pending_bytes(self) -> int:
        """Of what is in line for the disk, with what it takes in memory."""
        return self._replicas.pending_bytes

    @property
    def pending_entries(self) -> int:
        return self._commit.entries_in_line

    @property
    def ledgers_gained(self) -> int:
        """Since the start: made, less deleted."""
        return self._replicas.ledgers_gained

    @property
    def add_streams(self) -> int:
        return len(self._streams)

    @property
    def long_polls(self) -> int:
        return len(self._polls)

    async def settled(self) -> None:
        """Returns when all that was taken before is on the disk, and its answers have left. Raises `StorageFailed`.

        What comes meanwhile is not waited for: there may be no end to it.
        """
        await self._commit.durable(self._replicas.group)
        owed = [(stream, stream.all_answers) for stream in self._streams]
        while not all(stream.has_sent(answers) for stream, answers in owed):
            await self._clock.sleep(_LOOK_S)

    @property
    def failed(self) -> BaseException | None:
        """What went wrong with the disk, or that the bookie was closed: nothing is answered any more."""
        return self._commit.failed

    def fail(self, error: BaseException) -> None:
        """The disk has failed: nothing is answered any more, and the process ends."""
        self._commit.fail(error)

    async def wait_failed(self) -> BaseException:
        return await self._commit.wait_failed()

    @property
    def read_only(self) -> bool:
        return bool(self._read_only)

    @read_only.setter
    def read_only(self, wanted: bool) -> None:
        """As the operator wants it. To be writable also takes that there is no other reason left."""
        self.set_read_only(OPERATOR, wanted)

    async def keep_read_only(self, wanted: bool) -> None:
        """As the operator wants it, durably: it holds after a restart too."""
        self.read_only = wanted
        record = BookieRecord()
        record.CopyFrom(self.record)
        record.read_only = wanted
        await self.write_record(record)

    @property
    def read_only_because(self) -> list[str]:
        return list(self._read_only)

    def set_read_only(self, reason: str, holds: bool) -> None:
        self._read_only.set(reason, holds)

    def listen_read_only(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Calls it at each change of `read_only`; returns what ends that."""
        return self._read_only.listen(listener)

    def in_limbo(self, ledger_id: int) -> bool:
        return self._replicas.in_limbo(ledger_id)

    async def enter_limbo(self, below: int) -> None:
        """Durably: every ledger below this id may have lost entries here."""
        # What was lost may be the record of an earlier limbo. What was cleared in that must not count in this one.
        cleared = max((ledger.limbo_cleared for ledger in self._all_ledgers()), default=0)
        await self._keep_limbo(max(below, self.record.limbo_below), max(cleared, self.record.limbo_generation) + 1)

    async def narrow_limbo(self, below: int) -> None:
        """Durably: the limbo that was entered last goes up to here only."""
        await self._keep_limbo(below, self.record.limbo_generation)

    async def _keep_limbo(self, below: int, generation: int) -> None:
        self._replicas.limbo_below, self._replicas.limbo_generation = below, generation
        record = BookieRecord()
        record.CopyFrom(self.record)
        record.limbo_below, record.limbo_generation = below, generation
        await self.write_record(record)

    async def clear_limbo(self, ledger_id: int, *, closed: bool = False) -> None:
        """Durably: all that this bookie should hold of the ledger is here."""
        await self._commit.durable(self._replicas.clear_limbo(ledger_id, closed=closed))

    async def write_record(self, record: BookieRecord) -> None:
        """Keeps it durably as what the bookie knows of itself."""
        self.record = record
        group = self._replicas.group
        group.changes.bookie = record.SerializeToString(deterministic=True)
        await self._commit.durable(group)

    async def tombstone(self, ledger_id: int) -> None:
        """Durably: the ledger is deleted, its entries go, and none is taken any more."""
        await self._commit.durable(self._replicas.tombstone(ledger_id))

    def is_deleted(self, ledger_id: int) -> bool:
        return self._replicas.is_deleted(ledger_id)

    def is_tombstone(self, ledger_id: int) -> bool:
        """Whether the storage says so. Asked of many ledgers, none of which is to come to mind for it."""
        record = self.storage.ledger(ledger_id)
        return record is not None and record.deleted

    def settle(self, ledger_id: int) -> None:
        """The ledger is deleted, and the metadata store waits for this bookie no more. Durable at some time."""
        self._replicas.settle(ledger_id)
        self._commit.kick()

    def _all_ledgers(self) -> Iterator[LedgerRecord]:
        first = 0
        while portion := self.storage.ledger_ids(first, _PORTION):
            for ledger_id in portion:
                ledger = self.storage.ledger(ledger_id)
                if ledger is not None:
                    yield ledger
            first = portion[-1] + 1

    # The calls.

    async def _fence(self, request: FenceRequest) -> FenceAnswer:
        status = await self._fenced(request.ledger_id, request.master_key)
        if status != Status.OK:
            return FenceAnswer(status=status, last_add_confirmed=NO_ENTRY)
        last_add_confirmed = await self.reader.last_add_confirmed(request.ledger_id)
        answer = FenceAnswer(status=status, last_add_confirmed=last_add_confirmed)
        if request.read_entries:
            first = last_add_confirmed + 1
            asked = ReadRequest(
                ledger_id=request.ledger_id,
                first_entry_id=first,
                last_entry_id=min(first + request.read_entries - 1, MAX_ENTRY_ID),
                step=1,
                max_bytes=request.max_bytes,
            )
            with suppress(Refusal):  # with too many reads it comes without one
                read = await self._bounded(self._read, asked)
                answer.read.MergeFromString(read if isinstance(read, bytes) else read.SerializeToString())
        return answer

    async def _fenced(self, ledger_id: int, master_key: bytes) -> Status:
        self.counters.fences += 1
        status, group = self._replicas.fence(ledger_id, master_key)
        await self._commit.durable(group)
        return status

    async def _confirm(self, request: ConfirmRequest) -> ConfirmAnswer:
        if not NO_ENTRY <= request.last_add_confirmed <= MAX_ENTRY_ID:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"the LAC {request.last_add_confirmed} is out of range: use {NO_ENTRY} … {MAX_ENTRY_ID}",
            )
        status, group = self._replicas.confirm(request.ledger_id, request.master_key, request.last_add_confirmed)
        await self._commit.durable(group)
        return ConfirmAnswer(status=status)

    async def _last_add_confirmed(self, request: LastAddConfirmedRequest) -> LastAddConfirmedAnswer:
        ledger_id = request.ledger_id
        known = await self.reader.last_add_confirmed(ledger_id)
        if known <= request.above and not self._replicas.is_deleted(ledger_id):
            wait_ms = min(request.wait_ms, self.settings.max_long_poll_ms)
            if wait_ms:
                await self._polls.wait(ledger_id, request.above, wait_ms / 1000)
            known = await self.reader.last_add_confirmed(ledger_id)
        if self._replicas.is_deleted(ledger_id):
            return LastAddConfirmedAnswer(status=Status.DELETED, last_add_confirmed=NO_ENTRY)
        return LastAddConfirmedAnswer(status=Status.OK, last_add_confirmed=known)

    async def _read(self, request: ReadRequest) -> ReadAnswer | bytes:
        ledger_id, first, step = request.ledger_id, request.first_entry_id, request.step or 1
        ids = self._ids(first, request.last_entry_id, step)
        if request.fence:
            status = await self._fenced(ledger_id, request.master_key)
            if status != Status.OK:
                return ReadAnswer(status=status, last_add_confirmed=NO_ENTRY)
        # Asked before anything is read: what is repaired meanwhile may be missing in what was read.
        in_limbo = self._replicas.in_limbo(ledger_id)
        max_bytes = min(request.max_bytes or self.settings.max_read_bytes, MAX_ANSWER_BYTES)
        # What is above is absent, and need not be looked for.
        there = ids[: max(0, (self._replicas.highest_entry(ledger_id) - first) // step + 1)]
        records = await self.reader.read(ledger_id, there, max_bytes)
        whole = [record for record in records if isinstance(record, bytes)]
        self.counters.reads += 1
        self.counters.records_read += len(whole)
        self.counters.read_bytes += sum(map(len, whole))
        last_add_confirmed = await self.reader.last_add_confirmed(ledger_id)
        if self._replicas.is_deleted(ledger_id):
            return ReadAnswer(status=Status.DELETED, last_add_confirmed=NO_ENTRY)
        end = there[len(records)] if len(records) < len(there) else ids.stop
        missing: list[int] = []
        damaged: list[int] = []
        if len(whole) < len(range(first, end, step)):
            missing = [entry_id for entry_id, record in zip(there, records, strict=False) if record is None]
            missing += range(first + len(records) * step, end, step)
            damaged = [entry_id for entry_id, one in zip(there, records, strict=False) if isinstance(one, Damaged)]
        answer = ReadAnswer(
            status=Status.OK,
            absent=[] if in_limbo else missing,
            unknown=missing if in_limbo else [],
            damaged=damaged,
            next_entry_id=end,
            last_add_confirmed=last_add_confirmed,
        )
        return b"".join((answer.SerializeToString(), *encode_bytes_fields(ReadAnswer.RECORDS_FIELD_NUMBER, whole)))

    async def _inventory(self, request: InventoryRequest) -> InventoryAnswer:
        ledger_id, first, last = request.ledger_id, request.first_entry_id, request.last_entry_id
        self._ids(first, last, 1)
        limit = self.settings.max_ids_per_answer
        held = self.storage.entry_ids(ledger_id, first, last, limit)
        records = await self.reader.read(ledger_id, held, self.settings.max_inventory_bytes)
        if self._replicas.is_deleted(ledger_id):
            return InventoryAnswer(status=Status.DELETED)
        if len(records) < len(held):
            end = held[len(records)]
        else:
            end = held[-1] + 1 if len(held) == limit else last + 1
        # What is still in line for the disk is not held yet: somebody may rely on it and take a replica away elsewhere.
        whole = [
            entry_id
            for entry_id, record in zip(held, records, strict=False)
            if isinstance(record, bytes) and self._replicas.in_line(ledger_id, entry_id) is None
        ]
        return InventoryAnswer(status=Status.OK, held=ranges_of(whole), next_entry_id=end)

    def _ids(self, first: int, last: int, step: int) -> range:
        """The entries that one answer speaks of, of those asked for."""
        if not first <= last <= MAX_ENTRY_ID:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"{first} … {last} is not a range of entries: use at most {MAX_ENTRY_ID}, the lower one first",
            )
        count = min((last - first) // step + 1, self.settings.max_ids_per_answer)
        return range(first, first + count * step, step)

    async def _bounded(self, reading: Callable[[Any], Awaitable[Message | bytes]], request: Message) -> Message | bytes:
        """Reads, unless too many do already."""
        if self._reads >= self.settings.max_concurrent_reads:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                f"the bookie executes {self._reads} reads, its maximum (max_concurrent_reads): try again later",
            )
        self._reads += 1
        try:
            return await reading(request)
        finally:
            self._reads -= 1

    def _durable(self, durable: CommittedGroup) -> None:
        for answer in durable.answers:
            answer.asker.answered(answer)
        for ledger_id, last_add_confirmed in durable.risen.items():
            self._polls.risen(ledger_id, last_add_confirmed)
        for ledger_id in durable.deleted:
            self._polls.gone(ledger_id)
        if durable.deleted and FULL in self._read_only:
            self._look_for_room()

    def _disk_is_full(self) -> None:
        self.set_read_only(FULL, True)
        self._look_for_room()

    def _look_for_room(self) -> None:
        """Room comes when garbage is dropped, and when somebody else on the machine makes some."""
        if self._room_timer is not None:
            self._room_timer.cancel()
            self._room_timer = None
        if self.storage.has_room():
            self.set_read_only(FULL, False)
        elif self.failed is None:
            self._room_timer = self._clock.call_later(self.settings.disk_check_interval_seconds, self._look_for_room)
