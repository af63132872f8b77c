"""The bookie's rules, on a simulated disk, against a model that copies everything and optimises nothing.

The model holds three states of all ledgers: what is durable, what was written and not synced, and what is decided. The
disk is crashed, filled and damaged at will; what a crash leaves must be one of the first two.
"""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.server.ledger_rules import AddDecisions, LedgerRules
from magnetar_bookie.server.record_reader import RecordReader
from magnetar_bookie.storage.interface import LedgerData, StorageFull
from magnetar_protos.ledger_pb2 import Status
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from tests.examples import examples
from tests.sim.disk import SimulatedDisk, SimulatedStorage
from tests.unit.bookie.bookie_client import record

T = TypeVar("T")
KEYS = (b"key", b"other")
LIMBO_BELOW = 3  # of the ledgers 1 … 4

ALL = 2**40  # bytes

LEDGERS = st.integers(1, 4)
ENTRIES = st.integers(0, 7)
KEY = st.sampled_from([KEYS[0]] * 6 + [KEYS[1], b""])


class NoTime(ManualClock):
    """A clock on which nothing takes any time."""

    async def sleep(self, seconds: float) -> None:
        return


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


@dataclass
class Ledger:
    data: LedgerData = field(default_factory=LedgerData)
    # entry id → record; None: it is damaged
    entries: dict[int, bytes | None] = field(default_factory=dict)

    def last_add_confirmed(self) -> int:
        return max([self.data.last_add_confirmed, *(entry_id - 1 for entry_id in self.entries)])


State = dict[int, Ledger]


class BookieRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(NoTime(), SeededRandomness(1))
        self.durable: State = {}
        self.written: State = {}
        self.decided: State = {}
        self.in_limbo = False
        self.damaged_once = False
        self.sources = 0
        # The LACs that were reported.
        self.reported_lacs: dict[int, int] = {}
        self.start()

    def start(self) -> None:
        self.storage: SimulatedStorage = self.disk.open()
        self.ledger_rules = LedgerRules(self.storage, max_ledgers_in_memory=2)
        if self.in_limbo:
            self.ledger_rules.limbo_below, self.ledger_rules.limbo_generation = LIMBO_BELOW, 1
        counters = BookieCounters()
        commit = GroupCommit(self.storage, self.ledger_rules, lambda _: None, lambda: None, ManualClock(), counters)
        self.reader = RecordReader(self.storage, self.ledger_rules, commit, counters)
        self.in_flight: CommitGroup | None = None
        # (source, ledger, entry) → record, for adds in the open group and in the group in flight.
        self.waiting_open: dict[tuple[int, int, int], bytes] = {}
        self.waiting_in_flight: dict[tuple[int, int, int], bytes] = {}
        # Entries of the group in flight for which the disk had no space → the record before, empty if there was none.
        self.refused: dict[tuple[int, int], bytes | None] = {}

    def refusal(self, ledger_id: int, key: bytes, recovery: bool, fence: bool = False) -> Status | None:
        ledger = self.decided.get(ledger_id, Ledger())
        data = ledger.data
        if data.deleted:
            return Status.DELETED
        if not key or (data.master_key and data.master_key != key):
            return Status.WRONG_KEY
        if fence:
            return None
        if not recovery and self.in_limbo and ledger_id < LIMBO_BELOW and not data.limbo_cleared:
            return Status.LIMBO
        if not recovery and data.fenced:
            return Status.FENCED
        return None

    def remember(self, ledger_id: int, key: bytes = b"", **changes: Any) -> Ledger:
        ledger = self.decided.setdefault(ledger_id, Ledger())
        key = ledger.data.master_key or key
        ledger.data = replace(ledger.data, master_key=key, **changes)
        return ledger

    @rule(
        ledger_id=LEDGERS,
        first=ENTRIES,
        variants=st.lists(st.sampled_from([0, 0, 0, 0, 1, 2]), min_size=1, max_size=4),
        key=KEY,
        recovery=st.booleans(),
    )
    def add(self, ledger_id: int, first: int, variants: list[int], key: bytes, recovery: bool) -> None:
        records = [
            b"no record" if variant == 2 else record(ledger_id, first + number, b"payload %d" % variant)
            for number, variant in enumerate(variants)
        ]
        self.sources += 1
        expected: dict[int, Status | None] = {}
        for entry_id, one in enumerate(records, first):
            refusal = self.refusal(ledger_id, key, recovery)
            held = self.decided.get(ledger_id, Ledger()).entries.get(entry_id)
            if one == b"no record":
                expected[entry_id] = Status.BAD_RECORD
            elif refusal is not None:
                expected[entry_id] = refusal
            elif held is not None and held != one:
                expected[entry_id] = Status.CONFLICT
            elif held is None and self.ledger_rules.read_only and not recovery:  # it is not held, or damaged
                expected[entry_id] = Status.READ_ONLY
            else:
                expected[entry_id] = None  # OK, at once or later
                self.remember(ledger_id, key).entries[entry_id] = one
        decisions = self.ledger_rules.add_run(ledger_id, key, first, records, recovery, self.sources)
        answered = self.settle(decisions)
        for entry_id, one in enumerate(records, first):
            status = expected[entry_id]
            if status is not None:
                assert answered.pop(entry_id) == status
            elif entry_id in answered:
                assert answered.pop(entry_id) == Status.OK
                assert self.durable[ledger_id].entries[entry_id] == one, "OK, and not durable"
            else:
                self.waiting_open[self.sources, ledger_id, entry_id] = one
        assert not answered

    def settle(self, decisions: AddDecisions) -> dict[int, Status]:
        answers = list(decisions.results)
        duplicates = list(decisions.duplicates)
        while duplicates:
            add = duplicates.pop(0)
            (held,) = finish(self.reader.read_unchecked(add.ledger_id, [add.entry_id], 0))
            more = self.ledger_rules.decide_duplicate(add, held, self.sources)
            answers += more.results
            duplicates += more.duplicates
        found: dict[int, Status] = {}
        for answer in answers:
            for entry_id in range(answer.first_entry_id, answer.first_entry_id + answer.count):
                assert entry_id not in found, "answered twice"
                found[entry_id] = answer.status
        return found

    @rule(ledger_id=LEDGERS, key=KEY)
    def fence(self, ledger_id: int, key: bytes) -> None:
        refusal = self.refusal(ledger_id, key, recovery=False, fence=True)
        status, group = self.ledger_rules.fence(ledger_id, key)
        assert status == (refusal or Status.OK)
        if refusal is Status.DELETED and self.decided[ledger_id].data.settled:
            self.remember(ledger_id, settled=False)
            assert group is not None
        if refusal is None:
            self.remember(ledger_id, key, fenced=True)
            assert group is not None or self.durable[ledger_id].data.fenced

    @rule(ledger_id=LEDGERS, key=KEY, entry_id=ENTRIES)
    def confirm(self, ledger_id: int, key: bytes, entry_id: int) -> None:
        refusal = self.refusal(ledger_id, key, recovery=False)
        known = self.decided.get(ledger_id, Ledger()).data.last_add_confirmed
        if self.ledger_rules.read_only and (entry_id > known or ledger_id not in self.decided):
            refusal = refusal or Status.READ_ONLY
        status, group = self.ledger_rules.set_explicit_lac(ledger_id, key, entry_id)
        assert status == (refusal or Status.OK)
        if refusal is None:
            self.remember(ledger_id, key, last_add_confirmed=max(known, entry_id))
            assert group is not None or self.durable[ledger_id].data.last_add_confirmed >= entry_id

    @rule(ledger_id=LEDGERS)
    def tombstone(self, ledger_id: int) -> None:
        group = self.ledger_rules.delete_ledger(ledger_id)
        self.remember(ledger_id, deleted=True).entries.clear()
        self.reported_lacs.pop(ledger_id, None)
        assert group is not None or self.durable[ledger_id].data.deleted

    @rule(ledger_id=LEDGERS)
    def settle_tombstone(self, ledger_id: int) -> None:
        self.ledger_rules.settle_tombstone(ledger_id)
        if self.decided.get(ledger_id, Ledger()).data.deleted:
            self.remember(ledger_id, settled=True)

    @rule(read_only=st.booleans())
    def set_read_only(self, read_only: bool) -> None:
        self.ledger_rules.read_only = read_only

    @rule(full=st.booleans())
    def set_full(self, full: bool) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes if full else None

    @precondition(lambda self: self.in_flight is None and self.ledger_rules.group)
    @rule()
    def write(self) -> None:
        group = self.in_flight = self.ledger_rules.take_group()
        try:
            self.storage.write(group.changes)
        except StorageFull:
            self.storage.write(group.leave_records_out())
            # They are in line, to be read and compared with, until the group is done.
            for ledger_id, ledger in self.decided.items():
                before = self.written.get(ledger_id, Ledger()).entries
                for entry_id, one in ledger.entries.items():
                    if entry_id not in before or before[entry_id] != one:
                        self.refused[ledger_id, entry_id] = before.get(entry_id, b"")
        self.written = copy.deepcopy(self.decided)
        self.drop_refused(self.written)
        # An add of an entry in the group in flight waits for that group. There is one at a time, so it was answered.
        self.waiting_in_flight |= self.waiting_open
        self.waiting_open = {}

    def drop_refused(self, state: State) -> None:
        for (ledger_id, entry_id), before in self.refused.items():
            entries = state[ledger_id].entries
            if entry_id in entries and before == b"":
                del entries[entry_id]
            elif entry_id in entries:
                entries[entry_id] = before

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def sync(self) -> None:
        group, self.in_flight = self.in_flight, None
        assert group is not None
        finish(self.storage.sync())
        self.durable = copy.deepcopy(self.written)
        self.drop_refused(self.decided)
        self.refused = {}
        for result in self.ledger_rules.complete_group(group).results:
            for entry_id in range(result.first_entry_id, result.first_entry_id + result.count):
                key = (result.source, result.ledger_id, entry_id)
                # Sent while this group was in flight, and equal to its record.
                one = self.waiting_in_flight.pop(key, None) or self.waiting_open.pop(key)
                ledger = self.durable[result.ledger_id]
                if result.status == Status.OK and not ledger.data.deleted:
                    assert ledger.entries[entry_id] in (one, None)
                elif result.status == Status.DELETED:
                    assert ledger.data.deleted
                elif result.status != Status.OK:
                    assert result.status == Status.READ_ONLY
                    assert group.disk_was_full
        assert not self.waiting_in_flight, "an add was not answered"

    @rule(survive=st.booleans())
    def crash(self, survive: bool) -> None:
        if self.damaged_once:
            self.reported_lacs.clear()  # the record with that LAC may be damaged
        self.disk.randomness = SeededRandomness(int(survive))
        self.disk.capacity_bytes = None
        self.start()
        self.ledger_rules.read_only = False
        there = self.written if self.holds(self.written) else self.durable
        assert self.holds(there), "a crash left neither what was synced nor what was written"
        self.durable, self.written, self.decided = (copy.deepcopy(there) for _ in range(3))

    def holds(self, state: State) -> bool:
        if self.storage.list_ledger_ids(0, 100) != sorted(state):
            return False
        for ledger_id, ledger in state.items():
            entry_ids = sorted(ledger.entries)
            if self.storage.get_ledger(ledger_id) != ledger.data:
                return False
            if self.storage.list_entry_ids(ledger_id, 0, 100, 100) != entry_ids:
                return False
            for entry_id, read in zip(entry_ids, finish(self.storage.read(ledger_id, entry_ids, ALL)), strict=True):
                if ledger.entries[entry_id] not in (read, None):
                    return False
        return True

    @precondition(lambda self: self.in_flight is None)
    @rule(ledger_id=LEDGERS, entry_id=ENTRIES)
    def damage(self, ledger_id: int, entry_id: int) -> None:
        if self.ledger_rules.get_pending_record(ledger_id, entry_id) is None and self.disk.damage(ledger_id, entry_id):
            self.damaged_once = True
            for state in (self.durable, self.written, self.decided):
                if entry_id in state.get(ledger_id, Ledger()).entries:
                    state[ledger_id].entries[entry_id] = None

    @precondition(lambda self: not self.in_limbo)
    @rule()
    def enter_limbo(self) -> None:
        self.in_limbo = True
        self.ledger_rules.limbo_below, self.ledger_rules.limbo_generation = LIMBO_BELOW, 1

    @precondition(lambda self: self.in_limbo)
    @rule(ledger_id=LEDGERS)
    def clear_limbo(self, ledger_id: int) -> None:
        self.ledger_rules.clear_limbo(ledger_id)
        if ledger_id < LIMBO_BELOW:
            self.remember(ledger_id, limbo_cleared=1)

    @rule(ledger_id=LEDGERS)
    def last_add_confirmed(self, ledger_id: int) -> None:
        if self.decided.get(ledger_id, Ledger()).data.deleted:
            return
        lac = finish(self.reader.read_last_add_confirmed(ledger_id))
        durable = self.durable.get(ledger_id, Ledger()).last_add_confirmed()
        assert lac == durable if not self.damaged_once else lac <= durable
        assert lac >= self.reported_lacs.get(ledger_id, -1), "it fell"
        self.reported_lacs[ledger_id] = lac

    @rule(ledger_id=LEDGERS, first=ENTRIES, count=st.integers(1, 8), max_bytes=st.integers(0, 400))
    def read(self, ledger_id: int, first: int, count: int, max_bytes: int) -> None:
        ledger = self.decided.get(ledger_id, Ledger())
        if ledger.data.deleted:
            return
        entry_ids = range(first, first + count)
        found = finish(self.reader.read_unchecked(ledger_id, entry_ids, max_bytes))
        assert found, "a reader would never make progress"
        for entry_id, held in zip(entry_ids, found, strict=False):
            assert (held is not None) == (entry_id in ledger.entries)
            if held is not None:
                assert entry_id <= self.ledger_rules.get_highest_entry_id(ledger_id)
                assert ledger.entries[entry_id] in (held, None)
        sizes = [len(held) for held in found if isinstance(held, bytes)]
        assert sum(sizes) <= max_bytes + max(sizes, default=0), "more memory than was allowed"

    @invariant()
    def memory_is_accounted_for(self) -> None:
        in_flight = self.in_flight.pending_bytes if self.in_flight else 0
        assert self.ledger_rules.pending_bytes == self.ledger_rules.group.pending_bytes + in_flight


TestBookieRules = BookieRules.TestCase
TestBookieRules.settings = examples(60, stateful_step_count=40)
