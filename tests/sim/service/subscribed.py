"""What subscriptions delivered to applications, the acknowledgements, and the checks of both.

- An unacknowledged message is redelivered (54, SUB-7), and so are all messages behind the position to which the
  subscription was moved (52, SUB-9), regardless of acknowledgements: the last drain of a subscription gets them. Of a
  subscription with letters, `letters.py` looks for what is missing.
- A message delivered before a seek is not acknowledged after it (52), and one of a deleted topic never is (57).
- A reader goes forward (5).
- A change is made to the subscription that is in use (69). The messages behind a reset are delivered to its consumers
  before they count as acknowledged, also to one that joined during the reset; and no consumer gets a message that was
  published after the subscription was deleted.

A call that failed, or had no answer, may have been done or not: no check depends on it. A subscription exists from the
cursor's node to its end, in one incarnation of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_wire.message_id import MessageId
from tests.sim.invariants.history import Violation
from tests.sim.service.letters import Letters
from tests.sim.service.published import Position, Published, Sent, position_of
from tests.sim.service.topic_incarnations import Incarnation, TopicIncarnations, of_application, short

if TYPE_CHECKING:
    from tests.sim.service.history import ConsumerSeen

__all__ = ["Subscribed"]

_ALL: Final = 2**31
_COMES, _PASSED, _UNKNOWN = "comes", "is passed", "may come"


@dataclass(slots=True, eq=False)
class _Ack:
    called: int
    consumer: ConsumerSeen
    position: Position
    cumulative: bool
    # When the receipt came; 0: none did. It does not count where a consumer that acknowledges whole batches alone has
    # acknowledged a part of one.
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
    given: dict[Position, int] = field(default_factory=dict)
    acks: dict[Position, list[_Ack]] = field(default_factory=dict)
    # By topic or partition.
    cumulative: dict[str, list[_Ack]] = field(default_factory=dict)
    moves: list[_Move] = field(default_factory=list)

    def covering(self, topic: str, position: Position) -> Iterator[_Ack]:
        yield from self.acks.get(position, ())
        for ack in self.cumulative.get(topic, ()):
            if ack.position >= position:
                yield ack

    def moved_since(self, tick: int) -> bool:
        """Whether it was moved since, or may have been."""
        return any(not move.done or move.done > tick for move in self.moves)


@dataclass(slots=True)
class _Consumer:
    # When it was given them last.
    given: dict[Position, int] = field(default_factory=dict)
    # Of a reader: the last position, and when.
    last: dict[str, tuple[Position, int]] = field(default_factory=dict)


class Subscribed:
    def __init__(
        self,
        incarnations: TopicIncarnations,
        published: Published,
        letters: Letters,
        tick: Callable[[], int],
        look: Callable[[str], None],
    ) -> None:
        self._incarnations = incarnations
        self._published = published
        self._letters = letters
        self._tick = tick
        self._look = look
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}
        self._consumers: dict[str, _Consumer] = {}
        # Called and not answered: by consumer, kind and positions.
        self._calls: dict[tuple[str, bool, tuple[Position, ...]], list[list[_Ack]]] = {}
        self._moves: list[tuple[_Subscription, _Move]] = []
        # When the last truncation that is over was over.
        self._truncated: dict[str, int] = {}
        # Truncations that were begun, and may be done still.
        self._truncating: dict[str, int] = {}
        # What was found, by topic or partition.
        self._found: dict[str, dict[Position, None]] = {}

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
        """Return since when it exists in the topic's present incarnation."""
        incarnation, known = self._incarnations.now(topic), subscription.since.get(topic)
        return known[0] if incarnation is not None and known is not None and known[1] == incarnation.name else None

    # ── deliveries ──

    def delivered(self, consumer: ConsumerSeen, payload: bytes, message_id: MessageId) -> None:
        position, seen, tick = position_of(message_id), self._consumer(consumer), self._tick()
        sent, incarnation = self._published.sent(payload), self._incarnations.of_ledger(position[0])
        if sent is None or incarnation is None or of_application(incarnation.topic) != of_application(consumer.topic):
            raise Violation("2", f"{consumer.name} was given {payload!r} at {position}, which nobody sent there")
        other = self._published.at(position)
        if other is not None and other is not sent:
            raise Violation("2", f"{consumer.name} was given {sent} at {position}, and {other} is there")
        if consumer.is_reader:
            self._goes_forward(consumer, seen, incarnation.topic, position)
        if consumer.durable:
            self._is_not_deleted(consumer, sent, incarnation.topic, position)
            self._of(consumer.topic, consumer.subscription).given[position] = tick
        seen.given[position] = tick
        seen.last[incarnation.topic] = position, tick

    def _goes_forward(self, consumer: ConsumerSeen, seen: _Consumer, topic: str, position: Position) -> None:
        self._look("5")
        before, when = seen.last.get(topic, ((-1, -1, -1), 0))
        if position <= before and not self._of(consumer.topic, consumer.subscription).moved_since(when):
            raise Violation("5", f"reader {consumer.name} was given {position} after {before}")

    def may_be_skipped(self, topic: str, name: str) -> bool:
        """Whether an administrator may have acknowledged messages of the subscription, in a topic or partition."""
        moves = self._of(topic, name).moves
        return of_application(topic) in self._truncating or any(not move.voids for move in moves)

    def _is_not_deleted(self, consumer: ConsumerSeen, sent: Sent, topic: str, position: Position) -> None:
        """Check a delivery after the deletion: a message that was sent before may have been in flight."""
        self._look("69")
        deleted = self._of(consumer.topic, consumer.subscription).deleted.get(topic)
        if deleted is not None and deleted < sent.at:
            raise Violation(
                "69",
                f"{consumer.name} was given {sent} at {position} of {topic}, and {consumer.subscription} had been "
                f"deleted "
                "before it was sent",
            )

    def is_unchanged(self, topic: str, name: str, tick: int) -> bool:
        """Whether the subscription was neither moved nor deleted since, in a topic or partition."""
        subscription = self._of(topic, name)
        since = self._exists_since(subscription, topic)
        return since is not None and since < tick and not subscription.moved_since(tick)

    def keeps_backlog(self, topic: str, name: str, tick: int) -> bool:
        """Whether the subscription is unchanged since, and the topic was not truncated."""
        return self.is_unchanged(topic, name, tick) and not self._may_be_truncated(topic, tick)

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
                subscription.acks.setdefault(ack.position, []).append(ack)
            elif (incarnation := self._incarnations.of_ledger(ack.position[0])) is not None:
                subscription.cumulative.setdefault(incarnation.topic, []).append(ack)
        if receipt:
            self._calls.setdefault(_key(consumer, message_ids, cumulative), []).append(called)

    def acknowledged(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        tick = self._tick()
        for ack in self._answered(consumer, message_ids, cumulative):
            ack.done = tick
            incarnation = self._incarnations.of_ledger(ack.position[0])
            self._look("57")
            late = incarnation is not None and 0 < incarnation.deleted_at < ack.called
            if late and incarnation is not None and ack.counts and not self._had_receipt(ack, incarnation):
                raise Violation(
                    "57",
                    f"{consumer.name} had a receipt for {ack.position}, which is of {incarnation}, and that was "
                    f"deleted before",
                )
            if ack.counts and incarnation is not None:
                self._was_not_late(consumer, ack, incarnation.topic)

    def _had_receipt(self, ack: _Ack, incarnation: Incarnation) -> bool:
        """Whether it had a receipt while its topic existed: then another receipt needs no write."""
        subscription = self._of(ack.consumer.topic, ack.consumer.subscription)
        return any(
            0 < other.done < incarnation.deleted_at for other in subscription.covering(incarnation.topic, ack.position)
        )

    def _was_not_late(self, consumer: ConsumerSeen, ack: _Ack, topic: str) -> None:
        given = self._consumer(consumer).given.get(ack.position)
        if given is None:
            return
        for move in self._of(consumer.topic, consumer.subscription).moves:
            self._look("52")
            in_between = given < move.began and move.done < ack.called
            if move.voids and move.done and in_between and self._concerns(move, topic):
                raise Violation(
                    "52",
                    f"{consumer.name} had a receipt for {ack.position}, which it was given before its subscription was "
                    f"moved to {move.to}, and acknowledged after it",
                )

    def acknowledge_failed(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        """The acknowledgement may count all the same, also if the error is that it came too late: it was perhaps sent
        before.
        """
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

    def _may_be_truncated(self, topic: str, since: int) -> bool:
        name = of_application(topic)
        return self._truncating.get(name, 0) > 0 or self._truncated.get(name, 0) > since

    def _concerns(self, move: _Move, topic: str) -> bool:
        """Whether it is known to have moved the subscription in this topic or partition."""
        if isinstance(move.to, int):
            return True
        if move.to in (MessageId.earliest, MessageId.latest):
            return True
        incarnation = self._incarnations.of_ledger(move.to.ledger_id())
        return incarnation is not None and incarnation.topic == topic

    def _leads(self, move: _Move, topic: str, position: Position, sent: Sent) -> str:
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
        return _COMES if position > at or (move.inclusive and position == at) else _PASSED

    # ── the end ──

    def found(self, topic: str, positions: Sequence[Position]) -> None:
        self._found[short(topic)] = dict.fromkeys(positions)

    def may_be_trimmed(self, sent: Sent, position: Position) -> bool:
        """Whether all durable subscriptions that existed when it was sent are done with it."""
        incarnation = self._incarnations.of_ledger(position[0])
        if incarnation is None or self._may_be_truncated(incarnation.topic, sent.at):
            return True
        for subscription in self._subscriptions.values():
            if subscription.topic != of_application(incarnation.topic):
                continue
            since = self._exists_since(subscription, incarnation.topic)
            if since is None or since > sent.at:
                continue
            if any(subscription.covering(incarnation.topic, position)):
                continue
            if any(self._leads(move, incarnation.topic, position, sent) != _COMES for move in subscription.moves):
                continue
            if not self._letters.has(subscription.topic, subscription.name):
                return False
            text = f"{sent} has a receipt for {incarnation.topic} at {position}, was trimmed, and had not come"
            self._letters.missing(subscription.topic, subscription.name, position, "2, 30, 54", text)
        return True

    def drained(self, consumer: ConsumerSeen, topic: str) -> None:
        """Check that it got all that is unacknowledged. It has acknowledged nothing so far."""
        topic, subscription = short(topic), self._of(consumer.topic, consumer.subscription)
        incarnation, since = self._incarnations.now(topic), self._exists_since(subscription, topic)
        given = self._consumer(consumer).given
        for position, sent in self._published.all_stored(topic):
            if since is None or self._incarnations.of_ledger(position[0]) is not incarnation:
                continue
            item = self._must_come(subscription, topic, position, sent, since)
            if not item:
                continue
            self._look(item)
            if position not in given:
                text = (
                    f"{sent} is at {position} of {topic}, is still to come to {subscription.name}, and did not: "
                    f"{len(given)} others did"
                )
                if not self._letters.has(subscription.topic, subscription.name):
                    raise Violation(item, text)
                self._letters.missing(subscription.topic, subscription.name, position, item, text)

    def _must_come(self, subscription: _Subscription, topic: str, position: Position, sent: Sent, since: int) -> str:
        """Return the item that a missing delivery violates; empty: none."""
        found = self._found.get(topic)
        if found is not None and position not in found:
            return ""  # its trimming was checked there
        if sent.at < since or self._may_be_truncated(topic, sent.at):
            return ""
        if not subscription.moves:
            return "" if any(subscription.covering(topic, position)) else "54, SUB-7"
        last = subscription.moves[-1]
        overlapping = any(not move.done or move.done > last.began for move in subscription.moves[:-1])
        if overlapping or self._leads(last, topic, position, sent) != _COMES:
            return ""
        acks = list(subscription.covering(topic, position))
        acknowledged_since = any(ack.called > last.began for ack in acks)
        if acknowledged_since and subscription.given.get(position, 0) > last.began:
            return ""
        if acks and found is None:
            return ""
        return "69, 52, SUB-9" if acknowledged_since else "52, SUB-9"


def _key(
    consumer: ConsumerSeen, message_ids: Sequence[MessageId], cumulative: bool
) -> tuple[str, bool, tuple[Position, ...]]:
    return consumer.name, cumulative, tuple(map(position_of, message_ids))
