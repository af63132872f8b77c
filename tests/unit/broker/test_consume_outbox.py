"""The parts that wait for entries, while the outbox gets new entries after every message."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.server.grpc.consume_outbox import ConsumeOutbox
from magnetar_broker.topics.consumer import DeliveryRun
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget, OutboxCapacity
from magnetar_protos.broker_pb2 import ConsumeAnswer, ConsumerEnded, Done
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.frame import decode_frame, find_entry_ids

# A few of these fill a frame.
_PAYLOAD = bytes(100_000)


@dataclass
class _Target:
    consumer_id: int = 1
    next_number: int = 0
    is_closed: bool = False
    broker_metadata: bool = True
    accepts_gaps: bool = True


class _Filled:
    """An outbox that has a whole frame's entries at any time."""

    def __init__(self) -> None:
        self.outbox_capacity = OutboxCapacity(1 << 30, OutboxBudget(1 << 30), lambda: None)
        self.outbox = ConsumeOutbox(self.outbox_capacity)
        self.target = _Target()
        self.queued = 0

    def fill(self, size_bytes: int = 4_000_000, entries_per_run: int = 7) -> None:
        while self.outbox_capacity.queued_bytes < size_bytes:
            entries = [
                LogEntry(Position(1, self.queued + at), _PAYLOAD, 1, 0, self.queued + at, 0)
                for at in range(entries_per_run)
            ]
            self.queued += len(entries)
            memory_bytes = len(entries) * (len(_PAYLOAD) + ENTRY_OVERHEAD_BYTES)
            self.outbox.deliver(self.target, [DeliveryRun(1, 0, b"", entries, memory_bytes)])

    def compose(self) -> ConsumeAnswer:
        """Return the next message. Entries follow at once, as on a stream that the network limits."""
        message = self.outbox.compose()
        assert message is not None
        self.fill()
        return ConsumeAnswer.FromString(message)

    def compose_until_done(self) -> ConsumeAnswer:
        for _ in range(100):
            if (answer := self.compose()).done:
                return answer
        raise AssertionError("the answer never comes")


def test_an_answer_comes_with_the_message_that_completes_the_entries_before_it() -> None:
    on = _Filled()
    on.fill()
    for number in range(20):
        before = on.queued
        on.outbox.add_after_entries(Done(consumer_id=1, request_id=number))
        on.fill(on.outbox_capacity.queued_bytes + 1)  # entries that need not be sent before it
        sent = on.target.next_number
        while sent < before:
            answer = on.compose()
            sent = on.target.next_number
            assert [one.request_id for one in answer.done] == ([number] if sent >= before else [])


def test_parts_without_entries_before_them_come_at_once_and_in_order() -> None:
    on = _Filled()
    on.outbox.add_after_entries(Done(request_id=1))
    on.fill()
    before = on.queued
    on.outbox.add_after_entries(Done(request_id=2))
    on.outbox.add_after_entries(ConsumerEnded(consumer_id=1))
    first = on.compose()
    assert ([one.request_id for one in first.done], list(first.ended)) == ([1], [])
    assert on.outbox.waiting_answers == 2
    second = on.compose_until_done()
    assert on.target.next_number >= before
    assert ([one.request_id for one in second.done], len(second.ended)) == ([2], 1)
    assert on.outbox.waiting_answers == 0


def test_entries_of_a_closed_consumer_delay_no_answer() -> None:
    on = _Filled()
    on.fill()
    on.target.is_closed = True
    on.outbox.add_after_entries(ConsumerEnded(consumer_id=1))
    on.target = _Target(2)
    on.fill(2 * on.outbox_capacity.queued_bytes)
    answer = on.compose()
    assert [one.consumer_id for one in answer.ended] == [1]
    assert answer.deliveries


def test_entries_that_skip_others_share_a_run() -> None:
    """The ids that they skip are in the delivery; one that another header describes begins a new run."""
    on = _Filled()
    positions = [Position(1, entry_id) for entry_id in (0, 3, 4, 9, 9_000_000)]
    again, next_ledger = Position(1, 5), Position(2, 9_000_001)
    for run in ([*positions[:3]], [*positions[3:]], [again], [next_ledger]):
        entries = [LogEntry(position, b"x", 1, 0, 0, 0) for position in run]
        on.outbox.deliver(on.target, [DeliveryRun(1, 0, b"", entries, 0)])
    message = on.outbox.compose()
    assert message is not None
    answer = ConsumeAnswer.FromString(message)
    assert [list(one.gaps) for one in answer.deliveries] == [[2, 0, 4, 8_999_990], [], []]
    found = [
        Position(delivery.ledger_id, entry_id)
        for delivery, run in zip(answer.deliveries, decode_frame(answer.frame), strict=True)
        for entry_id in find_entry_ids(delivery.first_entry_id, delivery.gaps, len(run.entries))
    ]
    assert found == [*positions, again, next_ledger]


def test_the_last_parts_come_when_the_entries_are_dropped() -> None:
    on = _Filled()
    on.fill()
    on.outbox.add_after_entries(Done(request_id=1))
    on.outbox.close()
    message = on.outbox.compose()
    assert message is not None
    assert len(ConsumeAnswer.FromString(message).done) == 1
    assert not on.outbox
