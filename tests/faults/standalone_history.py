"""What clients of a standalone were told, line by line, each written before anything follows from it.

    {"at": 12.5, "what": "will", "producer": "t0.sb", "to": 120}            it may have sent messages up to this number
    {"at": 12.6, "what": "ok", "producer": "t0.sb", "numbers": [117, 118]}  these have a receipt
    {"at": 12.5, "what": "opened", "consumer": "t0.cumulative#3"}           one that was subscribed anew
    {"at": 12.7, "what": "got", "consumer": …, "producer": …, "number": 117, "id": [5, 40, 0, 2]}
    {"at": 12.8, "what": "done", "consumer": …, "ids": [[5, 40, 0, 2]]}     their acknowledgement has a receipt
    {"at": 12.8, "what": "done_up_to", "consumer": …, "id": [5, 40, 0, 2]}

Times are the machine's monotonic clock. An id is (ledger, entry, partition, batch index). A consumer's name is its
subscription, and which of its consumers it is. A producer's begins with its topic.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import magnetar

__all__ = ["Histories", "History", "Id", "id_of", "message", "read_message"]

# Ledger, entry, partition, batch index.
Id = tuple[int, int, int, int]


class History:
    """One worker's file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def close(self) -> None:
        self._file.close()

    def say(self, what: str, **more: Any) -> None:
        line = json.dumps({"at": time.monotonic(), "what": what, **more})
        with self._lock:
            self._file.write(line + "\n")


class Histories:
    """A folder of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._open: list[History] = []

    def of(self, worker: str) -> History:
        history = History(self.folder / f"{worker}.jsonl")
        self._open.append(history)
        return history

    def close(self) -> None:
        for history in self._open:
            history.close()

    def read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each worker's lines, in the order in which it wrote them. What was cut off at the end of a file is none."""
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    yield path.stem, json.loads(line)
                except ValueError:
                    continue


def message(producer: str, number: int, size: int) -> bytes:
    """A payload that tells what it is."""
    return f"{producer} {number} ".encode() + bytes((number + place) % 256 for place in range(size))


def read_message(payload: bytes) -> tuple[str, int]:
    """Producer and number. Raises ValueError for what is no message of ours."""
    producer, number, rest = payload.split(b" ", 2)
    if payload != message(producer.decode(), int(number), len(rest)):
        raise ValueError(f"its bytes are not those of message {number!r} of {producer!r}")
    return producer.decode(), int(number)


def id_of(message_id: magnetar.MessageId) -> Id:
    return (
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.partition(),
        message_id.batch_index(),
    )


def ids(messages: Sequence[Any]) -> list[Id]:
    return [id_of(one.message_id()) for one in messages]
