"""What producers sent, the receipts that they got, and the checks of what readers find.

- A message with a receipt is found at that position, it is stored again only without a receipt, and nothing is found
  that was not sent (2, 33).
- A producer's messages are in the order of sending, judged by the first copy of each (5, 33).
- **One writer** (OWN-2): a message that is sent after anybody got a receipt is stored behind the receipt's position. If
  two owners both stored, the positions would show the one that is behind, also those of another incarnation.
- An exclusive producer's messages are not behind those of the next producer of its topic, or partition (39, PRD-2).
- With deduplication no message is stored twice, with a receipt or without (32, DUP-1). A receipt for a duplicate has no
  position.
- Indexes have no gaps (MSG-5), and a message for one incarnation is never stored in a later one (57).

Sends and receipts are ordered by ticks, one for each report. Each partition of a partitioned topic is a log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import (
    IncarnationChanged,
    InvalidArgument,
    InvalidMessage,
    MessageTooBig,
    ProducerQueueIsFull,
    TopicNotFound,
)
from magnetar_wire.message_id import MessageId
from tests.sim.invariants.history import Violation
from tests.sim.service.topic_incarnations import Incarnation, TopicIncarnations, of_application, short

if TYPE_CHECKING:
    from tests.sim.service.history import Found, ProducerSeen

__all__ = ["Position", "Published", "Sent", "position_of"]

# Ledger, entry, index in its batch.
Position = tuple[int, int, int]
_NEVER_STORED: Final = (InvalidArgument, InvalidMessage, MessageTooBig, ProducerQueueIsFull)


def position_of(message_id: MessageId) -> Position:
    return message_id.ledger_id(), message_id.entry_id(), max(message_id.batch_index(), 0)


@dataclass(slots=True, eq=False)
class Sent:
    producer: ProducerSeen
    payload: bytes
    # The producer's, from 0.
    number: int
    at: int
    # The incarnations that this producer was opened on, unless it got an error that they were deleted: no later one may
    # get it. By the topic's or partition's name.
    meant: dict[str, Incarnation]
    # Empty: it has none.
    key: str = ""
    receipt: Position | None = None
    never: Exception | None = None
    # Its producer got an error, and does not resend it.
    failed: bool = False

    def __str__(self) -> str:
        return f"message {self.number} of {self.producer.name}"


@dataclass(slots=True)
class _Log:
    """The messages of one topic or partition, in all its incarnations."""

    # The tick, and the highest position in any receipt until then.
    highest: list[tuple[int, Position]] = field(default_factory=list)
    at: dict[Position, Sent] = field(default_factory=dict)
    # Of each producer: numbers and positions of its receipts, by number.
    receipts: dict[str, list[tuple[int, Position]]] = field(default_factory=dict)

    def highest_before(self, tick: int) -> Position:
        known = bisect_right(self.highest, tick, key=lambda one: one[0])
        return self.highest[known - 1][1] if known else (-1, -1, -1)


class Published:
    def __init__(self, incarnations: TopicIncarnations, tick: Callable[[], int], look: Callable[[str], None]) -> None:
        self._incarnations = incarnations
        self._tick = tick
        self._look = look
        self._sent: dict[bytes, Sent] = {}
        self._numbers: dict[str, int] = {}
        self._logs: dict[str, _Log] = {}
        # By producer, and topic or partition: the incarnation that it is known to have been opened on.
        self._opened_on: dict[str, dict[str, Incarnation]] = {}
        # When a producer got the last error that its topic is another one.
        self._change_reported_at: dict[str, int] = {}
        # Brokers deduplicate.
        self.deduplicates = False
        # By topic, as producers name it: what has a receipt as a duplicate.
        self._reported: dict[str, list[Sent]] = {}

    def sent(self, payload: bytes) -> Sent | None:
        return self._sent.get(payload)

    def at(self, position: Position) -> Sent | None:
        """The message with a receipt for this position."""
        incarnation = self._incarnations.of_ledger(position[0])
        return None if incarnation is None else self._log(incarnation.topic).at.get(position)

    def all_stored(self, topic: str) -> list[tuple[Position, Sent]]:
        """Return positions and messages of a topic or partition, in order."""
        return sorted(self._log(short(topic)).at.items(), key=lambda one: one[0])

    def _log(self, topic: str) -> _Log:
        return self._logs.setdefault(topic, _Log())

    def opened(self, producer: ProducerSeen) -> None:
        incarnation = None if producer.partitioned else self._incarnations.now(producer.topic)
        if incarnation is not None and not incarnation.dying:
            self._opened_on.setdefault(producer.name, {})[incarnation.topic] = incarnation

    def sending(self, producer: ProducerSeen, payload: bytes, key: str = "") -> None:
        if payload in self._sent:
            raise ValueError(f"{payload!r} is sent twice: payloads are to be unique")
        number = self._numbers[producer.name] = self._numbers.get(producer.name, -1) + 1
        # A producer that was opened on a topic that is being deleted may know that, and mean the next one.
        opened = self._opened_on.get(producer.name, {})
        meant = {
            topic: incarnation for topic, incarnation in opened.items() if not (incarnation.dying or incarnation.doomed)
        }
        self._sent[payload] = Sent(producer, payload, number, self._tick(), meant, key)

    def stored(self, producer: ProducerSeen, payload: bytes, message_id: MessageId) -> None:
        sent, position = self._sent[payload], position_of(message_id)
        if self.deduplicates and position[0] < 0:
            self._look("32")
            self._reported.setdefault(producer.topic, []).append(sent)
            return
        if sent.receipt is not None:
            raise Violation("33", f"{sent} has a receipt for {position}, and before that had one for {sent.receipt}")
        incarnation = self._incarnation_of(sent, position)
        log = self._log(incarnation.topic)
        self._look("2")
        other = log.at.get(position)
        if other is not None:
            raise Violation("2", f"{sent} has a receipt for {position}, and so has {other}")
        self._behind(sent, position, log)
        receipts = log.receipts.setdefault(producer.name, [])
        at = bisect_left(receipts, (sent.number, position))
        for before, after in zip(receipts[max(at - 1, 0) : at], [(sent.number, position)], strict=False):
            self._in_order(sent, before, after)
        for after in receipts[at : at + 1]:
            self._in_order(sent, (sent.number, position), after)
        insort(receipts, (sent.number, position))
        sent.receipt = position
        log.at[position] = sent
        if not log.highest or position > log.highest[-1][1]:
            log.highest.append((self._tick(), position))
        self._opened_on.setdefault(producer.name, {})[incarnation.topic] = incarnation

    def failed(self, payload: bytes, error: Exception) -> None:
        self._sent[payload].failed = True
        if isinstance(error, (IncarnationChanged, TopicNotFound)):
            # A send that waits for capacity at this moment is not lost with the rest.
            self._change_reported_at[self._sent[payload].producer.name] = self._tick()
        if isinstance(error, _NEVER_STORED):
            self._sent[payload].never = error

    def _in_order(self, sent: Sent, before: tuple[int, Position], after: tuple[int, Position]) -> None:
        self._look("5, 33")
        if before[1] >= after[1]:
            raise Violation(
                "5, 33",
                f"{sent.producer.name} has a receipt for message {before[0]} at {before[1]}, and for {after[0]}, which "
                f"it sent later, at {after[1]}",
            )

    def _incarnation_of(self, sent: Sent, position: Position) -> Incarnation:
        """Return the incarnation of the topic in which the message is stored."""
        incarnation = self._incarnations.of_ledger(position[0])
        if incarnation is None or of_application(incarnation.topic) != of_application(sent.producer.topic):
            where = "no topic's" if incarnation is None else f"of {incarnation.topic}"
            raise Violation("2", f"{sent} was sent to {sent.producer.topic}, and is in ledger {position[0]}, {where}")
        self._look("57")
        meant = sent.meant.get(incarnation.topic)
        changed_at = self._change_reported_at.get(sent.producer.name, 0)
        if (
            meant is not None
            and incarnation is not meant
            and incarnation.made > sent.at > changed_at
            and not sent.producer.may_wait
        ):
            raise Violation(
                "57", f"{sent} was sent to {meant}, which was deleted, and is in {incarnation} at {position}"
            )
        return incarnation

    def _behind(self, sent: Sent, position: Position, log: _Log) -> None:
        self._look("OWN-2")
        before = log.highest_before(sent.at)
        if position <= before:
            raise Violation(
                "OWN-2", f"{sent} is at {position}, and before it was sent {log.at[before]} had a receipt for {before}"
            )

    # ── the end ──

    def found(
        self,
        topic: str,
        messages: Sequence[Found],
        may_be_trimmed: Callable[[Sent, Position], bool],
        destroyed: Collection[tuple[int, int]] = (),
    ) -> None:
        """Check a topic or partition, read from its beginning to its end. `may_be_trimmed`: every subscription is done
        with the message. `destroyed`: the ledger and entry of each entry of which all replicas were damaged.
        """
        topic = short(topic)
        log = self._log(topic)
        positions: dict[Position, None] = {}
        last_index: int | None = None
        last_position: Position = (-1, -1, -1)
        first: dict[bytes, Position] = {}
        last: dict[bytes, Position] = {}
        for one in messages:
            position = position_of(one.message_id)
            sent = self._sent.get(one.payload)
            if sent is None:
                raise Violation("2", f"{one.payload!r} is in {topic} at {position}, and was never sent")
            if sent.never is not None:
                raise Violation("2", f"{sent} is in {topic} at {position}, and its producer got {sent.never!r}")
            if position <= last_position:
                raise Violation("5", f"{topic}: {position} was read after {last_position}")
            if last_index is not None and one.index is not None:
                self._look("MSG-5")
                lost = any(last_position[:2] < entry < position[:2] for entry in destroyed)
                if one.index <= last_index or (one.index != last_index + 1 and not lost):
                    raise Violation("MSG-5", f"{topic}: the index goes from {last_index} to {one.index} at {position}")
            last_index, last_position = one.index, position
            self._incarnation_of(sent, position)
            self._behind(sent, position, log)
            self._copy(sent, position, log)
            positions[position] = None
            if self.deduplicates:
                self._look("32, DUP-1")
                if one.payload in first:
                    raise Violation("32, DUP-1", f"{sent} is in {topic} at {first[one.payload]} and at {position}")
            first.setdefault(one.payload, position)
            last[one.payload] = position
        incomplete = bool(destroyed) or (bool(messages) and messages[0].index != 0)
        self._producers_order(topic, first, last, incomplete=incomplete)
        self._one_at_a_time(topic, messages)
        self._all_there(topic, positions, may_be_trimmed, destroyed)
        if messages and not incomplete:
            self._reported_there(topic, first)

    def _producers_order(
        self, topic: str, first: dict[bytes, Position], last: dict[bytes, Position], *, incomplete: bool
    ) -> None:
        """Judge by the first copy of each message. Trimmed and destroyed entries may have been the first ones: then the
        last copies are checked, too. They prove nothing for a failed message: it is not resent with those before it.
        """
        before: dict[str, Sent] = {}
        for payload in first:
            sent = self._sent[payload]
            other = before.get(sent.producer.name)
            self._look("5, 33")
            if other is None or other.number < sent.number:
                before[sent.producer.name] = sent
            elif not incomplete or (not other.failed and last[other.payload] < last[payload]):
                raise Violation("5, 33", f"{topic}: {sent} is at {first[payload]}, and only behind {other}")

    def _one_at_a_time(self, topic: str, messages: Sequence[Found]) -> None:
        """No message, and no copy of one, of an exclusive producer is behind one of its successor's."""
        successors: dict[str, ProducerSeen] = {}
        before: ProducerSeen | None = None
        for one in messages:
            producer = self._sent[one.payload].producer
            if before is not None and producer is not before and before.is_exclusive:
                successors[before.name] = producer
                self._look("39")
            if (successor := successors.get(producer.name)) is not None:
                raise Violation(
                    "39, PRD-2",
                    f"{topic}: {self._sent[one.payload]} is at {position_of(one.message_id)}, behind messages of "
                    f"{successor.name}, which has opened the topic exclusively since",
                )
            before = producer

    def _copy(self, sent: Sent, position: Position, log: _Log) -> None:
        """One that has a receipt was not stored again after it; and no other message is at its position."""
        known = log.at.get(position)
        if known is not None and known is not sent:
            raise Violation("2", f"{known} has a receipt for {position}, where {sent} is")
        if sent.receipt is not None and position > sent.receipt:
            raise Violation(
                "33", f"{sent} has a receipt for {sent.receipt}, and is stored again behind it, at {position}"
            )

    def _reported_there(self, topic: str, found: Collection[bytes]) -> None:
        """What has a receipt as a duplicate is in the topic, of which nothing was trimmed or destroyed. A partitioned
        one is not checked: such a receipt names no position."""
        incarnation = self._incarnations.now(topic)
        for sent in self._reported.get(topic, ()):
            is_of_it = incarnation is not None and incarnation.made < sent.at
            if is_of_it and not sent.producer.partitioned and sent.payload not in found:
                raise Violation("32, DUP-1", f"{sent} has a receipt as a duplicate, and is not in {topic}")

    def _all_there(
        self,
        topic: str,
        positions: dict[Position, None],
        may_be_trimmed: Callable[[Sent, Position], bool],
        destroyed: Collection[tuple[int, int]],
    ) -> None:
        incarnation = self._incarnations.now(topic)
        beginning = next(iter(positions), None)
        for position, sent in self.all_stored(topic):
            if self._incarnations.of_ledger(position[0]) is not incarnation:
                continue
            self._look("2")
            if position in positions or position[:2] in destroyed:
                continue
            if beginning is not None and position > beginning:
                raise Violation(
                    "2", f"{sent} has a receipt for {topic} at {position}, behind what is there, and is not"
                )
            if not may_be_trimmed(sent, position):
                raise Violation(
                    "2, 30, 54", f"{sent} has a receipt for {topic} at {position}, is missing, and may not be trimmed"
                )
