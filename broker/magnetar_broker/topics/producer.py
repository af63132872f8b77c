"""A producer of a topic: its entries are checked and appended, and their results reported to its client.

Entries are appended in the order received, and their results are reported in that order, with two exceptions:

- An entry that must not be stored, for example because it is too large, is refused alone, and at once: also before the
  results of earlier entries.
- If the log can't accept an entry, the producer ends, because later entries must not be stored without it. Its client
  reconnects, and resends all entries that were not persisted.

With deduplication, an entry that was stored before is not appended. Its result waits in the queue for its turn. If an
entry is refused that the client may resend, the producer ends, too (deduplication/rules.py).

A producer that has ended still counts its pending entries until the log has decided them. The next producer of the same
name waits for that (`settled`), so the last sequence id that its client gets is right.

An entry that is passed to the log is within the limits and undamaged, and its memory is counted in the budgets.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_broker.counters import BrokerCounters, ProducerTraffic, TopicCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.position import Position
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.deduplication.partial_batch import BatchSplitter, Inseparable
from magnetar_broker.topics.deduplication.rules import Decision, EntryIds, Progress, decide, record
from magnetar_broker.topics.entry_check import accept_entry, may_be_resent
from magnetar_broker.topics.producer_sink import ProducerIdentity, ProducerSink
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.token_bucket import UNLIMITED, Allowance
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory

__all__ = ["Producer", "TopicPublishing"]

_log = logging.getLogger(__name__)

# An entry that is not decided: its number, bytes as received, messages, last sequence id, time of `publish` on the
# monotonic clock, and ids for deduplication. A plain tuple, as there is one for each entry.
_Pending = tuple[int, int, int, int, float, EntryIds]
_SIZE: Final = 1
_MESSAGES: Final = 2
_SEQUENCE_ID: Final = 3
_PUBLISHED_AT: Final = 4
_IDS: Final = 5
# Stands for the number of messages of an entry that is a duplicate, and is not in the log.
_DUPLICATE: Final = -1
# The position of a duplicate.
_NO_POSITION: Final = Position(-1, -1)
_NO_IDS: Final = EntryIds(-1, -1)


@dataclass(frozen=True, slots=True)
class TopicPublishing:
    """What the producers of a topic share."""

    log: Log
    throttle: PublishThrottle
    # By the policies that apply now.
    settings: TopicSettings
    clock: Clock
    counters: TopicCounters
    broker_counters: BrokerCounters
    # Records the last sequence id that was stored for a producer's name, and with deduplication the entries' ids and
    # their size in bytes.
    record_stored: Callable[[str, int, Sequence[EntryIds], int], object]


class Producer:
    """A producer that `Producers.open` opened."""

    __slots__ = (
        "_counted_entries",
        "_counted_messages",
        "_counted_since",
        "_counted_size",
        "_duplicates",
        "_ends_with",
        "_logged_errors",
        "_name",
        "_partly_stored",
        "_pending",
        "_publishing",
        "_settled_waiters",
        "_sink",
        "_splitter",
        "connected_since_ms",
        "counters",
        "error",
        "identity",
        "is_opened",
        "is_stopped",
        "on_settled",
        "received",
    )

    def __init__(self, identity: ProducerIdentity, publishing: TopicPublishing, sink: ProducerSink) -> None:
        self.identity = identity
        self._name = identity.name
        self._publishing = publishing
        self._sink = sink
        self.connected_since_ms = publishing.clock.time_ms()
        self.counters = ProducerTraffic()
        # The client was sent that it may publish.
        self.is_opened = False
        # Entries that are published are dropped. Results of earlier ones are still reported.
        self.is_stopped = False
        # Why it has ended: nothing is reported any more.
        self.error: BrokerError | None = None
        # The error that ends it when no entry is pending any more.
        self._ends_with: BrokerError | None = None
        # Called when no entry is pending any more.
        self.on_settled: Callable[[], object] = _ignore
        # What it has sent, by the rules of deduplication. None: nothing is deduplicated.
        self.received: Progress | None = None
        # Entries that the log has accepted and not decided, and duplicates behind such entries, oldest first.
        self._pending: deque[_Pending] = deque()
        self._splitter = BatchSplitter()
        # The number of duplicates among them; and of batches that are partly duplicates, by number, that of messages.
        self._duplicates = 0
        self._partly_stored: dict[int, int] = {}
        # Stored entries that were published at `_counted_since`, and are not in the counters yet.
        self._counted_since = 0.0
        self._counted_entries = self._counted_messages = self._counted_size = 0
        self._settled_waiters: list[asyncio.Future[None]] = []
        # Codes of the errors by which entries were refused: each is logged once.
        self._logged_errors: set[int] = set()

    @property
    def producer_name(self) -> str:
        return self._name

    @property
    def pending(self) -> int:
        return len(self._pending)

    def pending_sizes(self) -> list[int]:
        """Return the bytes of each entry that the log has not decided, oldest first.

        The simulation compares them with the bounds, which go by counters.
        """
        return [size for _, size, *_ in self._pending]

    # Publishing.

    def publish(self, first: int, entries: Sequence[bytes]) -> int:
        """Append entries numbered `first`, `first + 1` …; drop them if the producer has stopped.

        Return how many: the others have to wait for the rates of publishing (publish_throttle.py).
        """
        throttle = self._publishing.throttle
        throttle.budget.add(count_entry_memory(entries))
        now, allowance = self._publishing.clock.monotonic(), throttle.get_allowance()
        left = allowance
        at = 0
        while at < len(entries) and not self.is_stopped:  # once, unless an entry is refused, or is a duplicate
            new, rows, left, obstacle = self._accept(first, entries, at, left, now)
            at += len(new)
            if allowance is not UNLIMITED:
                throttle.record_published(sum([row[_MESSAGES] for row in rows]), sum([row[_SIZE] for row in rows]))
            self._append(new, rows)
            if obstacle is None:
                break
            if isinstance(obstacle, BrokerError):
                self._refuse(first + at, entries[at], obstacle)
            else:
                self._add_duplicate(first + at, len(entries[at]), now)
            at += 1
        if at == len(entries):
            return at
        if self.is_stopped:
            self._release(len(entries) - at, sum(map(len, entries[at:])))
            return len(entries)
        throttle.budget.release(count_entry_memory(entries[at:]))
        return at

    def _accept(
        self, first: int, entries: Sequence[bytes], at: int, left: Allowance, now: float
    ) -> tuple[list[NewEntry], list[_Pending], Allowance, BrokerError | Decision | None]:
        """Check entries from index `at` on, as many as can be appended together. `left`: what the rates still allow.

        Return them, their rows, what is left, and the obstacle behind them: the error with which the next entry is
        refused, or that it is a duplicate. None: there is no further entry, or the rates allow no more.
        """
        publishing, received = self._publishing, self.received
        max_bytes, max_topic_bytes = publishing.settings.max_message_size, publishing.settings.max_topic_message_size
        takes_chunks = publishing.log.name.is_persistent
        messages_left, bytes_left = left
        new: list[NewEntry] = []
        rows: list[_Pending] = []
        obstacle: BrokerError | Decision | None = None
        for index in range(at, len(entries)):
            entry = entries[index]
            try:
                messages, batch_size, sequence_id, chunk, ids = accept_entry(
                    entry, self._name, max_bytes, max_topic_bytes, takes_chunks=takes_chunks
                )
                if received is not None:
                    if chunk is None and ids.lowest > received.sequence_id:
                        received.sequence_id = ids.highest
                    elif (decision := decide(received, ids)) is Decision.DUPLICATE:
                        obstacle = decision
                        break
                    else:
                        if decision is Decision.PARTIAL:
                            new_messages = self._splitter.take_new_messages(entry, received.sequence_id)
                            entry, messages, duplicates = new_messages
                            batch_size = messages
                            self._partly_stored[first + index] = duplicates
                        record(received, ids)
            except BrokerError as error:
                obstacle = error
                break
            if chunk is not None:
                self.counters.chunks += 1
                publishing.counters.chunks += 1
            new.append(NewEntry(entry, messages, batch_size, chunk))
            rows.append((first + index, len(entries[index]), messages, sequence_id, now, ids))
            messages_left -= messages
            bytes_left -= len(entry)
            if messages_left <= 0 or bytes_left <= 0:
                break
        return new, rows, Allowance(messages_left, bytes_left), obstacle

    def _append(self, new: list[NewEntry], rows: list[_Pending]) -> None:
        """Append entries to the log. If it can't accept one, stop and drop those behind it."""
        if new and (appended := self._publishing.log.append(new, self._on_decided)) < len(new):
            # The log reports the reason to `_on_decided`, after the entries before it. By then it may have capacity
            # again, but later entries must not be stored without this one.
            self.is_stopped = True
            self._release(len(rows) - appended - 1, sum(row[_SIZE] for row in rows[appended + 1 :]))
            rows = rows[: appended + 1]
        self._pending.extend(rows)

    def _add_duplicate(self, number: int, size: int, now: float) -> None:
        """Report a duplicate after the entries before it."""
        if self.is_stopped:
            self._release(1, size)
            return
        self._publishing.counters.duplicate_entries += 1
        if self._pending:
            self._duplicates += 1
            self._pending.append((number, size, _DUPLICATE, -1, now, _NO_IDS))
        else:
            self._report_duplicate(number, size)

    def _report_duplicate(self, number: int, size: int) -> None:
        if self.error is None:
            self._sink.stored(number, _NO_POSITION)
        self._release(1, size)

    def _refuse(self, number: int, entry: bytes, error: BrokerError) -> None:
        if self.is_stopped:
            self._release(1, len(entry))
            return
        self._publishing.counters.refused_entries += 1
        self._publishing.broker_counters.refused_entries += 1
        self._log_refusal(error)
        if not isinstance(error, Inseparable):
            self._sink.refused(number, error)
        self._release(1, len(entry))
        if self.received is not None:
            self._end_before_resend(entry, error)

    def _end_before_resend(self, entry: bytes, error: BrokerError) -> None:
        """End the producer if its client may send the refused entry again: entries behind it are resent with it."""
        if isinstance(error, Inseparable):
            self.end_when_settled(error)
        elif may_be_resent(entry, error.code):
            text = f"an entry was refused, and with deduplication none is stored behind it before it is resent: {error}"
            self.end_when_settled(BrokerError(ErrorCode.SERVICE_NOT_READY, text))

    def _log_refusal(self, error: BrokerError) -> None:
        """Log the first refusal for each error: several client libraries report less to their application."""
        if error.code not in self._logged_errors:
            self._logged_errors.add(error.code)
            _log.warning(
                "An entry of producer %r on %s, of the client at %s, is refused: %s",
                self._name,
                self._publishing.log.name,
                self.identity.address,
                error,
            )

    # Results.

    def _on_decided(self, result: Sequence[Position] | BrokerError) -> None:
        """The log has stored the oldest pending entries, or has not stored the oldest one."""
        pending = self._pending
        if isinstance(result, BrokerError):
            _, size, _, _, published_at, _ = pending.popleft()
            self._publishing.counters.failed_entries += 1
            self._release(1, size)
            self.end(result)
            self._report_duplicates()
            if not pending or pending[0][_PUBLISHED_AT] != published_at:
                self._count()
        else:
            rows = [pending.popleft() for _ in result] if not self._duplicates else self._pop_stored(len(result))
            self._publishing.record_stored(
                self._name,
                max([row[_SEQUENCE_ID] for row in rows]),
                [row[_IDS] for row in rows],
                sum([row[_SIZE] for row in rows]),
            )
            positions = iter(result)
            for number, size, messages, _, published_at, _ in rows:
                if messages == _DUPLICATE:
                    self._report_duplicate(number, size)
                    continue
                position = next(positions)
                if published_at != self._counted_since:
                    self._count()
                    self._counted_since = published_at
                self._counted_entries += 1
                self._counted_messages += messages
                self._counted_size += size
                if self.error is not None:
                    continue
                if self._partly_stored and (duplicates := self._partly_stored.pop(number, 0)):
                    self._sink.partly_stored(number, position, duplicates)
                else:
                    self._sink.stored(number, position)
            self._report_duplicates()
            if not pending or pending[0][_PUBLISHED_AT] != self._counted_since:
                self._count()
        if not pending:
            self._report_settled()

    def _pop_stored(self, count: int) -> list[_Pending]:
        """Remove and return the oldest rows, of which `count` are entries of the log and the others duplicates."""
        rows: list[_Pending] = []
        while count:
            row = self._pending.popleft()
            rows.append(row)
            if row[_MESSAGES] == _DUPLICATE:
                self._duplicates -= 1
            else:
                count -= 1
        return rows

    def _report_duplicates(self) -> None:
        """Report the duplicates whose turn it is."""
        pending = self._pending
        while self._duplicates and pending[0][_MESSAGES] == _DUPLICATE:
            number, size, *_ = pending.popleft()
            self._duplicates -= 1
            self._report_duplicate(number, size)

    def _count(self) -> None:
        """Count the entries that were published at `_counted_since`: all are decided."""
        entries, messages, size = self._counted_entries, self._counted_messages, self._counted_size
        if not entries:
            return
        self._counted_entries = self._counted_messages = self._counted_size = 0
        publishing = self._publishing
        all_counters = publishing.broker_counters
        for traffic in (self.counters, publishing.counters.received, all_counters.received):
            traffic.count(messages, entries, size)
        all_counters.publish_seconds.observe(publishing.clock.monotonic() - self._counted_since, entries)
        all_counters.entry_bytes.observe(size / entries, entries)
        self._release(entries, size)

    def _release(self, entries: int, size_bytes: int) -> None:
        """Return the memory of entries that are decided, or dropped, to the budgets."""
        memory_bytes = size_bytes + entries * ENTRY_OVERHEAD_BYTES
        self._publishing.throttle.budget.release(memory_bytes)
        self._sink.decided(memory_bytes)

    def report_waiting(self, waiting_for: str) -> None:
        if self.error is None:
            self._sink.report_waiting(waiting_for)

    def report_growth(self, partitions: int) -> None:
        if self.error is None:
            self._sink.topic_grew(partitions)

    def report_queued(self) -> None:
        self._sink.queued(self._name)

    # Deduplication.

    def begin_deduplication(self, stored: Progress) -> None:
        """Find duplicates from now on. `stored`: what is stored of its name."""
        self.received, self._splitter = stored.copy(), BatchSplitter()
        for row in self._pending:
            record(self.received, row[_IDS])

    def end_deduplication(self) -> None:
        self.received = None

    # Its end.

    def stop(self) -> None:
        """Drop entries that are published from now on. Results of earlier ones are still reported."""
        self.is_stopped = True

    def end(self, error: BrokerError, *, report: bool = True) -> None:
        """Stop, and report nothing more. The first error counts."""
        self.is_stopped = True
        if self.error is None:
            self.error = error
            if report and self.is_opened:
                self._sink.ended(error)

    def end_when_settled(self, error: BrokerError) -> None:
        """Stop, and end when all earlier entries are decided and their results reported: then its client knows that
        everything else is not stored."""
        self.is_stopped = True
        self._ends_with = error
        if not self._pending:
            self.end(error)

    async def settled(self) -> None:
        """Return when no entry is pending."""
        while self._pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settled_waiters.append(waiter)
            await waiter

    def _report_settled(self) -> None:
        waiting, self._settled_waiters = self._settled_waiters, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.on_settled()
        if self._ends_with is not None:
            self.end(self._ends_with)

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, the producer has left."""
        return await self._sink.check_alive()


def _ignore() -> None:
    pass
