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

    def key_of(self, number: int) -> str | None:
        """The message's key."""
        return None

    def seen(self, *who: str) -> None:
        """Write the line twice: the state that was seen has held since the line before."""
        for one in (who or ("A", "B")) * 2:
            number, broker = self.connection[one], self.broker[one]
            self.story.say(one, "connected", consumer=f"t.s#{one}", place="t", broker=broker, connection=number)

    def got(self, who: str, *numbers: int) -> None:
        items = [["p", number, "00000000", self.key_of(number), 1, number, -1, 0] for number in numbers]
        self.story.say(who, "got", consumer=f"t.s#{who}", since=self.story.now, place="t", items=items)

    def record(self, who: str, what: str, *numbers: int) -> None:
        ids = [[1, number, -1] for number in numbers]
        self.story.say(who, what, consumer=f"t.s#{who}", place="t", ids=ids)

    def findings(self, folder: Path, **options: Any) -> dict[str, int]:
        self.story.say(RIG, "ended")
        return dict(judge(self.story.write(folder / "history"), **options).counts)
