"""What the judge finds in topics whose policies retain, expire or evict messages; and readers that begin at an id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.invented_histories import RIG
from tests.faults.test_checker_lost import Scene

# Each message is sent so long after the one before it.
STEP_S = 10.0


class AgeingScene(Scene):
    def stores_over_time(self, count: int) -> None:
        for _ in range(count):
            self.stores()
            self.story.now += STEP_S

    def looks(self, *numbers: int, whole: bool = True) -> None:
        """A reader from the beginning gets these messages."""
        name = f"t.look{len(self.story.lines)}"
        say = self.story.say
        say("c", "subscription", subscription=name, topic="t", type="Reader", durable=False)
        say("c", "opening", consumer=f"{name}#1", subscription=name)
        self.got(*numbers, name=name)
        if whole:
            say("c", "looked", consumer=f"{name}#1")

    def begins_at(self, start: int, *numbers: int, faulty: bool = False, **more: bool | str) -> None:
        """`faulty`: there is a fault before the reader gets its first message."""
        name = f"t.start{len(self.story.lines)}"
        say = self.story.say
        say("c", "subscription", subscription=name, topic="t", type="Reader", durable=False)
        say("c", "opening", consumer=f"{name}#1", subscription=name, start=[1, start, -1], **more)
        if faulty:
            say(RIG, "fault", fault=1, kind="KILL", target="broker")
            say(RIG, "healed", fault=1)
        self.got(*numbers, name=name)


@pytest.mark.parametrize(
    ("got", "whole", "found"),
    [
        (range(10), True, {}),
        (range(5, 10), True, {}),
        (range(9), True, {"retained": 1}),
        ([5, 6, 8, 9], True, {"retained": 1}),
        ([5, 6], False, {}),
    ],
)
def test_young_messages_are_retained(tmp_path: Path, got: range, whole: bool, found: dict[str, int]) -> None:
    """RET-2: of ten messages the last five are younger than 58 s. A reader that was cut off proves nothing."""
    scene = AgeingScene(retention_s=60)
    scene.stores_over_time(10)
    scene.looks(*got, whole=whole)
    assert scene.findings(tmp_path) == found


def test_messages_without_a_receipt_need_not_be_retained(tmp_path: Path) -> None:
    scene = AgeingScene(retention_s=60)
    scene.stores_over_time(2)
    late = scene.sends()
    scene.looks(0, 1)
    scene.receipt(late)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize(("ttl_s", "found"), [(35, {}), (45, {"lost": 1}), (0, {"lost": 3})])
def test_only_old_messages_expire(tmp_path: Path, ttl_s: int, found: dict[str, int]) -> None:
    """RET-2: ages are 60, 50, 40, 30 … s when the subscription has no backlog; it never got the first three."""
    scene = AgeingScene(ttl_s=ttl_s)
    scene.stores_over_time(6)
    scene.got(3, 4, 5)
    scene.acking(3, 4, 5)
    scene.drained()
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(("quota_messages", "found"), [(3, {}), (4, {"lost": 1}), (0, {"lost": 3})])
def test_quota_never_evicts_the_last_messages(tmp_path: Path, quota_messages: int, found: dict[str, int]) -> None:
    """RET-4: of six messages the first three were evicted."""
    scene = AgeingScene(quota_messages=quota_messages)
    scene.stores_over_time(6)
    scene.got(3, 4, 5)
    scene.acking(3, 4, 5)
    scene.drained()
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(("quota_messages", "found"), [(3, {}), (0, {"order": 1})])
def test_first_copies_of_evicted_messages_are_unknown(
    tmp_path: Path, quota_messages: int, found: dict[str, int]
) -> None:
    """Messages 0, 1 and 2 were resent, and stored twice. Nobody saw the first copy of 0, which was evicted."""
    scene = AgeingScene(quota_messages=quota_messages)
    for number in range(3):
        scene.sends()
        scene.receipt(number, ledger=2)
    scene.got(1, 2)
    scene.got(0, 1, 2, ledger=2)
    scene.acking(0, 1, 2, ledger=2)
    scene.drained()
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(("ttl_s", "found"), [(35, {}), (100, {"skipped": 1})])
def test_consumer_skips_expired_messages_only(tmp_path: Path, ttl_s: int, found: dict[str, int]) -> None:
    scene = AgeingScene(ttl_s=ttl_s)
    scene.story.say("c", "subscription", subscription="t.e", topic="t", type="Exclusive", durable=True)
    scene.story.say("c", "opening", consumer="t.e#1", subscription="t.e")
    scene.stores_over_time(6)
    scene.got(3, 4, 5, name="t.e")
    scene.scanned(*range(6))
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(
    ("got", "is_chunked", "found"),
    [
        ([2, 3], False, {}),
        ([3], False, {"started": 1}),
        ([1, 2], False, {"started": 1}),
        ([], False, {}),
        ([1, 2], True, {}),
        ([1, 3], True, {"started": 1}),
    ],
)
def test_reader_gets_the_message_at_which_it_begins(
    tmp_path: Path, got: list[int], is_chunked: bool, found: dict[str, int]
) -> None:
    """CON-7: a chunked message comes after those between its chunks."""
    scene = AgeingScene()
    scene.stores_over_time(4)
    scene.begins_at(2, *got, start_is_chunked=is_chunked)
    assert scene.findings(tmp_path) == found


@pytest.mark.parametrize(
    ("got", "is_chunked", "faulty", "found"),
    [
        ([1, 2], False, True, {}),
        ([1, 3], False, True, {"started": 1}),
        ([3], False, True, {"started": 1}),
        ([3], True, True, {}),
        ([1, 2], False, False, {"started": 1}),
        ([3], True, False, {"started": 1}),
    ],
)
def test_stock_readers_that_reconnect_begin_elsewhere(
    tmp_path: Path, got: list[int], is_chunked: bool, faulty: bool, found: dict[str, int]
) -> None:
    """A skipped message is a finding, unless its chunks could not be put together."""
    scene = AgeingScene()
    scene.stores_over_time(4)
    scene.begins_at(2, *got, start_is_chunked=is_chunked, library="pulsar-client", faulty=faulty)
    assert scene.findings(tmp_path) == found
