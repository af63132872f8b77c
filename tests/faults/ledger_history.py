"""The logs of writers and tailing readers, and the bytes of their entries.

Each run of a writer and each tail appends lines to a file of its own, one system call each: so a line survives a kill
-9 of the process. A line is written before anything that follows from it: an append's before its record has left the
process, an acknowledgement's before anybody else hears of it. A last line without its end does not count.

    life CHAIN NAME             the first line of a writer's
    made LEDGER                 it made a ledger, and is about to record it in its chain
    append LEDGER ENTRY NUMBER BYTES    an entry, and which of its payloads that is
    acked LEDGER ENTRY
    failed LEDGER ENTRY WHY
    closed LEDGER LAST          by its own close, which returned
    lost LEDGER                 its close was lost: the result of what failed is unknown, and the run ends
    deleting LEDGER             the chain's list has it as deleted
    waits WHY                   no ledger can be made
    tail CHAIN NAME             the first line of a tail's
    saw LEDGER ENTRY BYTES CRC
    reads LEDGER LAST           it reads a closed ledger back, from the beginning, like any reader
    read LEDGER ENTRY BYTES CRC
    whole LEDGER LAST           it has read all of it: now its owner may delete it
    note WORDS                  for people

A payload is made from its run's name, its number and its size, so a reader knows which payload an entry must be.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Log", "ReadBack", "Tail", "WholeReads", "WriterRun", "Written", "payload", "read_logs"]

_LARGEST_BYTES: Final = 1_048_576
_STARTS: Final = 1_048_583
_NOISE: Final = random.Random("payloads").randbytes(_STARTS + _LARGEST_BYTES)


def payload(run: str, number: int, size: int) -> bytes:
    """Who wrote it, which one it is, a checksum, and noise of its own; the first `size` bytes of that."""
    assert size <= _LARGEST_BYTES
    head = f"{run} {number} {size} ".encode()
    at = zlib.crc32(head) % _STARTS
    noise = _NOISE[at : at + max(0, size - len(head) - 4)]
    return b"".join((head, zlib.crc32(noise, zlib.crc32(head)).to_bytes(4, "big"), noise))[:size]


class Log:
    """A file that one process writes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words: object) -> None:
        line = " ".join(str(word).replace("\n", " ") for word in words)
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


@dataclass(slots=True)
class Written:
    """One ledger, from its writer's log."""

    ledger_id: int
    # By entry id: the payload's number and size.
    appended: list[tuple[int, int]] = field(default_factory=list)
    # In the order of the acknowledgements.
    acked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    # What became an acknowledgement after a failure.
    acked_after_failure: list[int] = field(default_factory=list)
    # Appended under an id that does not follow the one before.
    out_of_line: list[int] = field(default_factory=list)
    # Where its own close closed it.
    closed_at: int | None = None
    close_lost: bool = False


@dataclass(slots=True)
class WriterRun:
    """One take-over of a chain."""

    chain: str
    name: str
    # In the order in which they were made.
    ledgers: list[Written] = field(default_factory=list)
    deleting: list[int] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def of(self, ledger_id: int) -> Written:
        found = next((one for one in reversed(self.ledgers) if one.ledger_id == ledger_id), None)
        assert found is not None, f"{self.name} speaks of ledger {ledger_id}, which it never made"
        return found


@dataclass(slots=True)
class ReadBack:
    """One reading of a closed ledger, long after it was written."""

    ledger_id: int
    # Where the ledger ended by its metadata.
    last_entry_id: int
    # Entry, size and CRC-32, in order.
    read: list[tuple[int, int, int]] = field(default_factory=list)
    # It came to the end.
    whole: bool = False


@dataclass(slots=True)
class Tail:
    """What one tailing reader saw."""

    chain: str
    name: str
    # Ledger, entry, size and CRC-32, in order.
    saw: list[tuple[int, int, int, int]] = field(default_factory=list)
    read_back: list[ReadBack] = field(default_factory=list)


class WholeReads:
    """Which ledgers of a chain its tails have read back whole by now; the logs are read on from where they were."""

    def __init__(self, folder: Path, chain: str) -> None:
        self._folder = folder
        self._chain = chain
        self._read: dict[Path, int] = {}
        self._whole: dict[int, None] = {}

    def __call__(self) -> list[int]:
        for path in sorted(self._folder.glob(f"t-{self._chain}-*.log")):
            at = self._read.get(path, 0)
            with path.open("rb") as log:
                log.seek(at)
                lines = log.read().split(b"\n")[:-1]
            self._read[path] = at + sum(len(line) + 1 for line in lines)
            self._whole |= {int(line.split()[1]): None for line in lines if line.startswith(b"whole ")}
        return list(self._whole)


def read_logs(folder: Path) -> tuple[list[WriterRun], list[Tail]]:
    """All of the folder's logs."""
    runs: list[WriterRun] = []
    tails: list[Tail] = []
    for path in sorted(folder.glob("*.log")):
        lines = path.read_bytes().decode(errors="replace").split("\n")[:-1]
        if lines:
            read_lines(lines, runs, tails)
    return runs, tails


def read_lines(lines: Iterable[str], runs: list[WriterRun], tails: list[Tail]) -> None:
    """One log's lines, behind its first."""
    run: WriterRun | None = None
    tail: Tail | None = None
    for line in lines:
        what, *words = line.split(" ")
        if what == "life":
            run = WriterRun(words[0], words[1])
            runs.append(run)
        elif what == "tail":
            tail = Tail(words[0], words[1])
            tails.append(tail)
        elif what != "note" and tail is not None:
            _read_tails_line(tail, what, [int(word) for word in words])
        elif what != "note":
            assert run is not None, line
            _read_writers_line(run, what, words)


def _read_tails_line(tail: Tail, what: str, numbers: list[int]) -> None:
    if what == "saw":
        ledger_id, entry_id, size, crc = numbers
        tail.saw.append((ledger_id, entry_id, size, crc))
    elif what == "reads":
        tail.read_back.append(ReadBack(numbers[0], numbers[1]))
    elif what in ("read", "whole"):
        # It reads one after the other.
        reading = tail.read_back[-1]
        assert reading.ledger_id == numbers[0], f"{tail.name} logs {what} of ledger {numbers[0]} while at {reading}"
        if what == "whole":
            reading.whole = True
        else:
            reading.read.append((numbers[1], numbers[2], numbers[3]))
    else:
        raise ValueError(f"a tail's log has the unknown line {what!r}")


def _read_writers_line(run: WriterRun, what: str, words: list[str]) -> None:
    if what == "waits":
        run.waits.append(" ".join(words))
        return
    ledger_id = int(words[0])
    if what == "made":
        run.ledgers.append(Written(ledger_id))
        return
    if what == "deleting":
        run.deleting.append(ledger_id)
        return
    written = run.of(ledger_id)
    if what == "append":
        entry_id, number, size = map(int, words[1:])
        if entry_id != len(written.appended):
            written.out_of_line.append(entry_id)
        written.appended.append((number, size))
    elif what == "acked":
        written.acked.append(int(words[1]))
        if written.failed:
            written.acked_after_failure.append(int(words[1]))
    elif what == "failed":
        written.failed.append(int(words[1]))
    elif what == "closed":
        written.closed_at = int(words[1])
    elif what == "lost":
        written.close_lost = True
    else:
        raise ValueError(f"a log has the unknown line {what!r}")
