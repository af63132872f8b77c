"""Two consumers of a Key_Shared subscription never hold messages with the same key. No key counts as a key, too.

A consumer **holds** a delivered message until somebody begins to acknowledge it; a nacked one, too, since it is
redelivered to its holder. A delivery of the same key to another consumer is a violation only if the broker still had
both consumers. A consumer may believe in its connection long after the broker closed it, get messages that it fetched
before, and hold messages that others got. So both must prove that they were connected: each has a receipt for an
acknowledgement that it began after both had the key, and is seen with the same connection as before. And the partition
had one owner, in one session, all that time.

The same goes for retried messages, in the retry topic: a letter has its message's key. A client acknowledges a message
whose dead letter it has stored, and the key is free then.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.faults.checker.history import Line
from tests.faults.checker.policies import MARGIN_S
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Partition

Connection = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Side:
    """One consumer's state for one partition."""

    consumer: Consumer
    connection: Connection | None = None
    seen_at: float = float("inf")
    # By slot: what it holds, of which key, since when, and which message that is.
    held: dict[int, tuple[int, float, int]] = field(default_factory=dict)
    # By slot: when the acknowledgement was begun.
    acking: dict[int, float] = field(default_factory=dict)
    suspicions: list[_Suspicion] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Suspicion:
    partition: Partition
    key: int
    first: _Side
    second: _Side
    # When each was handed it.
    first_at: float
    second_at: float
    # The message that the first one holds.
    held: int
    text: str
    # How often a side was seen with its connection after it had its receipt: once might have been looked at before.
    seen: dict[Consumer, int] = field(default_factory=dict)

    @property
    def proved(self) -> bool:
        return len(self.seen) == 2 and all(times >= 2 for times in self.seen.values())


class _Shared:
    """A subscription's state for one partition."""

    def __init__(self) -> None:
        self.sides: dict[Consumer, _Side] = {}
        self.holders: dict[int, dict[_Side, set[int]]] = defaultdict(dict)

    def hold(self, side: _Side, slot: int, key: int, at: float, message: int) -> None:
        side.held[slot] = (key, at, message)
        self.holders[key].setdefault(side, set()).add(slot)

    def drop(self, side: _Side, slot: int) -> None:
        found = side.held.pop(slot, None)
        if found is not None:
            of_key = self.holders[found[0]]
            of_key[side].discard(slot)
            if not of_key[side]:
                del of_key[side]

    def drop_all(self, side: _Side) -> None:
        for slot in list(side.held):
            self.drop(side, slot)
        side.acking.clear()
        side.suspicions.clear()  # it can't prove them any more


