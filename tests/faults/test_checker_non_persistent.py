"""What the judge finds in a non-persistent topic, which may lose messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.faults.invented_histories import RIG, Story
from tests.faults.test_checker_lost import Scene

TOPIC = "non-persistent://public/default/t"


class _NonPersistentScene(Scene):
    """Four messages with receipts, and two consumers of one subscription."""

    def __init__(self, kind: Literal["Exclusive", "Shared"] = "Shared") -> None:
        self.story = Story()
        say = self.story.say
        say(RIG, "topic", topic=TOPIC, partitions=0, order="producer", deduplicated=False)
        say(RIG, "subscription", subscription=f"{TOPIC}.s", topic=TOPIC, type=kind, durable=False)
        for consumer in "ab":
            say("c", "opening", consumer=f"{TOPIC}.s#{consumer}#1", subscription=f"{TOPIC}.s")
        say("p", "producer", producer="p", topic=TOPIC)
        say("p", "sending", producer="p", items=[[number, "00000000", None] for number in range(4)])
        for number in range(4):
            self.receipt(number, TOPIC)

    def fault(self) -> None:
        self.story.say(RIG, "fault", fault=1, kind="KILL", target="broker")
        self.story.say(RIG, "healed", fault=1)

    def comes(self, consumer: str, *numbers: int, **more: Any) -> None:
        self.got(*numbers, name=f"{TOPIC}.s#{consumer}", partition=TOPIC, **more)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_any_message_may_be_lost(kind: Literal["Exclusive", "Shared"], tmp_path: Path) -> None:
    scene = _NonPersistentScene(kind)
    scene.comes("a", 1, 3)
    verdict = scene.verdict(tmp_path)
    assert verdict.clean, str(verdict)
    assert not verdict.not_judged


@pytest.mark.parametrize(("faulty", "found"), [(False, {"non_persistent": 1}), (True, {})])
@pytest.mark.parametrize("consumer", ["a", "b"])
def test_only_producers_that_reconnect_send_again(
    consumer: str, faulty: bool, found: dict[str, int], tmp_path: Path
) -> None:
    scene = _NonPersistentScene()
    scene.comes("a", 0)
    if faulty:
        scene.fault()
    scene.comes(consumer, 0, ledger=2)
    assert scene.findings(tmp_path) == found


def test_messages_of_a_producer_come_in_order(tmp_path: Path) -> None:
    """To each consumer, that is."""
    scene = _NonPersistentScene()
    scene.comes("a", 1)
    scene.comes("b", 0)
    scene.comes("a", 3, 2)
    assert scene.findings(tmp_path) == {"non_persistent": 1}


def test_messages_are_whole_and_were_sent(tmp_path: Path) -> None:
    scene = _NonPersistentScene()
    scene.comes("a", 0, digest="00000001")
    scene.comes("a", 4)
    assert scene.findings(tmp_path) == {"corrupted": 1, "never_sent": 1}
