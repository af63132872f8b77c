"""The rules of adding against a model that keeps everything and thinks of nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from magnetar_bookie.errors import AddFailed, LedgerFenced, MetadataUnknown, NotEnoughBookies
from magnetar_bookie.ledger.add_rules import Complete, Fail, PendingAdds
from magnetar_bookie.ledger.ensemble_rules import EnsembleChange
from magnetar_bookie.read.striping import Fragment, Striping
from tests.examples import scaled

BOOKIES = [f"b{number}" for number in range(7)]
# E, Qw, Qa
SIZES = [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 3, 2), (3, 3, 2), (3, 2, 2), (3, 3, 3), (4, 2, 2), (4, 3, 2), (5, 3, 2)]


class Adding:
    """A writer whose bookies acknowledge, fail and come back in any order, and whose metadata takes its time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        sizes = chance.choice(SIZES)
        first = chance.choice([0, 0, 7])
        self.size, self.write, self.ack = sizes
        # Who would be chosen now.
        self.candidates = list(BOOKIES)
        # As in the metadata, and the change that the rules requested.
        self.published = [Fragment(0, tuple(BOOKIES[: self.size]))]
        self.requested: EnsembleChange | None = None
        self.first, self.next, self.completed = first, first, first - 1
        # What really is on each bookie's disk, and what each was sent in all.
        self.disk: dict[str, set[int]] = {name: set() for name in BOOKIES}
        self.sent: dict[str, set[int]] = {name: set() for name in BOOKIES}
        # (slot, entry) the writer may count; slots known to have failed, handled or not.
        self.counted: set[tuple[int, int]] = set()
        self.down: set[int] = set()
        self.error: AddFailed | None = None
        # Bookies came since the last time that nothing was in the way of using them.
        self.came = False
        self.failure_reported = False
        self.rules = PendingAdds(1, Striping(*sizes), self.published[-1], first, lambda others: self._choose(others))

    def _choose(self, others: Sequence[str]) -> str | None:
        left = [name for name in self.candidates if name not in others]
        return self.chance.choice(left) if left else None

    def _ensemble(self) -> tuple[str, ...]:
        return self.published[-1].bookies

    def _write_set(self, entry: int) -> set[int]:
        return {slot for slot in range(self.size) if (slot - entry) % self.size < self.write}

    def add(self) -> None:
        if self.error is not None:
            return
        [(slots, first, count)] = self.rules.add(self.next, 1)
        assert (first, count) == (self.next, 1)
        expected = self._write_set(self.next) - self.down
        assert set(slots) == expected
        assert len(slots) == len(expected)
        for slot in slots:
            self.sent[self._ensemble()[slot]].add(self.next)
        self.next += 1

    def acknowledge(self) -> None:
        """What it was sent at any time, in this ensemble or before, repeatedly and out of order."""
        bookies = [bookie for bookie in BOOKIES if self.sent[bookie]]
        if not bookies:
            return
        bookie = self.chance.choice(bookies)
        sent = sorted(self.sent[bookie])
        first = self.chance.choice(sent[-6:])
        count = 1
        while first + count in self.sent[bookie] and self.chance.random() < 0.7:
            count += 1
        self._acknowledge(bookie, first, count)

    def _acknowledge(self, bookie: str, first: int, count: int) -> None:
        self.disk[bookie] |= set(range(first, first + count))
        if bookie in self._ensemble():
            slot = self._ensemble().index(bookie)
            self.counted |= {(slot, entry) for entry in range(first, first + count) if slot in self._write_set(entry)}
        self.rules.mark_acked(bookie, first, count)

    def acknowledge_nonsense(self) -> None:
        """Entries that are done already or were never made."""
        bookie = self.chance.choice(BOOKIES)
        self.rules.mark_acked(bookie, self.chance.randrange(50) + self.next, 2**32 - 1)
        self.rules.mark_acked(bookie, 0, self.completed + 1)

    def fail(self) -> None:
        bookie = self.chance.choice([*BOOKIES, *self._ensemble() * 3])
        if self.chance.random() < 0.6:  # else it can be chosen again at once
            self.candidates = [name for name in self.candidates if name != bookie]
        news = self.rules.mark_bookie_failed(bookie)
        slot = self._ensemble().index(bookie) if bookie in self._ensemble() else None
        assert news == (self.error is None and slot is not None and slot not in self.down)
        if slot is not None:
            self.down.add(slot)

    def bookies_change(self) -> None:
        self.candidates = self.chance.sample(BOOKIES, self.chance.randint(0, len(BOOKIES)))
        self.came = True
        self.rules.ensemble.retry_absent_slots()

    def decide(self) -> None:
        self._decide()

    def _decide(self) -> None:
        changing = self.requested is not None
        actions = self.rules.decide()
        assert len([action for action in actions if not isinstance(action, Fail)]) <= 1, "failures go first"
        if self.requested is not None and self.error is None:
            assert not actions, "nothing may happen during a change"
        for action in actions:
            if isinstance(action, Complete):
                self._check_complete(action.up_to)
            elif isinstance(action, EnsembleChange):
                self._check_change(action)
            elif isinstance(action, Fail):
                assert not self.failure_reported
                self.failure_reported = True
                if self.error is None:
                    self._check_too_few(action.error)
                assert action.error is self.error
        self._check_nothing_is_forgotten()
        if self.requested is None and self.error is None and self.came and not changing:
            for slot in self.down:  # it has no replacement
                others = {name for other, name in enumerate(self._ensemble()) if other != slot}
                assert set(self.candidates) <= others
        self.came = self.came and changing

    def _check_complete(self, up_to: int) -> None:
        assert self.requested is None
        assert self.error is None
        assert up_to > self.completed
        for entry in range(self.completed + 1, up_to + 1):
            fragment = [one for one in self.published if one.first_entry_id <= entry][-1]
            holders = [name for slot, name in enumerate(fragment.bookies) if slot in self._write_set(entry)]
            assert sum(entry in self.disk[name] for name in holders) >= self.ack
        self.completed = up_to

    def _check_change(self, change: EnsembleChange) -> None:
        assert self.requested is None
        assert self.error is None
        assert change.fragment.first_entry_id == self.completed + 1
        assert len(set(change.fragment.bookies)) == self.size
        assert set(change.replaced) <= self.down
        for slot, (old, new) in enumerate(zip(self._ensemble(), change.fragment.bookies, strict=True)):
            assert (new in self.candidates) if slot in change.replaced else old == new
        self.requested = change

    def _check_too_few(self, error: AddFailed) -> None:
        assert isinstance(error, NotEnoughBookies)
        assert any(len(self._write_set(entry) - self.down) < self.ack for entry in range(self.size)), (
            "there were enough bookies"
        )
        self.error = error

    def _check_nothing_is_forgotten(self) -> None:
        """All that could complete has, and all that could be replaced is being replaced."""
        if self.requested is not None or self.error is not None:
            return
        assert all(len(self._write_set(entry) - self.down) >= self.ack for entry in range(self.size))
        if self.completed + 1 < self.next:
            lowest = self.completed + 1
            assert len({slot for slot, entry in self.counted if entry == lowest}) < self.ack

    def metadata_changed(self) -> None:
        if self.requested is not None:
            self._metadata_changed()

    def _metadata_changed(self) -> None:
        change, self.requested = self.requested, None
        assert change is not None
        if self.error is not None:
            assert self.rules.commit_change() == []
            return
        if self.published[-1].first_entry_id == change.fragment.first_entry_id:
            self.published.pop()
        self.published.append(change.fragment)
        self.down -= set(change.replaced)
        self.counted = {(slot, entry) for slot, entry in self.counted if slot not in change.replaced}
        sends = {send.slot: list(send.entry_ids) for send in self.rules.commit_change()}
        pending = range(self.completed + 1, self.next)
        assert sends == {
            slot: [entry for entry in pending if slot in self._write_set(entry)] for slot in change.replaced
        }
        for slot, entries in sends.items():
            self.sent[self._ensemble()[slot]] |= set(entries)

    def metadata_refuses(self) -> None:
        if self.requested is None or self.error is not None:
            return
        self.error = LedgerFenced("it is closed") if self.chance.random() < 0.5 else MetadataUnknown("no answer")
        self.rules.fail(self.error)

    def bookies_refused(self) -> None:
        """One of the bookies is being decommissioned, and is not chosen any more."""
        if self.requested is None:
            return
        self.candidates = [name for name in self.candidates if name not in self.requested.new_bookies]
        self.requested = None
        self.rules.ensemble.abort_change()

    def lose(self) -> None:
        if self.error is not None:
            return
        self.error = LedgerFenced("a bookie is fenced")
        self.rules.fail(self.error)

    def they_agree(self) -> None:
        assert self.rules.last_add_confirmed == self.completed
        assert self.rules.fragment == self.published[-1] or self.error is not None
        assert self.rules.failure is self.error

    def answer_all(self) -> None:
        """When every bookie that takes entries answers all it was sent, nothing stays pending."""
        for _ in range(10):
            if self.error is not None and self.requested is None:
                break
            if self.requested is not None:
                self._metadata_changed()
            for bookie in self._ensemble():
                for entry in sorted(self.sent[bookie]):
                    self._acknowledge(bookie, entry, 1)
            self._decide()
        if self.error is None:
            assert self.completed + 1 == self.next
        elif not self.failure_reported:
            self._decide()
            assert self.failure_reported


WEIGHTS: dict[Callable[[Adding], None], int] = {
    Adding.add: 20,
    Adding.acknowledge: 40,
    Adding.decide: 25,
    Adding.fail: 6,
    Adding.bookies_change: 4,
    Adding.metadata_changed: 15,
    Adding.bookies_refused: 4,
    Adding.acknowledge_nonsense: 2,
    Adding.metadata_refuses: 0,
    Adding.lose: 0,
}


@pytest.mark.parametrize("hostile", [False, True])
def test_adds_complete_on_an_ack_quorum_in_order_and_whenever_they_can(hostile: bool) -> None:
    """CHK-18, CHK-19, CHK-20: against bookies and metadata that do anything, in any order."""
    weights = {**WEIGHTS, Adding.metadata_refuses: hostile, Adding.lose: hostile}
    for seed in range(scaled(2000)):
        adding = Adding(random.Random(seed))
        try:
            for step in adding.chance.choices(list(weights), list(weights.values()), k=60):
                step(adding)
                adding.they_agree()
            adding.answer_all()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
