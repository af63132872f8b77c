"""The groups that fault tests write to a ledger storage: the same for the same seed, and the expected state after each.

Group n is made from the seed, n, and the state after the groups before it. So the seed and the last group determine the
whole state. Ledger 1's last add confirmed is the number of the last group.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from magnetar_bookie.read.record import BadRecord, check_record, encode_record
from magnetar_bookie.storage.interface import DAMAGED, Changes, Damaged, LedgerData, LedgerStorage
from magnetar_bookie.storage.rocksdb import StorageSettings

__all__ = ["COUNTER", "OPTIONS", "Held", "Workload", "reached", "wrong"]

# Small, so that each run has many log files, flushes of the index, and freed files.
OPTIONS = StorageSettings(
    segment_bytes=48 << 10,
    index_flush_bytes=96 << 10,
    max_open_segments=4,
    reserve_disk_bytes=1 << 20,
    ballast_disk_bytes=16 << 10,
    mark_sync_interval_seconds=0.01,
)
COUNTER = 1
_LIVE_LEDGERS = 6


@dataclass
class Held:
    """What a storage must hold."""

    ledgers: dict[int, LedgerData] = field(default_factory=dict)
    entries: dict[int, dict[int, bytes]] = field(default_factory=dict)
    bookie: bytes | None = None


class Workload:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._next_ledger = COUNTER + 1
        self._live: list[int] = []
        self.number = 0
        self.held = Held()

    def next_group(self) -> Changes:
        """The next group; it counts as written from now on."""
        self.number += 1
        random, held = Random(self._seed * 1_000_003 + self.number), self.held
        changes = Changes(ledgers={COUNTER: LedgerData(last_add_confirmed=self.number)})
        if len(self._live) < _LIVE_LEDGERS:
            changes.ledgers[self._next_ledger] = LedgerData(master_key=random.randbytes(8))
            self._live.append(self._next_ledger)
            held.entries[self._next_ledger] = {}
            self._next_ledger += 1
        if random.random() < 0.06:
            dropped = self._live.pop(random.randrange(len(self._live)))
            changes.dropped.append(dropped)
            changes.ledgers[dropped] = replace(held.ledgers.get(dropped, LedgerData()), deleted=True)
            del held.entries[dropped]
        for ledger_id in random.sample(self._live, min(len(self._live), random.randint(0, 3))):
            entries = held.entries[ledger_id]
            if entries and random.random() < 0.1:
                again = random.choice(list(entries))
                changes.discarded.append((ledger_id, again))
                changes.records[ledger_id, again] = entries[again]
            first = len(entries)
            for entry_id in range(first, first + random.randint(1, 8)):
                size = random.choice((10, 100, 100, 1000, 9000))
                entries[entry_id] = encode_record(ledger_id, entry_id, entry_id - 1, 0, random.randbytes(size))
                changes.records[ledger_id, entry_id] = entries[entry_id]
            if random.random() < 0.1:
                old = changes.ledgers.get(ledger_id) or held.ledgers[ledger_id]
                changes.ledgers[ledger_id] = replace(old, fenced=True, last_add_confirmed=first)
        if self.number == 1 or random.random() < 0.02:
            changes.bookie = held.bookie = b"group %d" % self.number
        held.ledgers.update(changes.ledgers)
        return changes

    def go_to(self, number: int) -> None:
        while self.number < number:
            self.next_group()


def reached(storage: LedgerStorage) -> int:
    counter = storage.get_ledger(COUNTER)
    return counter.last_add_confirmed if counter else 0


async def wrong(storage: LedgerStorage, held: Held, *, may_be_damaged: bool) -> list[str]:
    """How what is there differs from what must be."""
    found = []
    ledger_ids = storage.list_ledger_ids(0, 1_000_000)
    if ledger_ids != sorted(held.ledgers):
        found.append(f"the ledgers are {ledger_ids}, not {sorted(held.ledgers)}")
    found += [
        f"ledger {ledger_id} is {storage.get_ledger(ledger_id)}, not {remembered}"
        for ledger_id, remembered in held.ledgers.items()
        if storage.get_ledger(ledger_id) != remembered
    ]
    if not may_be_damaged and storage.get_bookie_record() != held.bookie:
        found.append(f"the bookie's record is {storage.get_bookie_record()!r}, not {held.bookie!r}")
    for ledger_id in held.ledgers:
        entries = held.entries.get(ledger_id, {})
        entry_ids = storage.list_entry_ids(ledger_id, 0, 2**62, 1_000_000)
        if entry_ids != sorted(entries):
            found.append(f"ledger {ledger_id} holds {entry_ids}, not {sorted(entries)}")
            continue
        if not entry_ids:
            continue
        if storage.get_last_entry_id(ledger_id) != entry_ids[-1]:
            found.append(f"the last entry of ledger {ledger_id} is not {entry_ids[-1]}")
        records = await storage.read(ledger_id, entry_ids, 2**40)
        for entry_id, record in zip(entry_ids, records, strict=True):
            if record == entries[entry_id] or (may_be_damaged and _is_damaged(record, ledger_id, entry_id)):
                continue
            found.append(f"entry {entry_id} of ledger {ledger_id} is {'there' if record else 'absent'}, and not right")
    return found


def _is_damaged(record: bytes | Damaged | None, ledger_id: int, entry_id: int) -> bool:
    if record is DAMAGED:
        return True
    if not isinstance(record, bytes):
        return False
    try:
        check_record(record, ledger_id, entry_id)
    except BadRecord:
        return True
    return False
