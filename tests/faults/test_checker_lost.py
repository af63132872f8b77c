"""What is missing, as the judge sees it: what is lost, and what was rightly taken away, trimmed, or never promised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict, judge
from tests.faults.invented_histories import RIG, Story


class Scene:
    """One topic, one durable subscription, and messages that are sent one by one to the ids [1, number, -1]."""

    def __init__(self, **topic: Any) -> None:
        self.story = Story()
        self.sent = 0
        self.topic = {"topic": "t", "partitions": 0, "order": "producer", "deduplicated": False, **topic}
        self.story.say(RIG, "topic", **self.topic)
        self.subscription("t.s")
        self.story.say("p", "producer", producer="p", topic="t")

    def subscription(self, name: str) -> None:
        self.story.say(RIG, "subscription", subscription=name, topic="t", type="Shared", durable=True)
        self.story.say("c", "opening", consumer=f"{name}#1", subscription=name)

    def sends(self, key: str | None = None) -> int:
        self.story.say("p", "sending", producer="p", items=[[self.sent, "00000000", key]])
        self.sent += 1
        return self.sent - 1

    def receipt(self, number: int, partition: str = "t", ledger: int = 1) -> None:
        at = [ledger, number, -1] if ledger >= 0 else [-1, -1, -1]
        self.story.say("p", "receipt", producer="p", place=partition, items=[[number, *at]])

    def stores(self, key: str | None = None, partition: str = "t") -> int:
        number = self.sends(key)
        self.receipt(number, partition)
        return number

    def got(
        self, *numbers: int, name: str = "t.s", partition: str = "t", ledger: int = 1, digest: str = "00000000"
    ) -> None:
        items = [["p", number, digest, None, ledger, number, -1, 0] for number in numbers]
        self.story.say("c", "got", consumer=f"{name}#1", since=self.story.now, place=partition, items=items)

    def acking(self, *numbers: int, name: str = "t.s", ledger: int = 1) -> None:
        ids = [[ledger, number, -1] for number in numbers]
        self.story.say("c", "acking", consumer=f"{name}#1", place="t", ids=ids)

    def act(self, act: str, target: str, result: str = "done") -> None:
        self.story.say(RIG, "act", begun=self.story.now, act=act, target=target, result=result, why="")

    def scanned(self, *numbers: int, partition: str = "t", ledger: int = 1, key: str | None = None) -> None:
        items = [["p", number, "00000000", key, ledger, number, -1] for number in numbers]
        self.story.say("spark", "scan", reader="spark", place=partition, items=items)
        self.story.say(RIG, "scanned", reader="spark", place=partition, messages=len(numbers))

    def drained(self, name: str = "t.s") -> None:
        self.story.say(RIG, "drained", subscription=name)

    def verdict(self, folder: Path) -> Verdict:
        self.story.say(RIG, "ended")
        return judge(self.story.write(folder / "history"))

    def findings(self, folder: Path) -> dict[str, int]:
        return dict(self.verdict(folder).counts)


def test_persisted_message_missing_from_log_is_lost(tmp_path: Path) -> None:
    scene = Scene()
    for _ in range(3):
        scene.stores()
    scene.scanned(0, 2)
    verdict = scene.verdict(tmp_path)
    assert [finding.rule for finding in verdict.findings] == ["lost"]
    assert "message 1 of p" in verdict.findings[0].text


def test_message_answered_as_duplicate_must_be_in_log(tmp_path: Path) -> None:
    scene = Scene(deduplicated=True)
    scene.stores()
    scene.receipt(scene.sends(), ledger=-1)
    scene.scanned(0)
    assert scene.findings(tmp_path) == {"lost": 1}


@pytest.mark.parametrize(("announced", "found"), [({0, 1}, {}), ({0}, {"lost": 1}), (set(), {"lost": 2})])
def test_messages_acknowledged_by_all_subscriptions_may_be_trimmed(
    tmp_path: Path, announced: set[int], found: dict[str, int]
) -> None:
    """Or had begun to acknowledge: an acknowledgement without a receipt may count."""
    scene = Scene()
    scene.subscription("t.other")
    for _ in range(3):
        scene.stores()
    scene.got(0, 1, 2)
    scene.got(0, 1, 2, name="t.other")
    scene.acking(0, 1)
    scene.acking(*sorted(announced), name="t.other")
    scene.scanned(2)
    assert scene.findings(tmp_path) == found


def test_the_end_is_never_trimmed(tmp_path: Path) -> None:
    scene = Scene()
    for _ in range(3):
        scene.stores()
    scene.got(0, 1, 2)
    scene.acking(0, 1, 2)
    scene.scanned(0, 1)
    assert scene.findings(tmp_path) == {"lost": 1}


@pytest.mark.parametrize(
    ("act", "target", "result", "found"),
    [
        ("skip", "t.s", "done", {}),
        ("clear", "t.s", "done", {}),
        ("expire", "t.s", "unknown", {}),
        ("seek", "t.s", "done", {}),
        ("unsubscribe", "t.s", "done", {}),
        ("delete_topic", "t", "done", {}),
        ("clear", "t.s", "refused", {"lost": 1}),
        ("clear", "t.other", "done", {"lost": 1}),
        ("unload", "t", "done", {"lost": 1}),
        ("delete_topic", "other", "done", {"lost": 1}),
    ],
)
def test_messages_removed_by_admin_operation_are_not_lost(
    tmp_path: Path, act: str, target: str, result: str, found: dict[str, int]
) -> None:
    scene = Scene()
    scene.got(scene.stores())
    scene.acking(0)
    scene.stores()
    scene.act(act, target, result)
    scene.drained()
    assert scene.findings(tmp_path) == found


def test_admin_operation_does_not_excuse_loss_of_later_messages(tmp_path: Path) -> None:
    scene = Scene()
    scene.act("clear", "t.s")
    scene.stores()
    scene.drained()
    assert scene.findings(tmp_path) == {"lost": 1}


def test_a_topic_that_was_deleted_took_its_log_with_it(tmp_path: Path) -> None:
    scene = Scene()
    scene.got(scene.stores())
    scene.act("delete_topic", "t")
    scene.story.say(RIG, "topic", **scene.topic)
    number = scene.sends()
    scene.receipt(number, ledger=2)
    scene.scanned(number, ledger=2)
    assert scene.findings(tmp_path) == {}


def test_subscription_may_miss_messages_sent_before_its_creation(tmp_path: Path) -> None:
    scene = Scene()
    scene.stores()
    scene.subscription("t.late")
    scene.drained("t.late")
    assert scene.findings(tmp_path) == {}


def test_message_of_unknown_outcome_may_be_missing_late_or_duplicated(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends()
    late = scene.sends()
    scene.stores()
    scene.story.say("p", "unknown", producer="p", numbers=[0, late], why="timed out")
    scene.story.say("spark", "scan", reader="spark", place="t", items=[["p", 2, "00000000", None, 1, 2, -1]])
    for entry in (3, 4):
        item = ["p", late, "00000000", None, 1, entry, -1]
        scene.story.say("spark", "scan", reader="spark", place="t", items=[item])
    scene.story.say(RIG, "scanned", reader="spark", place="t", messages=3)
    scene.got(2)
    scene.acking(2)
    scene.drained()
    assert scene.findings(tmp_path) == {}


def test_message_id_of_missing_copy_is_reported(tmp_path: Path) -> None:
    """It was handed over there, and the log has another copy: so it vanished."""
    scene = Scene()
    scene.stores()
    number = scene.stores()
    scene.story.say(
        "spark",
        "scan",
        reader="spark",
        place="t",
        items=[["p", 0, "00000000", None, 1, 0, -1], ["p", number, "00000000", None, 1, 7, -1]],
    )
    scene.story.say(RIG, "scanned", reader="spark", place="t", messages=2)
    assert scene.findings(tmp_path / "unseen") == {"receipts": 1}
    scene.story.lines.pop()
    scene.got(number)
    assert scene.findings(tmp_path / "seen") == {"vanished": 1}


@pytest.mark.parametrize("partition", ["other", "t-partition-2", "t"])
def test_send_result_must_name_a_partition_of_the_topic(tmp_path: Path, partition: str) -> None:
    scene = Scene(partitions=2)
    scene.stores(partition=partition)
    assert scene.findings(tmp_path) == {"receipts": 1}


def test_ledger_belongs_to_one_partition(tmp_path: Path) -> None:
    scene = Scene(partitions=2)
    scene.stores(partition="t-partition-0")
    scene.stores(partition="t-partition-1")
    scene.scanned(0, partition="t-partition-0")
    scene.scanned(1, partition="t-partition-1")
    assert scene.findings(tmp_path) == {"corrupted": 1}


@pytest.mark.parametrize(("grows", "found"), [(True, {}), (False, {"places": 1})])
def test_keys_move_when_a_topic_grows(tmp_path: Path, grows: bool, found: dict[str, int]) -> None:
    scene = Scene(partitions=2)
    scene.receipt(scene.sends("k"), "t-partition-0", 1)
    if grows:
        scene.story.say(RIG, "topic", **{**scene.topic, "partitions": 3})
    scene.receipt(scene.sends("k"), "t-partition-1", 2)
    scene.scanned(0, partition="t-partition-0", ledger=1, key="k")
    scene.scanned(1, partition="t-partition-1", ledger=2, key="k")
    assert scene.findings(tmp_path) == found


def test_message_is_stored_in_one_partition(tmp_path: Path) -> None:
    scene = Scene(partitions=2)
    scene.receipt(scene.sends(), "t-partition-0", 1)
    scene.scanned(0, partition="t-partition-0", ledger=1)
    scene.scanned(0, partition="t-partition-1", ledger=2)
    assert scene.findings(tmp_path) == {"places": 1}
