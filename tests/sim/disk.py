"""A bookie's disk in the simulation, and the storage on it.

The disk outlives the process; each `open` gives a new storage object, and the one before is dead from then on. A write
is applied at once, with a note of how to undo it. A sync discards the notes of the groups before it; a crash applies
the notes of a random number of the newest groups. So an ordinary record costs a few dictionary operations, nothing is
copied, and the durable state is known at any time: it is the one before the oldest note.

Notes of some synced groups are retained, too: `lose_synced` applies those.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_bookie.storage.interface import (
    DAMAGED,
    Changes,
    Damaged,
    LedgerData,
    StorageFailed,
    StorageFull,
)
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["DiskFaults", "SimulatedDisk", "SimulatedStorage"]

# Maximum number of synced groups that `lose_synced` can undo.
_MAX_LOST_GROUPS: Final = 256

Held = bytes | Damaged


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """How slow the disk is, and how often it does what. The disk's `faults` may be replaced at any time."""

    shortest_sync_s: float = 0.000_5
    longest_sync_s: float = 0.005
    longest_read_s: float = 0.001
    # Of each sync and each read: it takes `stall_s` longer.
    stall_probability: float = 0.0
    stall_s: float = 1.0
    # Of each sync: it fails, and the storage with it.
    failed_sync_probability: float = 0.0


@dataclass(slots=True)
class _Ledger:
    record: LedgerData | None = None
    entries: dict[int, Held] = field(default_factory=dict)
    # The entries' ids, in order.
    ids: list[int] = field(default_factory=list)

    def put(self, entry_id: int, held: Held | None) -> Held | None:
        """Puts it, or takes it away; returns what was there."""
        old = self.entries.get(entry_id)
        if held is None:
            if old is not None:
                del self.entries[entry_id]
                del self.ids[bisect_left(self.ids, entry_id)]
            return old
        self.entries[entry_id] = held
        if old is None:
            if not self.ids or entry_id > self.ids[-1]:
                self.ids.append(entry_id)
            else:
                insort(self.ids, entry_id)
        return old


@dataclass(slots=True)
class _Group:
    """How to undo one group, in the order in which it was done."""

    # (ledger id, entry id, what was there)
    entries: list[tuple[int, int, Held | None]] = field(default_factory=list)
    ledgers: list[tuple[int, LedgerData | None]] = field(default_factory=list)
    # The ledger's entries; the lists of ids are rebuilt.
    dropped: list[tuple[int, dict[int, Held]]] = field(default_factory=list)
    bookie: tuple[bytes | None] | None = None


