"""Pulsar's C++ library may match a receipt to the wrong messages as long as it has had none
(`checker/reused_sequence_ids.py`). The judge excuses that, and nothing beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.checker import Verdict, judge
from tests.faults.checker.reused_sequence_ids import LIBRARY
from tests.faults.invented_histories import RIG, Story
from tests.faults.torture.stock_producing import StockProducerLog

FIGURE = "messages with the receipt of an earlier one, by reused sequence ids"
FIRST_ENTRY, SECOND_ENTRY = (1, 0), (1, 1)


class Scene:
    """One producer sends a batch of 2 messages, which times out, and then one of 3."""

    def __init__(
        self, library: str | None = LIBRARY, topic: str = "t", partitions: int = 0, *, deduplicated: bool = False
    ) -> None:
        self.story = Story()
        self.sent = 0
        self.story.say(RIG, "topic", topic=topic, partitions=partitions, order="producer", deduplicated=deduplicated)
        given = {} if library is None else {"library": library}
        self.story.say("p", "producer", producer="p", topic=topic, **given)

    def send(self, count: int) -> list[int]:
        numbers = list(range(self.sent, self.sent + count))
        self.sent += count
        self.story.say("p", "sending", producer="p", items=[[number, "00000000", None] for number in numbers])
        return numbers

    def time_out(self, numbers: list[int], what: str = "unknown") -> list[int]:
        self.story.say("p", what, producer="p", numbers=numbers, why="Result.Timeout")
        return numbers

    def receipt(self, numbers: list[int], entry: tuple[int, int] = (-1, -1), partition: str = "t") -> None:
        """Without an entry: as duplicates."""
        items = [[number, *entry, index] for index, number in enumerate(numbers)]
        self.story.say("p", "receipt", producer="p", place=partition, items=items)

    def scan(self, *batches: tuple[list[int], tuple[int, int]], partition: str = "t") -> None:
        items = [
            ["p", number, "00000000", None, *entry, index]
            for numbers, entry in batches
            for index, number in enumerate(numbers)
        ]
        self.story.say("spark", "scan", reader="spark", place=partition, items=items)
        self.story.say(RIG, "scanned", reader="spark", place=partition, messages=len(items))

    def verdict(self, folder: Path) -> Verdict:
        self.story.say(RIG, "ended")
        return judge(self.story.write(folder / "history"), times=False)


def run_the_limit(scene: Scene) -> None:
    early = scene.time_out(scene.send(2))
    late = scene.send(3)
    scene.receipt(late, FIRST_ENTRY)
    scene.scan((early, FIRST_ENTRY), (late, SECOND_ENTRY))


def test_receipt_of_an_earlier_batch_is_withdrawn_until_the_first_right_one(tmp_path: Path) -> None:
    """The third message's index is beyond the end of the entry that it names."""
    scene = Scene()
    run_the_limit(scene)
    verdict = scene.verdict(tmp_path)
    assert verdict.clean, str(verdict)
    assert verdict.figures[FIGURE] == 3
    assert verdict.figures["messages with a receipt"] == 0


@pytest.mark.parametrize("library", [None, "magnetar"])
def test_no_other_library_may_name_an_earlier_batch(tmp_path: Path, library: str | None) -> None:
    scene = Scene(library)
    run_the_limit(scene)
    verdict = scene.verdict(tmp_path)
    assert dict(verdict.counts) == {"receipts": 3}
    assert FIGURE not in verdict.figures


def test_after_a_right_receipt_none_may_name_an_earlier_batch(tmp_path: Path) -> None:
    scene = Scene()
    right, entry = scene.send(1), (1, 2)
    scene.receipt(right, entry)
    early = scene.time_out(scene.send(2))
    late = scene.send(3)
    scene.receipt(late, (1, 3))
    scene.scan((right, entry), (early, (1, 3)), (late, (1, 4)))
    assert dict(scene.verdict(tmp_path).counts) == {"receipts": 3}


def test_each_partition_has_a_first_receipt_of_its_own(tmp_path: Path) -> None:
    one, other = "t-partition-0", "t-partition-1"
    scene = Scene(partitions=2)
    right, entry = scene.send(1), (2, 0)
    scene.receipt(right, entry, other)
    early = scene.time_out(scene.send(2))
    late = scene.send(2)
    scene.receipt(late, FIRST_ENTRY, one)
    scene.scan((early, FIRST_ENTRY), (late, SECOND_ENTRY), partition=one)
    scene.scan((right, entry), partition=other)
    verdict = scene.verdict(tmp_path)
    assert verdict.clean, str(verdict)
    assert verdict.figures[FIGURE] == 2


