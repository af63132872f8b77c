"""Shared: entries go in turn to the consumers that take some, those of the highest priority first.

Each entry is held by the consumer to which it was delivered until it is acknowledged, by whomsoever; or it goes to the
redelivery set: when its consumer asks for that, or leaves, or when it was read and nobody took it. The redelivery set
is read before anything new (SUB-14).

A consumer takes something while it has permits, its stream has room, and it holds fewer unacknowledged messages than it
may; nobody does while all of them together hold too many. Those who take something stand in line, one line for each
priority level. Whoever is met in line and takes nothing any more steps out of it, and is put in again when that may
have changed (`ready`), so a thousand consumers that wait cost nothing.

The chunks of a message go to one consumer (chunk_owners.py), in order: none is dealt while something in front of it is
to come again, since that may be an earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.chunk_owners import ChunkOwners
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.dispatch_rule import (
    Assignment,
    ConsumerUpdates,
    Deliverable,
    DispatchLimits,
    DispatchRule,
    ReadRequest,
)
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.position_set import PositionSet

__all__ = ["SharedRule"]

_MANY: Final = 2**31


class SharedRule(DispatchRule):
    def __init__(self, limits: DispatchLimits, mark_delete: Position) -> None:
        super().__init__(limits, mark_delete)
        # By priority level, the levels in order.
        self._lines: dict[int, deque[ConsumerState]] = {}
        self._redelivery = PositionSet()
        # How often entries were delivered that are not acknowledged; those that were more than once, or come again.
        self._counts = EntryCounts()
        self._chunks = ChunkOwners()
        # The sum of what the consumers hold.
        self._unacked = 0
        # The same, where nobody counts for more than he may hold: an entry may have any number of messages, and one
        # alone must not stop the others.
        self._bounded = 0

    # Who is in line.

    def _left(self, consumer: ConsumerState) -> None:
        level = consumer.priority_level
        if consumer.in_turn:
            self._lines[level].remove(consumer)
            consumer.in_turn = False
        if all(other.priority_level != level for other in self.consumers):
            self._lines.pop(level, None)
        self._give_up(consumer)
        for position in self._chunks.left(consumer):
            self._redelivery.add(position)

    def is_active(self, consumer: ConsumerState) -> bool:
        return True

    def ready(self, consumer: ConsumerState) -> None:
        if consumer.in_turn or consumer.permits <= 0 or not self._may_hold_more(consumer):
            return
        if consumer.priority_level not in self._lines:
            self._lines[consumer.priority_level] = deque()
            self._lines = dict(sorted(self._lines.items()))
        self._lines[consumer.priority_level].append(consumer)
        consumer.in_turn = True

    def _may_hold_more(self, consumer: ConsumerState) -> bool:
        most = self.limits.max_unacked_per_consumer
        return not most or consumer.held.total < most

    def _takes(self, consumer: ConsumerState) -> bool:
        return consumer.permits > 0 and self._may_hold_more(consumer) and consumer.outlet.capacity_bytes() > 0

    def _held_changed(self, consumer: ConsumerState, before: int) -> None:
        """It held so many messages."""
        now, most = consumer.held.total, self.limits.max_unacked_per_consumer or _MANY
        self._unacked += now - before
        self._bounded += min(now, most) - min(before, most)

    @property
    def _held_too_much(self) -> bool:
        return 0 < self.limits.max_unacked_per_subscription <= self._bounded

    def _next_line(self) -> deque[ConsumerState] | None:
        """The line whose first consumer is served next."""
        if self._held_too_much:
            return None
        for line in self._lines.values():
            while line:
                if self._takes(line[0]):
                    return line
                line.popleft().in_turn = False
        return None

    # What comes back.

    def redeliver(
        self, consumer: ConsumerState, epoch: int, ranges: Iterable[tuple[int, int, int]], mark_delete: Position
    ) -> ConsumerUpdates:
        if epoch != consumer.epoch:
            return ConsumerUpdates()  # a seek lies between: it does not hold that any more
        named = list(ranges)
        if named:
            for ledger_id, first, last in named:
                messages = consumer.held.total
                found = consumer.held.take_range(ledger_id, first, last)
                self._held_changed(consumer, messages)
                self._come_again(ledger_id, found)
        else:
            self._give_up(consumer)
        self.ready(consumer)
        return ConsumerUpdates()

    def _give_up(self, consumer: ConsumerState) -> None:
        messages = consumer.held.total
        for ledger_id, entry_ids in consumer.held.take_all():
            self._come_again(ledger_id, entry_ids)
        self._held_changed(consumer, messages)

    def _come_again(self, ledger_id: int, entry_ids: list[int]) -> None:
        self._redelivery.add_all(ledger_id, entry_ids)
        self._counts.increment(ledger_id, entry_ids)

    # What is done.

    def acknowledged(self, consumer: ConsumerState, ledger_id: int, first: int, last: int) -> None:
        missing = last - first + 1 - self._release(consumer, ledger_id, first, last)
        if missing:
            for other in self.consumers:
                if other is not consumer and missing:
                    missing -= self._release(other, ledger_id, first, last)
        if missing:
            self._redelivery.discard_range(ledger_id, first, last)
            self._chunks.discard_range(ledger_id, first, last)
        if self._counts:
            self._counts.take_range(ledger_id, first, last)

    def _release(self, consumer: ConsumerState, ledger_id: int, first: int, last: int) -> int:
        messages = consumer.held.total
        found = len(consumer.held.take_range(ledger_id, first, last))
        if found:
            self._held_changed(consumer, messages)
            self.ready(consumer)
        return found

    def acknowledged_messages(self, consumer: ConsumerState, position: Position, left: int) -> None:
        for holder in (consumer, *self.consumers):
            held = holder.held.get(position)
            if held:
                messages = holder.held.total
                holder.held.set(position, max(1, left))
                self._held_changed(holder, messages)
                self.ready(holder)
                return

    def acknowledged_up_to(self, mark_delete: Position) -> None:
        for consumer in self.consumers:
            messages = consumer.held.total
            if messages:
                consumer.held.drop_up_to(mark_delete)
                self._held_changed(consumer, messages)
                self.ready(consumer)
        self._redelivery.discard_up_to(mark_delete)
        self._chunks.discard_up_to(mark_delete)
        self._counts.drop_up_to(mark_delete)
        self.read_position = max(self.read_position, mark_delete.next)

    def _forget(self) -> None:
        for consumer in self.consumers:
            consumer.held.clear()
        self._unacked = self._bounded = 0
        self._redelivery.clear()
        self._chunks.clear()
        self._counts.clear()

    # What goes out.

    def next_read(self) -> ReadRequest | None:
        line = self._next_line()
        if line is None:
            return None
        for position in self._chunks.take_for(self._takes):
            self._redelivery.add(position)
        permits = sum(consumer.permits for consumer in line)
        limits, entries = self.limits, self._entries_for(permits)
        return ReadRequest(self._redelivery.take(entries), self.read_position, entries, limits.max_read_bytes)

    def not_read(self, reading: ReadRequest) -> None:
        for position in reading.positions:
            self._redelivery.add(position)

    def assign(
        self, entries: Sequence[Deliverable], reading: ReadRequest, behind: Position | None
    ) -> Iterator[Assignment]:
        self._learn_size(entries)
        if behind is not None:
            self.read_position = max(self.read_position, behind)
        at = share = 0
        while at < len(entries) and (line := self._next_line()) is not None:
            entry = entries[at].entry
            consumer, turn = line[0], True
            if entry.chunk is not None:
                owner = self._chunks.owner(entry.chunk)
                if self._must_wait(entry, entry.chunk, owner):
                    at += 1
                    continue
                if owner is not None:
                    consumer, turn = owner, False
            # Few entries are dealt evenly, many by as much as one may have in a row.
            share = share or min(-(-len(entries) // len(line)), self.limits.max_round_robin_messages)
            dealt = self._serve(consumer, entries[at : at + share])
            at += len(dealt)
            if turn:
                line.rotate(-1)
            yield consumer, dealt
        for one in entries[at:]:
            self._redelivery.add(one.entry.position)

    def _must_wait(self, entry: LogEntry, chunk: Chunk, owner: ConsumerState | None) -> bool:
        """It is kept for later: something before it, or its consumer, comes first."""
        first = self._redelivery.first if chunk.number else None
        if first is not None and first < entry.position:
            self._redelivery.add(entry.position)
            return True
        if owner is not None and (self._chunks.is_behind(owner) or not self._takes(owner)):
            self._chunks.put_off(owner, entry.position)
            return True
        return False

    def _serve(self, consumer: ConsumerState, entries: Sequence[Deliverable]) -> list[Deliverable]:
        """What it takes of these: the first one at least. A chunk is served by itself."""
        dealt: list[Deliverable] = []
        capacity_bytes = consumer.outlet.capacity_bytes()
        messages = 0
        for one in entries:
            entry = one.entry
            if entry.chunk is not None:
                if dealt:
                    break
                self._chunks.dealt(entry.chunk, consumer)
            one.redelivery_count = self._counts.get(entry.position)
            unacked = consumer.held.total
            consumer.permits -= entry.messages
            consumer.held.set(entry.position, max(1, entry.messages - one.acknowledged.bit_count()))
            self._held_changed(consumer, unacked)
            dealt.append(one)
            capacity_bytes -= len(entry.stored)
            messages += entry.messages
            if (
                entry.chunk is not None
                or messages >= self.limits.max_round_robin_messages
                or consumer.permits <= 0
                or capacity_bytes <= 0
                or not self._may_hold_more(consumer)
                or self._held_too_much
            ):
                break
        return dealt

    @property
    def redelivery_entries(self) -> int:
        return len(self._redelivery) + len(self._chunks)

    @property
    def unacked_messages(self) -> int:
        return self._unacked

    def blocked_by(self) -> str:
        if not self.consumers:
            return "no consumer is connected"
        limits = self.limits
        if self._held_too_much:
            return (
                f"{self._unacked} messages are delivered and not acknowledged, and "
                f"max_unacked_messages_per_subscription is {limits.max_unacked_per_subscription}"
            )
        if self._next_line() is not None:
            return ""
        granted = [consumer for consumer in self.consumers if consumer.permits > 0]
        if not granted:
            return "no consumer has granted permits: their receiver queues are full"
        holding = [consumer for consumer in granted if not self._may_hold_more(consumer)]
        if len(holding) == len(granted):
            return (
                f"each of {len(holding)} consumers with permits has not acknowledged "
                f"max_unacked_messages_per_consumer = {limits.max_unacked_per_consumer} messages or more"
            )
        return "the connections to the consumers with permits can't keep up"
