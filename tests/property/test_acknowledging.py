"""What a consumer sends of what was acknowledged, against a model that remembers each message; and the receiver queue,
against a plain list."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar._consume_stream import RequestBuilder
from magnetar._message import DeliveredEntry, DeliveryEpoch, Message, PickledOrigin
from magnetar._negative_acks import NackSchedule
from magnetar._pending_acks import AckReceipt, EpochTracker, PendingAcks
from magnetar._receiver_queue import PartitionQueue, ReceiverQueue
from magnetar.exceptions import StaleEpoch
from magnetar_protos.broker_pb2 import Acknowledge
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.messages import Messages

SIZES = [0, 1, 3, 8, 9]


def entry(epoch: DeliveryEpoch, number: int) -> DeliveredEntry:
    """Ledgers of four entries; the entry's number says how large its batch is."""
    size = SIZES[number % len(SIZES)]
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    if size:
        metadata.num_messages_in_batch = size
    payloads: list[bytes | None] = [b"%d.%d" % (number, at) for at in range(size or 1)]
    return DeliveredEntry(epoch, 10 + number // 4, number % 4, 0, metadata, None, Messages(payloads), 10)


def told(sent: list[Acknowledge]) -> set[tuple[int, int, int]]:
    """(ledger, entry, batch index) of each message that a broker is told of."""
    done: set[tuple[int, int, int]] = set()
    everything = [(10 + n // 4, n % 4, at) for n in range(20) for at in range(SIZES[n % len(SIZES)] or 1)]
    for one in sent:
        if one.cumulative:
            assert len(one.entries) + len(one.messages) == 1
            for range_ in one.entries:
                done |= {place for place in everything if place[:2] <= (range_.ledger_id, range_.last_entry_id)}
            for batch in one.messages:
                done |= {place for place in everything if place[:2] < (batch.ledger_id, batch.entry_id)}
        for range_ in one.entries:
            done |= {p for p in everything if (range_.ledger_id, range_.first_entry_id) <= p[:2]} & {
                p for p in everything if p[:2] <= (range_.ledger_id, range_.last_entry_id)
            }
        for batch in one.messages:
            bits = int.from_bytes(batch.messages, "little")
            done |= {p for p in everything if p[:2] == (batch.ledger_id, batch.entry_id) and bits >> p[2] & 1}
    return done


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["one", "id", "cumulative"]), st.integers(0, 19), st.integers(0, 8)),
        st.tuples(st.sampled_from(["take", "break", "redelivery"]), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
async def test_what_is_acknowledged_is_told_and_nothing_else(steps: list[tuple[str, int, int]]) -> None:
    """CON-3, CON-4"""
    acks, epochs = PendingAcks(), EpochTracker()
    epochs.start_opening(3, 0)
    epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
    entries = [entry(epoch, number) for number in range(20)]
    sent: list[Acknowledge] = []
    model: set[tuple[int, int, int]] = set()
    for what, number, at in steps:
        one = entries[number]
        at %= len(one.columns)
        place = (one.ledger_id, one.entry_id, at)
        if what == "one":
            acks.add_rows(one, [at])
            model.add(place)
        elif what == "id":
            acks.add_message(epoch, one.ledger_id, one.entry_id, one.batch_index(at), one.batch_size)
            model.add(place)
        elif what == "cumulative":
            acks.add_cumulative(epoch, one.ledger_id, one.entry_id, one.batch_index(at), one.batch_size)
            model |= {
                (other.ledger_id, other.entry_id, index)
                for other in entries
                for index in range(len(other.columns))
                if (other.ledger_id, other.entry_id, index) <= place
            }
        elif what == "redelivery":
            epochs.start_epoch(epochs.number + 1, 3, 0)
        elif what == "break":
            acks.resend_unanswered()
            epochs.start_opening(epochs.number + 10, 0)
        else:
            taken = acks.pop_requests(5, epochs, RequestBuilder())
            assert all(one.consumer_id == 5 for one in taken)
            sent += taken
            assert told(sent) == model
            assert not acks.has_unsent
    sent += acks.pop_requests(5, epochs, RequestBuilder())
    assert told(sent) == model


@given(
    st.lists(
        st.sampled_from(["acknowledge", "redelivery", "take-over", "break", "break and move", "take", "done"]),
        max_size=40,
    )
)
async def test_what_is_over_is_never_told_and_receipts_say_so(steps: list[str]) -> None:
    """SUB-9, CHK-52: over is what was delivered before a seek or a take-over, on this stream or an earlier one."""
    acks, epochs = PendingAcks(), EpochTracker()
    epochs.start_opening(1, 0)
    epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
    number = 0
    # Each epoch, whether it is over, and what was acknowledged in it: place → receipt.
    over: dict[DeliveryEpoch, bool] = {epoch: False}
    pending: dict[int, tuple[DeliveryEpoch, AckReceipt]] = {}
    sent: dict[int, tuple[int, DeliveryEpoch, AckReceipt]] = {}
    for step in steps:
        if step == "acknowledge":
            for one in list(over)[-3:]:
                receipt = AckReceipt(asyncio.get_running_loop().create_future())
                acks.add_message(one, 1, number, -1, 0)
                acks.request_receipt([one], receipt)
                pending[number] = (one, receipt)
                number += 1
        elif step in ("redelivery", "take-over"):
            ended = step == "take-over"
            epochs.start_epoch(epochs.number + 1, epochs.number + 1 if ended else 0, epochs.moves)
            if ended:
                over = dict.fromkeys(over, True)
            epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
            over[epoch] = False
        elif step.startswith("break"):
            acks.resend_unanswered()
            pending |= {place: (one, receipt) for place, one, receipt in sent.values()}
            sent.clear()
            moved = step == "break and move"
            epochs.start_opening(1, epochs.moves + moved)
            if moved:
                over = dict.fromkeys(over, True)
            epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
            over[epoch] = False
        elif step == "take":
            for told_of in acks.pop_requests(1, epochs, RequestBuilder()):
                [range_] = told_of.entries if len(told_of.entries) == 1 else [None]
                places = (
                    range(range_.first_entry_id, range_.last_entry_id + 1)
                    if range_ is not None
                    else [p for r in told_of.entries for p in range(r.first_entry_id, r.last_entry_id + 1)]
                )
                for place in places:
                    one, receipt = pending.pop(place)
                    assert not over[one], "what is over is told"
                    assert told_of.epoch <= epochs.number
                    sent[place] = (place, one, receipt)
            for one, receipt in pending.values():
                assert over[one]
                assert isinstance(receipt.future.exception(), StaleEpoch)
            pending.clear()
    acks.fail(StaleEpoch("the end"))
    for _, receipt in pending.values():
        receipt.future.exception()
    for _, _, receipt in sent.values():
        receipt.future.exception()


def _batch_of(count: int) -> MessageMetadata:
    return MessageMetadata(num_messages_in_batch=count)


def _place(message: Message) -> tuple[int, int]:
    """Its entry, and its place in the entry's batch."""
    message_id = message.message_id()
    return message_id.entry_id(), message_id.batch_index()


QUEUE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 12)),
        st.tuples(st.just("take"), st.just(0), st.integers(1, 12)),
        st.tuples(st.just("batch"), st.integers(1, 15), st.integers(0, 40)),
        st.tuples(st.just("clear"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 2), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(QUEUE_STEPS, st.integers(1, 5))
def test_the_queue_is_a_list_for_each_source_and_owes_what_it_handed_out(
    steps: list[tuple[str, int, int]], segment: int
) -> None:
    """CON-1, CON-2"""
    queue = ReceiverQueue()
    sources = [PartitionQueue(lambda: None) for _ in range(3)]
    epochs = [DeliveryEpoch(PickledOrigin("t", partition, None), 1, 1) for partition in range(len(sources))]
    waiting: list[list[tuple[int, int]]] = [[], [], []]
    handed: list[int] = [0, 0, 0]
    owed: list[int] = [0, 0, 0]
    number = 0
    for source in sources:
        source.segment_size = segment

    def got(message: Message) -> None:
        at = message.message_id().partition()
        assert waiting[at].pop(0) == _place(message)
        handed[at] += 1

    for what, which, count in steps:
        if what == "add":
            one = DeliveredEntry(
                epochs[which], 1, number, 0, _batch_of(count), None, Messages([b"xx"] * count), 3 * count
            )
            waiting[which] += [(number, at) for at in range(count)]
            queue.add_entries(sources[which], [one])
            number += 1
        elif what == "take":
            for _ in range(count):
                message = queue.ready.popleft() if queue.ready else queue.take_message()
                if message is None:
                    assert not any(waiting)
                    break
                got(message)
        elif what == "batch":
            with queue.lock:
                complete = queue.has_batch(which, count)
                there = sum(map(len, waiting))
                assert complete == (there >= which or 2 * there >= count)
                batch: list[Message] = []
                queue.take_batch_locked(batch, which, count)
            assert len(batch) == min(there, which, max(count // 2, 1))
            for message in batch:
                got(message)
        elif what == "clear":
            first = queue.clear(sources[which])
            expected = waiting[which][0] if waiting[which] else None
            assert expected == (None if first is None else _place(first))
            waiting[which].clear()
            handed[which] = owed[which] = 0
        else:
            dropped = queue.drop_entries(sources[which], {(1, count)})
            assert dropped == sum(entry_id == count for entry_id, _ in waiting[which])
            waiting[which] = [place for place in waiting[which] if place[0] != count]
        assert len(queue) == sum(map(len, waiting))
        for at, source in enumerate(sources):
            assert queue.has_messages_of(source) == bool(waiting[at])
            owed[at] += queue.fetch_debt(source)
            assert owed[at] <= handed[at] <= owed[at] + segment
    assert queue.take_message() is None or any(waiting)
    if not any(waiting):
        for at, source in enumerate(sources):
            assert owed[at] + queue.fetch_debt(source) == handed[at], "in the end all is counted"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.floats(0, 5)), max_size=40), st.floats(0.1, 3))
