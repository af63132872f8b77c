"""The acknowledgements that a consumer sends, against a model that remembers each message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar._acknowledging.pending_acks import AckReceipt, EpochTracker, PendingAcks
from magnetar._message import DeliveredEntry, DeliveryEpoch
from magnetar.exceptions import StaleEpoch
from magnetar_protos.broker_pb2 import Acknowledge
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.messages import Messages

SIZES = [0, 1, 3, 8, 9]


def entry(epoch: DeliveryEpoch, number: int) -> DeliveredEntry:
    """Make an entry. Ledgers have four entries, and the entry's number determines the size of its batch."""
    size = SIZES[number % len(SIZES)]
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    if size:
        metadata.num_messages_in_batch = size
    payloads: list[bytes | None] = [b"%d.%d" % (number, at) for at in range(size or 1)]
    return DeliveredEntry(epoch, 10 + number // 4, number % 4, 0, metadata, None, Messages(payloads), 10)


def pop_requests(acks: PendingAcks, epochs: EpochTracker) -> list[Acknowledge]:
    requests = []
    while (request := acks.pop_request(5, epochs)) is not None:
        requests.append(request)
    return requests


class Outcome:
    """How a receipt was settled."""

    def __init__(self) -> None:
        self.results: list[Exception | None] = []
        self.receipt = AckReceipt(self.results.append)


def acknowledged_by(sent: list[Acknowledge]) -> set[tuple[int, int, int]]:
    """Return the (ledger, entry, batch index) of each message that these requests acknowledge."""
    done: set[tuple[int, int, int]] = set()
    everything = [(10 + n // 4, n % 4, at) for n in range(20) for at in range(SIZES[n % len(SIZES)] or 1)]
    for one in sent:
        if one.cumulative:
            assert len(one.entries) + len(one.messages) == 1
            for range_ in one.entries:
                done |= {p for p in everything if p[:2] <= (range_.ledger_id, range_.last_entry_id)}
            for batch in one.messages:
                done |= {p for p in everything if p[:2] < (batch.ledger_id, batch.entry_id)}
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
def test_exactly_the_acknowledged_messages_are_sent(steps: list[tuple[str, int, int]]) -> None:
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
        position = (one.ledger_id, one.entry_id, at)
        if what == "one":
            acks.add_rows(one, [at])
            model.add(position)
        elif what == "id":
            acks.add_message(epoch, one.ledger_id, one.entry_id, one.batch_index(at), one.batch_size)
            model.add(position)
        elif what == "cumulative":
            acks.add_cumulative(epoch, one.ledger_id, one.entry_id, one.batch_index(at), one.batch_size)
            model |= {
                (other.ledger_id, other.entry_id, index)
                for other in entries
                for index in range(len(other.columns))
                if (other.ledger_id, other.entry_id, index) <= position
            }
        elif what == "redelivery":
            epochs.start_epoch(epochs.number + 1, 3, 0)
        elif what == "break":
            acks.resend_unanswered()
            epochs.start_opening(epochs.number + 10, 0)
        else:
            taken = pop_requests(acks, epochs)
            assert all(one.consumer_id == 5 for one in taken)
            sent += taken
            assert acknowledged_by(sent) == model
            assert not acks.has_unsent
    sent += pop_requests(acks, epochs)
    assert acknowledged_by(sent) == model


@given(
    st.lists(
        st.sampled_from(["acknowledge", "redelivery", "take-over", "break", "break and move", "take", "done"]),
        max_size=40,
    )
)
def test_stale_acknowledgements_are_never_sent_and_their_receipts_fail(steps: list[str]) -> None:
    """SUB-9, CHK-52: messages that were delivered before a seek or a take-over, on this stream or an earlier one."""
    acks, epochs = PendingAcks(), EpochTracker()
    epochs.start_opening(1, 0)
    epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
    number = 0
    # Each epoch, and whether it is stale; and the epoch and receipt of each acknowledged entry.
    stale: dict[DeliveryEpoch, bool] = {epoch: False}
    pending: dict[int, tuple[DeliveryEpoch, Outcome]] = {}
    sent: dict[int, tuple[int, DeliveryEpoch, Outcome]] = {}
    for step in steps:
        if step == "acknowledge":
            for one in list(stale)[-3:]:
                outcome = Outcome()
                acks.add_message(one, 1, number, -1, 0)
                acks.request_receipt([one], outcome.receipt)
                pending[number] = (one, outcome)
                number += 1
        elif step in ("redelivery", "take-over"):
            ended = step == "take-over"
            epochs.start_epoch(epochs.number + 1, epochs.number + 1 if ended else 0, epochs.moves)
            if ended:
                stale = dict.fromkeys(stale, True)
            epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
            stale[epoch] = False
        elif step.startswith("break"):
            acks.resend_unanswered()
            pending |= {entry_id: (one, outcome) for entry_id, one, outcome in sent.values()}
            sent.clear()
            moved = step == "break and move"
            epochs.start_opening(1, epochs.moves + moved)
            if moved:
                stale = dict.fromkeys(stale, True)
            epoch = DeliveryEpoch(None, epochs.opening, epochs.number)
            stale[epoch] = False
        elif step == "take":
            for request in pop_requests(acks, epochs):
                [range_] = request.entries if len(request.entries) == 1 else [None]
                entry_ids = (
                    range(range_.first_entry_id, range_.last_entry_id + 1)
                    if range_ is not None
                    else [p for r in request.entries for p in range(r.first_entry_id, r.last_entry_id + 1)]
                )
                for entry_id in entry_ids:
                    one, outcome = pending.pop(entry_id)
                    assert not stale[one], "a stale acknowledgement is sent"
                    assert request.epoch <= epochs.number
                    sent[entry_id] = (entry_id, one, outcome)
            for one, outcome in pending.values():
                assert stale[one]
                assert [type(error) for error in outcome.results] == [StaleEpoch]
            pending.clear()
    acks.fail(StaleEpoch("the end"))
    left = [outcome for _, outcome in pending.values()] + [outcome for _, _, outcome in sent.values()]
    assert all([type(error) for error in outcome.results] == [StaleEpoch] for outcome in left)
