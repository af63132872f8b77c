"""A standalone that is killed and cut off under load loses nothing; and what finds that out can find the contrary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.standalone_checker import check
from tests.faults.standalone_history import Histories, message, read_message
from tests.faults.standalone_torture import torture

_SECONDS = 10.0


@pytest.mark.slow
def test_a_standalone_that_is_killed_and_cut_off_under_load_loses_nothing(tmp_path: Path) -> None:
    """CHK-33, ACK-1, PRD-9, PRD-10: what had a receipt is there, in order; what was acknowledged comes no more."""
    outcome = torture(tmp_path, "a test", _SECONDS)
    assert outcome.good, str(outcome)
    assert outcome.kills
    # CHK-58: and no ledger is left that nobody knows of; those that were read by all are gone.
    assert outcome.ledgers_left < outcome.ledgers_made / 2
    assert outcome.verdict.sent > 1000
    assert outcome.verdict.receipts > 100


class Told:
    """A little history that is in order: one producer, a consumer, the one after it, and a reader."""

    def __init__(self, folder: Path) -> None:
        self.histories = Histories(folder)
        self.producer = self.histories.of("producer")
        self.producer.say("will", producer="t.p", to=3)
        self.producer.say("ok", producer="t.p", numbers=[0, 1, 2])
        self.items = [["t.p", number, (5, number, -1, -1)] for number in range(3)]
        self.keep = self.histories.of("keep")
        self.keep.say("opened", consumer="t.keep#1")

    def read(self, *order: int) -> None:
        self.keep.say("got", consumer="t.keep#1", items=[self.items[place] for place in order])

    def problems(self) -> list[str]:
        return check(self.histories).problems


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    told = Told(tmp_path)
    yield told
    told.histories.close()


def test_the_checker_is_content_with_what_is_in_order(told: Told) -> None:
    told.read(0, 1, 1, 0, 2)
    told.keep.say("done", consumer="t.keep#1", ids=[told.items[0][2]])
    told.keep.say("opened", consumer="t.keep#2")
    told.keep.say("got", consumer="t.keep#2", items=told.items[1:])
    verdict = check(told.histories)
    assert verdict.problems == []
    assert (verdict.sent, verdict.received, verdict.receipts, verdict.consumers) == (3, 7, 1, 2)


def test_the_checker_misses_what_was_lost(told: Told) -> None:
    told.read(0, 2)
    assert told.problems() == ["t.keep: message 1 of t.p had a receipt and never came"]


def test_the_checker_sees_what_was_invented(told: Told) -> None:
    told.read(0, 1, 2)
    told.keep.say("got", consumer="t.keep#1", items=[["t.p", 4, (5, 9, -1, -1)], ["t.q", 0, (5, 10, -1, -1)]])
    assert len(told.problems()) == 2


def test_the_checker_sees_what_came_out_of_order(told: Told) -> None:
    told.read(0, 2, 1, 0)
    assert told.problems() == ["t.keep: t.p 1 came first after 2 in partition -1"]


@pytest.mark.parametrize("cumulatively", [True, False])
def test_the_checker_sees_what_came_again_after_its_receipt(told: Told, cumulatively: bool) -> None:
    told.read(0, 1, 2)
    if cumulatively:
        told.keep.say("done_up_to", consumer="t.keep#1", id=told.items[1][2])
    else:
        told.keep.say("done", consumer="t.keep#1", ids=[told.items[0][2]])
    told.keep.say("got", consumer="t.keep#1", items=told.items[:1])  # it was on its way
    told.keep.say("opened", consumer="t.keep#2")
    assert not told.problems()
    told.keep.say("got", consumer="t.keep#2", items=told.items)
    assert len(told.problems()) == (2 if cumulatively else 1)


def test_the_checker_sees_a_reader_go_back(told: Told) -> None:
    told.read(0, 1, 2)
    reader = told.histories.of("reader")
    reader.say("opened", consumer="t.reader#1")
    reader.say("got", consumer="t.reader#1", items=[*told.items, told.items[2]])
    assert told.problems() == ["t.reader: (5, 2, -1, -1) came after (5, 2, -1, -1)"]


def test_a_payload_that_was_changed_is_no_message_of_ours() -> None:
    payload = message("t.p", 7, 30)
    assert read_message(payload) == ("t.p", 7)
    with pytest.raises(ValueError, match="7"):
        read_message(payload[:-1] + b"x")
