"""The decisions of a recovery, compared with a plain model, for all combinations and orders of answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_bookie.ledger.recovery_rules import FenceAnswers, RecoveryReads, first_to_recover
from magnetar_bookie.read.read_answer import MissingReason, ReadEntries
from magnetar_bookie.read.striping import Fragment, Striping
from tests.examples import examples

STRIPINGS = [
    Striping(ensemble, write, ack)
    for ensemble in range(1, 5)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


def _reads(striping: Striping, first: int = 0, window: int = 64) -> RecoveryReads:
    return RecoveryReads(striping, first, window_entries=window, window_bytes=1_000_000)


def _one(entry_id: int, found: bytes | MissingReason) -> ReadEntries:
    return ReadEntries({entry_id: found}, None, entry_id + 1, -1)


def _pop_all(reads: RecoveryReads) -> Iterator[tuple[int, bytes | None]]:
    while (recovered := reads.pop_recovered()) is not None:
        yield recovered


@pytest.mark.parametrize("striping", STRIPINGS, ids=str)
def test_recovery_rule_decides_every_combination_of_responses(striping: Striping) -> None:
    """CHK-13 CHK-14 CHK-15: one record recovers it, Qw - Qa + 1 "absent" end the ledger before it, nothing else does.

    CHK-67: if all have answered, fewer with "absent", and one with "damaged", it is recovered without a record.
    """
    possible: list[bytes | MissingReason | str] = [b"record", *MissingReason, "timed out"]
    for entry_id in range(striping.ensemble_size):
        for answers in itertools.product(possible, repeat=striping.write_quorum):
            reads = _reads(striping, entry_id)
            for slot, found in zip(striping.write_set(entry_id), answers, strict=True):
                if isinstance(found, str):
                    reads.add_failure(slot, entry_id, entry_id, found)
                else:
                    reads.add_answer(slot, _one(entry_id, found))
            noes = [index for index, found in enumerate(answers) if found is MissingReason.ABSENT]
            enough = striping.write_quorum - striping.ack_quorum + 1
            yes = answers.index(b"record") if b"record" in answers else None
            # Answers count in the order in which they come.
            ends = len(noes) >= enough and (yes is None or noes[enough - 1] < yes)
            lost = (
                len(noes) < enough
                and MissingReason.DAMAGED in answers
                and all(isinstance(found, MissingReason) for found in answers)
            )
            assert reads.last_entry_id == (entry_id - 1 if ends else None)
            assert reads.next_is_lost is lost
            recovered = [] if ends or yes is None else [(entry_id, b"record")]
            assert list(_pop_all(reads)) == ([(entry_id, None)] if lost else recovered)


@pytest.mark.parametrize("striping", STRIPINGS, ids=str)
def test_an_entry_that_an_ack_quorum_holds_is_never_dropped(striping: Striping) -> None:
    """CHK-14: for each ack quorum, and for any answers of the others, or none."""
    for holders in itertools.combinations(striping.write_set(1), striping.ack_quorum):
        others = [slot for slot in striping.write_set(1) if slot not in holders]
        possible: list[bytes | MissingReason | str] = [b"record", MissingReason.ABSENT, "timed out"]
        for answers in itertools.product(possible, repeat=len(others)):
            for silent in range(striping.ack_quorum + 1):
                reads = _reads(striping, 1)
                for slot, found in zip(others, answers, strict=True):
                    if isinstance(found, str):
                        reads.add_failure(slot, 1, 1, found)
                    else:
                        reads.add_answer(slot, _one(1, found))
                for slot in holders[:silent]:
                    reads.add_failure(slot, 1, 1, "timed out")
                for slot in holders[silent:]:
                    reads.add_answer(slot, _one(1, b"record"))
                assert reads.last_entry_id is None


@pytest.mark.parametrize("striping", STRIPINGS, ids=str)
def test_fenced_slots_cover_exactly_when_no_ack_quorum_is_left_in_any_write_set(striping: Striping) -> None:
    """CHK-7: where a write set is the whole ensemble the count is exact; where entries are striped it is enough."""
    for fenced in itertools.product([False, True], repeat=striping.ensemble_size):
        answers = FenceAnswers(striping)
        for slot in (slot for slot, is_fenced in enumerate(fenced) if is_fenced):
            answers.add_answer(slot, slot)
            answers.add_answer(slot, -1)  # a bookie that answers twice is one bookie
        possible = any(
            sum(not fenced[slot] for slot in striping.write_set(entry_id)) >= striping.ack_quorum
            for entry_id in range(striping.ensemble_size)
        )
        assert not (answers.are_enough and possible)
        if striping.write_quorum == striping.ensemble_size:
            assert answers.are_enough is not possible
        assert answers.last_add_confirmed == max((s for s, is_fenced in enumerate(fenced) if is_fenced), default=-1)


def test_recovery_starts_above_entries_known_to_be_confirmed() -> None:
    """CHK-12: a fragment begins above a LAC of its writer's, which the bookies may never have heard of."""
    assert first_to_recover(Fragment(0, ("a",)), -1) == 0
    assert first_to_recover(Fragment(0, ("a",)), 6) == 7
    assert first_to_recover(Fragment(10, ("a",)), -1) == 10
    assert first_to_recover(Fragment(10, ("a",)), 9) == 10
    assert first_to_recover(Fragment(10, ("a",)), 12) == 13