class SimulatedDisk:
    """What lies on one disk. The methods besides `open` are the simulation's."""

    def __init__(self, clock: Clock, randomness: Randomness, faults: DiskFaults | None = None) -> None:
        self.clock = clock
        self.randomness = randomness
        self.faults = faults or DiskFaults()
        # Maximum size of all records; None: no limit. Groups without records always fit.
        self.capacity_bytes: int | None = None
        self.used_bytes = 0
        # Called with each group that is written, before it can be read.
        self.on_write: Callable[[Changes], object] | None = None
        self.ledgers: dict[int, _Ledger] = {}
        self.bookie_record: bytes | None = None
        self._unsynced: deque[_Group] = deque()
        self._synced: deque[_Group] = deque(maxlen=_MAX_LOST_GROUPS)
        self._intact = True
        self.fails_next_sync = False
        self.storage: SimulatedStorage | None = None

    def open(self) -> SimulatedStorage:
        """Open the storage as a new process. The process that had it open before has crashed."""
        self.crash()
        self.storage = SimulatedStorage(self, self._intact)
        return self.storage

    def crash(self) -> None:
        """Crash the process. Some unsynced groups may be on the disk, and none without those before it.

        What is on it then is durable.
        """
        if self.storage is not None:
            self.storage.dead = "the process crashed"
            self.storage = None
        if self._unsynced:
            self._keep_unsynced(self.randomness.below(len(self._unsynced) + 1))

    def lose_synced(self, count: int = 1) -> int:
        """Crashes, and takes away the newest `count` groups of what was synced. Returns how many there were to take.

        The next `open` has `is_intact` False, and so have those after it until the bookie has written its own record.
        """
        self.crash()
        lost = 0
        while lost < count and self._synced:
            self._undo(self._synced.pop())
            lost += 1
        self._intact = self._intact and not lost
        return lost

    def wipe(self) -> None:
        """Crashes, and the disk is empty."""
        self.crash()
        self.ledgers.clear()
        self.bookie_record = None
        self._synced.clear()
        self.used_bytes = 0
        self._intact = True

    @property
    def may_lack_groups(self) -> bool:
        """Groups were lost, or all, and the bookie has not seen that yet."""
        return not self._intact or self.bookie_record is None

    @property
    def synced_groups(self) -> int:
        """Groups that `lose_synced` can take away."""
        return len(self._synced)

    def has_free_space(self) -> bool:
        return self.capacity_bytes is None or self.used_bytes < 0.9 * self.capacity_bytes

    def fill(self) -> None:
        """From now on the disk is full."""
        self.capacity_bytes = self.used_bytes

    def fail_next_sync(self) -> None:
        """The next sync that ends fails. Also without an open storage: the next one's."""
        self.fails_next_sync = True

    def damage(self, ledger_id: int, entry_id: int, *, unreadable: bool | None = None) -> bool:
        """A bit of a durable record is flipped; whether one was there. It is read as other bytes, or as `DAMAGED`."""
        ledger = self.ledgers.get(ledger_id)
        held = ledger.entries.get(entry_id) if ledger else None
        if held is None or self.durable_record(ledger_id, entry_id) is not held:
            return False
        assert ledger is not None
        if unreadable is None:
            unreadable = self.randomness.random() < 0.5
        if isinstance(held, bytes):
            self.used_bytes -= len(held) if unreadable else 0
            ledger.entries[entry_id] = DAMAGED if unreadable else self._flipped(held)
        return True

    def damage_any(self) -> tuple[int, int] | None:
        """Damage a random durable record, and return its ids."""
        ledgers = [(ledger_id, ledger) for ledger_id, ledger in self.ledgers.items() if ledger.ids]
        if not ledgers:
            return None
        ledger_id, ledger = self.randomness.choice(ledgers)
        entry_id = self.randomness.choice(ledger.ids)
        return (ledger_id, entry_id) if self.damage(ledger_id, entry_id) else None

    def durable_record(self, ledger_id: int, entry_id: int) -> bytes | Damaged | None:
        """What would be read of the entry if the process crashed now, and no unsynced group survived."""
        for group in self._unsynced:
            for dropped, entries in group.dropped:
                if dropped == ledger_id:
                    return entries.get(entry_id)
            for ledger, entry, old in group.entries:
                if entry == entry_id and ledger == ledger_id:
                    return old
        ledger_now = self.ledgers.get(ledger_id)
        return ledger_now.entries.get(entry_id) if ledger_now else None

    def durable_ledger(self, ledger_id: int) -> LedgerData | None:
        """What would be read of the ledger's data then."""
        for group in self._unsynced:
            for ledger, old in group.ledgers:
                if ledger == ledger_id:
                    return old
        ledger_now = self.ledgers.get(ledger_id)
        return ledger_now.record if ledger_now else None

    def durable_entry_ids(self, ledger_id: int) -> list[int]:
        """The entries of the ledger for which `durable_record` has something, in order."""
        ledger = self.ledgers.get(ledger_id)
        ids = dict.fromkeys(ledger.ids if ledger else ())
        for group in self._unsynced:
            ids.update((entry, None) for of, entry, _ in group.entries if of == ledger_id)
            for of, entries in group.dropped:
                ids.update(dict.fromkeys(entries) if of == ledger_id else {})
        return sorted(entry_id for entry_id in ids if self.durable_record(ledger_id, entry_id) is not None)

    def write(self, changes: Changes) -> None:
        """Write the group, undurably, with notes to undo it; see LedgerStorage.write."""
        size = sum(map(len, changes.records.values()))
        if size and self.capacity_bytes is not None and self.used_bytes + size > self.capacity_bytes:
            raise StorageFull(f"the disk holds {self.used_bytes} bytes, and {self.capacity_bytes} are its capacity")
        if self.on_write is not None:
            self.on_write(changes)
        group = _Group()
        ledgers = self.ledgers
        for ledger_id in changes.dropped:
            ledger = ledgers.get(ledger_id)
            if ledger is not None and ledger.entries:
                group.dropped.append((ledger_id, ledger.entries))
                self.used_bytes -= _size(ledger.entries)
                ledger.entries, ledger.ids = {}, []
        for ledger_id, entry_id in changes.discarded:
            self._put(group, ledger_id, entry_id, None)
        for (ledger_id, entry_id), record in changes.records.items():
            ledger = ledgers.get(ledger_id)
            held = ledger.entries.get(entry_id) if ledger else None
            assert held is None, f"entry {entry_id} of ledger {ledger_id} is held and was written again"
            self._put(group, ledger_id, entry_id, record)
        for ledger_id, remembered in changes.ledgers.items():
            ledger = ledgers.setdefault(ledger_id, _Ledger())
            group.ledgers.append((ledger_id, ledger.record))
            ledger.record = remembered
        if changes.bookie is not None:
            group.bookie = (self.bookie_record,)
            self.bookie_record = changes.bookie
        self._unsynced.append(group)

    def _put(self, group: _Group | None, ledger_id: int, entry_id: int, held: Held | None) -> None:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            ledger = self.ledgers[ledger_id] = _Ledger()
        old = ledger.put(entry_id, held)
        self.used_bytes += (len(held) if isinstance(held, bytes) else 0) - (len(old) if isinstance(old, bytes) else 0)
        if group is not None:
            group.entries.append((ledger_id, entry_id, old))

    def _undo(self, group: _Group) -> None:
        if group.bookie is not None:
            (self.bookie_record,) = group.bookie
        for ledger_id, remembered in reversed(group.ledgers):
            self.ledgers[ledger_id].record = remembered
        for ledger_id, entry_id, old in reversed(group.entries):
            self._put(None, ledger_id, entry_id, old)
        for ledger_id, entries in reversed(group.dropped):
            ledger = self.ledgers[ledger_id]
            assert not ledger.entries
            ledger.entries, ledger.ids = entries, sorted(entries)
            self.used_bytes += _size(entries)

    def _keep_unsynced(self, count: int) -> None:
        """Make the oldest `count` unsynced groups durable, and undo the others."""
        while len(self._unsynced) > count:
            self._undo(self._unsynced.pop())
        self.make_durable(count)

    def make_durable(self, count: int) -> None:
        """Make the oldest `count` unsynced groups durable."""
        for _ in range(count):
            group = self._unsynced.popleft()
            if group.bookie is not None:
                self._intact = True  # the bookie has seen that something is lost, and has written it down
            self._synced.append(group)

    def _flipped(self, record: bytes) -> bytes:
        at = self.randomness.below(len(record))
        return record[:at] + bytes([record[at] ^ (1 << self.randomness.below(8))]) + record[at + 1 :]


