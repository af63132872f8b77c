"""Key_Shared, as the judge sees it: a key's messages in the log's order, from one consumer to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.invented_histories import RIG
from tests.faults.two_consumers import TwoConsumers

KEYS = ["k", "k", "other", "k"]


class Scene(TwoConsumers):
    """Four messages, all but the third with one key, and all in the log."""

    def __init__(self) -> None:
        super().__init__("Key_Shared", order="key")
        items = [[number, "00000000", key] for number, key in enumerate(KEYS)]
        self.story.say("p", "sending", producer="p", items=items)

    def key_of(self, number: int) -> str | None:
        return KEYS[number]

    def findings(self, folder: Path, **options: Any) -> dict[str, int]:
        items = [["p", number, "00000000", key, 1, number, -1] for number, key in enumerate(KEYS)]
        self.story.say("r", "scan", reader="r", place="t", items=items)
        self.story.say(RIG, "scanned", reader="r", place="t", messages=len(items))
        return super().findings(folder, **options)


def test_an_overtaken_message_is_found(tmp_path: Path) -> None:
    scene = Scene()
    scene.got("A", 1, 0)
    assert scene.findings(tmp_path) == {"key_order": 1}


def test_a_message_that_never_came_is_found_once_with_all_that_were_passed_over(tmp_path: Path) -> None:
    """Nobody was handed the first ones, or another consumer was: either way its successor comes after them only."""
    scene = Scene()
    scene.got("A", 0)
    scene.got("B", 3)
    assert scene.findings(tmp_path) == {"key_order": 1}


@pytest.mark.parametrize("end", ["closing", "killed"])
def test_after_a_consumer_its_messages_come_to_the_next_one_first(tmp_path: Path, end: str) -> None:
    def play(scene: Scene, *numbers: int) -> dict[str, int]:
        scene.got("A", 0, 1)
        if end == "closing":
            scene.story.say("A", "closing", consumer="t.s#A")
        else:
            scene.story.say(RIG, "killed", writer="A")
        scene.got("B", *numbers)
        return scene.findings(tmp_path / str(len(numbers)))

    assert play(Scene(), 1, 3) == {"key_order": 1}
    assert play(Scene(), 0, 1, 3) == {}


def test_acknowledged_messages_and_other_keys_may_be_passed_over(tmp_path: Path) -> None:
    scene = Scene()
    scene.got("A", 0)
    scene.record("A", "acking", 0)
    scene.got("B", 1, 3)
    scene.got("A", 2)
    assert scene.findings(tmp_path) == {}


@pytest.mark.parametrize("what", ["nothing", "retried", "dead", "dead and never got", "dead and never got, late"])
def test_a_message_that_becomes_a_letter_leaves_the_order(tmp_path: Path, what: str) -> None:
    """(SUB-6, CON-9, CON-10) Also one that comes too often, to a consumer that stores it instead of handing it out."""
    scene = Scene()
    scene.have_letters()
    scene.got("A", 0, 1)
    scene.record("A", "acking", 1)
    if what == "retried":
        scene.record("A", "reconsuming", 0)
    elif what == "dead":
        scene.dead(0)
    scene.got("B", 3)
    if what.startswith("dead and never got"):
        scene.story.now += 10.0 if what == "dead and never got" else 40.0
        scene.dead(0)
    is_found = what in ("nothing", "dead and never got, late")
    assert scene.findings(tmp_path, times=False).get("key_order", 0) == is_found


def test_a_dead_letter_is_in_order_until_it_is_stored(tmp_path: Path) -> None:
    """(SUB-6, CON-10) It was handed out to the consumer, and after its successor."""
    scene = Scene()
    scene.have_letters()
    scene.got("A", 1, 0)
    scene.story.now += 10.0
    scene.dead(0)
    assert scene.findings(tmp_path, times=False)["key_order"] == 1


def test_a_redelivered_message_may_come_after_its_successors(tmp_path: Path) -> None:
    """It came before them for the first time, and was nacked, or the consumer reconnected."""
    scene = Scene()
    scene.got("A", 0, 1, 3)
    scene.record("A", "nacked", 0)
    scene.got("A", 0)
    assert scene.findings(tmp_path) == {}


def test_a_seek_may_pass_over_messages(tmp_path: Path) -> None:
    scene = Scene()
    begun = scene.story.now
    scene.story.say(RIG, "act", begun=begun, act="seek", target="t.s", result="done", why="")
    scene.got("A", 3)
    assert scene.findings(tmp_path) == {}
