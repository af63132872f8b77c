"""One bookie: its storage, rules and group commit, and the service that clients call.

`ledger_rules.py` decides, `group_commit.py` writes, `add_stream.py` and `request_handler.py` serve clients. This module
connects them, and has what the bookie's own process needs: limbo, deleted ledgers, the reasons to be read-only, and the
failure of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from magnetar_bookie.server.add_stream import AddStream
from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.ledger_rules import CommittedGroup, LedgerRules
from magnetar_bookie.server.long_polls import LongPolls
from magnetar_bookie.server.read_only_reasons import CONFIGURED, DISK_FULL, OPERATOR, ReadOnlyReasons
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.server.request_handler import RequestHandler
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import LedgerData, LedgerStorage, StorageFailed
from magnetar_protos.ledger_pb2 import BookieRecord
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.transport import Code, Disconnected, Peer, Refusal, ServiceFailed, Stream

__all__ = ["Bookie"]

# Maximum number of ledgers in one request to the storage.
_MAX_LEDGERS: Final = 1000
# Between two checks whether results have been sent.
_POLL_S: Final = 0.01
# Above all ledger ids.
_ALL_LEDGERS: Final = 2**64 - 1


class Bookie:
    """The service that a transport listens for: `call` and `stream`."""

    def __init__(
        self, bookie_id: str, storage: LedgerStorage, clock: Clock, settings: BookieServerSettings | None = None
    ) -> None:
        self.bookie_id = bookie_id
        self.storage = storage
        self._clock = clock
        self.settings = settings or BookieServerSettings()
        self.record = BookieRecord.FromString(storage.get_bookie_record() or b"")
        self._rules = LedgerRules(storage, self.settings.max_ledgers_in_memory)
        self._rules.limbo_below = self.record.limbo_below
        self._rules.limbo_generation = self.record.limbo_generation
        self.counters = BookieCounters()
        self._commit = GroupCommit(storage, self._rules, self._report_group, self._on_disk_full, clock, self.counters)
        self.reader = RecordReader(storage, self._rules, self._commit, self.counters)
        self._polls = LongPolls(clock, self.settings.max_long_polls)
        self.requests = RequestHandler(
            storage, self._rules, self._commit, self.reader, self._polls, self.settings, self.counters
        )
        # Open streams, the oldest first.
        self._streams: dict[AddStream, None] = {}
        self._read_only_reasons = ReadOnlyReasons(partial(setattr, self._rules, "read_only"))
        # Runs while the disk is full.
        self._free_space_timer: Timer | None = None
        storage.on_failure(self.fail)
        self.set_read_only(CONFIGURED, self.settings.read_only)
        self.read_only = self.record.read_only

    # The service.

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return await self.requests.handle(method, request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        if method != "add":
            raise Refusal(Code.UNIMPLEMENTED, f"a bookie has no stream {method!r:.80}")
        add_stream = AddStream(stream, self._rules, self._commit, self.reader, self.settings, self.counters)
        self._streams[add_stream] = None
        try:
            await add_stream.serve()
        except Disconnected:
            pass  # the client disconnected, so nobody can be answered
        except StorageFailed as error:
            self.fail(error)
            raise ServiceFailed(str(error)) from error
        finally:
            del self._streams[add_stream]

    async def drain(self) -> None:
        """Return when all entries received so far are durable, and their results sent. Raises `StorageFailed`.

        Entries that are received later are not waited for: there might be no end to them.
        """
        await self._commit.wait_durable(self._rules.group)
        unsent = [(stream, stream.result_count) for stream in self._streams]
        while not all(stream.has_sent(count) for stream, count in unsent):
            await self._clock.sleep(_POLL_S)

    async def close(self) -> None:
        """Write nothing more. The storage stays open: its owner closes it."""
        if self._free_space_timer is not None:
            self._free_space_timer.cancel()
        self._commit.close()

    # Numbers.

    @property
    def pending_bytes(self) -> int:
        """Memory of the entries that are not durable yet."""
        return self._rules.pending_bytes

    @property
    def pending_entries(self) -> int:
        return self._commit.pending_entries

    @property
    def ledger_count_change(self) -> int:
        """Ledgers that were created since the start, less those that were deleted."""
        return self._rules.ledger_count_change

    @property
    def add_streams(self) -> int:
        return len(self._streams)

    @property
    def long_polls(self) -> int:
        return len(self._polls)

    # Failure of the disk.

    @property
    def failure(self) -> BaseException | None:
        """The disk's error, or that the bookie was closed: nothing is answered any more."""
        return self._commit.failure

    def fail(self, error: BaseException) -> None:
        """Note that the disk failed: from now on nothing is answered, and the process ends."""
        self._commit.fail(error)

    async def wait_for_failure(self) -> BaseException:
        return await self._commit.wait_for_failure()

    # Read-only.

    @property
    def read_only(self) -> bool:
        return bool(self._read_only_reasons)

    @read_only.setter
    def read_only(self, requested: bool) -> None:
        """Set or remove the operator's reason, until a restart. The bookie stays read-only for any other reason."""
        self.set_read_only(OPERATOR, requested)

    async def store_read_only(self, requested: bool) -> None:
        """Set or remove the operator's reason, durably."""
        self.read_only = requested
        record = BookieRecord()
        record.CopyFrom(self.record)
        record.read_only = requested
        await self.store_record(record)

    @property
    def read_only_reasons(self) -> list[str]:
        return list(self._read_only_reasons)

    def set_read_only(self, reason: str, is_set: bool) -> None:
        self._read_only_reasons.set_reason(reason, is_set)

    def add_read_only_listener(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` at each change of `read_only`. Return a function that removes it."""
        return self._read_only_reasons.add_listener(listener)

    def _on_disk_full(self) -> None:
        self.set_read_only(DISK_FULL, True)
        self._check_free_space()

    def _check_free_space(self) -> None:
        """End the read-only state of a full disk if it has space again. Other programs may free it: check regularly."""
        if self._free_space_timer is not None:
            self._free_space_timer.cancel()
            self._free_space_timer = None
        if self.storage.has_free_space():
            self.set_read_only(DISK_FULL, False)
        elif self.failure is None:
            self._free_space_timer = self._clock.call_later(
                self.settings.disk_check_interval_seconds, self._check_free_space
            )

    # Limbo: ledgers that may have lost entries on this bookie.

    def is_in_limbo(self, ledger_id: int) -> bool:
        return self._rules.is_in_limbo(ledger_id)

    async def enter_limbo_after_loss(self) -> None:
        """Put all ledgers into limbo, durably, if the storage may have lost data.

        Call it before any other change: the storage reports a loss only until the bookie's own record is stored.
        """
        if not self.storage.is_intact:
            await self.enter_limbo(_ALL_LEDGERS)

    async def enter_limbo(self, below: int) -> None:
        """Put all ledgers with lower ids into limbo, durably."""
        # The record of an earlier limbo may be lost, too. A ledger that was cleared in that one isn't cleared in this:
        # the generation must be higher.
        cleared = max((ledger.limbo_cleared for ledger in self._stored_ledgers()), default=0)
        await self._store_limbo(max(below, self.record.limbo_below), max(cleared, self.record.limbo_generation) + 1)

    @property
    def are_all_in_limbo(self) -> bool:
        """All ledgers are, also those that are created from now on: call `narrow_limbo`."""
        return self.record.limbo_below == _ALL_LEDGERS

    async def narrow_limbo(self, below: int) -> None:
        """Limit the present limbo to ledgers with lower ids, durably: the others were created after the loss."""
        await self._store_limbo(below, self.record.limbo_generation)

    async def clear_limbo(self, ledger_id: int, *, closed: bool = False) -> None:
        """Take the ledger out of limbo, durably: the bookie stores all entries of it that it should."""
        await self._commit.wait_durable(self._rules.clear_limbo(ledger_id, closed=closed))

    async def _store_limbo(self, below: int, generation: int) -> None:
        self._rules.limbo_below, self._rules.limbo_generation = below, generation
        record = BookieRecord()
        record.CopyFrom(self.record)
        record.limbo_below, record.limbo_generation = below, generation
        await self.store_record(record)

    # Deleted ledgers, and the bookie's own record.

    async def delete_ledger(self, ledger_id: int) -> None:
        """Drop the ledger's entries and refuse all later adds, durably."""
        await self._commit.wait_durable(self._rules.delete_ledger(ledger_id))

    def is_deleted(self, ledger_id: int) -> bool:
        return self._rules.is_deleted(ledger_id)

    def has_tombstone(self, ledger_id: int) -> bool:
        """Return whether the storage has a tombstone of the ledger, without loading the ledger into memory."""
        ledger = self.storage.get_ledger(ledger_id)
        return ledger is not None and ledger.deleted

    def settle_tombstone(self, ledger_id: int) -> None:
        """Note that no node in the metadata store waits for this bookie to drop the ledger. It is durable later."""
        self._rules.settle_tombstone(ledger_id)
        self._commit.start_if_idle()

    async def store_record(self, record: BookieRecord) -> None:
        """Store the bookie's own record durably."""
        self.record = record
        group = self._rules.group
        group.changes.bookie = record.SerializeToString(deterministic=True)
        await self._commit.wait_durable(group)

    def _stored_ledgers(self) -> Iterator[LedgerData]:
        first = 0
        while ledger_ids := self.storage.list_ledger_ids(first, _MAX_LEDGERS):
            for ledger_id in ledger_ids:
                ledger = self.storage.get_ledger(ledger_id)
                if ledger is not None:
                    yield ledger
            first = ledger_ids[-1] + 1

    def _report_group(self, committed: CommittedGroup) -> None:
        """Send the results of a durable group, and wake the readers that wait for its LACs."""
        for result in committed.results:
            result.source.queue_result(result)
        for ledger_id, last_add_confirmed in committed.raised_lacs.items():
            self._polls.wake(ledger_id, last_add_confirmed)
        for ledger_id in committed.deleted_ledgers:
            self._polls.wake_all(ledger_id)
        if committed.deleted_ledgers and DISK_FULL in self._read_only_reasons:
            self._check_free_space()