def _size(entries: dict[int, Held]) -> int:
    return sum(len(held) for held in entries.values() if isinstance(held, bytes))


class SimulatedStorage:
    """A `LedgerStorage` on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, intact: bool) -> None:
        self._disk = disk
        self._intact = intact
        # Why it failed or was closed.
        self.dead: str | None = None
        # How many groups were written, and how many of them are durable.
        self._written = 0
        self._durable = 0

    def has_free_space(self) -> bool:
        return self._disk.has_free_space()

    def get_stats(self) -> None:
        return None

    @property
    def is_intact(self) -> bool:
        return self._intact

    def get_bookie_record(self) -> bytes | None:
        self._check_alive()
        return self._disk.bookie_record

    def get_ledger(self, ledger_id: int) -> LedgerData | None:
        self._check_alive()
        ledger = self._disk.ledgers.get(ledger_id)
        return ledger.record if ledger else None

    def list_ledger_ids(self, first: int, limit: int) -> list[int]:
        self._check_alive()
        ledgers = self._disk.ledgers
        ids = sorted(one for one, ledger in ledgers.items() if one >= first and ledger.record is not None)
        return ids[:limit]

    def get_last_entry_id(self, ledger_id: int) -> int:
        self._check_alive()
        ledger = self._disk.ledgers.get(ledger_id)
        return ledger.ids[-1] if ledger and ledger.ids else -1

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        self._check_alive()
        ledger = self._disk.ledgers.get(ledger_id)
        return ledger is not None and entry_id in ledger.entries

    def list_entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        self._check_alive()
        ledger = self._disk.ledgers.get(ledger_id)
        if ledger is None:
            return []
        begin = bisect_left(ledger.ids, first)
        return ledger.ids[begin : min(bisect_right(ledger.ids, last), begin + limit)]

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        self._check_alive()
        disk = self._disk
        await disk.clock.sleep(disk.randomness.random() * disk.faults.longest_read_s + self._stall())
        self._check_alive()
        ledger = disk.ledgers.get(ledger_id)
        found: list[Held | None] = []
        for entry_id in entry_ids:
            held = ledger.entries.get(entry_id) if ledger else None
            found.append(held)
            max_bytes -= len(held) if isinstance(held, bytes) else 0
            if max_bytes < 0:
                break
        return found

    def write(self, changes: Changes) -> None:
        self._check_alive()
        self._disk.write(changes)
        self._written += 1

    async def sync(self) -> None:
        written, takes_s = self._sync_begins()
        await self._disk.clock.sleep(takes_s)
        self._sync_ends(written)

    def start_sync(self, on_done: Callable[[StorageFailed | None], object]) -> None:
        written, takes_s = self._sync_begins()

        def ends() -> None:
            try:
                self._sync_ends(written)
            except StorageFailed as error:
                on_done(error)
            else:
                on_done(None)

        self._disk.clock.call_later(takes_s, ends)

    def _sync_begins(self) -> tuple[int, float]:
        """How many groups there are, and how long it takes."""
        self._check_alive()
        disk, faults = self._disk, self._disk.faults
        spread = faults.longest_sync_s - faults.shortest_sync_s
        return self._written, faults.shortest_sync_s + disk.randomness.random() * spread + self._stall()

    def _sync_ends(self, written: int) -> None:
        self._check_alive()
        disk, faults = self._disk, self._disk.faults
        if disk.fails_next_sync or (
            faults.failed_sync_probability and disk.randomness.random() < faults.failed_sync_probability
        ):
            disk.fails_next_sync = False
            self.dead = "a sync failed"
            self._check_alive()
        count = max(0, written - self._durable)
        self._durable += count
        disk.make_durable(count)

    def on_failure(self, callback: Callable[[StorageFailed], object]) -> None:
        """Ignore the callback: this storage fails in calls only, whose callers get the error."""

    async def close(self) -> None:
        await self.sync()
        self.dead = "it was closed"

    def _stall(self) -> float:
        faults = self._disk.faults
        if faults.stall_probability and self._disk.randomness.random() < faults.stall_probability:
            return faults.stall_s
        return 0.0

    def _check_alive(self) -> None:
        if self.dead is not None:
            raise StorageFailed(f"the storage is out of service: {self.dead}")
