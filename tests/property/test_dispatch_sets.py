"""What dispatch keeps its entries in, against plain sets and dicts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.position_set import PositionSet
from magnetar_broker.topics.dispatch.redelivery_counts import RedeliveryCounts
from tests.examples import examples

_LEDGERS = st.integers(1, 3)
_ENTRIES = st.one_of(st.integers(0, 12), st.integers(1015, 1035), st.integers(0, 5000))
_POSITIONS = st.builds(Position, _LEDGERS, _ENTRIES)
_RANGES = st.tuples(_LEDGERS, _ENTRIES, _ENTRIES)
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(_POSITIONS, max_size=20)),
        st.tuples(st.just("take"), st.integers(0, 12)),
        st.tuples(st.just("range"), _RANGES),
        st.tuples(st.just("up to"), st.one_of(_POSITIONS, st.builds(Position, _LEDGERS, st.just(-1)))),
    ),
    max_size=30,
)


@examples(120)
@given(_CHANGES)
def test_a_position_set_is_a_sorted_set(changes: list[tuple[str, object]]) -> None:
    fast, plain = PositionSet(), set[Position]()
    for what, of in changes:
        if what == "add":
            assert isinstance(of, list)
            for position in of[::2]:
                fast.add(position)
            for ledger_id in {position.ledger_id: None for position in of}:
                fast.add_all(ledger_id, [one.entry_id for one in of[1::2] if one.ledger_id == ledger_id])
            plain.update(of)
        elif what == "take":
            assert isinstance(of, int)
            expected = sorted(plain)[:of]
            assert fast.take(of) == expected
            plain -= set(expected)
        elif what == "range":
            assert isinstance(of, tuple)
            ledger_id, first, last = of
            fast.discard_range(ledger_id, first, last)
            plain = {one for one in plain if not (ledger_id, first) <= one <= (ledger_id, last)}
        else:
            assert isinstance(of, Position)
            fast.discard_up_to(of)
            plain = {one for one in plain if one > of}
        assert len(fast) == len(plain)
        assert all(position in fast for position in plain)
    assert fast.take(10**6) == sorted(plain)


@examples(120)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.tuples(_POSITIONS, st.integers(0, 5))),
            st.tuples(st.just("more"), st.tuples(_LEDGERS, st.sets(_ENTRIES, max_size=5))),
            st.tuples(st.just("range"), _RANGES),
            st.tuples(st.just("up to"), _POSITIONS),
        ),
        max_size=40,
    )
)
def test_entry_numbers_are_a_dict(changes: list[tuple[str, tuple[object, ...]]]) -> None:
    fast, plain = EntryCounts(), dict[Position, int]()
    for what, of in changes:
        if what == "set":
            position, number = of
            assert isinstance(position, Position)
            assert isinstance(number, int)
            fast.set(position, number)
            plain[position] = number
            if not number:
                del plain[position]
        elif what == "more":
            ledger_id, entry_ids = of
            assert isinstance(ledger_id, int)
            assert isinstance(entry_ids, set)
            fast.increment(ledger_id, entry_ids)
            for entry_id in entry_ids:
                plain[Position(ledger_id, entry_id)] = plain.get(Position(ledger_id, entry_id), 0) + 1
        elif what == "range":
            ledger_id, first, last = of
            assert isinstance(ledger_id, int)
            assert isinstance(first, int)
            assert isinstance(last, int)
            inside = [one for one in plain if (ledger_id, first) <= one <= (ledger_id, last)]
            assert sorted(fast.take_range(ledger_id, first, last)) == sorted(one.entry_id for one in inside)
            for one in inside:
                del plain[one]
        else:
            assert isinstance(of, Position)
            fast.drop_up_to(of)
            plain = {one: number for one, number in plain.items() if one > of}
        assert (len(fast), fast.total, bool(fast)) == (len(plain), sum(plain.values()), bool(plain))
    assert {one: fast.get(one) for one in fast} == plain
    assert sorted(Position(one, entry_id) for one, ids in fast.take_all() for entry_id in ids) == sorted(plain)
    assert not fast


@examples(120)
@given(st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=40))
def test_past_deliveries_are_a_count_for_each_entry(deliveries: list[tuple[int, bool]]) -> None:
    """CON-8"""
    past, plain, done = RedeliveryCounts(), [0] * 16, 0
    for end, acknowledge in deliveries:
        if acknowledge:
            done = max(done, end)
            past.discard_up_to(Position(1, done - 1))
        elif end > done:
            past.record_delivery(Position(1, end))
            for entry_id in range(end):
                plain[entry_id] += 1
        assert [past.count(Position(1, one)) for one in range(done, 16)] == plain[done:]
