"""Who may change what in a ledger's metadata, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar_bookie.errors import LedgerDeleted, LedgerError, LedgerFenced, NoSuchLedger
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_metadata import FragmentChanged, LedgerAlreadyClosed, LedgerMetadata, LedgerState
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos import ledger_pb2

OPEN = LedgerMetadata(
    state=LedgerState.OPEN,
    striping=Striping(3, 3, 2),
    master_key=b"k" * 16,
    fragments=(Fragment(0, ("b1", "b2", "b3")),),
    created_ms=1,
    wanted_ensemble_size=3,
    properties={"topic": b"t"},
)
RECOVERING = replace(OPEN, state=LedgerState.IN_RECOVERY)
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry_id=9, length_bytes=100, closed_ms=2)
DELETED = ledger_metadata.make_tombstone(CLOSED)


@pytest.mark.parametrize("metadata", [OPEN, RECOVERING, CLOSED, DELETED], ids=lambda metadata: metadata.state.name)
def test_encoded_metadata_round_trips(metadata: LedgerMetadata) -> None:
    assert ledger_metadata.decode_metadata(metadata.encode()) == metadata
    assert metadata.encode() == ledger_metadata.decode_metadata(metadata.encode()).encode()


@pytest.mark.parametrize(
    "message",
    [
        ledger_pb2.LedgerMetadata(ensemble_size=1, write_quorum=1, ack_quorum=1),
        ledger_pb2.LedgerMetadata(state=ledger_pb2.OPEN, ensemble_size=1, write_quorum=2, ack_quorum=1),
        ledger_pb2.LedgerMetadata(
            state=ledger_pb2.OPEN,
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=1,
            fragments=[ledger_pb2.Fragment(bookies=["a", "a"])],
        ),
        ledger_pb2.LedgerMetadata(
            state=ledger_pb2.OPEN,
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=[ledger_pb2.Fragment(first_entry_id=1, bookies=["a"])],
        ),
    ],
    ids=["no state", "quorums", "a bookie twice", "does not begin at 0"],
)
def test_metadata_that_means_nothing_is_refused(message: ledger_pb2.LedgerMetadata) -> None:
    with pytest.raises(LedgerError):
        ledger_metadata.decode_metadata(message.SerializeToString())
    with pytest.raises(LedgerError):
        ledger_metadata.decode_metadata(b"\xff\xff")


def test_new_ensemble_appends_a_fragment_or_replaces_an_empty_one() -> None:
    later = ledger_metadata.replace_last_fragment(OPEN, Fragment(5, ("b1", "b4", "b3")))
    assert later.fragments == (OPEN.fragments[0], Fragment(5, ("b1", "b4", "b3")))
    again = ledger_metadata.replace_last_fragment(later, Fragment(5, ("b1", "b5", "b3")))
    assert again.fragments == (OPEN.fragments[0], Fragment(5, ("b1", "b5", "b3")))
    assert again.former_bookies == ("b2", "b4")
    with pytest.raises(FragmentChanged):
        ledger_metadata.replace_last_fragment(later, Fragment(4, ("b1", "b2", "b3")))


@pytest.mark.parametrize("current", [RECOVERING, CLOSED, DELETED, None])
def test_only_an_open_ledger_is_its_writer_s(current: LedgerMetadata | None) -> None:
    with pytest.raises(LedgerFenced):
        ledger_metadata.replace_last_fragment(current, Fragment(5, ("b1", "b4", "b3")))
    with pytest.raises(LedgerFenced):
        ledger_metadata.close_by_writer(current, 9, 100, 2)


def test_the_first_close_counts() -> None:
    assert ledger_metadata.start_recovery(OPEN) == RECOVERING
    assert ledger_metadata.start_recovery(RECOVERING) is RECOVERING
    assert ledger_metadata.start_recovery(CLOSED) is CLOSED
    first = ledger_metadata.close_by_recovery(RECOVERING, RECOVERING.last_fragment, [], 9, 100, 2)
    assert first == CLOSED
    with pytest.raises(LedgerAlreadyClosed) as lost:
        ledger_metadata.close_by_recovery(first, RECOVERING.last_fragment, [], 11, 120, 3)
    assert lost.value.metadata.last_entry_id == 9


def test_a_recovery_based_on_another_fragment_does_not_close() -> None:
    """Its reads went to bookies that may never have been sent what the writer completed."""
    moved = replace(RECOVERING, fragments=(*RECOVERING.fragments, Fragment(5, ("b1", "b2", "b4"))))
    with pytest.raises(FragmentChanged):
        ledger_metadata.close_by_recovery(moved, RECOVERING.last_fragment, [], 9, 100, 2)
    with pytest.raises(FragmentChanged):
        ledger_metadata.close_by_recovery(OPEN, OPEN.last_fragment, [], 9, 100, 2)


def test_recovery_publishes_its_own_fragments_with_the_close() -> None:
    own = [Fragment(4, ("b1", "b4", "b3")), Fragment(8, ("b1", "b4", "b5")), Fragment(10, ("b6", "b4", "b5"))]
    closed = ledger_metadata.close_by_recovery(RECOVERING, RECOVERING.last_fragment, own, 9, 100, 2)
    assert closed.fragments == (OPEN.fragments[0], own[0], own[1])
    assert {"b2", "b6"} <= set(closed.former_bookies)
    assert closed.last_entry_of_fragment(0) == 3
    assert closed.last_entry_of_fragment(2) == 9


def test_an_empty_ledger_is_closed_without_fragments() -> None:
    closed = ledger_metadata.close_by_writer(OPEN, -1, 0, 2)
    assert closed.fragments == ()
    assert closed.former_bookies == ("b1", "b2", "b3"), "they may hold entries that never completed"


def test_repair_leaves_a_last_fragment_that_grows_alone() -> None:
    two = replace(OPEN, fragments=(*OPEN.fragments, Fragment(5, ("b1", "b2", "b4"))))
    for current in (two, replace(two, state=LedgerState.IN_RECOVERY)):
        with pytest.raises(FragmentChanged, match="only by its writer"):
            ledger_metadata.replace_bookie(current, 5, 2, "b4", "b5")
        repaired = ledger_metadata.replace_bookie(current, 0, 2, "b3", "b5")
        assert repaired.fragments[0].bookies == ("b1", "b2", "b5")
        assert repaired.former_bookies == ("b3",)
    assert ledger_metadata.replace_bookie(CLOSED, 0, 2, "b3", "b5").fragments[0].bookies == ("b1", "b2", "b5")


@pytest.mark.parametrize(("first", "old", "new"), [(0, "b2", "b5"), (0, "b3", "b1"), (3, "b3", "b5")])
def test_repair_that_is_late_changes_nothing(first: int, old: str, new: str) -> None:
    with pytest.raises(FragmentChanged):
        ledger_metadata.replace_bookie(CLOSED, first, 2, old, new)


def test_a_tombstone_waits_for_all_that_may_hold_entries() -> None:
    current = ledger_metadata.add_holders(replace(CLOSED, former_bookies=("b7",)), "b9")
    deleted = ledger_metadata.make_tombstone(current)
    assert deleted.holders == ("b1", "b2", "b3", "b7", "b9")
    assert ledger_metadata.make_tombstone(deleted) is deleted
    assert ledger_metadata.remove_holders(deleted, ["b9", "b1"]).holders == ("b2", "b3", "b7")
    assert ledger_metadata.add_holders(CLOSED, "b2") is CLOSED
    assert ledger_metadata.add_holders(CLOSED, "b8", "b2", "b9", "b8").former_bookies == ("b8", "b9")
    changes: list[Callable[[], LedgerMetadata]] = [
        lambda: ledger_metadata.start_recovery(DELETED),
        lambda: ledger_metadata.add_holders(DELETED, "b8"),
        lambda: ledger_metadata.replace_bookie(DELETED, 0, 2, "b3", "b5"),
        lambda: ledger_metadata.close_by_recovery(DELETED, DELETED.last_fragment, [], 9, 100, 2),
    ]
    for late in changes:
        with pytest.raises(LedgerDeleted):
            late()
    with pytest.raises(NoSuchLedger):
        ledger_metadata.make_tombstone(None)
