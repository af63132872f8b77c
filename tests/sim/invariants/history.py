"""What the checker has seen: every ledger from its making to its end, and what each disk has promised.

Records are read here by their layout, and metadata by its message alone: none of the production code's rules is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar_protos import ledger_pb2

if TYPE_CHECKING:
    from tests.sim.disk import SimulatedDisk
    from tests.sim.process import Process

__all__ = [
    "TOPIC_GOES",
    "Chain",
    "Disk",
    "History",
    "Ledger",
    "Violation",
    "payload_of",
    "record_fields",
    "stored_payload",
]

# Why a cursor's ledger may go before the cursor's node does.
TOPIC_GOES: Final = "its topic goes"

_HEADER: Final = struct.Struct(">QQqQI")
LEDGERS: Final = "/ledgers/"
INTENTS: Final = "/ledger-intents/"
TASKS: Final = "/repair/tasks/"
COOKIES: Final = "/bookies/cookies/"
LEAVING: Final = "/bookies/leaving/"
CHAINS: Final = "/chains/"


class Violation(AssertionError):
    """Something that must never happen did."""

    def __init__(self, item: str, message: str) -> None:
        super().__init__(f"item {item}: {message}")
        self.item = item


def record_fields(record: bytes) -> tuple[int, int, int]:
    """Ledger id, entry id and LAC of a record."""
    ledger_id, entry_id, last_add_confirmed, _, _ = _HEADER.unpack_from(record)
    return ledger_id, entry_id, last_add_confirmed


def payload_of(record: bytes) -> bytes:
    return record[_HEADER.size :]


def stored_payload(value: bytes) -> bytes:
    """The payload of a node that is changed by compare-and-set: behind a mark, the incarnation and tokens."""
    return value[2 + 8 + 8 * value[1] :]


@dataclass(slots=True)
class Chain:
    """A list of ledgers that one owner after another writes."""

    ledgers: list[int] = field(default_factory=list)
    deleting: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, payload: bytes) -> Chain:
        known = json.loads(payload)
        return cls(known["ledgers"], known["deleting"])

    def encode(self) -> bytes:
        return json.dumps({"ledgers": self.ledgers, "deleting": self.deleting}).encode()


@dataclass(slots=True)
class Ledger:
    ledger_id: int
    metadata: ledger_pb2.LedgerMetadata | None = None
    # The payload of each entry, as its writer appended it.
    payloads: list[bytes] = field(default_factory=list)
    # The highest entry that was acknowledged to the writer; all below were, too.
    acked: int = -1
    # The disks' content: entry → record. There is one for all replicas.
    records: dict[int, bytes] = field(default_factory=dict)
    # The process that made it, which alone writes it.
    maker: Process | None = None
    # A tombstone of it has stood in the metadata store.
    buried: bool = False
    # The chain that lists it, or has.
    chain: str = ""
    # Why its deletion is allowed; empty: it isn't.
    may_go: str = ""

    def names(self) -> list[str]:
        """All bookies that a fragment names."""
        assert self.metadata is not None
        return list(dict.fromkeys(bookie for fragment in self.metadata.fragments for bookie in fragment.bookies))

    def where(self, entry_id: int) -> list[str]:
        """The bookies that the stored metadata names for the entry."""
        metadata = self.metadata
        assert metadata is not None
        bookies: Iterable[str] = ()
        for fragment in metadata.fragments:
            if fragment.first_entry_id > entry_id:
                break
            bookies = fragment.bookies
        names, size = list(bookies), metadata.ensemble_size
        return [names[(entry_id + offset) % size] for offset in range(metadata.write_quorum)] if names else []


@dataclass(slots=True)
class Disk:
    """A bookie, as its disk and its answers show it."""

    bookie_id: str
    disk: SimulatedDisk
    # Ledger → entry → when it was first answered OK.
    promised: dict[int, dict[int, float]] = field(default_factory=dict)
    # Ledger → entries which a disk fault removed or damaged after they were durable, until the bookie answers OK for
    # them again; and whether they have been resent since.
    lost: dict[int, dict[int, bool]] = field(default_factory=dict)
    # Ledgers of which a fence was answered OK.
    fenced: set[int] = field(default_factory=set)
    # Ledger → entries that were read with the recovery flag.
    recovered: dict[int, set[int]] = field(default_factory=dict)
    # Ledger → the highest LAC that the bookie reported and its disk still proves: it must not report a lower one.
    reported_lac: dict[int, int] = field(default_factory=dict)
    # Ledgers that have named it since before it last lost something: it is to make good what it lost of them. One that
    # comes to name it later is given all it should hold before, and may stay in limbo.
    owes: dict[int, None] = field(default_factory=dict)
    # Ledgers whose tombstone a disk fault removed: the bookie can't know that they were deleted.
    revived: set[int] = field(default_factory=set)
    # Its disk was wiped: it must not serve.
    wiped: bool = False

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Durably, or it was, and only the disk's own fault took it away."""
        if self.disk.durable_record(ledger_id, entry_id) is not None:
            return True
        lost = self.lost.get(ledger_id)
        return lost is not None and entry_id in lost

    def durable_lac(self, ledger: Ledger, *, count_lost: bool = False) -> int:
        """Return the highest LAC that the disk proves: the explicit one, or that of an undamaged durable record.

        With `count_lost`, the records that a fault of the disk damaged or removed count too: a bookie that read them
        before may still have their LAC in memory.
        """
        stored = self.disk.durable_ledger(ledger.ledger_id)
        highest = -1 if stored is None else stored.last_add_confirmed
        lost = self.lost.get(ledger.ledger_id, {}) if count_lost else {}
        for entry_id in sorted(ledger.records, reverse=True):
            if entry_id - 1 <= highest:
                break  # the LAC of a record is below its entry
            record = ledger.records[entry_id]
            if entry_id in lost or self.disk.durable_record(ledger.ledger_id, entry_id) == record:
                highest = max(highest, record_fields(record)[2])
        return highest