def test_several_receipts_may_be_of_earlier_messages(tmp_path: Path) -> None:
    """Without batches, each message that timed out leaves a receipt behind for one that is sent later."""
    scene = Scene()
    entries = [(1, number) for number in range(4)]
    early = [scene.time_out(scene.send(1)) for _ in range(2)]
    late = [scene.send(1) for _ in range(2)]
    for numbers, entry in zip(late, entries, strict=False):
        scene.receipt(numbers, entry)
    scene.scan(*zip([*early, *late], entries, strict=True))
    verdict = scene.verdict(tmp_path)
    assert verdict.clean, str(verdict)
    assert verdict.figures[FIGURE] == 2


def test_message_without_its_own_receipt_may_be_missing(tmp_path: Path) -> None:
    """The library won't resend it, though its connection may have been lost before the broker stored it."""
    scene = Scene()
    early = scene.time_out(scene.send(2))
    scene.receipt(scene.send(3), FIRST_ENTRY)
    scene.scan((early, FIRST_ENTRY))
    verdict = scene.verdict(tmp_path)
    assert verdict.clean, str(verdict)


@pytest.mark.parametrize("fate", ["none", "refused", "receipt"])
def test_the_earlier_messages_must_be_unknown(tmp_path: Path, fate: str) -> None:
    scene = Scene()
    early = scene.send(2)
    late = scene.send(3)
    if fate == "refused":
        scene.time_out(early, "refused")
    elif fate == "receipt":
        scene.receipt(early, FIRST_ENTRY)
    scene.receipt(late, FIRST_ENTRY)
    scene.scan((early, FIRST_ENTRY), (late, SECOND_ENTRY))
    assert scene.verdict(tmp_path).counts["receipts"] >= 3


def test_the_entry_must_hold_earlier_messages(tmp_path: Path) -> None:
    scene = Scene()
    late, unknown = scene.send(3), scene.send(2)
    scene.time_out(unknown)
    scene.receipt(late, SECOND_ENTRY)
    scene.scan((late, FIRST_ENTRY), (unknown, SECOND_ENTRY))
    assert dict(scene.verdict(tmp_path).counts) == {"receipts": 3}


def test_the_entry_must_hold_messages_of_the_same_producer(tmp_path: Path) -> None:
    scene = Scene()
    scene.story.say("q", "producer", producer="q", topic="t", library=LIBRARY)
    scene.story.say("q", "sending", producer="q", items=[[0, "00000000", None]])
    scene.story.say("q", "unknown", producer="q", numbers=[0], why="Result.Timeout")
    late = scene.send(1)
    scene.receipt(late, FIRST_ENTRY)
    items: list[Any] = [["q", 0, "00000000", None, *FIRST_ENTRY, 0], ["p", 0, "00000000", None, *SECOND_ENTRY, 0]]
    scene.story.say("spark", "scan", reader="spark", place="t", items=items)
    scene.story.say(RIG, "scanned", reader="spark", place="t", messages=2)
    assert dict(scene.verdict(tmp_path).counts) == {"receipts": 1}


def test_a_right_receipt_is_not_withdrawn(tmp_path: Path) -> None:
    """A producer of that library loses a message that was confirmed at its own entry."""
    scene = Scene()
    early = scene.time_out(scene.send(2))
    late = scene.send(3)
    scene.receipt(late, SECOND_ENTRY)
    scene.scan((early, FIRST_ENTRY))
    assert dict(scene.verdict(tmp_path).counts) == {"lost": 3}


def test_producers_of_the_stock_library_record_it() -> None:
    assert StockProducerLog.more_fields == {"library": LIBRARY}


@pytest.mark.parametrize(
    ("library", "later", "found"), [(LIBRARY, 0, {}), (None, 0, {"lost": 3}), (LIBRARY, 5, {"lost": 1})]
)
def test_reused_ids_are_false_duplicates_soon_after_the_beginning(
    tmp_path: Path, library: str | None, later: int, found: dict[str, int]
) -> None:
    """Three messages are stored. After a reopening, before their receipts, three others get their ids. A message much
    later can't be one of them."""
    scene = Scene(library, deduplicated=True)
    first = scene.send(3)
    others = scene.send(3)
    scene.receipt(first, FIRST_ENTRY)
    scene.receipt(others)
    stored = scene.send(6)
    scene.receipt(stored, SECOND_ENTRY)
    late = scene.send(later)
    scene.receipt(late[-1:])
    scene.scan((first, FIRST_ENTRY), (stored, SECOND_ENTRY))
    assert dict(scene.verdict(tmp_path).counts) == found
