"""Batches in flight, against a model that is one list: order, numbers, and that none is lost or completed twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar._producing.batch import Batch
from magnetar._producing.in_flight import InFlight

_steps = st.lists(
    st.one_of(
        st.just(("add",)),
        st.just(("send",)),
        st.tuples(st.just("receipt"), st.integers(0, 12), st.integers(1, 6)),
        st.tuples(st.just("huge receipt"), st.integers(0, 12)),
        st.tuples(st.just("refuse"), st.integers(0, 12)),
        st.just(("break",)),
        st.tuples(st.just("expire"), st.integers(0, 40)),
        st.just(("drop",)),
    ),
    max_size=60,
)


class Model:
    """All batches that are not completed, oldest first, each with its number in this opening, or None."""

    def __init__(self) -> None:
        self.line: list[tuple[int, int | None]] = []
        self.next_number = 0

    def complete(self, *numbers: int) -> list[int]:
        completed = [serial for serial, number in self.line if number is not None and number in numbers]
        self.line = [each for each in self.line if each[0] not in completed]
        return completed


@given(_steps)
def test_in_flight_matches_the_model(steps: list[tuple[str, int, int]]) -> None:
    """PRD-9, CHK-33: batches are resent in the order in which they were handed over."""
    in_flight, model, made = InFlight(), Model(), 0
    for name, *numbers in steps:
        if name == "add":
            in_flight.append(_batch(made))
            model.line.append((made, None))
            made += 1
        elif name == "send":
            waiting = [index for index, (_, number) in enumerate(model.line) if number is None]
            first = in_flight.first_waiting()
            assert (first is None) == (not waiting)
            if first is not None:
                serial, _ = model.line[waiting[0]]
                assert first.serial == serial
                assert in_flight.next_number == model.next_number
                in_flight.mark_first_sent()
                model.line[waiting[0]] = (serial, model.next_number)
                model.next_number += 1
        elif name == "receipt":
            first_number, count = numbers
            received = list(in_flight.remove_received(first_number, count))
            numbered = dict(model.line)
            assert [batch.serial for _, batch in received] == model.complete(*range(first_number, first_number + count))
            assert all(numbered[batch.serial] == first_number + offset for offset, batch in received)
        elif name == "huge receipt":
            received = list(in_flight.remove_received(numbers[0], 2**32 - 1))
            assert [batch.serial for _, batch in received] == model.complete(*range(numbers[0], 200))
        elif name == "refuse":
            refused = in_flight.remove_refused(numbers[0])
            assert ([] if refused is None else [refused.serial]) == model.complete(numbers[0])
        elif name == "break":
            in_flight.requeue_sent()
            model.line = [(serial, None) for serial, _ in model.line]
            model.next_number = 0
        elif name == "expire":
            is_expired = bool(model.line) and model.line[0][0] <= numbers[0]
            assert in_flight.is_expired(numbers[0] + 5, 5) == is_expired
            if is_expired:
                sent = {serial for serial, number in model.line if number is not None}
                removed = in_flight.remove_unanswered()
                assert [batch.serial for batch in removed] == [serial for serial, _ in model.line]
                assert {batch.serial for batch in removed if batch.may_be_stored} >= sent
                model.line = []
        elif name == "drop" and in_flight.first_waiting() is not None:
            dropped = in_flight.drop_first()
            model.line = [each for each in model.line if each[0] != dropped.serial]
        oldest = in_flight.oldest()
        assert (None if oldest is None else oldest.serial) == (model.line[0][0] if model.line else None)
        assert len(in_flight) == len(model.line)
    assert [batch.serial for batch in in_flight.remove_all()] == [serial for serial, _ in model.line]
    assert not len(in_flight)


def _batch(serial: int) -> Batch:
    batch = Batch([b""], None, None, [], 1, float(serial), serial)
    batch.serial = serial
    return batch