class History:
    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.ledgers: dict[int, Ledger] = {}
        self.disks: dict[str, Disk] = {}
        self.chains: dict[str, Chain] = {}
        self.intents: dict[int, ledger_pb2.LedgerIntent] = {}
        self.tasks: dict[int, ledger_pb2.RepairTask] = {}
        # Ledgers whose node was not there for a while, though nobody deleted it.
        self.forgotten: set[int] = set()
        # Bookies that are marked as leaving.
        self.leaving: dict[str, None] = {}
        # By the name of a log, or the purpose of a cursor's ledgers: its newest ledger; and for each failed ledger when
        # the next one was listed or created, and how many entries it stored.
        self.newest: dict[str, int] = {}
        self.ledger_failures: dict[str, list[tuple[float, int]]] = {}
        # By topic: when a process opened it, and which.
        self.openings: dict[str, list[tuple[float, Process]]] = {}
        # Of all entries that were appended.
        self.longest_payload = 0
        # Entries of which every durable replica was damaged: ledger and entry. They alone may be lost.
        self.destroyed: set[tuple[int, int]] = set()
        # How often which check looked at something: a check that never looks proves nothing.
        self.looked: dict[str, int] = {}

    def ledger(self, ledger_id: int) -> Ledger:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            ledger = self.ledgers[ledger_id] = Ledger(ledger_id)
        return ledger

    def lost_of(self, ledger_id: int) -> bool:
        """All replicas of one of its entries were damaged."""
        return any(lost == ledger_id for lost, _ in self.destroyed)

    def destroyed_in(self, log: str) -> list[tuple[int, int]]:
        """The destroyed entries of this topic's or cursor's log, as its chain is named."""
        return sorted(one for one in self.destroyed if self.ledger(one[0]).chain == log)

    def naming(self, bookie: str) -> dict[int, None]:
        """The ledgers that name the bookie, tombstones apart."""
        return {
            ledger.ledger_id: None
            for ledger in self.ledgers.values()
            if ledger.metadata is not None
            and ledger.metadata.state != ledger_pb2.TOMBSTONE
            and bookie in ledger.names()
        }

    def look(self, item: str) -> None:
        self.looked[item] = self.looked.get(item, 0) + 1
