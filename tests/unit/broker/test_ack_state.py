"""Cases of a cursor's state that tests/property/test_ack_state.py finds only by chance."""

from __future__ import annotations

import pytest

from magnetar_broker.cursors.ack_state import MAX_BATCH_BYTES, AckState
from magnetar_broker.cursors.cursor_record import BadCursorRecord, apply_record, encode_changes, encode_snapshot
from magnetar_broker.cursors.entry_set import BLOCK_ENTRIES, EntrySet
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import EARLIEST, Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import AcknowledgedEntries, CursorPosition, CursorRecord
from magnetar_wire.limits import MAX_BATCH_MESSAGES
from tests.unit.broker.cursor_scene import at, entries
from tests.unit.broker.fake_log import FakeLogPositions


def _state(*ledgers: tuple[int, int], is_open: bool = True) -> AckState:
    log = FakeLogPositions(*ledgers, is_open=is_open)
    return AckState(log, log.before_first, durable=True)


def test_mark_delete_advances_over_ledgers_when_holes_are_filled() -> None:
    """ACK-1: also over empty ledgers."""
    state = _state((3, 4), (5, 0), (7, 3))
    state.acknowledge([(7, 0, 1), (3, 1, 3)])
    assert state.mark_delete == at(3, -1)
    state.acknowledge([(3, 0, 0)])
    assert state.mark_delete == at(7, 1)
    assert not state.has_holes
    only_first = _state((3, 4), (5, 0), (7, 3))
    only_first.acknowledge([(3, 0, 9)])
    assert only_first.mark_delete == at(3, 3)
    assert only_first.find_unacknowledged_after(EARLIEST) == at(7, 0)


def test_mark_delete_advances_from_before_the_first_ledger() -> None:
    """ACK-1, RET-1: else the topic would never be trimmed."""
    state = AckState(FakeLogPositions((3, 4), (7, 4)), EARLIEST, durable=True)
    state.acknowledge([(3, 1, 1)])
    assert state.mark_delete == at(3, -1)
    state.acknowledge([(3, 0, 0)])
    assert state.mark_delete == at(3, 1)
    state.acknowledge((), [(at(3, 2), 1, 1), (at(3, 3), 1, 1), (at(7, 0), 1, 1)])
    assert state.mark_delete == at(7, 0)
    assert not state.has_holes
    assert state.count_unacknowledged() == 3


def test_a_batch_is_done_when_all_its_messages_are() -> None:
    """ACK-1, CON-4."""
    state = _state((3, 10))
    assert state.acknowledge((), [(at(3, 4), 0b011, 3)]) == []
    assert state.acknowledge((), [(at(3, 4), 0b110, 3), (at(3, 6), 1, 1)]) == [at(3, 4), at(3, 6)]
    assert state.acknowledge((), [(at(3, 4), 0b001, 3)]) == [at(3, 4)]
    assert state.get_acknowledged_messages(at(3, 4)) == 0
    assert state.count_unacknowledged() == 8


def test_acknowledged_entry_has_no_batch_state() -> None:
    state = _state((3, 10))
    state.acknowledge((), [(at(3, 4), 1, 3), (at(3, 5), 1, 3), (at(3, 8), 1, 3)])
    state.acknowledge([(3, 4, 6)])
    assert [position for position, _, _ in state.batches()] == [at(3, 8)]
    state.acknowledge_up_to(at(3, 8))
    assert not state.has_holes


def test_of_two_sizes_of_a_batch_the_first_is_believed() -> None:
    state = _state((3, 10))
    state.acknowledge((), [(at(3, 4), 0b0001, 4)])
    for refused in (
        [(at(3, 4), 0b1, 1)],
        [(at(3, 7), 1, 3), (at(3, 4), 0b11111, 5)],
        [(at(3, 8), 1, 3), (at(3, 8), 1, 2)],
    ):
        with pytest.raises(BrokerError) as error:
            state.acknowledge([(3, 9, 9)], refused)
        assert error.value.code == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(BrokerError):
        state.acknowledge_up_to(at(3, 4), 1, 5)
    # Nothing of a refused acknowledgement counts.
    assert state.mark_delete == at(3, -1)
    assert list(state.batches()) == [(at(3, 4), 1, 4)]
    assert not state.is_acknowledged(at(3, 9))
    assert state.acknowledge((), [(at(3, 5), 1, MAX_BATCH_MESSAGES + 1), (at(3, 5), 1, 0), (at(3, 5), 1, -1)]) == []
    assert state.get_batch(at(3, 5)) == (0, 0)


def test_batch_acks_above_the_memory_limit_are_refused() -> None:
    """ACK-1: none is forgotten. Wholly acknowledged batches free memory."""
    state = _state((3, 2000))
    whole = (1 << MAX_BATCH_MESSAGES) - 1
    taken = 0
    with pytest.raises(BrokerError) as error:
        while True:
            state.acknowledge((), [(at(3, taken), 1 << (MAX_BATCH_MESSAGES - 1), MAX_BATCH_MESSAGES)])
            taken += 1
    assert error.value.code == ErrorCode.TOO_MANY_REQUESTS
    assert taken == MAX_BATCH_BYTES // (MAX_BATCH_MESSAGES // 8)
    assert len(list(state.batches())) == taken
    state.acknowledge((), [(at(3, 5), whole, MAX_BATCH_MESSAGES)])
    state.acknowledge((), [(at(3, taken), 1, MAX_BATCH_MESSAGES)])
    with pytest.raises(BrokerError):
        state.acknowledge((), [(at(3, 5 + taken), 1, MAX_BATCH_MESSAGES)])
    state.acknowledge_up_to(at(3, 20))
    state.acknowledge((), [(at(3, 5 + taken), 1, MAX_BATCH_MESSAGES)])


