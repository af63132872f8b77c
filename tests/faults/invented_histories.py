"""Histories for tests of the judge: told line by line, or invented by chance, as a system that keeps its promises could
have made them, with everything odd that such a system may do.

What is invented: producers whose messages are stored once, or twice where nothing forbids it; whose sends are unknown,
and are stored, or not, or much later; consumers of all types that ack with a receipt or without, give back, are
connected anew, closed and killed; acknowledgements without a receipt that are forgotten. In the end all is drained and
scanned.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["RIG", "Invented", "Story", "invent"]

RIG: Final = "rig"
Id = tuple[int, int, int]
# Producer, number, digest, key.
Message = tuple[str, int, str, str | None]


class Story:
    """Lines of several writers, in the order of their times."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.now = 100.0

    def say(self, by: str, what: str, /, **fields: Any) -> dict[str, Any]:
        self.now += 0.01
        line = {"at": self.now, "what": what, **fields, "writer of it": by}
        self.lines.append(line)
        return line

    def of(self, what: str, /, **having: Any) -> list[dict[str, Any]]:
        return [
            line
            for line in self.lines
            if line["what"] == what and all(line[name] == value for name, value in having.items())
        ]

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        files: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in self.lines:
            files[line["writer of it"]].append({name: value for name, value in line.items() if name != "writer of it"})
        for writer, lines in files.items():
            first = {"at": lines[0]["at"], "what": "history", "format": 1, "writer": writer}
            text = "".join(json.dumps(line) + "\n" for line in [first, *lines])
            (folder / f"{writer}.jsonl").write_text(text)
        return folder


@dataclass
class _Topic:
    name: str
    partitions: int
    order: str
    deduplicated: bool

    def place(self, key: str | None, chance: random.Random) -> str:
        if not self.partitions:
            return self.name
        number = chance.randrange(self.partitions) if key is None else sum(key.encode()) % self.partitions
        return f"{self.name}-partition-{number}"

    @property
    def places(self) -> list[str]:
        if not self.partitions:
            return [self.name]
        return [f"{self.name}-partition-{number}" for number in range(self.partitions)]


@dataclass
class _Life:
    name: str
    writer: str
    # By place, what it has in its hands, in the order in which it came.
    held: dict[str, dict[Id, Message]] = field(default_factory=lambda: defaultdict(dict))
    # By place, up to where it was read for this consumer: of types that have one reader.
    read: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    connection: int = 1


@dataclass
class _Subscription:
    name: str
    topic: _Topic
    type: str
    lives: int = 0
    open: list[_Life] = field(default_factory=list)
    acked: set[tuple[str, Id]] = field(default_factory=set)
    # Without a receipt: forgotten some time.
    perhaps: set[tuple[str, Id]] = field(default_factory=set)


