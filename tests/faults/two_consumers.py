"""An invented history of one topic and two consumers of one subscription, for tests of the checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.checker import judge
from tests.faults.invented_histories import RIG, Story

__all__ = ["TwoConsumers"]


class TwoConsumers:
    """Consumers A and B, each in a process of its own, connected to the broker that owns the topic.

    Messages are at the ids [1, number, -1].
    """

    def __init__(self, kind: str, order: str = "producer", other_broker: str = "b1:1") -> None:
        self.story = Story()
        self.connection = {"A": 1, "B": 1}
        self.broker = {"A": "b1:1", "B": other_broker}
        say = self.story.say
        say(RIG, "broker", broker="b1", addresses=["b1:1"])
        say(RIG, "broker", broker="b2", addresses=["b2:1"])
        say(RIG, "topic", topic="t", partitions=0, order=order, deduplicated=False)
        say(RIG, "subscription", subscription="t.s", topic="t", type=kind, durable=True)
        say("p", "producer", producer="p", topic="t")
        for who in "AB":
            say(who, "opening", consumer=f"t.s#{who}", subscription="t.s")
            say(who, "opened", consumer=f"t.s#{who}")

    def have_letters(self) -> None:
        """The subscription has a retry and a dead letter topic, and the consumers are connected to the former, too."""
        say = self.story.say
        for topic in ("t-s-RETRY", "t-s-DLQ"):
            say(RIG, "topic", topic=topic, partitions=0, order="producer", deduplicated=False)
            say(RIG, "subscription", subscription=f"{topic}.k", topic=topic, type="Exclusive", durable=True)
        say(RIG, "letters", subscription="t.s", retry="t-s-RETRY", dead="t-s-DLQ", most=2)
        self.seen(topic="t-s-RETRY")

    def dead(self, number: int) -> None:
        """The message becomes a dead letter now."""
        self.story.say("K", "opening", consumer=f"t-s-DLQ.k#{number}", subscription="t-s-DLQ.k")
        item = ["p", number, "00000000", self.key_of(number), f"1:{number}:-1", 0, self.story.now]
        self.story.say("K", "letter", consumer=f"t-s-DLQ.k#{number}", place="t-s-DLQ", items=[item])

    def key_of(self, number: int) -> str | None:
        """The message's key."""
        return None

    def seen(self, *who: str, topic: str = "t") -> None:
        """Write the line twice: the state that was seen has held since the line before."""
        for one in (who or ("A", "B")) * 2:
            number, broker = self.connection[one], self.broker[one]
            self.story.say(one, "connected", consumer=f"t.s#{one}", place=topic, broker=broker, connection=number)

    def got(self, who: str, *numbers: int) -> None:
        items = [["p", number, "00000000", self.key_of(number), 1, number, -1, 0] for number in numbers]
        self.story.say(who, "got", consumer=f"t.s#{who}", since=self.story.now, place="t", items=items)

    def got_letter(self, who: str, number: int) -> None:
        item = ["p", number, "00000000", self.key_of(number), 1, number, -1, 0, 1]
        self.story.say(who, "got_letter", consumer=f"t.s#{who}", since=self.story.now, place="t-s-RETRY", items=[item])

    def record(self, who: str, what: str, *numbers: int, topic: str = "t") -> None:
        ids = [[1, number, -1] for number in numbers]
        self.story.say(who, what, consumer=f"t.s#{who}", place=topic, ids=ids)

    def findings(self, folder: Path, **options: Any) -> dict[str, int]:
        self.story.say(RIG, "ended")
        return dict(judge(self.story.write(folder / "history"), **options).counts)
