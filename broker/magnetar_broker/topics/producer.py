"""A producer on a topic, from its opening to its end, whatever stream it comes by.

Entries are taken in the order in which they come, and their fates are told in that order. One that may not be stored is
refused by itself. Where the log can't take one, the producer ends: what comes behind must not be stored without it, and
its client connects again and sends what has no receipt. A producer that has ended still counts what is pending until it
is decided: whoever opens the same name next waits for that, so that what it is told of the name is true.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from magnetar_broker.counters import BrokerCounters, TopicCounters, Traffic
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.entry_check import accept_entry
from magnetar_broker.topics.producer_sink import ProducerSink
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_wire.clock import Clock
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory

__all__ = ["Producer"]

_log = logging.getLogger(__name__)

# Number, bytes, messages, sequence id, and when it was taken.
_Pending = tuple[int, int, int, int, float]


class Producer:
    """`Topic.open_producer` makes it."""

    __slots__ = (
        "_all_counters",
        "_budget",
        "_bytes",
        "_clock",
        "_counts_of",
        "_entries",
        "_log",
        "_logged_errors",
        "_max_message_bytes",
        "_messages",
        "_on_stored",
        "_pending",
        "_settled",
        "_sink",
        "_stopped",
        "_topic_counters",
        "address",
        "connected_since_ms",
        "counters",
        "epoch",
        "error",
        "instance",
        "on_settled",
        "opened",
        "producer_id",
        "producer_name",
        "properties",
    )

    def __init__(
        self,
        producer_id: int,
        producer_name: str,
        instance: bytes,
        epoch: int,
        properties: Mapping[str, str],
        address: str,
        sink: ProducerSink,
        log: Log,
        budget: PublishBudget,
        max_message_bytes: int,
        clock: Clock,
        topic_counters: TopicCounters,
        all_counters: BrokerCounters,
        on_stored: Callable[[str, int], object],
    ) -> None:
        # As its stream knows it.
        self.producer_id = producer_id
        self.producer_name = producer_name
        self.instance = instance
        self.epoch = epoch
        self.properties = properties
        # Of its client.
        self.address = address
        self.connected_since_ms = clock.time_ms()
        self.counters = Traffic()
        # Its client was told that it may send.
        self.opened = False
        # Why it takes nothing any more.
        self.error: BrokerError | None = None
        # Passes over what comes; what it has taken is still told.
        self._stopped = False
        # Called when nothing is pending any more.
        self.on_settled: Callable[[], object] = _nothing
        self._sink = sink
        self._log = log
        # The topic's.
        self._budget = budget
        self._max_message_bytes = max_message_bytes
        self._clock = clock
        self._topic_counters = topic_counters
        self._all_counters = all_counters
        self._on_stored = on_stored
        # What the log has and has not decided.
        self._pending: deque[_Pending] = deque()
        # Stored of the entries that were taken at one time, and not counted yet.
        self._counts_of = 0.0
        self._entries = self._messages = self._bytes = 0
        self._settled: list[asyncio.Future[None]] = []
        # Codes of the errors by which entries were refused: each is logged once.
        self._logged_errors: set[int] = set()

    @property
    def pending(self) -> int:
        return len(self._pending)

    def pending_sizes(self) -> list[int]:
        """Return the bytes of each entry that the log has not decided, oldest first.

        The simulation compares them with the bounds, which go by counters.
        """
        return [size for _, size, *_ in self._pending]

    @property
    def stopped(self) -> bool:
        """It takes nothing more."""
        return self._stopped

    def publish(self, first: int, entries: Sequence[bytes]) -> None:
        """Takes entries numbered `first`, `first + 1` …; passes them over once it has ended."""
        now = self._clock.monotonic()
        name, limit = self.producer_name, self._max_message_bytes
        self._budget.take(count_entry_memory(entries))
        # What is to be appended together, and what will be pending of it.
        new: list[NewEntry] = []
        rows: list[_Pending] = []
        for number, entry in enumerate(entries, first):
            if self._stopped:
                self._release(1, len(entry))
                continue
            try:
                messages, batch_size, sequence_id, chunk = accept_entry(entry, name, limit)
            except BrokerError as error:
                self._append(new, rows)
                new, rows = [], []
                self._refuse(number, entry, error)
                continue
            new.append(NewEntry(entry, messages, batch_size, chunk))
            rows.append((number, len(entry), messages, sequence_id, now))
        self._append(new, rows)

    def _append(self, new: Sequence[NewEntry], rows: Sequence[_Pending]) -> None:
        if not new:
            return
        taken = self._log.append(new, self._decided)
        if taken == len(new):
            self._pending.extend(rows)
            return
        # Why, `_decided` is told when all before it is. By then there may be room again, and what comes behind it must
        # not be stored.
        self.stop()
        self._pending.extend(rows[: taken + 1])
        dropped = rows[taken + 1 :]
        self._release(len(dropped), sum(row[1] for row in dropped))

    def _refuse(self, number: int, entry: bytes, error: BrokerError) -> None:
        if not self._stopped:
            self._topic_counters.refused_entries += 1
            self._all_counters.refused_entries += 1
            self._log_refusal(error)
            self._sink.refused(number, error)
        self._release(1, len(entry))

    def _log_refusal(self, error: BrokerError) -> None:
        """Log the first refusal for each error: several client libraries report less to their application."""
        if error.code not in self._logged_errors:
            self._logged_errors.add(error.code)
            _log.warning(
                "An entry of producer %r on %s, of the client at %s, is refused: %s",
                self.producer_name,
                self._log.name,
                self.address,
                error,
            )

    def _decided(self, result: Sequence[Position] | BrokerError) -> None:
        pending = self._pending
        if isinstance(result, BrokerError):
            _, size, _, _, taken_at = pending.popleft()
            self._topic_counters.failed_entries += 1
            self._release(1, size)
            self.end(result)
            if not pending or pending[0][4] != taken_at:
                self._count()
        else:
            rows = [pending.popleft() for _ in result]
            self._on_stored(self.producer_name, max([row[3] for row in rows]))
            for (number, size, messages, _, taken_at), position in zip(rows, result, strict=True):
                if taken_at != self._counts_of:
                    self._count()
                    self._counts_of = taken_at
                self._entries += 1
                self._messages += messages
                self._bytes += size
                if self.error is None:
                    self._sink.stored(number, position)
            if not pending or pending[0][4] != self._counts_of:
                self._count()
        if not pending:
            self._wake()

    def report_waiting(self, waiting_for: str) -> None:
        if self.error is None:
            self._sink.report_waiting(waiting_for)

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, the producer has left."""
        return await self._sink.check_alive()

    def stop(self) -> None:
        """Nothing more is taken; what was is still told."""
        self._stopped = True

    def end(self, error: BrokerError, *, tell: bool = True) -> None:
        """Nothing more is taken or told. The first reason counts."""
        self._stopped = True
        if self.error is None:
            self.error = error
            if tell and self.opened:
                self._sink.ended(error)

    async def settled(self) -> None:
        """Returns when nothing is pending."""
        while self._pending:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settled.append(waiter)
            await waiter

    def _count(self) -> None:
        """All that was taken at `_counts_of` is decided."""
        entries, messages, size = self._entries, self._messages, self._bytes
        if not entries:
            return
        self._entries = self._messages = self._bytes = 0
        for traffic in (self.counters, self._topic_counters.received, self._all_counters.received):
            traffic.count(messages, entries, size)
        self._all_counters.publish_seconds.observe(self._clock.monotonic() - self._counts_of, entries)
        self._all_counters.entry_bytes.observe(size / entries, entries)
        self._release(entries, size)

    def _release(self, entries: int, size_bytes: int) -> None:
        """Return to the budgets what these entries have taken from them: they are decided."""
        memory_bytes = size_bytes + entries * ENTRY_OVERHEAD_BYTES
        self._budget.give_back(memory_bytes)
        self._sink.decided(memory_bytes)

    def _wake(self) -> None:
        waiting, self._settled = self._settled, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.on_settled()


def _nothing() -> None:
    pass
