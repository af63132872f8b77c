"""What subscriptions gave to applications, what these acknowledged, and what must hold of it.

- What is not acknowledged comes again (54, SUB-7), and all comes again to which the subscription was moved back (52,
  SUB-9), whatever was acknowledged of it before: whoever drains a subscription in the end is given it.
- What was delivered before a seek is not acknowledged after it (52), and what is of a topic that is gone never is (57).
- A reader goes forward (5).
- A change is made to the subscription that is in use (69). What a reset leads back to is given to its consumers before
  it counts as acknowledged, also to one that joined as it was made; and nobody is given what was published after the
  subscription was deleted.

A call that failed, or had no answer, may have been done or not: nothing is asserted that depends on it. A subscription
exists from the cursor's node to its end, in one incarnation of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_wire.message_id import MessageId
from tests.sim.invariants.history import Violation
from tests.sim.service.published import Place, Published, Sent, position_of
from tests.sim.service.topic_lives import Incarnation, TopicLives, of_application, short

if TYPE_CHECKING:
    from tests.sim.service.history import ConsumerSeen

__all__ = ["Subscribed"]

_ALL: Final = 2**31
_COMES, _PASSED, _UNKNOWN = "comes", "is passed", "may come"


@dataclass(slots=True, eq=False)
class _Ack:
    called: int
    consumer: ConsumerSeen
    place: Place
    cumulative: bool
    # When the receipt came; 0: none did. It says nothing where a consumer that acknowledges whole batches alone has
    # spoken of a part of one.
    done: int = 0
    counts: bool = True


@dataclass(slots=True, eq=False)
class _Move:
    began: int
    to: MessageId | int
    inclusive: bool
    # What was delivered before may not be acknowledged after it.
    voids: bool
    done: int = 0


@dataclass(slots=True)
class _Subscription:
    topic: str
    name: str
    # By topic or partition: since when, in which incarnation.
    since: dict[str, tuple[int, str]] = field(default_factory=dict)
    # Likewise: since when it does not exist.
    deleted: dict[str, int] = field(default_factory=dict)
    # When a message was given to one of its consumers last.
    given: dict[Place, int] = field(default_factory=dict)
    acks: dict[Place, list[_Ack]] = field(default_factory=dict)
    # By topic or partition.
    cumulative: dict[str, list[_Ack]] = field(default_factory=dict)
    moves: list[_Move] = field(default_factory=list)

    def covering(self, topic: str, place: Place) -> Iterator[_Ack]:
        yield from self.acks.get(place, ())
        for ack in self.cumulative.get(topic, ()):
            if ack.place >= place:
                yield ack

    def moved_since(self, tick: int) -> bool:
        """Or may have been."""
        return any(not move.done or move.done > tick for move in self.moves)


@dataclass(slots=True)
class _Consumer:
    # When it was given them last.
    given: dict[Place, int] = field(default_factory=dict)
    # Of a reader: the last place, and when.
    last: dict[str, tuple[Place, int]] = field(default_factory=dict)


class Subscribed:
    def __init__(
        self, lives: TopicLives, published: Published, tick: Callable[[], int], look: Callable[[str], None]
    ) -> None:
        self._lives = lives
        self._published = published
        self._tick = tick
        self._look = look
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}
        self._consumers: dict[str, _Consumer] = {}
        # Called and not answered: by consumer, kind and places.
        self._calls: dict[tuple[str, bool, tuple[Place, ...]], list[list[_Ack]]] = {}
        self._moves: list[tuple[_Subscription, _Move]] = []
        # When the last truncation that is over was over.
        self._truncated: dict[str, int] = {}
        # Truncations that were begun, and may be done still.
        self._truncating: dict[str, int] = {}
        # What was found, by topic or partition.
        self._found: dict[str, dict[Place, None]] = {}

    def _of(self, topic: str, name: str) -> _Subscription:
        key = of_application(topic), name
        return self._subscriptions.setdefault(key, _Subscription(*key))

    def _consumer(self, consumer: ConsumerSeen) -> _Consumer:
        return self._consumers.setdefault(consumer.name, _Consumer())

    # ── what there is ──

    def cursor_changed(self, topic: str, name: str, node: CursorNode | None) -> None:
        topic, subscription = short(topic), self._of(topic, name)
        if node is None or node.deleted:
            subscription.since.pop(topic, None)
            subscription.deleted.setdefault(topic, self._tick())
            return
        subscription.deleted.pop(topic, None)
        if subscription.since.get(topic, (0, ""))[1] != node.incarnation:
            subscription.since[topic] = self._tick(), node.incarnation

    def _exists_since(self, subscription: _Subscription, topic: str) -> int | None:
        """In the topic as it is now."""
        life, known = self._lives.now(topic), subscription.since.get(topic)
        return known[0] if life is not None and known is not None and known[1] == life.name else None

    # ── deliveries ──

    def delivered(self, consumer: ConsumerSeen, payload: bytes, message_id: MessageId) -> None:
        place, seen, tick = position_of(message_id), self._consumer(consumer), self._tick()
        sent, life = self._published.sent(payload), self._lives.of_ledger(place[0])
        if sent is None or life is None or of_application(life.topic) != of_application(consumer.topic):
            raise Violation("2", f"{consumer.name} was given {payload!r} at {place}, which nobody sent there")
        told = self._published.at(place)
        if told is not None and told is not sent:
            raise Violation("2", f"{consumer.name} was given {sent} at {place}, and {told} is there")
        if consumer.is_reader:
            self._goes_forward(consumer, seen, life.topic, place)
        if consumer.durable:
            self._is_not_deleted(consumer, sent, life.topic, place)
            self._of(consumer.topic, consumer.subscription).given[place] = tick
        seen.given[place] = tick
        seen.last[life.topic] = place, tick

    def _goes_forward(self, consumer: ConsumerSeen, seen: _Consumer, topic: str, place: Place) -> None:
        self._look("5")
        before, when = seen.last.get(topic, ((-1, -1, -1), 0))
        if place <= before and not self._of(consumer.topic, consumer.subscription).moved_since(when):
            raise Violation("5", f"reader {consumer.name} was given {place} after {before}")

    def may_be_skipped(self, topic: str, name: str) -> bool:
        """Of a topic or partition: an administrator may have acknowledged messages of the subscription."""
        moves = self._of(topic, name).moves
        return of_application(topic) in self._truncating or any(not move.voids for move in moves)

    def _is_not_deleted(self, consumer: ConsumerSeen, sent: Sent, topic: str, place: Place) -> None:
        """One that was sent before the deletion may have been on its way."""
        self._look("69")
        deleted = self._of(consumer.topic, consumer.subscription).deleted.get(topic)
        if deleted is not None and deleted < sent.at:
            raise Violation(
                "69",
                f"{consumer.name} was given {sent} at {place} of {topic}, and {consumer.subscription} had been deleted "
                "before it was sent",
            )

    def is_kept(self, topic: str, name: str, tick: int) -> bool:
        """Of a topic or partition: nothing has moved the subscription since, nor deleted it."""
        subscription = self._of(topic, name)
        since = self._exists_since(subscription, topic)
        return since is not None and since < tick and not subscription.moved_since(tick)

    # ── acknowledgements ──

    def acknowledging(
        self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool, receipt: bool
    ) -> None:
        subscription, tick = self._of(consumer.topic, consumer.subscription), self._tick()
        called: list[_Ack] = []
        for message_id in message_ids:
            ack = _Ack(tick, consumer, position_of(message_id), cumulative)
            called.append(ack)
            if not consumer.by_message and message_id.batch_size() > 1:
                ack.counts = False
            if not cumulative:
                subscription.acks.setdefault(ack.place, []).append(ack)
            elif (life := self._lives.of_ledger(ack.place[0])) is not None:
                subscription.cumulative.setdefault(life.topic, []).append(ack)
        if receipt:
            self._calls.setdefault(_key(consumer, message_ids, cumulative), []).append(called)

    def acknowledged(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        tick = self._tick()
        for ack in self._answered(consumer, message_ids, cumulative):
            ack.done = tick
            life = self._lives.of_ledger(ack.place[0])
            self._look("57")
            late = life is not None and 0 < life.gone < ack.called
            if late and life is not None and ack.counts and not self._was_told(ack, life):
                raise Violation(
                    "57", f"{consumer.name} had a receipt for {ack.place}, which is of {life}, and that was gone before"
                )
            if ack.counts and life is not None:
                self._was_not_late(consumer, ack, life.topic)

    def _was_told(self, ack: _Ack, life: Incarnation) -> bool:
        """A receipt for it was given while its topic was there: for another one nothing has to be written."""
        subscription = self._of(ack.consumer.topic, ack.consumer.subscription)
        return any(0 < other.done < life.gone for other in subscription.covering(life.topic, ack.place))

    def _was_not_late(self, consumer: ConsumerSeen, ack: _Ack, topic: str) -> None:
        given = self._consumer(consumer).given.get(ack.place)
        if given is None:
            return
        for move in self._of(consumer.topic, consumer.subscription).moves:
            self._look("52")
            in_between = given < move.began and move.done < ack.called
            if move.voids and move.done and in_between and self._concerns(move, topic):
                raise Violation(
                    "52",
                    f"{consumer.name} had a receipt for {ack.place}, which it was given before its subscription was "
                    f"moved to {move.to}, and acknowledged after it",
                )

    def acknowledge_failed(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        """It may count all the same, also where the error says that it came too late: it may have been sent before."""
        self._answered(consumer, message_ids, cumulative)

    def _answered(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], cumulative: bool) -> list[_Ack]:
        calls = self._calls.get(_key(consumer, message_ids, cumulative))
        return calls.pop(0) if calls else []

    # ── moves ──

    def moving(self, topic: str, name: str, to: MessageId | int, *, inclusive: bool, voids: bool) -> int:
        subscription = self._of(topic, name)
        move = _Move(self._tick(), to, inclusive, voids)
        subscription.moves.append(move)
        self._moves.append((subscription, move))
        return len(self._moves) - 1

    def moved(self, number: int) -> None:
        self._moves[number][1].done = self._tick()

    def truncating(self, topic: str) -> None:
        name = of_application(topic)
        self._truncating[name] = self._truncating.get(name, 0) + 1

    def truncated(self, topic: str) -> None:
        name = of_application(topic)
        self._truncating[name] -= 1
        self._truncated[name] = self._tick()

    def _may_be_truncated(self, topic: str, sent: Sent) -> bool:
        name = of_application(topic)
        return self._truncating.get(name, 0) > 0 or self._truncated.get(name, 0) > sent.at

    def _concerns(self, move: _Move, topic: str) -> bool:
        """It is known to have moved the subscription in this topic or partition."""
        if isinstance(move.to, int):
            return True
        if move.to in (MessageId.earliest, MessageId.latest):
            return True
        life = self._lives.of_ledger(move.to.ledger_id())
        return life is not None and life.topic == topic

    def _leads(self, move: _Move, topic: str, place: Place, sent: Sent) -> str:
        """Whether the message comes after it."""
        if isinstance(move.to, int) or not move.done:
            return _UNKNOWN
        if move.to == MessageId.earliest:
            return _COMES
        if move.to == MessageId.latest:
            return _COMES if sent.at > move.done else _UNKNOWN
        if not self._concerns(move, topic):
            return _UNKNOWN
        at = position_of(move.to)
        if move.to.batch_index() < 0 and not move.inclusive:
            at = (*at[:2], _ALL)
        return _COMES if place > at or (move.inclusive and place == at) else _PASSED

    # ── the end ──

    def found(self, topic: str, places: Sequence[Place]) -> None:
        self._found[short(topic)] = dict.fromkeys(places)

    def may_be_gone(self, sent: Sent, place: Place) -> bool:
        """All durable subscriptions that there were when it was sent are done with it."""
        life = self._lives.of_ledger(place[0])
        if life is None or self._may_be_truncated(life.topic, sent):
            return True
        for subscription in self._subscriptions.values():
            if subscription.topic != of_application(life.topic):
                continue
            since = self._exists_since(subscription, life.topic)
            if since is None or since > sent.at:
                continue
            if any(subscription.covering(life.topic, place)):
                continue
            if all(self._leads(move, life.topic, place, sent) == _COMES for move in subscription.moves):
                return False
        return True

    def drained(self, consumer: ConsumerSeen, topic: str) -> None:
        """It was given all that is not acknowledged, and has acknowledged nothing so far."""
        topic, subscription = short(topic), self._of(consumer.topic, consumer.subscription)
        life, since = self._lives.now(topic), self._exists_since(subscription, topic)
        given = self._consumer(consumer).given
        for place, sent in self._published.all_told(topic):
            if since is None or self._lives.of_ledger(place[0]) is not life:
                continue
            item = self._must_come(subscription, topic, place, sent, since)
            if not item:
                continue
            self._look(item)
            if place not in given:
                raise Violation(
                    item,
                    f"{sent} is at {place} of {topic}, is still to come to {subscription.name}, and did not: "
                    f"{len(given)} others did",
                )

    def _must_come(self, subscription: _Subscription, topic: str, place: Place, sent: Sent, since: int) -> str:
        """Under which item; empty: it need not."""
        found = self._found.get(topic)
        if found is not None and place not in found:
            return ""  # whether it may be gone was asked there
        if sent.at < since or self._may_be_truncated(topic, sent):
            return ""
        if not subscription.moves:
            return "" if any(subscription.covering(topic, place)) else "54, SUB-7"
        last = subscription.moves[-1]
        overlapping = any(not move.done or move.done > last.began for move in subscription.moves[:-1])
        if overlapping or self._leads(last, topic, place, sent) != _COMES:
            return ""
        acks = list(subscription.covering(topic, place))
        acknowledged_since = any(ack.called > last.began for ack in acks)
        if acknowledged_since and subscription.given.get(place, 0) > last.began:
            return ""
        if acks and found is None:
            return ""
        return "69, 52, SUB-9" if acknowledged_since else "52, SUB-9"


def _key(
    consumer: ConsumerSeen, message_ids: Sequence[MessageId], cumulative: bool
) -> tuple[str, bool, tuple[Place, ...]]:
    return consumer.name, cumulative, tuple(map(position_of, message_ids))