def test_what_is_refused_is_due_once_and_never_early(refused: list[tuple[int, int, float]], step_s: float) -> None:
    """CON-5"""
    nacks: NackSchedule[int] = NackSchedule(0.5)
    first: dict[tuple[int, tuple[int, int]], float] = {}
    for owner, number, due_s in refused:
        nacks.add_entry(owner, (1, number), due_s)
        first.setdefault((owner, (1, number)), due_s)
    now_s = 0.0
    while (next_s := nacks.next_due_s()) is not None:
        now_s = max(now_s + step_s, next_s)
        for owner, places in nacks.pop_due(now_s).items():
            assert places == sorted(set(places))
            for place in places:
                assert first.pop((owner, place)) <= now_s
    assert not first


def test_forgotten_refusals_are_not_due() -> None:
    nacks: NackSchedule[Any] = NackSchedule(1.0)
    nacks.add_entry("a", (1, 1), 5.0)
    nacks.add_entry("b", (1, 1), 7.0)
    nacks.forget_owner("a")
    assert nacks.next_due_s() == 7.0
    assert nacks.pop_due(100.0) == {"b": [(1, 1)]}
    nacks.add_entry("a", (1, 1), 9.0)
    assert nacks.pop_due(100.0) == {"a": [(1, 1)]}
