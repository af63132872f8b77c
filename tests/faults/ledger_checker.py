"""Check chains of ledgers against their writers' logs, without I/O, and without rules of the code under test.

A chain is written by one run of a writer after another; a run's ledgers follow each other in the chain, and its
payloads are numbered from 0. In the end, when every ledger is closed:

- **acknowledged**: every entry that was acknowledged to its writer is in its ledger, and the ledger in its
  chain; it was read with the right bytes in the end or, if the chain's owner had deleted the ledger, before that;
- **own close**: a ledger that its writer closed ends at its last acknowledged entry: what failed is not in it;
- **unacknowledged**: a ledger that somebody else closed may hold what its writer appended beyond that. Nothing else;
- **bytes**: entry n is the payload that its writer appended as entry n, whole, in every replica;
- **once, in order**: a run's payloads are in the chain as 0, 1, 2 … without gap or repetition. (What failed is sent
  again only when the writer's own close has returned, and a run whose close was lost ends.);
- **what was seen stays**: a tail saw, ledger by ledger, entries 0, 1, 2 … that are still there, and those bytes;
- **replicas**: each bookie that the metadata name for an entry has it, read from that bookie alone;
- **length**: the metadata's length is that of its entries.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.faults.ledger_history import ReadBack, Tail, WriterRun, Written, payload

__all__ = ["READER", "Closed", "LedgerChecker"]

# Who reads like anybody does; other sources are bookies, read alone.
READER: Final = "the reader"
_MOST_VIOLATIONS: Final = 50


@dataclass(slots=True)
class Closed:
    """A ledger's metadata in the end."""

    last_entry_id: int
    length_bytes: int
    ensemble_size: int
    write_quorum: int
    # First entry and bookies.
    fragments: Sequence[tuple[int, Sequence[str]]]
    # Who has read how far: the id that each source is to give next.
    next_of: dict[str, int] = field(default_factory=dict)

    def where(self, entry_id: int) -> list[str]:
        """The bookies that are to hold the entry."""
        bookies: Sequence[str] = ()
        for first, named in self.fragments:
            if first > entry_id:
                break
            bookies = named
        return [bookies[(entry_id + offset) % self.ensemble_size] for offset in range(self.write_quorum)]

    def next_on(self, source: str, entry_id: int) -> int:
        """The first entry from this one on that the source is to hold; above the last one: none."""
        while entry_id <= self.last_entry_id and source != READER and source not in self.where(entry_id):
            entry_id += 1
        return entry_id

    def sources(self) -> list[str]:
        return [READER, *dict.fromkeys(bookie for _, bookies in self.fragments for bookie in bookies)]


