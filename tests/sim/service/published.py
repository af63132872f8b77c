"""What producers sent and were told, and what must hold of what is found.

- What was told to be stored is found at that place, once more is sent only where no receipt came, and nothing is found
  that was not sent (2, 33).
- A producer's messages stand in the order in which they were sent, judged by the first of each (5, 33).
- **One writer** (OWN-2): what is sent after somebody was told of a place is stored behind that place. Were there two
  owners who both store, the one that is behind would be seen by its places; also by those of another incarnation.
- Indexes have no gaps (MSG-5), and what was sent to one incarnation is never stored in a later one (57).

Told and sent are in the order of ticks, one for each report. Of a partitioned topic each partition is a log.
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
from tests.sim.service.topic_lives import Incarnation, TopicLives, of_application, short

if TYPE_CHECKING:
    from tests.sim.service.history import Found, ProducerSeen

__all__ = ["Place", "Published", "Sent", "position_of"]

# Ledger, entry, place in its batch.
Place = tuple[int, int, int]
_NEVER_STORED: Final = (InvalidArgument, InvalidMessage, MessageTooBig, ProducerQueueIsFull)


def position_of(message_id: MessageId) -> Place:
    return message_id.ledger_id(), message_id.entry_id(), max(message_id.batch_index(), 0)


@dataclass(slots=True, eq=False)
class Sent:
    producer: ProducerSeen
    payload: bytes
    # The producer's, from 0.
    number: int
    at: int
    # What this producer had been opened on and was not told of having gone: nothing later than that may get it. By the
    # topic's or partition's name.
    meant: dict[str, Incarnation]
    told: Place | None = None
    never: Exception | None = None
    # Its producer was told an error, and sends it no more.
    failed: bool = False

    def __str__(self) -> str:
        return f"message {self.number} of {self.producer.name}"


@dataclass(slots=True)
class _Log:
    """Of one topic or partition, all its incarnations."""

    # When, and the highest place that anybody was told until then.
    highest: list[tuple[int, Place]] = field(default_factory=list)
    at: dict[Place, Sent] = field(default_factory=dict)
    # Of each producer: numbers and places that it was told, by number.
    told: dict[str, list[tuple[int, Place]]] = field(default_factory=dict)

    def highest_before(self, tick: int) -> Place:
        known = bisect_right(self.highest, tick, key=lambda one: one[0])
        return self.highest[known - 1][1] if known else (-1, -1, -1)


class Published:
    def __init__(self, lives: TopicLives, tick: Callable[[], int], look: Callable[[str], None]) -> None:
        self._lives = lives
        self._tick = tick
        self._look = look
        self._sent: dict[bytes, Sent] = {}
        self._numbers: dict[str, int] = {}
        self._logs: dict[str, _Log] = {}
        # By producer, and topic or partition: the incarnation that it is known to have been opened on.
        self._opened_on: dict[str, dict[str, Incarnation]] = {}
        # When a producer was told last that its topic is another one.
        self._told_of_change: dict[str, int] = {}

    def sent(self, payload: bytes) -> Sent | None:
        return self._sent.get(payload)

    def at(self, place: Place) -> Sent | None:
        """What was told to be stored there."""
        life = self._lives.of_ledger(place[0])
        return None if life is None else self._log(life.topic).at.get(place)

    def all_told(self, topic: str) -> list[tuple[Place, Sent]]:
        """Of a topic or partition, in order."""
        return sorted(self._log(short(topic)).at.items(), key=lambda one: one[0])

    def _log(self, topic: str) -> _Log:
        return self._logs.setdefault(topic, _Log())

    def opened(self, producer: ProducerSeen) -> None:
        life = None if producer.partitioned else self._lives.now(producer.topic)
        if life is not None and not life.dying:
            self._opened_on.setdefault(producer.name, {})[life.topic] = life

    def sending(self, producer: ProducerSeen, payload: bytes) -> None:
        if payload in self._sent:
            raise ValueError(f"{payload!r} is sent twice: payloads are to be unique")
        number = self._numbers[producer.name] = self._numbers.get(producer.name, -1) + 1
        # Whoever had been opened on one that goes may know that, and mean the next one.
        opened = self._opened_on.get(producer.name, {})
        meant = {topic: life for topic, life in opened.items() if not (life.dying or life.doomed)}
        self._sent[payload] = Sent(producer, payload, number, self._tick(), meant)

    def stored(self, producer: ProducerSeen, payload: bytes, message_id: MessageId) -> None:
        sent, place = self._sent[payload], position_of(message_id)
        if sent.told is not None:
            raise Violation("33", f"{sent} was told to be stored at {place}, and before that at {sent.told}")
        life = self._belongs(sent, place)
        log = self._log(life.topic)
        self._look("2")
        other = log.at.get(place)
        if other is not None:
            raise Violation("2", f"{sent} was told to be stored at {place}, and so was {other}")
        self._behind(sent, place, log)
        told = log.told.setdefault(producer.name, [])
        at = bisect_left(told, (sent.number, place))
        for before, after in zip(told[max(at - 1, 0) : at], [(sent.number, place)], strict=False):
            self._in_order(sent, before, after)
        for after in told[at : at + 1]:
            self._in_order(sent, (sent.number, place), after)
        insort(told, (sent.number, place))
        sent.told = place
        log.at[place] = sent
        if not log.highest or place > log.highest[-1][1]:
            log.highest.append((self._tick(), place))
        self._opened_on.setdefault(producer.name, {})[life.topic] = life

    def failed(self, payload: bytes, error: Exception) -> None:
        self._sent[payload].failed = True
        if isinstance(error, (IncarnationChanged, TopicNotFound)):
            # What waits for room at this moment is not lost with the rest.
            self._told_of_change[self._sent[payload].producer.name] = self._tick()
        if isinstance(error, _NEVER_STORED):
            self._sent[payload].never = error

    def _in_order(self, sent: Sent, before: tuple[int, Place], after: tuple[int, Place]) -> None:
        self._look("5, 33")
        if before[1] >= after[1]:
            raise Violation(
                "5, 33",
                f"{sent.producer.name} was told that its message {before[0]} is at {before[1]}, and {after[0]}, which "
                f"it sent later, at {after[1]}",
            )

    def _belongs(self, sent: Sent, place: Place) -> Incarnation:
        """The incarnation of the topic in which it stands."""
        life = self._lives.of_ledger(place[0])
        if life is None or of_application(life.topic) != of_application(sent.producer.topic):
            where = "no topic's" if life is None else f"of {life.topic}"
            raise Violation("2", f"{sent} was sent to {sent.producer.topic}, and is in ledger {place[0]}, {where}")
        self._look("57")
        meant = sent.meant.get(life.topic)
        told = self._told_of_change.get(sent.producer.name, 0)
        if meant is not None and life is not meant and life.made > sent.at > told and not sent.producer.may_wait:
            raise Violation("57", f"{sent} was sent to {meant}, which was deleted, and is in {life} at {place}")
        return life

    def _behind(self, sent: Sent, place: Place, log: _Log) -> None:
        self._look("OWN-2")
        before = log.highest_before(sent.at)
        if place <= before:
            raise Violation(
                "OWN-2", f"{sent} is at {place}, and before it was sent {log.at[before]} was told to be at {before}"
            )

    # ── the end ──

    def found(
        self,
        topic: str,
        messages: Sequence[Found],
        may_be_gone: Callable[[Sent, Place], bool],
        destroyed: Collection[tuple[int, int]] = (),
    ) -> None:
        """A topic or partition from its beginning to its end. `may_be_gone`: every subscription was done with it.
        `destroyed`: the ledger and entry of each of its entries of which all replicas were damaged."""
        topic = short(topic)
        log = self._log(topic)
        places: dict[Place, None] = {}
        last_index: int | None = None
        last_place: Place = (-1, -1, -1)
        first: dict[bytes, Place] = {}
        last: dict[bytes, Place] = {}
        for one in messages:
            place = position_of(one.message_id)
            sent = self._sent.get(one.payload)
            if sent is None:
                raise Violation("2", f"{one.payload!r} is in {topic} at {place}, and was never sent")
            if sent.never is not None:
                raise Violation("2", f"{sent} is in {topic} at {place}, and its producer was told {sent.never!r}")
            if place <= last_place:
                raise Violation("5", f"{topic}: {place} was read after {last_place}")
            if last_index is not None and one.index is not None:
                self._look("MSG-5")
                lost = any(last_place[:2] < entry < place[:2] for entry in destroyed)
                if one.index <= last_index or (one.index != last_index + 1 and not lost):
                    raise Violation("MSG-5", f"{topic}: the index goes from {last_index} to {one.index} at {place}")
            last_index, last_place = one.index, place
            self._belongs(sent, place)
            self._behind(sent, place, log)
            self._copy(sent, place, log)
            places[place] = None
            first.setdefault(one.payload, place)
            last[one.payload] = place
        incomplete = bool(destroyed) or (bool(messages) and messages[0].index != 0)
        self._producers_order(topic, first, last, incomplete=incomplete)
        self._all_there(topic, places, may_be_gone, destroyed)

    def _producers_order(
        self, topic: str, first: dict[bytes, Place], last: dict[bytes, Place], *, incomplete: bool
    ) -> None:
        """Judge by the first copy of each message. Trimmed and destroyed entries may have been the first ones: then
        the last copies are judged, too. They tell nothing of a message that has failed: it is not sent again with those
        before it."""
        before: dict[str, Sent] = {}
        for payload in first:
            sent = self._sent[payload]
            other = before.get(sent.producer.name)
            self._look("5, 33")
            if other is None or other.number < sent.number:
                before[sent.producer.name] = sent
            elif not incomplete or (not other.failed and last[other.payload] < last[payload]):
                raise Violation("5, 33", f"{topic}: {sent} is at {first[payload]}, and only behind {other}")

    def _copy(self, sent: Sent, place: Place, log: _Log) -> None:
        """One that has a receipt was not sent again after it; and at its place is nothing else."""
        told = log.at.get(place)
        if told is not None and told is not sent:
            raise Violation("2", f"{told} was told to be at {place}, where {sent} is")
        if sent.told is not None and place > sent.told:
            raise Violation("33", f"{sent} was told to be at {sent.told}, and is once more, behind that, at {place}")

    def _all_there(
        self,
        topic: str,
        places: dict[Place, None],
        may_be_gone: Callable[[Sent, Place], bool],
        destroyed: Collection[tuple[int, int]],
    ) -> None:
        life = self._lives.now(topic)
        beginning = next(iter(places), None)
        for place, sent in self.all_told(topic):
            if self._lives.of_ledger(place[0]) is not life:
                continue
            self._look("2")
            if place in places or place[:2] in destroyed:
                continue
            if beginning is not None and place > beginning:
                raise Violation("2", f"{sent} was told to be in {topic} at {place}, behind what is there, and is not")
            if not may_be_gone(sent, place):
                raise Violation(
                    "2, 30, 54", f"{sent} was told to be in {topic} at {place}, is gone, and was not done with"
                )