def test_up_to_the_middle_of_a_batch() -> None:
    """ACK-1: all entries before it, and the named messages of it."""
    state = _state((3, 10))
    state.acknowledge_up_to(at(3, 4), 0b0111, 5)
    assert state.mark_delete == at(3, 3)
    assert state.get_acknowledged_messages(at(3, 4)) == 0b0111
    state.acknowledge_up_to(at(3, 0), 0b1, 2)
    assert state.mark_delete == at(3, 3)
    state.acknowledge_up_to(at(3, 4), 0b11111, 5)
    assert state.mark_delete == at(3, 4)
    assert not state.has_holes


def test_records_of_changes_and_of_many_holes_are_compact() -> None:
    """ACK-2: compact."""
    state = _state((3, 50_000))
    state.acknowledge([(3, 1, 49_999)])
    (piece,) = encode_changes(state, state.take_unsaved())
    assert len(piece) < 250
    state.acknowledge([(3, 0, 0)])
    (piece,) = encode_changes(state, state.take_unsaved())
    assert len(piece) < 20
    state = _state((3, 50_000))
    for number in range(0, 40_000, 2):
        state.acknowledge(entries(3, number + 1))
    (piece,) = encode_snapshot(state)
    assert len(piece) < 40_000 // 8 + 250


def test_large_snapshot_is_split_into_several_records() -> None:
    """ACK-2."""
    state = _state((3, 200))
    size = MAX_BATCH_MESSAGES
    for number in range(15):
        state.acknowledge((), [(at(3, number), (1 << size) - 2, size)])
    pieces = list(encode_snapshot(state))
    assert len(pieces) == 2
    assert max(map(len, pieces)) <= 1_048_576
    again = _state((3, 200))
    for piece in pieces:
        apply_record(again, piece)
    again.match_log()
    assert [again.get_batch(at(3, number)) for number in range(16)] == [((1 << size) - 2, size)] * 15 + [(0, 0)]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff",
        CursorRecord(reset=True).SerializeToString(),
    ],
)
def test_invalid_cursor_record_is_refused(payload: bytes) -> None:
    with pytest.raises(BadCursorRecord):
        apply_record(_state((3, 10)), payload)


def test_record_is_clipped_to_entries_of_the_log() -> None:
    """CHK-34: entries that the log does not have are not acknowledged, and take no memory."""
    far = 2**64 - 1
    encoded = [
        AcknowledgedEntries(ledger_id=3, first_entry_id=8, runs=[2**32 - 1, 2**32 - 1, 2**32 - 1]),
        AcknowledgedEntries(ledger_id=3, first_entry_id=far, runs=[1]),
        AcknowledgedEntries(ledger_id=far, first_entry_id=0, bits=b"\xff"),
        AcknowledgedEntries(ledger_id=3, first_entry_id=5, bits=b"\xff" * 1000),
        AcknowledgedEntries(ledger_id=7, first_entry_id=1, bits=b"\xfc"),
    ]
    state = _state((3, 10), (7, 3))
    apply_record(
        state, CursorRecord(mark_delete=CursorPosition(ledger_id=3, entry_id=1), entries=encoded).SerializeToString()
    )
    state.match_log()
    assert [one for one in range(20) if state.is_acknowledged(at(3, one))] == [0, 1, 5, 6, 7, 8, 9]
    assert not state.may_be_acknowledged_from(at(7, 0))
    assert state.count_unacknowledged() == 6


def test_position_outside_all_ledgers_settles_at_equivalent_one() -> None:
    """CHK-54."""
    log = FakeLogPositions((3, 4), (7, 4), is_open=False)

    def match_log(position: Position) -> Position:
        state = AckState(log, position)
        state.match_log()
        return state.mark_delete

    assert match_log(EARLIEST) == at(3, -1)
    assert match_log(at(3, 2)) == at(3, 2)
    assert match_log(at(3, 99)) == at(3, 3)
    assert match_log(at(5, 2)) == at(7, -1)
    assert match_log(at(9, 0)) == at(7, 3)


def test_runs_of_acknowledged_entries_go_over_blocks() -> None:
    found = EntrySet()
    runs = [(0, 0), (2, 5), (BLOCK_ENTRIES - 1, 3 * BLOCK_ENTRIES), (3 * BLOCK_ENTRIES + 2, 4 * BLOCK_ENTRIES - 1)]
    for first, last in reversed(runs):
        found.add(first, last)
    assert list(found.ranges()) == runs
    assert found.count_ranges() == len(runs)
    assert list(EntrySet().ranges()) == []
