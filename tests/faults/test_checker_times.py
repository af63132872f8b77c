"""Availability, as the judge sees it: what takes too long while nothing disturbs it, and what a fault explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict, judge
from tests.faults.invented_histories import RIG, Story

# The topic has no partitions.
ON_TOPIC = {"place": "t"}


class Scene:
    """One producer sends messages to one topic, and one subscription gets them, at the times that the test sets."""

    def __init__(self, partitions: int = 0, **topic: bool) -> None:
        self.story = Story()
        self.sent = 0
        self.say(0, RIG, "topic", topic="t", partitions=partitions, order="producer", deduplicated=False, **topic)
        self.say(0, RIG, "subscription", subscription="t.s", topic="t", type="Exclusive", durable=True)
        self.say(0, "p", "producer", producer="p", topic="t")
        self.owned(0, 1)

    def say(self, at: float, by: str, what: str, **fields: Any) -> None:
        assert at >= self.story.now - 100.1, "a scene's lines are in order"
        self.story.now = max(self.story.now, 100.0 + at)
        self.story.say(by, what, **fields)

    def owned(self, at: float, session: int) -> None:
        self.say(at, RIG, "owners", since=100.0 + at, owners={"t": ["b1", session]})

    def sends(self, at: float) -> None:
        self.say(at, "p", "sending", producer="p", items=[[self.sent, "00000000", None]])
        self.sent += 1

    def receipt(self, at: float, number: int) -> None:
        self.say(at, "p", "receipt", producer="p", **ON_TOPIC, items=[[number, 1, number, -1]])

    def opens(self, at: float, who: str = "A", *, connected: bool = True) -> None:
        self.say(at, who, "opening", consumer=f"t.s#{who}", subscription="t.s")
        self.say(at, who, "opened", consumer=f"t.s#{who}")
        if connected:
            self.say(at, who, "connected", consumer=f"t.s#{who}", **ON_TOPIC, broker="b1:1", connection=1)

    def got(self, at: float, number: int, who: str = "A") -> None:
        items = [["p", number, "00000000", None, 1, number, -1, 0]]
        self.say(at, who, "got", consumer=f"t.s#{who}", since=100.0, **ON_TOPIC, items=items)

    def fault(self, at: float, number: int = 1, kind: str = "KILL", target: str = "b1") -> None:
        self.say(at, RIG, "fault", fault=number, kind=kind, target=target)

    def healed(self, at: float, number: int = 1) -> None:
        self.say(at, RIG, "healed", fault=number)

    def over(self, at: float, session: int = 1) -> None:
        self.say(at, RIG, "session_over", broker="b1", session=session)

    def verdict(self, folder: Path, at: float, **options: Any) -> Verdict:
        self.say(at, RIG, "ended")
        return judge(self.story.write(folder / "history"), **options)


RECEIPTS = "longest wait for a receipt, by what it followed"
MESSAGES = "longest wait for a message, by what it followed"


@pytest.mark.parametrize(("seconds", "found"), [(9, {}), (11, {"unavailable": 1})])
def test_publish_wait_beyond_limit_is_reported(tmp_path: Path, seconds: float, found: dict[str, int]) -> None:
    scene = Scene()
    scene.sends(1)
    scene.receipt(1 + seconds, 0)
    verdict = scene.verdict(tmp_path, 20)
    assert dict(verdict.counts) == found
    assert verdict.figures[RECEIPTS] == {"BEGIN": pytest.approx(seconds, abs=0.1)}


@pytest.mark.parametrize(("acknowledged_at", "found"), [(3, {"unavailable": 1}), (10, {})])
def test_producers_that_a_quota_holds_wait_for_acknowledgements(
    tmp_path: Path, acknowledged_at: float, found: dict[str, int]
) -> None:
    scene = Scene(holds_producers=True)
    scene.opens(0)
    scene.sends(1)
    scene.say(acknowledged_at, "A", "acking_up_to", consumer="t.s#A", **ON_TOPIC, id=[1, 0, -1])
    scene.receipt(15, 0)
    scene.got(15, 0)
    assert dict(scene.verdict(tmp_path, 20).counts) == found


def test_waits_are_reported_but_not_judged_if_times_is_false(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.receipt(15, 0)
    verdict = scene.verdict(tmp_path, 20, times=False)
    assert verdict.clean
    assert verdict.figures[RECEIPTS] == {"BEGIN": pytest.approx(14, abs=0.1)}


def test_the_limit_is_the_callers(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.receipt(4, 0)
    assert dict(scene.verdict(tmp_path, 20, limit_s=2.0).counts) == {"unavailable": 1}


def test_idle_producer_does_not_wait(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.receipt(2, 0)
    scene.sends(40)
    scene.receipt(41, 1)
    assert scene.verdict(tmp_path, 80).clean


def test_publish_wait_ends_when_outcome_is_unknown(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.say(5, "p", "unknown", producer="p", numbers=[0], why="timed out")
    scene.sends(5)
    scene.receipt(9, 1)
    assert scene.verdict(tmp_path, 40).clean


def test_pending_message_waits_until_the_run_ends(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    assert dict(scene.verdict(tmp_path, 13).counts) == {"unavailable": 1}


@pytest.mark.parametrize(("seconds", "found"), [(9, {}), (11, {"unavailable": 1})])
@pytest.mark.parametrize("partitions", [0, 2])
def test_wait_of_timed_out_message_counts_for_any_partition(
    tmp_path: Path, partitions: int, seconds: float, found: dict[str, int]
) -> None:
    scene = Scene(partitions)
    scene.sends(1)
    for again in range(1, int(seconds)):
        if partitions:  # the other one is well
            scene.sends(1 + again)
            items = [[again, 1, again, -1]]
            scene.say(1 + again, "p", "receipt", producer="p", place="t-partition-1", items=items)
    scene.say(1 + seconds, "p", "unknown", producer="p", numbers=[0], why="Timeout")
    assert dict(scene.verdict(tmp_path, 20).counts) == found


@pytest.mark.parametrize("what", ["killed", "producer_closed"])
def test_wait_ends_when_producer_is_killed_or_closed(tmp_path: Path, what: str) -> None:
    scene = Scene()
    scene.sends(1)
    scene.say(3, RIG, what, **({"writer": "p"} if what == "killed" else {"producer": "p"}))
    assert scene.verdict(tmp_path, 40).clean


@pytest.mark.parametrize(("resumed", "found"), [(39, {}), (41.5, {"unavailable": 1})])
def test_after_a_fault_the_wait_is_from_when_it_was_healed(
    tmp_path: Path, resumed: float, found: dict[str, int]
) -> None:
    scene = Scene()
    scene.sends(1)
    scene.fault(2, kind="PAUSE", target="zookeeper-1")
    scene.healed(30)
    scene.receipt(resumed, 0)
    verdict = scene.verdict(tmp_path, 60)
    assert dict(verdict.counts) == found
    assert verdict.figures[RECEIPTS]["PAUSE"] == pytest.approx(resumed - 30, abs=0.1)


def test_a_fault_that_is_never_healed_disturbs_to_the_end(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.fault(2, target="bookie-1")
    scene.receipt(40, 0)
    assert scene.verdict(tmp_path, 60).clean


@pytest.mark.parametrize(("resumed", "found"), [(15, {}), (17, {"unavailable": 1})])
def test_after_a_brokers_fault_the_wait_is_from_when_its_session_was_over(
    tmp_path: Path, resumed: float, found: dict[str, int]
) -> None:
    """It is down for long; others serve in its stead."""
    scene = Scene()
    scene.sends(1)
    scene.fault(2)
    scene.over(6)
    scene.receipt(resumed, 0)
    scene.healed(50)
    assert dict(scene.verdict(tmp_path, 60).counts) == found


def test_a_session_that_is_over_after_its_brokers_fault_was_healed_counts(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.fault(2, kind="BLINK")
    scene.healed(3)
    scene.over(7)
    scene.receipt(16, 0)
    verdict = scene.verdict(tmp_path, 60)
    assert verdict.clean
    assert verdict.figures[RECEIPTS]["BLINK"] == pytest.approx(9, abs=0.1)


def test_a_broker_that_is_back_before_its_fault_is_healed_disturbs_again(tmp_path: Path) -> None:
    """It takes over partitions, and is still cut off from clients."""
    scene = Scene()
    scene.sends(1)
    scene.fault(2, kind="CUT")
    scene.over(6)
    scene.receipt(8, 0)
    scene.owned(10, 2)
    scene.sends(11)
    scene.receipt(39, 1)
    scene.healed(40)
    assert scene.verdict(tmp_path, 60).clean


def test_session_end_without_fault_restarts_the_wait(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.over(8)
    scene.receipt(17, 0)
    assert scene.verdict(tmp_path, 60).clean


def test_faults_that_overlap_disturb_until_the_last_is_healed(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.fault(2, 1, target="bookie-1")
    scene.fault(4, 2, "HOLD", target="bookie-2")
    scene.healed(6, 1)
    scene.healed(20, 2)
    scene.receipt(29, 0)
    verdict = scene.verdict(tmp_path, 60)
    assert verdict.clean
    assert verdict.figures["seconds without a fault"] == pytest.approx(2 + 40, abs=0.2)


@pytest.mark.parametrize(("seconds", "found"), [(9, {}), (11, {"unavailable": 1})])
def test_a_subscription_that_is_handed_nothing(tmp_path: Path, seconds: float, found: dict[str, int]) -> None:
    scene = Scene()
    scene.opens(0)
    scene.sends(1)
    scene.receipt(1.5, 0)
    scene.got(1.5 + seconds, 0)
    verdict = scene.verdict(tmp_path, 40)
    assert dict(verdict.counts) == found
    assert verdict.figures[MESSAGES] == {"BEGIN": pytest.approx(seconds, abs=0.1)}


def test_a_subscription_without_a_consumer_waits_for_nothing(tmp_path: Path) -> None:
    scene = Scene()
    scene.sends(1)
    scene.receipt(1.5, 0)
    scene.opens(30)
    scene.got(31, 0)
    assert scene.verdict(tmp_path, 40).clean


def test_consumer_never_connected_to_topic_does_not_wait(tmp_path: Path) -> None:
    scene = Scene()
    scene.opens(0, connected=False)
    scene.sends(1)
    scene.receipt(1.5, 0)
    scene.got(30, 0)
    assert scene.verdict(tmp_path, 40).clean


def test_a_consumer_that_waited_in_vain_until_it_closed_waited(tmp_path: Path) -> None:
    scene = Scene()
    scene.opens(0)
    scene.sends(1)
    scene.receipt(1.5, 0)
    scene.say(14, "A", "closing", consumer="t.s#A")
    scene.opens(14, "B")
    scene.got(15, 0, "B")
    assert dict(scene.verdict(tmp_path, 40).counts) == {"unavailable": 1}


def test_any_delivery_ends_the_wait(tmp_path: Path) -> None:
    scene = Scene()
    scene.opens(0)
    for _ in range(4):
        scene.sends(1)
    for number in range(4):
        scene.receipt(1.2, number)
    scene.got(9, 0)
    scene.got(17, 0)
    scene.got(25, 3)
    scene.got(34, 1)
    scene.got(34.5, 2)
    assert dict(scene.verdict(tmp_path, 60).counts) == {"delivered_order": 1}
