"""Plans cut into slices: for all cuts, the slices together are the plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from magnetar.admin import MessagePosition, Piece, PieceFragment
from magnetar_spark.log_slice import Connection, LogSlice, SlicePiece
from magnetar_spark.planning.log_plan import LogPlan
from magnetar_spark.planning.slice_builder import build_slices
from magnetar_spark.stream.admission_control import split_by_demand, split_equally
from tests.examples import examples

NOWHERE = MessagePosition(0, 0, 0)


@some.composite
def a_piece(draw: some.DrawFn) -> Piece:
    entries = draw(some.integers(1, 5000))
    return Piece(
        ledger_id=0,
        first_entry_id=draw(some.integers(0, 10)),
        last_entry_id=0,
        skip_messages=draw(some.integers(0, 3)),
        stop_after_messages=draw(some.integers(0, 3)),
        bytes=draw(some.integers(0, 200_000_000)),
        messages=entries,
        ensemble_size=3,
        write_quorum=2,
        ack_quorum=2,
        fragments=(PieceFragment(0, ("a", "b", "c")),),
    )


@some.composite
def plans(draw: some.DrawFn) -> list[LogPlan]:
    made = []
    for number in range(draw(some.integers(1, 4))):
        pieces = []
        for ledger, piece in enumerate(draw(some.lists(a_piece(), max_size=12))):
            last = piece.first_entry_id + piece.messages - 1
            pieces.append(replace(piece, ledger_id=100 * number + ledger, last_entry_id=last))
        made.append(
            LogPlan(
                log=f"persistent://public/default/t-partition-{number}",
                incarnation="i",
                requested_start=NOWHERE,
                start=NOWHERE,
                stop=NOWHERE,
                messages=sum(piece.messages for piece in pieces),
                bytes=sum(piece.bytes for piece in pieces),
                messages_behind=0,
                first=NOWHERE,
                end=NOWHERE,
                end_index=0,
                other_incarnation=False,
                retained=True,
                before=pieces[:1],
                chunks_deleted=True,
                more_before=False,
                needed_from=NOWHERE,
                pieces=pieces,
                bookies={"a": "host:1", "b": "host:2", "c": "host:3"},
            )
        )
    return made


def entries_of(pieces: Sequence[SlicePiece] | Sequence[Piece]) -> list[tuple[int, int, int, int]]:
    """Each entry, with what of it is in the range."""
    return [
        (
            piece.ledger_id,
            entry,
            piece.skip_messages if entry == piece.first_entry_id else 0,
            piece.stop_after_messages if entry == piece.last_entry_id else 0,
        )
        for piece in pieces
        for entry in range(piece.first_entry_id, piece.last_entry_id + 1)
    ]


@examples(60)
@given(plans(), some.integers(1, 40), some.integers(0, 60))
def test_slices_cover_the_plan_with_each_entry_once(planned: list[LogPlan], most: int, least: int) -> None:
    """SPK-3: below the partition, each entry once, in as many tasks as pay, or as many as `minTasks` asks for"""
    most = max(most, least)
    slices = build_slices(planned, most, None, Connection("magnetar://here", ""), True, min_tasks=least)
    entries = sum(len(entries_of(plan.pieces)) for plan in planned)
    assert len(slices) >= min(least, entries)
    for plan in planned:
        mine = [one for one in slices if one.log == plan.log]
        mine.sort(key=lambda one: (one.pieces[0].ledger_id, one.pieces[0].first_entry_id))
        assert [entry for one in mine for entry in entries_of(one.pieces)] == entries_of(plan.pieces)
        assert sum(piece.bytes for one in mine for piece in one.pieces) == plan.bytes
        assert sum(piece.messages for one in mine for piece in one.pieces) == plan.messages
        reach = [(piece.ledger_id, piece.first_entry_id) for piece in (*plan.before, *plan.pieces)][:1]
        for one in mine:
            check_slice(one)
            # Only a slice that knows all that is left can miss what was deleted.
            known = (*one.before, *one.pieces)[0]
            assert one.chunks_deleted == ([(known.ledger_id, known.first_entry_id)] == reach)
            # And it knows whether it does.
            assert one.more_before != one.chunks_deleted
    assert len(slices) <= most + len(planned)


def check_slice(one: LogSlice) -> None:
    assert one.pieces
    assert one.bookies == {"a": "host:1", "b": "host:2", "c": "host:3"}
    assert len({piece.ledger_id for piece in one.before}) <= 8


@given(some.dictionaries(some.text(max_size=2), some.integers(0, 10**12), max_size=8), some.integers(0, 10**12))
def test_rest_is_shared_without_exceeding_the_demand(wanted: dict[str, int], rest: int) -> None:
    """SPK-2: no more than is left, no more than anybody wants, and nothing left over that somebody wants"""
    shares = split_by_demand(wanted, rest)
    assert all(0 <= shares[name] <= want for name, want in wanted.items())
    assert sum(shares.values()) == min(rest, sum(wanted.values()))


@given(some.integers(1, 50), some.integers(0, 10**6))
def test_equal_parts(names: int, amount: int) -> None:
    parts = split_equally([str(name) for name in range(names)], amount).values()
    assert sum(parts) == amount
    assert max(parts) - min(parts) <= 1
