"""The plain rules of publishing: who has a name, and what leaves in which message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.server.grpc.produce_answers import ProduceAnswers
from magnetar_broker.topics.producer_names import NOTHING_STORED, ProducerNames
from magnetar_protos.broker_pb2 import ErrorCode, Problem, ProduceAnswer, ProducerOpened


def refused(names: ProducerNames[str], name: str, instance: bytes, epoch: int) -> int:
    with pytest.raises(BrokerError) as error:
        names.claim(name, instance, epoch, "late")
    return error.value.code


def test_epochs_only_rise_and_instances_take_turns() -> None:
    """CHK-33, PRD-11."""
    names: ProducerNames[str] = ProducerNames()
    assert names.claim("p", b"a", 3, "first") is None
    assert names.claim("p", b"a", 5, "second") == "first"
    assert refused(names, "p", b"a", 5) == refused(names, "p", b"a", 4) == ErrorCode.PRODUCER_FENCED
    assert refused(names, "p", b"b", 9) == ErrorCode.PRODUCER_BUSY
    names.release("p", "first")  # evicted long ago: the name is not its own to give
    assert names.live == {"p": "second"}
    names.release("p", "second")
    assert refused(names, "p", b"a", 4) == ErrorCode.PRODUCER_FENCED
    assert names.claim("p", b"a", 5, "again") is None
    names.release("p", "again")
    assert names.claim("p", b"b", 0, "another") is None


def test_the_highest_sequence_id_of_a_name_is_remembered() -> None:
    """PRD-7's `last_sequence_id`."""
    names: ProducerNames[str] = ProducerNames()
    names.claim("p", b"a", 0, "first")
    assert names.last_sequence_id("p") == NOTHING_STORED
    for sequence_id in (4, 9, 7):
        names.record_stored("p", sequence_id)
    names.release("p", "first")
    names.claim("p", b"b", 0, "second")
    assert names.last_sequence_id("p") == 9
    assert names.last_sequence_id("q") == NOTHING_STORED


def test_only_the_latest_released_producer_names_are_remembered() -> None:
    """CHK-49: a client that takes one name after the other does not take memory without end."""
    names: ProducerNames[int] = ProducerNames(max_remembered=10)
    names.claim("stays", b"a", 7, -1)
    for number in range(1000):
        name = f"p{number}"
        names.claim(name, b"a", 1, number)
        names.record_stored(name, number)
        names.release(name, number)
        assert len(names._known) <= 11
    assert [names.last_sequence_id(f"p{number}") for number in (988, 989, 990, 999)] == [-1, -1, 990, 999]
    with pytest.raises(BrokerError):
        names.claim("stays", b"a", 7, 5)


def spread(answer: ProduceAnswer) -> list[tuple[int, int, int]]:
    return [
        (one.producer_id, one.first + at, one.first_entry_id + at) for one in answer.receipts for at in range(one.count)
    ]


def test_adjacent_receipts_are_merged_until_they_are_sent() -> None:
    answers = ProduceAnswers()
    for number in range(5):
        answers.add_stored(1, number, Position(7, 10 + 2 * number))  # another producer's lie between
        answers.add_stored(2, number, Position(7, 11 + 2 * number))
    answers.add_stored(2, 5, Position(7, 20))
    answers.add_stored(2, 6, Position(7, 21))
    answers.add_stored(2, 7, Position(8, 22))  # another ledger
    first = answers.compose()
    assert len(first.receipts) == 11
    answers.add_stored(2, 8, Position(8, 23))
    second = answers.compose()
    assert len(spread(first)) == 13
    assert spread(second) == [(2, 8, 23)]
    assert not len(answers)


def test_many_answers_leave_in_several_messages_and_in_order() -> None:
    """A producer's results are reported in order: opened, stored, refused, ended."""
    answers = ProduceAnswers()
    count = 5000
    for producer_id in range(count):
        answers.add_opened(ProducerOpened(producer_id=producer_id))
        answers.add_stored(producer_id, 0, Position(1, 2 * producer_id))
        answers.add_refused(producer_id, 1, Problem(text="x" * 100_000))
        answers.add_ended(producer_id, None)
    states = dict.fromkeys(range(count), 0)
    messages = 0
    while len(answers):
        message = answers.compose()
        assert message.ByteSize() < 8 << 20
        messages += 1
        parts: tuple[Iterable[Any], ...] = (message.opened, message.receipts, message.refused, message.ended)
        for at, part in enumerate(parts):
            for one in part:
                assert states[one.producer_id] == at
                states[one.producer_id] += 1
    assert set(states.values()) == {4}
    assert messages > 3
