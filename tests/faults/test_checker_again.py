"""Redelivery and order of delivery, as the judge sees them: what may come again, and what must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict, judge
from tests.faults.invented_histories import RIG, Story


class Scene:
    """Ten messages at the ids [1, 0..4, 0..1] of one topic, in batches of two, and one subscription."""

    def __init__(self, kind: str = "Shared", durable: bool = True) -> None:
        self.story = Story()
        say = self.story.say
        say(RIG, "topic", topic="t", partitions=0, order="producer", deduplicated=False)
        say(RIG, "subscription", subscription="t.s", topic="t", type=kind, durable=durable)
        say("p", "producer", producer="p", topic="t")
        say("p", "sending", producer="p", items=[[number, "00000000", None] for number in range(10)])

    def open(self, who: str) -> None:
        self.story.say(who, "opening", consumer=f"t.s#{who}", subscription="t.s")
        self.story.say(who, "opened", consumer=f"t.s#{who}")

    def seen(self, who: str, connection: int) -> None:
        """Write the line twice: its state has held since the line before it."""
        for _ in range(2):
            self.story.say(who, "connected", consumer=f"t.s#{who}", place="t", broker="b:1", connection=connection)

    def got(self, who: str, *numbers: int) -> None:
        items = [["p", number, "00000000", None, 1, number // 2, number % 2, 0] for number in numbers]
        self.story.say(who, "got", consumer=f"t.s#{who}", since=self.story.now, place="t", items=items)

    def record(self, who: str, what: str, *ids: list[int]) -> None:
        named: dict[str, Any] = {"id": ids[0]} if what.endswith("up_to") else {"ids": list(ids)}
        self.story.say(who, what, consumer=f"t.s#{who}", place="t", **named)

    def act(self, act: str, result: str = "done", target: str = "t.s") -> None:
        self.story.say(RIG, "act", begun=self.story.now, act=act, target=target, result=result, why="")

    def verdict(self, folder: Path) -> Verdict:
        self.story.say(RIG, "ended")
        return judge(self.story.write(folder / "history"))

    def findings(self, folder: Path) -> dict[str, int]:
        return dict(self.verdict(folder).counts)


WHOLE = [1, 1, -1]


@pytest.mark.parametrize(
    ("what", "one_id", "covered"),
    [
        ("ed", [1, 1, 0], {2}),
        ("ed", WHOLE, {2, 3}),
        ("ed_up_to", [1, 1, 0], {0, 1, 2}),
        ("ed_up_to", WHOLE, {0, 1, 2, 3}),
    ],
)
def test_ack_receipt_covers_only_the_messages_it_names(
    tmp_path: Path, what: str, one_id: list[int], covered: set[int]
) -> None:
    for number in range(6):
        scene = Scene()
        scene.open("A")
        scene.got("A", *range(6))
        scene.record("A", what.replace("ed", "acking", 1), one_id)
        scene.record("A", f"ack{what}", one_id)
        scene.open("B")
        scene.got("B", number)
        expected = {"redelivered": 1} if number in covered else {}
        assert scene.findings(tmp_path / f"{number}") == expected, number


def test_message_without_ack_receipt_may_be_redelivered(tmp_path: Path) -> None:
    scene = Scene()
    scene.open("A")
    scene.got("A", 0, 1)
    scene.record("A", "acking", [1, 0, 0])
    scene.story.say("A", "ack_unknown", consumer="t.s#A", why="timed out")
    scene.open("B")
    scene.got("B", 0, 1)
    assert scene.findings(tmp_path) == {}


def test_message_in_flight_at_ack_receipt_may_be_delivered(tmp_path: Path) -> None:
    """B was open before the receipt, and no line shows that it reconnected after it."""
    scene = Scene()
    scene.open("A")
    scene.open("B")
    scene.seen("B", 1)
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.seen("B", 1)
    scene.got("B", 0)
    assert scene.findings(tmp_path) == {}


def test_redelivery_after_ack_receipt_and_reconnection_is_reported(tmp_path: Path) -> None:
    scene = Scene()
    scene.open("A")
    scene.open("B")
    scene.seen("B", 1)
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.seen("B", 1)
    scene.seen("B", 2)
    scene.got("B", 0)
    assert scene.findings(tmp_path) == {"redelivered": 1}


def test_a_connection_that_may_be_older_than_the_receipt_proves_nothing(tmp_path: Path) -> None:
    scene = Scene()
    scene.open("A")
    scene.open("B")
    scene.seen("B", 1)
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.seen("B", 2)
    scene.got("B", 0)
    assert scene.findings(tmp_path) == {}


def test_receive_begun_before_reconnection_proves_no_redelivery(tmp_path: Path) -> None:
    scene = Scene()
    scene.open("A")
    scene.open("B")
    scene.seen("B", 1)
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.seen("B", 1)
    requested_at = scene.story.now
    scene.seen("B", 2)
    scene.got("B", 0)
    scene.story.lines[-1]["since"] = requested_at
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize(
    ("act", "result", "expected"),
    [
        ("seek", "done", {}),
        ("seek", "unknown", {}),
        ("seek", "refused", {"redelivered": 1}),
        ("unsubscribe", "done", {}),
        ("unload", "done", {"redelivered": 1}),
    ],
)
def test_seek_and_unsubscribe_excuse_redelivery_unless_refused(
    tmp_path: Path, act: str, result: str, expected: dict[str, int]
) -> None:
    scene = Scene()
    scene.open("A")
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.act(act, result)
    scene.open("B")
    scene.got("B", 0)
    assert scene.findings(tmp_path) == expected


def test_an_act_that_was_over_before_the_receipt_explains_nothing(tmp_path: Path) -> None:
    scene = Scene()
    scene.open("A")
    scene.got("A", 0)
    scene.act("seek")
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.open("B")
    scene.got("B", 0)
    assert scene.findings(tmp_path) == {"redelivered": 1}


def test_non_durable_subscription_may_redeliver_acknowledged_messages(tmp_path: Path) -> None:
    scene = Scene(durable=False)
    scene.open("A")
    scene.got("A", 0)
    scene.record("A", "acking", [1, 0, 0])
    scene.record("A", "acked", [1, 0, 0])
    scene.open("B")
    scene.got("B", 0)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Exclusive", {"delivered_order": 1}),
        ("Failover", {"delivered_order": 1}),
        ("Reader", {"delivered_order": 1}),
        ("Key_Shared", {"key_order": 1}),
        ("Shared", {}),
    ],
)
def test_first_delivery_must_be_in_order_unless_shared(tmp_path: Path, kind: str, expected: dict[str, int]) -> None:
    scene = Scene(kind)
    scene.open("A")
    scene.got("A", 0, 2, 1, 3)
    assert scene.findings(tmp_path) == expected


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Reader"])
def test_unacknowledged_messages_may_be_redelivered_repeatedly(tmp_path: Path, kind: str) -> None:
    scene = Scene(kind)
    scene.open("A")
    scene.got("A", 0, 1, 2, 3)
    scene.got("A", 0, 1, 2, 3, 4)
    scene.got("A", 2)
    scene.open("B")
    scene.got("B", 0, 1)
    assert scene.findings(tmp_path) == {}


def test_an_acknowledgement_that_was_forgotten_shows_late(tmp_path: Path) -> None:
    """The broker skipped message 2, which A had acknowledged, until it forgot that; there was no receipt."""
    scene = Scene("Exclusive")
    scene.open("A")
    scene.got("A", 0, 1, 2)
    scene.record("A", "acking", [1, 1, 0])
    scene.open("B")
    scene.got("B", 0, 1, 3)
    scene.got("B", 0, 1, 2, 3)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize(("result", "expected"), [("done", {}), ("refused", {"delivered_order": 1})])
def test_delivery_may_start_at_another_position_after_seek(
    tmp_path: Path, result: str, expected: dict[str, int]
) -> None:
    scene = Scene("Exclusive")
    scene.open("A")
    scene.got("A", 4, 5)
    scene.act("seek", result)
    scene.got("A", 1, 2, 3)
    assert scene.findings(tmp_path) == expected