class LedgerChecker:
    """Get the logs first, then the chains, then each closed ledger's metadata and entries; `finish` ends the check."""

    def __init__(self, runs: Sequence[WriterRun], tails: Sequence[Tail]) -> None:
        self.violations: list[str] = []
        self.entries_read = 0
        self._tails = tails
        self._runs = list(runs)
        self._chains: dict[str, list[int]] = {}
        self._closed: dict[int, Closed] = {}
        # By ledger: who wrote it.
        self._made: dict[int, tuple[WriterRun, Written]] = {}
        self._deleting = {ledger_id for run in runs for ledger_id in run.deleting}
        # By ledger: the entries that the ordinary reader gave with the right bytes, in the end or earlier.
        self._verified: dict[int, set[int]] = {}
        # Where ledgers ended that were read back whole.
        self._ended: dict[int, int] = {}
        for run in runs:
            for written in run.ledgers:
                if written.ledger_id in self._made:
                    self._wrong("logs", f"ledger {written.ledger_id} was made twice")
                self._made[written.ledger_id] = run, written
                self._check_log(run, written)
        for tail in tails:
            for reading in tail.read_back:
                self._check_read_back(tail, reading)

    @property
    def acknowledged(self) -> int:
        """How many entries."""
        return sum(len(set(written.acked)) for _, written in self._made.values())

    @property
    def verified(self) -> int:
        """How many acknowledged entries were read with the right bytes by the ordinary reader."""
        return sum(
            len(self._verified.get(ledger_id, set()).intersection(written.acked))
            for ledger_id, (_, written) in self._made.items()
        )

    @property
    def deleted(self) -> int:
        """How many ledgers the chains' owners deleted."""
        return len(self._deleting)

    def chain(self, name: str, ledgers: Sequence[int]) -> None:
        """The ledgers that the chain lists in the end, in order."""
        self._chains[name] = list(ledgers)
        if len(set(ledgers)) < len(ledgers) or list(ledgers) != sorted(ledgers):
            self._wrong("chain", f"{name} lists {list(ledgers)}: ids are to grow")
        order: list[str] = []
        for ledger_id in ledgers:
            if ledger_id not in self._made:
                self._wrong("chain", f"{name} lists ledger {ledger_id}, which nobody made")
                continue
            run, _ = self._made[ledger_id]
            if run.chain != name:
                self._wrong("chain", f"{name} lists ledger {ledger_id}, which {run.name} made for {run.chain}")
            if order[-1:] != [run.name]:
                if run.name in order:
                    self._wrong("order", f"{name} lists ledger {ledger_id} of {run.name} behind those of {order[-1]}")
                order.append(run.name)

    def closed(self, ledger_id: int, closed: Closed) -> None:
        """The metadata of a ledger of a chain. Its entries follow."""
        self._closed[ledger_id] = closed
        if ledger_id not in self._made:
            return
        run, written = self._made[ledger_id]
        last = closed.last_entry_id
        if last >= len(written.appended):
            self._wrong("foreign", f"ledger {ledger_id} ends at {last}, and {len(written.appended)} were appended")
        if written.acked and last < written.acked[-1]:
            what = f"ledger {ledger_id} of {run.name} ends at {last}, and {written.acked[-1]} was acknowledged"
            self._wrong("acknowledged", what)
        if written.closed_at is not None and last != written.closed_at:
            self._wrong("own close", f"ledger {ledger_id} ends at {last}, and was closed at {written.closed_at}")
        length = sum(size for _, size in written.appended[: last + 1])
        if length != closed.length_bytes:
            self._wrong("length", f"ledger {ledger_id} has {length} bytes, and {closed.length_bytes} by its metadata")

    def entry(self, ledger_id: int, entry_id: int, entry: bytes, source: str = READER) -> None:
        """An entry as the source gives it. Each source gives a ledger's entries in order."""
        self.entries_read += 1
        closed = self._closed[ledger_id]
        due = closed.next_on(source, closed.next_of.get(source, 0))
        if entry_id != due or due > closed.last_entry_id:
            what = f"where {due} is due and {closed.last_entry_id} the last"
            self._wrong("order", f"{source} gives entry {entry_id} of ledger {ledger_id}, {what}")
        closed.next_of[source] = entry_id + 1
        if ledger_id not in self._made:
            return
        run, written = self._made[ledger_id]
        if entry_id < len(written.appended):
            expected = payload(run.name, *written.appended[entry_id])
            if entry != expected:
                self._wrong(
                    "bytes",
                    f"{source} gives {len(entry)} bytes {entry[:60]!r} as entry {entry_id} of ledger {ledger_id}, "
                    f"which is {len(expected)} bytes {expected[:60]!r}",
                )
            elif source == READER:
                self._verified.setdefault(ledger_id, set()).add(entry_id)

    def finish(self) -> list[str]:
        """All that is wrong."""
        for ledger_id, (run, written) in self._made.items():
            listed = ledger_id in self._chains.get(run.chain, ())
            if written.acked and not listed and ledger_id not in self._deleting:
                self._wrong(
                    "acknowledged",
                    f"{len(written.acked)} entries of ledger {ledger_id} were acknowledged, and {run.chain} lists "
                    f"{self._chains.get(run.chain)}",
                )
            if never := set(written.acked) - self._verified.get(ledger_id, set()):
                self._wrong(
                    "acknowledged",
                    f"{len(never)} of {len(written.acked)} acknowledged entries of ledger {ledger_id} of {run.name} "
                    f"were never read back, {min(never)} the first{' before it was deleted' if not listed else ''}",
                )
        for name, ledgers in self._chains.items():
            for ledger_id in ledgers:
                self._check_complete(name, ledger_id)
        for run in self._runs:
            self._check_numbers(run)
        for tail in self._tails:
            self._check_tail(tail)
        return self.violations

    def _check_complete(self, chain: str, ledger_id: int) -> None:
        closed = self._closed.get(ledger_id)
        if closed is None:
            self._wrong("chain", f"ledger {ledger_id} of {chain} is not closed in the end, or its metadata are missing")
            return
        for source in closed.sources():
            due = closed.next_on(source, closed.next_of.get(source, 0))
            if due <= closed.last_entry_id:
                kind = "acknowledged" if source == READER else "replica"
                self._wrong(kind, f"{source} does not give entry {due} of ledger {ledger_id} of {chain}")

    def _check_numbers(self, run: WriterRun) -> None:
        """Once and in order: the ledgers hold this run's payloads 0, 1, 2 …"""
        due = 0
        for written in run.ledgers:
            closed = self._closed.get(written.ledger_id)
            last = self._ended.get(written.ledger_id, written.closed_at) if closed is None else closed.last_entry_id
            if last is None:  # never recorded
                last = written.acked[-1] if written.acked else -1
            for entry_id, (number, _) in enumerate(written.appended[: last + 1]):
                if number != due:
                    self._wrong(
                        "once, in order",
                        f"entry {entry_id} of ledger {written.ledger_id} is number {number} of {run.name}, where "
                        f"{due} is due",
                    )
                    due = number
                due += 1

    def _check_read_back(self, tail: Tail, reading: ReadBack) -> None:
        ledger_id, last = reading.ledger_id, reading.last_entry_id
        if ledger_id not in self._made:
            self._wrong("read back", f"{tail.name} read ledger {ledger_id}, which nobody made")
            return
        run, written = self._made[ledger_id]
        for due, (entry_id, size, crc) in enumerate(reading.read):
            where = f"{tail.name} read entry {entry_id} of ledger {ledger_id}"
            if entry_id != due or entry_id > last:
                self._wrong("read back", f"{where}, where {due} is due and {last} the last")
            if entry_id >= len(written.appended):
                self._wrong("read back", f"{where}, which was never appended")
                continue
            expected = payload(run.name, *written.appended[entry_id])
            if (size, crc) != (len(expected), zlib.crc32(expected)):
                self._wrong("read back", f"{where} with other bytes than were appended")
            else:
                self._verified.setdefault(ledger_id, set()).add(entry_id)
        if not reading.whole:
            return
        if len(reading.read) != last + 1:
            self._wrong("read back", f"{tail.name} was given {len(reading.read)} of {last + 1} of ledger {ledger_id}")
        if written.closed_at is not None and last != written.closed_at:
            self._wrong("own close", f"ledger {ledger_id} ended at {last}, and was closed at {written.closed_at}")
        if self._ended.setdefault(ledger_id, last) != last:
            self._wrong("read back", f"ledger {ledger_id} ended at {self._ended[ledger_id]} once, and at {last}")

    def _check_tail(self, tail: Tail) -> None:
        next_of: dict[int, int] = {}
        latest = 0
        for ledger_id, entry_id, size, crc in tail.saw:
            where = f"{tail.name} saw entry {entry_id} of ledger {ledger_id}"
            if ledger_id < latest:
                self._wrong("seen", f"{where} behind what it saw of ledger {latest}")
            latest = ledger_id
            if entry_id != next_of.get(ledger_id, 0):
                self._wrong("seen", f"{where}, where {next_of.get(ledger_id, 0)} is due")
            next_of[ledger_id] = entry_id + 1
            if ledger_id not in self._made:
                self._wrong("seen", f"{where}, which nobody made")
                continue
            run, written = self._made[ledger_id]
            if entry_id >= len(written.appended):
                self._wrong("seen", f"{where}, which was never appended")
                continue
            expected = payload(run.name, *written.appended[entry_id])
            if (size, crc) != (len(expected), zlib.crc32(expected)):
                self._wrong("seen", f"{where} with other bytes than were appended")
            closed = self._closed.get(ledger_id)
            if closed is not None and entry_id > closed.last_entry_id:
                self._wrong("seen", f"{where}, and the ledger ends at {closed.last_entry_id}")
            if closed is None and ledger_id not in self._deleting:
                self._wrong("seen", f"{where}, and no chain lists it")

    def _check_log(self, run: WriterRun, written: Written) -> None:
        where = f"ledger {written.ledger_id} of {run.name}"
        if written.out_of_line:
            self._wrong("logs", f"{where}: entries {written.out_of_line} do not follow those before them")
        if written.acked != list(range(len(written.acked))):
            self._wrong("logs", f"{where}: adds completed out of order")
        if len(written.acked) > len(written.appended):
            self._wrong("logs", f"{where}: more adds completed than there were")
        if written.acked_after_failure:
            self._wrong("logs", f"{where}: adds {written.acked_after_failure} completed after one had failed")
        if written.closed_at is not None and written.closed_at != len(written.acked) - 1:
            self._wrong("own close", f"{where} was closed at {written.closed_at}, {len(written.acked)} had completed")

    def _wrong(self, rule: str, what: str) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(f"{rule}: {what}")
