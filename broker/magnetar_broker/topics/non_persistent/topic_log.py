"""The log of a non-persistent topic: it has the entries of one turn of the event loop.

    append ─► pending ─(next turn)─► readable while `on_appended` runs ─► dropped; the producers get their results

So a published entry is in memory once, until its subscriptions were offered it: those that have consumers with capacity
put it into these consumers' outboxes, which are bounded. Nothing waits for a slow consumer. Until its result, an entry
counts in the budgets of its producer, as one that is being stored.

**Positions** ascend while the topic is loaded. The ledger id is the time at which it was loaded, in ms since 1970, so
that ids of an earlier time are probably lower; it is the id of no ledger. Pulsar gives 0:0 to all messages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import Append, AppendDone, AppendQueue
from magnetar_broker.managed_ledger.chunk_search import MessageEnds
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.interface import TopicLeases
from magnetar_broker.managed_ledger.lease_rules import Lease
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedgerStats
from magnetar_broker.position import Position
from magnetar_protos.managed_ledger_pb2 import TopicEpoch
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["NonPersistentLog"]

_log = logging.getLogger(__name__)


class _NoLeases:
    any_active = has_lapsed = False
    lapsed = 0

    def list_active(self) -> Sequence[tuple[Lease, float]]:
        return ()

    async def remove_lapsed(self) -> None:
        return


_NO_LEASES: Final = _NoLeases()


class NonPersistentLog:
    """A `TopicLog`."""

    __slots__ = (
        "_clock",
        "_entries",
        "_error",
        "_is_scheduled",
        "_ledger_id",
        "_next_entry_id",
        "_queue",
        "_topic_epoch",
        "cache",
        "ledger_list",
        "lost_entries",
        "name",
        "on_appended",
        "on_lost",
        "owner_epoch",
    )
    # Clients must not compare it: a topic that is loaded again is the same one for them.
    incarnation = ""
    floor = -1
    is_terminated = False
    waiting_for = ""
    closed_ledgers = 0
    has_ledgers_to_delete = False

    def __init__(self, name: TopicName, owner_epoch: bytes, max_pending_bytes: int, clock: Clock) -> None:
        self.name = name
        self.owner_epoch = owner_epoch
        self.on_appended: Callable[[], object] | None = None
        # Never called: another broker that loads the topic takes nothing away.
        self.on_lost: Callable[[TopicUnloaded], object] | None = None
        # Both are empty.
        self.ledger_list = LedgerList("")
        self.lost_entries = LostEntries(name)
        # No entry is read again.
        self.cache = EntryCache(0)
        self._clock = clock
        self._queue = AppendQueue(0, 0, max_pending_bytes)
        self._ledger_id = clock.time_ms()
        # The readable entries, of which the last one has the id before `_next_entry_id`.
        self._entries: Sequence[LogEntry] = ()
        self._next_entry_id = 0
        # `_offer_pending` will be called.
        self._is_scheduled = False
        # Of exclusive producers: as in Pulsar, only while the topic is loaded.
        self._topic_epoch: TopicEpoch | None = None
        # Why nothing is appended any more.
        self._error: TopicUnloaded | None = None

    @property
    def leases(self) -> TopicLeases:
        return _NO_LEASES

    # Positions.

    @property
    def before_first(self) -> Position:
        return Position(self._ledger_id, self._next_entry_id - len(self._entries) - 1)

    @property
    def last(self) -> Position:
        return Position(self._ledger_id, self._next_entry_id - 1)

    def first_after(self, position: Position) -> Position:
        return max(position, self.before_first).next

    def ledger_end(self, ledger_id: int) -> int | None:
        return None

    def next_ledger(self, ledger_id: int) -> int | None:
        return None

    def entries_between(self, after: Position, up_to: Position) -> int:
        return max(0, min(up_to, self.last).entry_id - max(after, self.before_first).entry_id)

    # Appending.

    @property
    def next_index(self) -> int:
        return self._queue.next_index

    @property
    def last_time_ms(self) -> int:
        return self._queue.last_time_ms

    @property
    def pending_bytes(self) -> int:
        return self._queue.pending_bytes

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        if self._error is not None:
            self._queue.refuse(self._error, done)
            accepted = 0
        else:
            accepted = self._queue.append(entries, done, self._clock.time_ms())
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._offer_pending)
        return accepted

    def _offer_pending(self) -> None:
        """Offer the pending entries to the subscriptions, and report the results of all appends."""
        self._is_scheduled = False
        appends = self._queue.take_all()
        offered = [append.entry for append in appends if append.error is None]
        for entry in offered:
            entry.position = Position(self._ledger_id, self._next_entry_id)
            self._next_entry_id += 1
        self._entries = offered
        try:
            if offered and self.on_appended is not None:
                self.on_appended()
        finally:
            self._entries = ()
            _report(appends)

    @property
    def offered_messages(self) -> int:
        """The number of messages in the readable entries."""
        return sum(entry.messages for entry in self._entries)

    @property
    def topic_epoch(self) -> TopicEpoch | None:
        return self._topic_epoch

    async def change_topic_epoch(self, choose: Callable[[], TopicEpoch | None]) -> None:
        self._topic_epoch = choose() or self._topic_epoch

    async def read_first_partition_epoch(self) -> int | None:
        """Return None: only the broker of that partition knows."""
        return None

    async def check_current(self) -> None:
        """Check nothing: what another broker does with the topic's name takes nothing away from this one."""

    def check_not_terminated(self) -> None:
        return

    # Reading.

    def read_nowait(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        begin = max(0, start.entry_id - self.before_first.entry_id - 1)
        found: list[LogEntry] = []
        for entry in self._entries[begin : begin + max_entries]:
            max_bytes -= len(entry.stored)
            if found and max_bytes < 0:
                break
            found.append(entry)
        return found

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        return self.read_nowait(start, max_entries, max_bytes)

    async def read_at(self, positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        return [None] * len(positions)

    async def read_last_readable(self) -> LogEntry | None:
        return None

    async def find_ends(self, chunk: LogEntry) -> MessageEnds | None:
        return None

    async def find_first_at_time(self, time_ms: int) -> Position:
        return self.last.next

    # Statistics and maintenance.

    def stats(self) -> ManagedLedgerStats:
        return ManagedLedgerStats(
            state="ended" if self._error is not None else "non-persistent",
            waiting_for="",
            ledgers=(),
            stored_entries=0,
            stored_bytes=0,
            ledgers_to_delete=0,
            pending_appends=len(self._queue),
            pending_bytes=self._queue.pending_bytes,
            next_index=self._queue.next_index,
        )

    def tick(self) -> None:
        return

    def may_trim(self, up_to: Position | None) -> bool:
        return False

    async def trim(self, up_to: Callable[[], Position | None]) -> bool:
        return False

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Offer what is pending, and accept nothing more."""
        if self._error is None:
            self._error = TopicUnloaded(f"topic {self.name} was closed by this broker")


def _report(appends: Sequence[Append]) -> None:
    """Report the results to the producers: of consecutive entries with an equal callback, in one call."""
    positions: list[Position] = []
    for number, append in enumerate(appends):
        if append.error is not None:
            _call(append.done, append.error)
            continue
        positions.append(append.entry.position)
        following = appends[number + 1] if number + 1 < len(appends) else None
        if following is None or following.error is not None or following.done != append.done:
            _call(append.done, positions)
            positions = []


def _call(done: AppendDone, result: Sequence[Position] | BrokerError) -> None:
    try:
        done(result)
    except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
        _log.exception("The callback of an append failed")
