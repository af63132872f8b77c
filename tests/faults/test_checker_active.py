"""Exclusive and Failover, as the judge sees them: two consumers that are served at once, and all that only looks so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.two_consumers import TwoConsumers


class Scene(TwoConsumers):
    """Messages are sent one by one. Times are not judged."""

    def __init__(self, kind: str = "Failover", other_broker: str = "b1:1") -> None:
        super().__init__(kind, other_broker=other_broker)
        self.sent = 0
        self.seen()

    def sends(self) -> int:
        self.story.say("p", "sending", producer="p", items=[[self.sent, "00000000", None]])
        self.story.say("p", "receipt", producer="p", place="t", items=[[self.sent, 1, self.sent, -1]])
        self.sent += 1
        return self.sent - 1

    def acknowledges(self, who: str, number: int, *, up_to: bool = False, receipt: bool = True) -> None:
        for what in ("acking", "acked") if receipt else ("acking",):
            if up_to:
                self.story.say(who, f"{what}_up_to", consumer=f"t.s#{who}", place="t", id=[1, number, -1])
            else:
                self.record(who, what, number)
        if not receipt:
            self.story.say(who, "ack_unknown", consumer=f"t.s#{who}", why="stale")

    def findings(self, folder: Path, **options: Any) -> dict[str, int]:
        return super().findings(folder, times=False, **options)


@pytest.mark.parametrize("up_to", [False, True])
@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_overlapping_acknowledgements_of_two_consumers_are_reported(tmp_path: Path, kind: str, up_to: bool) -> None:
    scene = Scene(kind)
    one = scene.sends()
    scene.got("A", one)
    scene.got("B", one)
    scene.acknowledges("A", one, up_to=up_to)
    scene.acknowledges("B", one, up_to=up_to)
    scene.seen()
    assert scene.findings(tmp_path) == {"one_active": 1}


def test_delivery_to_second_consumer_while_first_is_active_is_reported(tmp_path: Path) -> None:
    """Whether it acknowledges anything or not."""
    scene = Scene()
    one = scene.sends()
    scene.got("A", one)
    scene.got("B", one, scene.sends())
    scene.acknowledges("A", one)
    scene.seen()
    assert scene.findings(tmp_path) == {"one_active": 1}


def test_prefetched_messages_may_be_delivered_while_another_is_active(tmp_path: Path) -> None:
    """It was sent before the other one had anything; and its acknowledgement has no receipt."""
    scene = Scene()
    one, other = scene.sends(), scene.sends()
    scene.got("A", one)
    scene.got("B", one, other)
    scene.acknowledges("B", other, receipt=False)
    scene.acknowledges("A", one)
    scene.seen()
    assert scene.findings(tmp_path) == {}


def test_one_after_the_other_may_be_served_and_again_the_first(tmp_path: Path) -> None:
    scene = Scene()
    one, two = scene.sends(), scene.sends()
    scene.got("A", one, two)
    scene.acknowledges("A", one)
    scene.got("B", two)
    scene.acknowledges("B", two)
    three = scene.sends()
    scene.got("A", three)
    scene.acknowledges("A", three)
    scene.seen()
    assert scene.findings(tmp_path) == {}


def test_reconnected_consumer_may_acknowledge_earlier_messages(tmp_path: Path) -> None:
    """Another one may have been served in between."""
    scene = Scene()
    one = scene.sends()
    scene.got("A", one)
    scene.got("B", one)
    scene.acknowledges("B", one)
    scene.seen("B")
    scene.connection["A"] = 2
    scene.acknowledges("A", one)
    scene.seen()
    assert scene.findings(tmp_path) == {}


def test_two_brokers_may_both_take_themselves_for_the_owner(tmp_path: Path) -> None:
    scene = Scene(other_broker="b2:1")
    one = scene.sends()
    scene.got("A", one)
    scene.got("B", one)
    scene.acknowledges("A", one)
    scene.acknowledges("B", one)
    scene.seen()
    assert scene.findings(tmp_path) == {}


def test_of_a_shared_subscription_all_are_served(tmp_path: Path) -> None:
    scene = Scene("Shared")
    one, two = scene.sends(), scene.sends()
    scene.got("A", one)
    scene.got("B", two)
    scene.acknowledges("A", one)
    scene.acknowledges("B", two)
    scene.seen()
    assert scene.findings(tmp_path) == {}
