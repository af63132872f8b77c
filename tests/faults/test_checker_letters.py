"""Retry and dead letter topics, as the judge sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import judge
from tests.faults.invented_histories import RIG, Story

RETRY, DEAD = "t-s-RETRY", "t-s-DLQ"


class Scene:
    """Consumers A and B of a subscription with a dead letter topic, after two redeliveries. The messages 0 to 3 are at
    the ids [1, number, -1]; a letter is at [9, number, -1].
    """

    def __init__(self) -> None:
        self.story = Story()
        say = self.story.say
        for topic in ("t", RETRY, DEAD):
            say(RIG, "topic", topic=topic, partitions=0, order="producer", deduplicated=False)
        for topic, name, kind in (("t", "s", "Shared"), (RETRY, "s", "Shared"), (RETRY, "k", "Exclusive")):
            say(RIG, "subscription", subscription=f"{topic}.{name}", topic=topic, type=kind, durable=True)
        say(RIG, "subscription", subscription=f"{DEAD}.k", topic=DEAD, type="Exclusive", durable=True)
        say(RIG, "letters", subscription="t.s", retry=RETRY, dead=DEAD, most=2)
        for one in ("t.s#A", "t.s#B", f"{RETRY}.k#K", f"{DEAD}.k#K"):
            say(one[-1], "opening", consumer=one, subscription=one[:-2])
            say(one[-1], "opened", consumer=one)
        say("p", "producer", producer="p", topic="t")
        say("p", "sending", producer="p", items=[[number, "00000000", "k"] for number in range(4)])
        say("p", "receipt", producer="p", place="t", items=[[number, 1, number, -1] for number in range(4)])
        for number in (1, 2, 3):
            self.got(number)
            self.record("acking", number)

    def got(self, number: int, redeliveries: int = 0, times: int = 0, who: str = "A") -> None:
        item = ["p", number, "00000000", "k", 9 if times else 1, number, -1, redeliveries]
        topic, what = (RETRY, "got_letter") if times else ("t", "got")
        more = [times] if times else []
        self.story.say(who, what, consumer=f"t.s#{who}", since=self.story.now, place=topic, items=[[*item, *more]])

    def record(self, what: str, number: int, topic: str = "t", who: str = "A") -> None:
        ids = [[9 if topic == RETRY else 1, number, -1]]
        self.story.say(who, what, consumer=f"t.s#{who}", place=topic, ids=ids)

    def letter(
        self, topic: str, number: int, times: int, digest: str = "00000000", origin: str = "", key: str | None = "k"
    ) -> None:
        item = ["p", number, digest, key, origin or f"1:{number}:-1", times, self.story.now]
        self.story.say("K", "letter", consumer=f"{topic}.k#K", place=topic, items=[item])

    def findings(self, folder: Path, *left: str) -> dict[str, int]:
        """`left`: subscriptions that were not drained."""
        for name in ("t.s", f"{RETRY}.s", f"{RETRY}.k", f"{DEAD}.k"):
            if name not in left:
                self.story.say(RIG, "drained", subscription=name)
        self.story.say(RIG, "ended")
        return dict(judge(self.story.write(folder / "history"), times=False).counts)


def retried(scene: Scene, times: int = 0) -> None:
    scene.got(0, times=times)
    for what in ("reconsuming", "reconsumed"):
        scene.record(what, 0, RETRY if times else "t")


def test_a_retried_message_ends_acknowledged(tmp_path: Path) -> None:
    scene = Scene()
    retried(scene)
    scene.got(0, times=1)
    scene.record("acking", 0, RETRY)
    scene.letter(RETRY, 0, 1)
    assert scene.findings(tmp_path) == {}


def test_a_message_that_was_retried_too_often_ends_as_a_dead_letter(tmp_path: Path) -> None:
    """There may be two letters of it: the client died before it acknowledged."""
    scene = Scene()
    for times in range(3):
        retried(scene, times)
    for times in (1, 1, 2):
        scene.letter(RETRY, 0, times)
    scene.letter(DEAD, 0, 3)
    assert scene.findings(tmp_path) == {}


def test_a_message_that_was_nacked_too_often_ends_as_a_dead_letter(tmp_path: Path) -> None:
    scene = Scene()
    for redeliveries in range(3):
        scene.got(0, redeliveries)
        scene.record("nacked", 0)
    scene.letter(DEAD, 0, 0)
    assert scene.findings(tmp_path) == {}


def lost_on_its_way_to_the_dead_letters(scene: Scene) -> None:
    for redeliveries in range(3):
        scene.got(0, redeliveries)
        scene.record("nacked", 0)


def never_seen(scene: Scene) -> None:
    pass


def lost_in_the_retry_topic(scene: Scene) -> None:
    retried(scene)
    scene.letter(RETRY, 0, 1)


def acknowledged_without_a_letter(scene: Scene) -> None:
    """The letter of the first retry was stored, and that of the second was not; the message ended well by chance."""
    retried(scene)
    retried(scene, 1)
    scene.record("acking", 0, RETRY)
    scene.letter(RETRY, 0, 1)


def of_another_content(scene: Scene) -> None:
    for redeliveries in range(3):
        scene.got(0, redeliveries)
    scene.letter(DEAD, 0, 0, digest="00000001")


def of_another_key(scene: Scene) -> None:
    for redeliveries in range(3):
        scene.got(0, redeliveries)
    scene.letter(DEAD, 0, 0, key=None)


def of_another_origin(scene: Scene) -> None:
    for redeliveries in range(3):
        scene.got(0, redeliveries)
    scene.letter(DEAD, 0, 0, origin="1:1:-1")


def too_early(scene: Scene) -> None:
    scene.got(0)
    scene.got(0, 1)
    scene.letter(DEAD, 0, 0)


def too_late(scene: Scene) -> None:
    for redeliveries in range(4):
        scene.got(0, redeliveries)
    scene.letter(DEAD, 0, 0)


WRONG = [lost_on_its_way_to_the_dead_letters, never_seen, lost_in_the_retry_topic, acknowledged_without_a_letter]
WRONG += [of_another_content, of_another_key, of_another_origin, too_early, too_late]


@pytest.mark.parametrize("what", WRONG)
def test_a_violation_is_found(tmp_path: Path, what: Any) -> None:
    scene = Scene()
    what(scene)
    assert scene.findings(tmp_path) == {"letters": 1}


def test_pulsars_library_may_hand_out_a_message_too_often(tmp_path: Path) -> None:
    """Its consumers have no dead letters. The message becomes one at the SDK's."""
    scene = Scene()
    scene.story.say("C", "opening", consumer="t.s#C", subscription="t.s", library="pulsar-client")
    for redeliveries in range(4):
        scene.got(0, redeliveries, who="C")
        scene.record("nacked", 0, who="C")
    scene.letter(DEAD, 0, 0)
    assert scene.findings(tmp_path) == {}


def test_a_message_that_no_application_saw_may_be_a_dead_letter(tmp_path: Path) -> None:
    """Each of its three deliveries ended with its consumer."""
    scene = Scene()
    for connection in (1, 2, 3, 4):
        fields = {"place": "t", "broker": "b:1", "connection": connection}
        scene.story.say("B", "connected", consumer="t.s#B", **fields)
    scene.letter(DEAD, 0, 0)
    assert scene.findings(tmp_path) == {}


def test_deliveries_that_nobody_saw_count(tmp_path: Path) -> None:
    """The second one ended with its consumer."""
    scene = Scene()
    scene.got(0, 1, who="B")
    scene.story.say("B", "closing", consumer="t.s#B")
    scene.letter(DEAD, 0, 0)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize("left", [f"{DEAD}.k", f"{RETRY}.s"])
def test_without_all_letters_nothing_is_missing(tmp_path: Path, left: str) -> None:
    scene = Scene()
    lost_on_its_way_to_the_dead_letters(scene)
    assert scene.findings(tmp_path, left) == {}
