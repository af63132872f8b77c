"""A cursor's state against a set of acknowledged positions, with unknown numbers and deleted ledgers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor_record import apply_record, encode_changes, encode_snapshot
from magnetar_broker.cursors.entry_set import BLOCK_ENTRIES, EntrySet
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import EARLIEST, Position
from tests.examples import examples
from tests.unit.broker.fake_log import FakeLogPositions

_MOST = 2**63 - 1


@dataclass
class Model:
    """All that is acknowledged, one by one; and of batches, message by message."""

    log: FakeLogPositions
    entries: set[Position] = field(default_factory=set)
    messages: dict[Position, tuple[set[int], int]] = field(default_factory=dict)

    def acknowledge(self, ledger_id: int, first: int, last: int) -> None:
        for position in self.log.positions():
            if position.ledger_id == ledger_id and first <= position.entry_id <= last:
                self.done(position)

    def done(self, position: Position) -> None:
        self.entries.add(position)
        self.messages.pop(position, None)

    def contradicts(self, position: Position, size: int) -> bool:
        return size > 0 and position in self.messages and self.messages[position][1] != size

    def some(self, position: Position, bits: int, size: int) -> bool:
        if position in self.entries:
            return True
        known, known_size = self.messages.get(position, (set(), size))
        if position not in self.log.positions() or known_size != size or size == 0:
            return False
        self.messages[position] = known | {bit for bit in range(size) if bits >> bit & 1}, size
        if len(self.messages[position][0]) == size:
            self.done(position)
            return True
        if not self.messages[position][0]:
            del self.messages[position]
        return False

    def up_to(self, position: Position, bits: int, size: int) -> None:
        if position.ledger_id not in self.log.ledgers:
            return
        if self.log.ledger_end(position.ledger_id) is None and self.log.last.ledger_id != position.ledger_id:
            return  # nobody can have read anything of it
        entry_id = min(position.entry_id, self.log.ledgers[position.ledger_id] - 1)
        end = (position.ledger_id, entry_id)
        for one in self.log.positions():
            if one < end or (not size and one == end):
                self.done(one)
        if size:
            self.some(Position(position.ledger_id, position.entry_id), bits, size)

    def move_to(self, position: Position) -> None:
        self.entries = {one for one in self.log.positions() if one <= position}
        self.messages.clear()

    def trimmed(self) -> None:
        there = self.log.positions()
        self.entries &= set(there)
        self.messages = {position: held for position, held in self.messages.items() if position in there}


def _same(state: AckState, model: Model) -> None:
    for position in model.log.positions():
        assert state.is_acknowledged(position) == (position in model.entries), position
        held = model.messages.get(position, (set(), 0))[0]
        assert state.get_acknowledged_messages(position) == sum(1 << bit for bit in held), position
    there = model.log.positions()
    assert state.count_unacknowledged() == len(there) - len(model.entries)
    open_ones = [position for position in there if position not in model.entries]
    # The mark-delete position is the furthest that it can be.
    behind = [position for position in there if position > state.mark_delete]
    assert all(position in model.entries for position in there if position <= state.mark_delete)
    assert not behind or behind[0] in open_ones
    for start in [EARLIEST, *there]:
        expected = next((position for position in open_ones if position > start), None)
        found = state.find_unacknowledged_after(start)
        if expected is not None:
            # A position without an entry is allowed, if none that has one lies between.
            assert found <= expected
            assert not any(start < position < found for position in open_ones)
            assert found == expected or found not in there
        else:
            assert found not in there


# The ledgers there are, once and again; some that there never are.
_NUMBERS = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, -1, -2, _MOST, -_MOST])
_LEDGERS = st.sampled_from([3, 3, 3, 3, 3, 5, 5, 5, 7, 7, 9, 4, 0, _MOST])
_RANGES = st.tuples(st.just("range"), _LEDGERS, _NUMBERS, _NUMBERS)
_SOME = st.tuples(st.just("some"), _LEDGERS, _NUMBERS, st.integers(0, 31), st.sampled_from([0, 1, 4, 4, 4, 5]))
_UP_TO = st.tuples(st.just("up to"), _LEDGERS, _NUMBERS, st.integers(0, 15), st.sampled_from([0, 0, 4]))
_STEPS = st.lists(
    _RANGES
    | _RANGES
    | _SOME
    | _SOME
    | _UP_TO
    | st.tuples(st.just("move"), _LEDGERS, _NUMBERS)
    | st.tuples(st.just("append"), st.integers(1, 4))
    | st.tuples(st.just("roll"))
    | st.tuples(st.just("close"))
    | st.tuples(st.just("trim"))
    | st.tuples(st.just("save"))
    | st.tuples(st.just("snapshot"))
    | st.tuples(st.just("open")),
    min_size=8,
    max_size=40,
)


@examples(400)
@given(_STEPS)
def test_ack_state_matches_a_model_and_restores_saved_state(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """ACK-1, ACK-2, CHK-34: nothing is forgotten and nothing invented by acknowledging, trimming and saving."""
    log = FakeLogPositions((3, 4))
    model = Model(log)
    state = AckState(log, log.before_first, durable=True)
    records = list(encode_snapshot(state))
    for step in steps:
        match step:
            case "range", ledger_id, first, last:
                state.acknowledge([(ledger_id, first, last)])
                model.acknowledge(ledger_id, first, last)
            case "some", ledger_id, entry_id, bits, size:
                position = Position(ledger_id, entry_id)
                if model.contradicts(position, size):
                    with pytest.raises(BrokerError):
                        state.acknowledge((), [(position, bits, size)])
                    continue
                done = state.acknowledge((), [(position, bits, size)])
                there = position in log.positions()
                assert (position in done) == model.some(position, bits, size) or not there
            case "up to", ledger_id, entry_id, bits, size:
                if size and ledger_id in log.ledgers and model.contradicts(Position(ledger_id, entry_id), size):
                    with pytest.raises(BrokerError):
                        state.acknowledge_up_to(Position(ledger_id, entry_id), bits, size)
                    continue
                state.acknowledge_up_to(Position(ledger_id, entry_id), bits, size)
                model.up_to(Position(ledger_id, entry_id), bits, size)
            case "move", ledger_id, entry_id:
                state.move_to(Position(ledger_id, entry_id))
                model.move_to(Position(ledger_id, entry_id))
            case "append", count:
                if log.is_open:
                    log.append(count)
            case ("roll",):
                log.roll(max(log.ledgers, default=log.last.ledger_id) + 2)
            case ("close",):
                log.is_open = False
            case ("trim",):
                log.trim(state.mark_delete)
                state.drop_trimmed_ledgers()
                model.trimmed()
            case ("save",):
                records += encode_changes(state, state.take_unsaved())
            case ("snapshot",):
                state.take_unsaved()
                records = list(encode_snapshot(state))
            case ("open",):
                records += encode_changes(state, state.take_unsaved())
                state = _restored(log, records)
        _same(state, model)
    records += encode_changes(state, state.take_unsaved())
    _same(_restored(log, records), model)


def _restored(log: FakeLogPositions, records: list[bytes]) -> AckState:
    state = AckState(log, EARLIEST, durable=True)
    for record in records:
        apply_record(state, record)
    state.match_log()
    return state


@examples(100)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4 * BLOCK_ENTRIES) | st.sampled_from([BLOCK_ENTRIES - 1, BLOCK_ENTRIES, 2 * BLOCK_ENTRIES]),
            st.integers(0, 3) | st.integers(0, 3 * BLOCK_ENTRIES) | st.sampled_from([BLOCK_ENTRIES, BLOCK_ENTRIES - 1]),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_a_set_of_entries_over_many_blocks(steps: list[tuple[int, int, bool]]) -> None:
    held, model = EntrySet(), set[int]()
    for first, length, adds in steps:
        if adds:
            added_too = EntrySet()
            added = held.add(first, first + length, added_too)
            wanted = set(range(first, first + length + 1)) - model
            assert added == added_too.count == len(wanted)
            assert all(one in added_too for one in wanted)
            model |= wanted
        else:
            removed = {one for one in model if one <= first}
            assert held.remove_up_to(first) == len(removed)
            model -= removed
        assert held.count == len(model)
        assert held.count_ranges() == sum(one - 1 not in model for one in model)
        for start in (0, first, first + length, BLOCK_ENTRIES):
            expected = start
            while expected in model:
                expected += 1
            assert held.first_absent(start) == expected
    assert {
        number * BLOCK_ENTRIES + bit
        for number, bits in held.blocks()
        for bit in range(bits.bit_length())
        if bits >> bit & 1
    } == model