def test_a_time_out_does_not_revoke_an_answer() -> None:
    """CHK-67: a bookie that may have lost the entry and then hangs has answered: what is lost is known as lost."""
    reads = RecoveryReads(Striping(2, 2, 1), 0, window_entries=1, window_bytes=1)
    reads.add_answer(1, ReadEntries({0: MissingReason.UNKNOWN}, None, 1, -1))
    reads.retry(1)
    reads.add_failure(1, 0, 0, "timed out")
    reads.add_answer(0, ReadEntries({0: MissingReason.DAMAGED}, None, 1, -1))
    assert reads.pop_recovered() == (0, None)


_answers = st.sampled_from(["yes", "yes", "yes", "no", "no", "unknown", "damaged", "silent"])


@examples(300)
@given(st.data(), st.sampled_from(STRIPINGS), st.integers(0, 5), st.integers(1, 7), st.integers(1, 40))
def test_recovery_decisions_match_the_model_in_any_response_order(
    data: st.DataObject, striping: Striping, first: int, window: int, window_bytes: int
) -> None:
    """The decisions come in order, never change, and follow from all answers until then."""
    reads = RecoveryReads(striping, first, window_entries=window, window_bytes=window_bytes)
    # By entry and slot: all answers, in order.
    answered: dict[tuple[int, int], list[str]] = {}
    recovered: list[int] = []
    end: int | None = None
    for _ in range(data.draw(st.integers(0, 60))):
        slot = data.draw(st.integers(0, striping.ensemble_size - 1))
        popped = first + len(recovered)
        entries_to_read = reads.next_range(slot)
        if entries_to_read is None:
            reads.retry(slot)
            entries_to_read = reads.next_range(slot)
        if entries_to_read is not None:
            begin, last = entries_to_read
            assert popped <= begin <= last < popped + window
            assert reads.undecided <= begin
            if data.draw(st.integers(0, 5)) == 0:
                reads.add_failure(slot, begin, last, "timed out")
            else:
                stop = data.draw(st.integers(begin, last))
                entries = {entry_id: data.draw(_answers) for entry_id in range(begin, stop + 1)}
                if "silent" in entries.values():
                    reads.add_failure(slot, begin, last, "timed out")
                else:
                    for entry_id, answer in entries.items():
                        if striping.holds(slot, entry_id):
                            answered.setdefault((entry_id, slot), []).append(answer)
                    found: dict[str, bytes | MissingReason] = {
                        "yes": b"12345678",
                        "no": MissingReason.ABSENT,
                        "unknown": MissingReason.UNKNOWN,
                        "damaged": MissingReason.DAMAGED,
                    }
                    reads.add_answer(
                        slot,
                        ReadEntries({entry_id: found[word] for entry_id, word in entries.items()}, None, stop + 1, -1),
                    )
        if data.draw(st.booleans()):
            recovered += [entry_id for entry_id, _ in _pop_all(reads)]
        assert recovered == list(range(first, first + len(recovered)))
        if end is not None:
            assert reads.last_entry_id == end
        end = reads.last_entry_id
        _check_against(answered, striping, reads)
    if end is not None:
        recovered += [entry_id for entry_id, _ in _pop_all(reads)]
        assert recovered == list(range(first, end + 1))


def _check_against(answered: dict[tuple[int, int], list[str]], striping: Striping, reads: RecoveryReads) -> None:
    def answers_about(entry_id: int) -> list[list[str]]:
        return [answered.get((entry_id, slot), []) for slot in striping.write_set(entry_id)]

    def is_recovered(entry_id: int) -> bool:
        return any("yes" in of_slot for of_slot in answers_about(entry_id))

    def is_over(entry_id: int) -> bool:
        return sum("no" in of_slot for of_slot in answers_about(entry_id)) >= striping.read_coverage

    def is_lost(entry_id: int) -> bool:
        known = answers_about(entry_id)
        return all(known) and any("damaged" in one and "no" not in one for one in known)

    frontier = reads.undecided
    if reads.last_entry_id is None:
        assert not is_recovered(frontier)
        assert not is_over(frontier)
        assert not is_lost(frontier)
    else:
        assert reads.last_entry_id == frontier - 1
        assert is_over(frontier)


@examples(200)
@given(st.data(), st.sampled_from(STRIPINGS), st.integers(0, 12), st.integers(1, 5), st.integers(1, 30))
def test_recovery_completes_with_any_window_if_enough_bookies_respond(
    data: st.DataObject, striping: Striping, length: int, window: int, window_bytes: int
) -> None:
    """No window is so narrow, and no answer so short, that recovery gets stuck while enough bookies answer."""
    reads = RecoveryReads(striping, 0, window_entries=window, window_bytes=window_bytes)
    recovered: list[int] = []
    # The most bookies that may be down while an entry of an ack quorum can be distinguished from none.
    down = data.draw(st.lists(st.integers(0, striping.ensemble_size - 1), max_size=striping.ack_quorum - 1))
    for _ in range(1000):
        if reads.last_entry_id is not None:
            break
        for slot in range(striping.ensemble_size):
            entries_to_read = reads.next_range(slot)
            if entries_to_read is None:
                reads.retry(slot)
            elif slot in down:
                reads.add_failure(slot, *entries_to_read, "timed out")
            else:
                begin, last = entries_to_read
                stop = data.draw(st.integers(begin, last))
                entries: dict[int, bytes | MissingReason] = {
                    entry_id: b"123456789"
                    if entry_id < length and striping.holds(slot, entry_id)
                    else MissingReason.ABSENT
                    for entry_id in range(begin, stop + 1)
                }
                reads.add_answer(slot, ReadEntries(entries, None, stop + 1, -1))
        recovered += [entry_id for entry_id, _ in _pop_all(reads)]
    assert reads.last_entry_id == length - 1
    assert reads.is_done
    assert recovered == list(range(length))
