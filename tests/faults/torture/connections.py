"""Says which connections consumers have, as far as this process knows: the lines `connected` of its history.

The SDK has no such question, so its insides are looked at (magnetar/_partition_consumer.py): a part has a link and an
id on it, both of which are others each time it was opened. It is looked often, and said when something has changed;
else a few times a second, and around each line `got`, so that whoever reads the history knows over which connection
messages can have come.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final, Protocol

from tests.faults.checker.recorder import Recorder

__all__ = ["Connections", "HasParts", "short_name"]

_LOOK_S: Final = 0.05
_SAY_S: Final = 0.4


class HasParts(Protocol):
    """A consumer or reader, of either kind."""

    @property
    def _core(self) -> Any: ...


def short_name(topic: str) -> str:
    return topic.rpartition("/")[2]


class _Watched:
    """One place of one consumer."""

    def __init__(self, consumer: str, part: Any) -> None:
        self.consumer = consumer
        self.place = short_name(part.topic)
        self.part = part
        # What it was connected by, the link being kept so that no other is taken for it; None: by nothing.
        self.by: tuple[Any, int] | None = None
        self.number = 0
        self.broker = ""
        self.said_at = 0.0

    def look(self) -> bool:
        """Whether something has changed. The SDK's loop goes on meanwhile: what was seen in pieces is looked at
        again."""
        while True:
            seen = self._seen()
            if seen == self._seen():
                break
        if seen == self.by and self.said_at:
            return False
        self.by = seen
        self.number += 1
        self.broker = "" if seen is None else seen[0].address
        return True

    def _seen(self) -> tuple[Any, int] | None:
        connection: tuple[Any, int] | None = self.part.connection
        return connection

    def say(self, recorder: Recorder) -> None:
        self.said_at = time.monotonic()
        recorder.say("connected", consumer=self.consumer, place=self.place, broker=self.broker, connection=self.number)


class Connections:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        # By consumer: what it is, and what there is of each of its parts.
        self._open: dict[str, tuple[HasParts, dict[Any, _Watched]]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="connections", daemon=True)
        self._thread.start()

    def opened(self, consumer: str, front: HasParts) -> None:
        with self._lock:
            self._open[consumer] = front, {}
            self._look(consumer, _SAY_S)

    def closing(self, consumer: str) -> None:
        """Nothing more is said of it."""
        with self._lock:
            self._open.pop(consumer, None)

    def look(self, consumer: str, at_least_every_s: float = _SAY_S) -> None:
        """Says what has changed, and what was not said for so long."""
        with self._lock:
            self._look(consumer, at_least_every_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self, consumer: str, at_least_every_s: float) -> None:
        if consumer not in self._open:
            return
        front, places = self._open[consumer]
        for part in list(front._core.partitions):  # it grows with its topic
            if part not in places:
                places[part] = _Watched(consumer, part)
            watched = places[part]
            if watched.look() or time.monotonic() - watched.said_at >= at_least_every_s:
                watched.say(self._recorder)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                for consumer in self._open:
                    self._look(consumer, _SAY_S)
