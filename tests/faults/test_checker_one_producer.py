"""The judge finds two exclusive producers of a topic at a time, and a topic that no candidate gets (CHK-39, PRD-2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.checker import Verdict, judge
from tests.faults.invented_histories import RIG, Story


class Scene:
    """A topic, and producers that store messages one by one at the ends of partitions."""

    def __init__(self, *, exclusive: bool = True, partitions: int = 0) -> None:
        self.story = Story()
        self._sent: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        more = {"exclusive": True} if exclusive else {}
        self.story.say(RIG, "topic", topic="t", partitions=partitions, order="producer", deduplicated=False, **more)

    def begins(self, name: str, mode: str = "WaitForExclusive") -> None:
        self._sent[name] = 0
        self.story.say(name, "producer", producer=name, topic="t", access_mode=mode)

    def opens(self, *names: str) -> None:
        for name in names:
            self.begins(name)
            self.story.say(name, "producer_opened", producer=name)

    def stores(self, name: str, partition: str = "t", *, copies: int = 1) -> None:
        number = self._sent[name]
        self._sent[name] += 1
        self.story.say(name, "sending", producer=name, items=[[number, "00000000", None]])
        for _ in range(copies):
            entry = self._ends[partition] = self._ends.get(partition, -1) + 1
            self._see(name, number, partition, entry)

    def _see(self, name: str, number: int, partition: str, entry: int) -> None:
        item = [name, number, "00000000", None, 1 + int(partition[-1] == "1"), entry, -1]
        self.story.say("reader", "scan", reader="reader", place=partition, items=[item])

    def stores_late(self, name: str, number: int, partition: str = "t") -> None:
        self._ends[partition] += 1
        self._see(name, number, partition, self._ends[partition])

    def closes(self, name: str) -> None:
        self.story.say(name, "producer_closed", producer=name)

    def verdict(self, folder: Path) -> Verdict:
        self.story.say(RIG, "ended")
        return judge(self.story.write(folder / "history"))

    def findings(self, folder: Path) -> dict[str, int]:
        return dict(self.verdict(folder).counts)


def test_producers_one_after_the_other_are_allowed(tmp_path: Path) -> None:
    """One resends, so that a message is stored twice."""
    scene = Scene()
    scene.opens("a", "b", "c")
    for name in ("a", "b", "c"):
        scene.stores(name)
        scene.stores(name, copies=2)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize("exclusive", [True, False])
def test_message_behind_those_of_the_successor_is_found(tmp_path: Path, exclusive: bool) -> None:
    scene = Scene(exclusive=exclusive)
    scene.opens("a", "b")
    scene.stores("a")
    scene.stores("b")
    scene.stores("a")
    verdict = scene.verdict(tmp_path)
    assert dict(verdict.counts) == ({"one_producer": 1} if exclusive else {})
    if exclusive:
        assert "message 1 of a is at [1, 2, -1] in t, behind messages of b" in verdict.findings[0].text


def test_late_copy_of_a_fenced_producer_is_found(tmp_path: Path) -> None:
    """It was stored before; the copy came from a connection that the broker should have ended."""
    scene = Scene()
    scene.opens("a", "b")
    scene.stores("a")
    scene.stores("b")
    scene.stores_late("a", 0)
    assert scene.findings(tmp_path) == {"one_producer": 1}


@pytest.mark.parametrize(("second", "found"), [("ab", {}), ("ba", {"one_producer": 1})])
def test_partitions_have_their_producers_in_one_order(tmp_path: Path, second: str, found: dict[str, int]) -> None:
    scene = Scene(partitions=2)
    scene.opens("a", "b")
    for partition, names in (("t-partition-0", "ab"), ("t-partition-1", second)):
        for name in names:
            scene.stores(name, partition)
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(
    ("mode", "seconds", "disturbed", "found"),
    [
        ("WaitForExclusive", 30.0, False, {"one_producer": 1}),
        ("ExclusiveWithFencing", 30.0, False, {"one_producer": 1}),
        ("WaitForExclusive", 5.0, False, {}),
        ("WaitForExclusive", 30.0, True, {}),
        ("Exclusive", 30.0, False, {}),
    ],
)
def test_candidate_gets_a_topic_that_nobody_has(
    tmp_path: Path, mode: str, seconds: float, disturbed: bool, found: dict[str, int]
) -> None:
    scene = Scene()
    scene.opens("a")
    scene.begins("b", mode)
    scene.stores("a")
    scene.closes("a")
    if disturbed:
        scene.story.say(RIG, "fault", fault=1, kind="CUT", target="b1")
    scene.story.now += seconds
    assert scene.findings(tmp_path) == found


def test_candidate_may_wait_while_another_producer_is_open(tmp_path: Path) -> None:
    scene = Scene()
    scene.opens("a")
    scene.begins("b")
    scene.story.now += 60.0
    assert scene.findings(tmp_path) == {}