class Keys(Rule):
    name = "keys"

    def begin(self) -> None:
        self._shared: dict[tuple[str, str], _Shared] = defaultdict(_Shared)
        self._proved: list[_Suspicion] = []
        # By partition: owner, and the first and last time at which it was seen so without another in between.
        self._owners: dict[str, list[tuple[str, int, float, float]]] = defaultdict(list)

    def on_owners(self, line: Line) -> None:
        owners = line.fields["owners"]
        for partition in {*owners, *self._owners}:
            broker, session = owners.get(partition, ("", 0))
            runs = self._owners[partition]
            if runs and runs[-1][:2] == (broker, session):
                runs[-1] = (broker, session, runs[-1][2], line.fields["since"])
            else:
                runs.append((broker, session, line.at, line.fields["since"]))

    def on_connected(self, line: Line) -> None:
        shared, side = self._side(line)
        if shared is None or side is None:
            return
        connection = (line.fields["broker"], line.fields["connection"])
        if connection != side.connection:
            shared.drop_all(side)
            side.connection = connection if connection[0] else None
            side.seen_at = line.at
            return
        for suspicion in side.suspicions:
            if side.consumer in suspicion.seen:
                suspicion.seen[side.consumer] += 1
                if suspicion.proved:
                    self._proved.append(suspicion)
        side.suspicions = [one for one in side.suspicions if one.seen.get(side.consumer, 0) < 2]

    def on_got(self, line: Line) -> None:
        shared, side = self._side(line)
        if shared is None or side is None or side.connection is None or side.seen_at > line.fields["since"]:
            return
        facts, subscription = self.facts, side.consumer.subscription
        partition = facts.partition(line.partition_name)
        for item, packed, slot, one in zip(line.fields["items"], line.ids, line.slots, line.messages, strict=True):
            if facts.is_announced(subscription, partition, packed, slot):
                continue
            key = facts.key(item[3])
            for other in list(shared.holders.get(key, ())):
                if other is not side:
                    self._suspect(shared, other, side, partition, key, slot, line)
            shared.hold(side, slot, key, line.at, one)

    on_got_letter = on_got

    def _suspect(
        self, shared: _Shared, first: _Side, second: _Side, partition: Partition, key: int, slot: int, line: Line
    ) -> None:
        facts, subscription = self.facts, first.consumer.subscription
        held = [
            (first.held[one][1], one)
            for one in shared.holders[key][first]
            if not facts.is_announced(subscription, partition, partition.ids[one], one)
        ]
        if not held or first.consumer.ended_at is not None or first.connection is None or second.connection is None:
            return
        if any((one.second, one.key) == (second, key) for one in first.suspicions):
            return
        first_at, held_slot = max(held)
        text = (
            f"{facts.where(partition, held_slot)} with the key {facts.key_list[key]!r} was {first.consumer.name}'s "
            f"since "
            f"{first_at:.3f}, and {facts.where(partition, slot)} with that key came to {second.consumer.name} at "
            f"{line.at:.3f}"
        )
        suspicion = _Suspicion(partition, key, first, second, first_at, line.at, first.held[held_slot][2], text)
        first.suspicions.append(suspicion)
        second.suspicions.append(suspicion)

    def on_acking(self, line: Line) -> None:
        shared, side = self._side(line)
        if shared is None or side is None:
            return
        side.acking.update(dict.fromkeys(line.slots, line.at))
        self._drop_at_all(shared, line)

    def _drop_at_all(self, shared: _Shared, line: Line) -> None:
        for slot in line.slots:
            for one in list(shared.sides.values()):
                shared.drop(one, slot)

    def on_reconsuming(self, line: Line) -> None:
        shared, _ = self._side(line)
        if shared is not None:
            self._drop_at_all(shared, line)

    def on_acked(self, line: Line) -> None:
        _, side = self._side(line)
        if side is None:
            return
        begun = max((side.acking.pop(slot, 0.0) for slot in line.slots), default=0.0)
        for suspicion in side.suspicions:
            if begun > suspicion.second_at:
                suspicion.seen.setdefault(side.consumer, 0)

    def on_closing(self, line: Line) -> None:
        self._ended([self.facts.consumer(line)])

    on_closed = on_closing

    def on_killed(self, line: Line) -> None:
        self._ended([one for one in self.facts.consumers.values() if one.writer == line.fields["writer"]])

    def _ended(self, consumers: list[Consumer]) -> None:
        for shared in self._shared.values():
            for consumer in consumers:
                side = shared.sides.pop(consumer, None)
                if side is not None:
                    shared.drop_all(side)

    def _side(self, line: Line) -> tuple[_Shared, _Side] | tuple[None, None]:
        consumer = self.facts.consumer(line)
        if consumer.subscription.type != "Key_Shared" or consumer.ended_at is not None:
            return None, None
        shared = self._shared[consumer.subscription.name, line.partition_name]
        return shared, shared.sides.setdefault(consumer, _Side(consumer))

    def end(self) -> None:
        facts = self.facts
        for suspicion in self._proved:
            subscription = suspicion.first.consumer.subscription
            touched = facts.acts.touched(
                subscription.name, subscription.topic.name, suspicion.first_at, suspicion.second_at
            )
            is_dead = facts.dead_at(subscription, suspicion.held) < suspicion.second_at + MARGIN_S
            if not touched and not is_dead and self._has_one_owner(suspicion):
                self.found(suspicion.text)

    def _has_one_owner(self, suspicion: _Suspicion) -> bool:
        """Whether the partition had one owner in that time, and both consumers are connected to it."""
        brokers = {
            self.facts.brokers.get(side.connection[0]) if side.connection else None
            for side in (suspicion.first, suspicion.second)
        }
        return any(
            first <= suspicion.first_at and suspicion.second_at <= last and brokers == {broker}
            for broker, _, first, last in self._owners[suspicion.partition.name]
        )


RULE = Keys