class Invented:
    def __init__(self, chance: random.Random) -> None:
        self.story = Story()
        self._chance = chance
        self.logs: dict[str, list[tuple[Id, Message]]] = defaultdict(list)
        self._late: list[tuple[str, list[Message]]] = []
        self._ledger = 0
        self._ends: dict[str, tuple[int, int]] = {}
        topics = [
            _Topic("plain", 0, "producer", False),
            _Topic("parts", 3, "producer", False),
            _Topic("keyed", 0, "key", False),
            _Topic("once", 2, "producer", True),
        ]
        self._topics = chance.sample(topics, 2)
        self._producers: dict[str, tuple[_Topic, int]] = {}
        self._subscriptions: list[_Subscription] = []

    def run(self, steps: int) -> Story:
        self._begin()
        acts: list[Callable[[], None]] = [self._send] * 2 + [self._consume] * 16 + [self._store_late, self._owners]
        for _ in range(steps):
            self._chance.choice(acts)()
        self._end()
        return self.story

    # ── what there is ──

    def _begin(self) -> None:
        say = self.story.say
        say(RIG, "broker", broker="b1", addresses=["b1:1", "b1:2"])
        for topic in self._topics:
            say(
                RIG,
                "topic",
                topic=topic.name,
                partitions=topic.partitions,
                order=topic.order,
                deduplicated=topic.deduplicated,
            )
            for kind in ("Exclusive", "Failover", "Shared", "Key_Shared", "Reader"):
                one = _Subscription(f"{topic.name}.{kind}", topic, kind)
                self._subscriptions.append(one)
                say(
                    RIG,
                    "subscription",
                    subscription=one.name,
                    topic=topic.name,
                    type=kind,
                    durable=kind != "Reader",
                )
            for number in range(2):
                name = f"{topic.name}/{number}"
                self._producers[name] = (topic, 0)
                say("publish", "producer", producer=name, topic=topic.name)
        self._owners()

    def _owners(self) -> None:
        places = [place for topic in self._topics for place in topic.places]
        self.story.say(RIG, "owners", since=self.story.now, owners={place: ["b1", 7] for place in places})

    # ── producers ──

    def _send(self) -> None:
        name = self._chance.choice(sorted(self._producers))
        topic, number = self._producers[name]
        count = self._chance.randint(1, 5)
        key = self._chance.choice([None, "a", "b", "c"])
        messages = [(name, number + more, f"{self._chance.getrandbits(32):08x}", key) for more in range(count)]
        self._producers[name] = (topic, number + count)
        self.story.say(
            "publish", "sending", producer=name, items=[[number, digest, key] for _, number, digest, _ in messages]
        )
        place = topic.place(key, self._chance)
        ends = [self._stored, self._stored, self._stored_again, self._unknown, self._unknown, self._refused]
        self._chance.choice(ends)(topic, place, messages)

    def _stored(self, topic: _Topic, place: str, messages: list[Message]) -> None:
        self._receipt(place, messages, self._append(place, messages))

    def _stored_again(self, topic: _Topic, place: str, messages: list[Message]) -> None:
        """The first receipt never came, or came late."""
        first = self._append(place, messages)
        if topic.deduplicated:
            again = self._chance.choice([first, [(-1, -1, -1)] * len(first)])
        else:
            again = self._append(place, messages)
        self._receipt(place, messages, self._chance.choice([first, again]))

    def _unknown(self, topic: _Topic, place: str, messages: list[Message]) -> None:
        what = self._chance.choice(["stored", "not", "late"])
        if what == "stored":
            self._append(place, messages)
        elif what == "late":
            self._late.append((place, messages))
        self._given_up("unknown", messages)

    def _refused(self, topic: _Topic, place: str, messages: list[Message]) -> None:
        self._given_up("refused", messages)

    def _given_up(self, how: str, messages: list[Message]) -> None:
        numbers = [number for _, number, _, _ in messages]
        self.story.say("publish", how, producer=messages[0][0], numbers=numbers, why=f"{how} 5 of them")

    def _receipt(self, place: str, messages: list[Message], ids: list[Id]) -> None:
        items = [[number, *one] for (_, number, _, _), one in zip(messages, ids, strict=True)]
        self.story.say("publish", "receipt", producer=messages[0][0], place=place, items=items)

    def _store_late(self) -> None:
        if self._late:
            self._append(*self._late.pop(0))

    def _append(self, place: str, messages: list[Message]) -> list[Id]:
        if place not in self._ends or self._chance.random() < 0.1:
            self._ledger += 1
            self._ends[place] = (self._ledger, 0)
        ledger, entry = self._ends[place]
        batch = self._chance.random() < 0.5
        ids = [(ledger, entry, index) if batch else (ledger, entry + index, -1) for index in range(len(messages))]
        self._ends[place] = (ledger, entry + (1 if batch else len(messages)))
        self.logs[place] += zip(ids, messages, strict=True)
        return ids

    # ── consumers ──

    def _consume(self) -> None:
        one = self._chance.choice(self._subscriptions)
        most = 3 if one.type in ("Shared", "Key_Shared") else 1
        if not one.open or (len(one.open) < most and self._chance.random() < 0.2):
            self._open(one)
            return
        life = self._chance.choice(one.open)
        acts = [self._hand_over] * 4 + [self._acknowledge] * 2 + [self._give_back, self._reconnect]
        acts += [self._close, self._kill] if self._chance.random() < 0.3 else []
        self._chance.choice(acts)(one, life)

    def _open(self, one: _Subscription) -> _Life:
        one.lives += 1
        name = f"{one.name}#{one.lives}"
        life = _Life(name, f"consume {name}")
        self.story.say(life.writer, "opening", consumer=name, subscription=one.name)
        self.story.say(life.writer, "opened", consumer=name)
        one.open.append(life)
        self._connected(one, life)
        return life

    def _connected(self, one: _Subscription, life: _Life) -> None:
        for place in one.topic.places:
            number = life.connection
            self.story.say(life.writer, "connected", consumer=life.name, place=place, broker="b1:1", connection=number)

    def _hand_over(self, one: _Subscription, life: _Life, most: int = 4) -> None:
        place = self._chance.choice(one.topic.places)
        found = list(self._next(one, life, place, self._chance.randint(1, most)))
        if not found:
            return
        since = self.story.now
        items = [[*message, *one_id, 0] for one_id, message in found]
        self.story.say(life.writer, "got", consumer=life.name, since=since, place=place, items=items)
        life.held[place] |= dict(found)

    def _next(self, one: _Subscription, life: _Life, place: str, most: int) -> Iterator[tuple[Id, Message]]:
        """What the broker would hand over next."""
        done = {one_id for at, one_id in one.acked | one.perhaps if at == place}
        log = self.logs[place]
        if one.type in ("Exclusive", "Failover", "Reader"):
            while life.read[place] < len(log) and most:
                one_id, message = log[life.read[place]]
                life.read[place] += 1
                if one_id not in done:
                    most -= 1
                    yield one_id, message
            return
        held = {one_id for other in one.open for one_id in other.held[place]}
        keys_of_others = {
            message[3] for other in one.open if other is not life for message in other.held[place].values()
        }
        free = [(one_id, message) for one_id, message in log if one_id not in done | held]
        if one.type == "Shared":
            self._chance.shuffle(free)
        else:
            free = [(one_id, message) for one_id, message in free if message[3] not in keys_of_others]
        yield from free[:most]

    def _acknowledge(self, one: _Subscription, life: _Life) -> None:
        if one.type == "Reader":
            return
        for place, held in life.held.items():
            ids = list(held)
            if one.type in ("Exclusive", "Failover") and ids and self._chance.random() < 0.5:
                self._acknowledge_up_to(one, life, place, self._chance.choice(ids))
            elif ids:
                self._acknowledge_each(one, life, place, self._chance.sample(ids, self._chance.randint(1, len(ids))))

    def _acknowledge_each(self, one: _Subscription, life: _Life, place: str, ids: list[Id]) -> None:
        told = [list(one_id) for one_id in ids]
        self.story.say(life.writer, "acking", consumer=life.name, place=place, ids=told)
        for one_id in ids:
            del life.held[place][one_id]
        if self._chance.random() < 0.7:
            self.story.say(life.writer, "acked", consumer=life.name, place=place, ids=told)
            one.acked |= {(place, one_id) for one_id in ids}
        else:
            self.story.say(life.writer, "ack_unknown", consumer=life.name, why="timed out")
            one.perhaps |= {(place, one_id) for one_id in ids}

    def _acknowledge_up_to(self, one: _Subscription, life: _Life, place: str, last: Id) -> None:
        self.story.say(life.writer, "acking_up_to", consumer=life.name, place=place, id=list(last))
        ids = {(place, one_id) for one_id, _ in self.logs[place] if one_id <= last}
        life.held[place] = {one_id: message for one_id, message in life.held[place].items() if one_id > last}
        if self._chance.random() < 0.7:
            self.story.say(life.writer, "acked_up_to", consumer=life.name, place=place, id=list(last))
            one.acked |= ids
        else:
            one.perhaps |= ids

    def _give_back(self, one: _Subscription, life: _Life) -> None:
        if one.type not in ("Shared", "Key_Shared"):
            return
        for place, held in life.held.items():
            if held:
                one_id = self._chance.choice(list(held))
                self.story.say(life.writer, "nacked", consumer=life.name, place=place, ids=[list(one_id)])
                life.held[place] = {other: message for other, message in held.items() if other[:2] != one_id[:2]}

    def _reconnect(self, one: _Subscription, life: _Life) -> None:
        """The broker has forgotten what it had no receipt for, perhaps."""
        if self._chance.random() < 0.5:
            one.perhaps.clear()
        life.connection += 1
        life.held.clear()
        if one.type != "Reader":
            life.read.clear()
        self._connected(one, life)
        self._connected(one, life)

    def _close(self, one: _Subscription, life: _Life) -> None:
        self.story.say(life.writer, "closing", consumer=life.name)
        one.open.remove(life)
        self.story.say(life.writer, "closed", consumer=life.name)

    def _kill(self, one: _Subscription, life: _Life) -> None:
        one.open.remove(life)
        self.story.say(RIG, "killed", writer=life.writer)

    # ── the end ──

    def _end(self) -> None:
        for name in self._producers:
            self.story.say("publish", "producer_closed", producer=name)
        for one in self._subscriptions:
            for life in list(one.open):
                self._close(one, life)
            if one.type != "Reader":
                self._drain(one)
        for place in sorted(self.logs):
            items = [[*message, *one_id] for one_id, message in self.logs[place]]
            for at in range(0, len(items), 7):
                self.story.say("spark", "scan", reader="spark", place=place, items=items[at : at + 7])
            self.story.say(RIG, "scanned", reader="spark", place=place, messages=len(items))
        self.story.say(RIG, "ended")

    def _drain(self, one: _Subscription) -> None:
        life = self._open(one)
        one.perhaps.clear()
        for place in one.topic.places:
            while found := list(self._next(one, life, place, 6)):
                items = [[*message, *one_id, 1] for one_id, message in found]
                ids = [list(one_id) for one_id, _ in found]
                self.story.say(life.writer, "got", consumer=life.name, since=self.story.now, place=place, items=items)
                self.story.say(life.writer, "acking", consumer=life.name, place=place, ids=ids)
                self.story.say(life.writer, "acked", consumer=life.name, place=place, ids=ids)
                one.acked |= {(place, one_id) for one_id, _ in found}
        self._close(one, life)
        self.story.say(RIG, "drained", subscription=one.name)


def invent(seed: int, steps: int = 300) -> Invented:
    invented = Invented(random.Random(seed))
    invented.run(steps)
    return invented
