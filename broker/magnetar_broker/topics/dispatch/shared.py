"""Shared: entries go in turn to the consumers with capacity, first to those of the highest priority.

An entry belongs to the consumer that it was delivered to until any consumer acknowledges it. If its consumer requests
its redelivery or leaves, or nobody had capacity for it when it was read, it goes to the redelivery set, which is read
before new entries (SUB-14).

**Lines.** Consumers that may have capacity are in line, one line for each priority level. A consumer that has none when
it is its turn steps out of its line, and returns when that may have changed (`recheck`). So a thousand consumers that
wait cost nothing.

**Chunks** of a message go to one consumer (chunk_owners.py), in order: no chunk is delivered while an entry before it
waits for redelivery, because that may be an earlier chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.chunk_owners import ChunkOwners
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import Assignment, DispatchContext, DispatchLimits, DispatchRead
from magnetar_broker.topics.dispatch.individual_delivery import IndividualDeliveryRule
from magnetar_broker.topics.dispatch.position_set import PositionSet
from magnetar_broker.topics.dispatch.shortages import add_priorities
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason, describe_consumers

__all__ = ["SharedRule"]


class SharedRule(IndividualDeliveryRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        super().__init__(limits, mark_delete, context)
        # By priority level, in the order of the levels.
        self._lines: dict[int, deque[BaseConsumer]] = {}
        # Entries that wait for redelivery, apart from those that `_chunks` has deferred.
        self._redelivery = PositionSet()
        self._chunks = ChunkOwners()

    # Consumers.

    def _remove(self, consumers: Collection[BaseConsumer]) -> None:
        levels = {other.priority_level for other in self.consumers}
        self._lines = {
            level: deque(one for one in line if one not in consumers)
            for level, line in self._lines.items()
            if level in levels
        }
        for consumer in consumers:
            consumer.is_in_line = False
        self._redeliver_after_leaving(consumers)
        for position in self._chunks.remove_consumers(consumers):
            self._redelivery.add(position)

    def recheck(self, consumer: BaseConsumer) -> None:
        if consumer.is_in_line or not consumer.capacity.may_get_more:
            return
        if consumer.priority_level not in self._lines:
            self._lines[consumer.priority_level] = deque()
            self._lines = dict(sorted(self._lines.items()))
        self._lines[consumer.priority_level].append(consumer)
        consumer.is_in_line = True

    def _next_line(self, measured: BaseConsumer | None = None) -> deque[BaseConsumer] | None:
        """Return the line whose first consumer is served next, and has capacity. `measured` has."""
        if self._unacked.free_messages <= 0:
            return None
        for line in self._lines.values():
            while line:
                if line[0] is measured or line[0].capacity.measure():
                    return line
                line.popleft().is_in_line = False
        return None

    # Redelivery and acknowledgement.

    def _add_redelivery(self, ledger_id: int, entry_ids: list[int]) -> None:
        self._redelivery.add_all(ledger_id, entry_ids)

    def record_acknowledged(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> None:
        for ledger_id, first, last in self._release_from_all(consumer, ranges):
            self._redelivery.discard_range(ledger_id, first, last)
            self._chunks.discard_range(ledger_id, first, last)
        if self._counts:
            self._counts.take_each(ranges)

    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        super().record_acknowledged_up_to(mark_delete)
        self._redelivery.discard_up_to(mark_delete)
        self._chunks.discard_up_to(mark_delete)

    def _clear_deliveries(self) -> None:
        super()._clear_deliveries()
        self._redelivery.clear()
        self._chunks.clear()

    # Dispatch.

    def next_read(self, log: Log) -> DispatchRead | None:
        is_at_end = self.read_position > log.last
        if is_at_end and not self.redelivery_entries:
            return None
        line = self._next_line()
        if line is None:
            return None
        for position in self._chunks.take_deferred():
            self._redelivery.add(position)
        entries = self._read_size.entries_for(sum(consumer.capacity.permits for consumer in line))
        positions = self._redelivery.take(entries)
        if is_at_end and not positions:
            return None  # only chunks whose owners have no capacity wait for redelivery
        return DispatchRead(positions, self.read_position, entries, self.limits.max_read_bytes, line[0])

    def put_back(self, positions: Sequence[Position], entries: Iterable[LogEntry] = ()) -> None:
        for position in positions:
            self._redelivery.add(position)

    def assign(self, entries: Sequence[Deliverable], read: DispatchRead, end: Position | None) -> Iterator[Assignment]:
        self._read_size.record(entries)
        if end is not None:
            self.read_position = max(self.read_position, end)
        measured = read.measured
        at = share = 0
        while at < len(entries) and (line := self._next_line(measured)) is not None:
            entry = entries[at].entry
            consumer, owner, measured = line[0], None, None
            if entry.chunk is not None:
                owner = self._chunks.find_owner(entry.chunk)
                if self._must_wait(entry, entry.chunk, owner):
                    at += 1
                    continue
                consumer = owner or consumer
                self._chunks.record_delivery(entry.chunk, consumer)
            # Few entries are divided evenly; of many each consumer gets as many as it may have in a row.
            share = share or min(-(-len(entries) // len(line)), self.limits.max_round_robin_messages)
            taken = self._take(consumer, entries[at : at + share])
            at += len(taken)
            if owner is None:
                line.rotate(-1)
            yield consumer, taken
        for one in entries[at:]:
            self._redelivery.add(one.entry.position)

    def _must_wait(self, entry: LogEntry, chunk: Chunk, owner: BaseConsumer | None) -> bool:
        """Keep a chunk for later if an entry before it, or its consumer, comes first."""
        first = self._redelivery.first if chunk.number else None
        if first is not None and first < entry.position:
            self._redelivery.add(entry.position)
            return True
        if owner is not None and (self._chunks.has_deferred(owner) or not owner.capacity.measure()):
            self._chunks.defer(owner, entry.position)
            return True
        return False

    def _take(self, consumer: BaseConsumer, entries: Sequence[Deliverable]) -> Sequence[Deliverable]:
        """Return the first of these entries, as many as the consumer gets. A chunk is delivered by itself."""
        at = next((at for at, one in enumerate(entries) if one.entry.chunk is not None), None)
        if at is not None:
            entries = entries[: max(1, at)]
        taken = entries[: consumer.capacity.take(entries, self.limits.max_round_robin_messages)]
        self._set_redelivery_counts(taken)
        return taken

    # Statistics.

    @property
    def redelivery_entries(self) -> int:
        return len(self._redelivery) + len(self._chunks)

    def find_waiting(self) -> Sequence[DeliveryReason]:
        found = []
        if owners := self._chunks.deferred_owners:
            names = [one.name for one in owners]
            who = describe_consumers(names, len(self.consumers))
            found.append(delivery_reasons.CHUNKS_WAIT(chunks=len(self._chunks), who=who))
        if self._redelivery:
            found.append(delivery_reasons.REDELIVERY_WAITS(entries=len(self._redelivery)))
        return found

    def find_consumer_shortages(self) -> dict[BaseConsumer, DeliveryReason]:
        return add_priorities(self.consumers, super().find_consumer_shortages())
