"""Key_Shared, as the judge sees it: one key at two consumers at once, and all that only looks so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.invented_histories import RIG
from tests.faults.two_consumers import TwoConsumers

KEYS = ["k", "k", "k", "other"]


class Scene(TwoConsumers):
    """Four messages, the first three with one key."""

    def __init__(self, key: str | None = "k") -> None:
        super().__init__("Key_Shared", order="key")
        self.keys = [key if one == "k" else one for one in KEYS]
        items = [[number, "00000000", key] for number, key in enumerate(self.keys)]
        self.story.say("p", "sending", producer="p", items=items)
        self.owned()
        self.seen()

    def key_of(self, number: int) -> str | None:
        return self.keys[number]

    def owned(self, broker: str = "b1", session: int = 1) -> None:
        owners = {topic: [broker, session] for topic in ("t", "t-s-RETRY")}
        self.story.say(RIG, "owners", since=self.story.now, owners=owners)

    def acknowledge(self, who: str, *numbers: int, topic: str = "t") -> None:
        self.record(who, "acking", *numbers, topic=topic)
        self.record(who, "acked", *numbers, topic=topic)


@pytest.mark.parametrize("key", ["k", "", None])
def test_a_key_at_two_consumers_is_found(tmp_path: Path, key: str | None) -> None:
    scene = Scene(key)
    scene.got("A", 0)
    scene.got("B", 1)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 1)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {"keys": 1, "key_order": 1}


def test_the_same_message_at_two_consumers_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.got("A", 0)
    scene.got("B", 0)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 0)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {"keys": 1}


def test_a_nacked_message_keeps_its_key_at_its_consumer(tmp_path: Path) -> None:
    scene = Scene()
    scene.got("A", 0)
    scene.record("A", "nacked", 0)
    scene.got("B", 0)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 0)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {"keys": 1}


@pytest.mark.parametrize("what", ["", "acking", "reconsuming"])
def test_a_retried_message_keeps_its_key_at_its_consumer(tmp_path: Path, what: str) -> None:
    """(SUB-5, CON-9) Until it is acknowledged or retried again."""
    scene = Scene()
    scene.have_letters()
    scene.owned()
    scene.got_letter("A", 0)
    if what:
        scene.record("A", what, 0, topic="t-s-RETRY")
    scene.got_letter("B", 1)
    scene.got_letter("A", 3)
    scene.acknowledge("A", 3, topic="t-s-RETRY")
    scene.acknowledge("B", 1, topic="t-s-RETRY")
    scene.seen(topic="t-s-RETRY")
    scene.owned()
    assert scene.findings(tmp_path) == ({} if what else {"keys": 1})


@pytest.mark.parametrize("stored", [False, True])
def test_a_dead_letter_frees_its_key(tmp_path: Path, *, stored: bool) -> None:
    """(SUB-5, CON-10) As soon as it is stored: until then its message is its consumer's."""
    scene = Scene()
    scene.have_letters()
    scene.got("A", 0)
    scene.record("A", "nacked", 0)
    if stored:
        scene.dead(0)
    scene.got("B", 1)
    scene.got("A", 3)
    scene.acknowledge("A", 3)
    scene.acknowledge("B", 1)
    scene.seen()
    scene.owned()
    found = scene.findings(tmp_path)
    assert ("keys" in found) is not stored


def acknowledged(scene: Scene) -> None:
    scene.record("A", "acking", 0)


def closing(scene: Scene) -> None:
    scene.story.say("A", "closing", consumer="t.s#A")


def killed(scene: Scene) -> None:
    scene.story.say(RIG, "killed", writer="A")


def reconnected(scene: Scene) -> None:
    scene.connection["A"] = 2
    scene.seen("A")


def seeking(scene: Scene) -> None:
    begun = scene.story.now
    scene.story.say(RIG, "act", begun=begun, act="seek", target="t.s", result="done", why="")


@pytest.mark.parametrize("what", [acknowledged, closing, killed, reconnected, seeking])
def test_released_key_may_be_dispatched_to_another_consumer(tmp_path: Path, what: Any) -> None:
    scene = Scene()
    scene.got("A", 0)
    what(scene)
    scene.got("B", 0, 1)
    if what not in (closing, killed):
        scene.acknowledge("A", 0)
        scene.seen("A")
    scene.acknowledge("B", 1)
    scene.seen("B")
    scene.owned()
    assert scene.findings(tmp_path) == {}


def test_another_key_is_free(tmp_path: Path) -> None:
    scene = Scene()
    scene.got("A", 0)
    scene.got("B", 3)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 3)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize("late", ["A", "B"])
def test_key_at_consumer_unaware_of_disconnection_is_not_reported(tmp_path: Path, late: str) -> None:
    """The broker had given it up: it holds what went to the other, or hands over what it had fetched before. It learns
    that with its next acknowledgement, which has no receipt."""
    scene = Scene()
    scene.got("A", 0)
    scene.got("B", 0, 1)
    other = {"A": "B", "B": "A"}[late]
    scene.acknowledge(other, {"A": 0, "B": 1}[other])
    scene.seen(other)
    scene.record(late, "acking", {"A": 0, "B": 1}[late])
    scene.story.say(late, "ack_unknown", consumer=f"t.s#{late}", why="disconnected")
    scene.connection[late] = 2
    scene.seen(late)
    scene.owned()
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize(("broker", "session"), [("b2", 1), ("b1", 2)])
def test_under_two_owners_both_may_have_it(tmp_path: Path, broker: str, session: int) -> None:
    scene = Scene()
    scene.got("A", 0)
    scene.owned(broker, session)
    scene.got("B", 0, 1)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 1)
    scene.seen()
    scene.owned(broker, session)
    assert scene.findings(tmp_path) == {}


def test_connected_to_another_broker_than_the_owner_it_may_have_it_still(tmp_path: Path) -> None:
    scene = Scene()
    scene.broker["A"] = "b2:1"
    scene.seen("A")
    scene.got("A", 0)
    scene.got("B", 0, 1)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 1)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {}


def test_an_acknowledgement_of_somebody_else_that_may_count_frees_the_key(tmp_path: Path) -> None:
    """An earlier holder's, which came late."""
    scene = Scene()
    scene.got("A", 0)
    scene.record("B", "acking", 0)
    scene.got("B", 1)
    scene.acknowledge("A", 0)
    scene.acknowledge("B", 1)
    scene.seen()
    scene.owned()
    assert scene.findings(tmp_path) == {}
