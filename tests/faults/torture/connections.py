"""Record which connections consumers have, as far as this process knows: the lines `connected` of its history.

The SDK has no API for that, so this reads its private state (magnetar/_consuming/reconnecting_consumer.py): a part has
a link and an id on it, and both change whenever it is reopened. It is read often, and recorded when it has changed;
else a few times a second, and around each line `got`, so that a reader of the history knows over which connection
messages can have come.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final, Protocol

from tests.faults.checker.recorder import Recorder
from tests.faults.checker.things import is_persistent

__all__ = ["Connections", "HasParts", "short_name"]

_LOOK_S: Final = 0.05
_SAY_S: Final = 0.4


class HasParts(Protocol):
    """A consumer or reader, synchronous or asynchronous."""

    @property
    def _core(self) -> Any: ...


def short_name(topic: str) -> str:
    """Return the name that the history has: with its domain only if it is non-persistent."""
    return topic.rpartition("/")[2] if is_persistent(topic) else topic


class _Watched:
    """One partition of one consumer."""

    def __init__(self, consumer: str, part: Any) -> None:
        self.consumer = consumer
        self.partition = short_name(part.topic)
        self.part = part
        # Its connection. The link is referenced, so that no other gets its id; None: not connected.
        self.by: tuple[Any, int] | None = None
        self.number = 0
        self.broker = ""
        self.recorded_at = 0.0

    def look(self) -> bool:
        """Whether something has changed. The SDK's loop goes on in the meantime: a state that was read in pieces is
        read again.
        """
        while True:
            seen = self._seen()
            if seen == self._seen():
                break
        if seen == self.by and self.recorded_at:
            return False
        self.by = seen
        self.number += 1
        self.broker = "" if seen is None else seen[0].address
        return True

    def _seen(self) -> tuple[Any, int] | None:
        connection: tuple[Any, int] | None = self.part.connection
        return connection

    def say(self, recorder: Recorder) -> None:
        self.recorded_at = time.monotonic()
        recorder.say(
            "connected", consumer=self.consumer, place=self.partition, broker=self.broker, connection=self.number
        )


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
        """Record nothing more of it."""
        with self._lock:
            self._open.pop(consumer, None)

    def look(self, consumer: str, at_least_every_s: float = _SAY_S) -> None:
        """Record changed connections, and those not recorded for this long."""
        with self._lock:
            self._look(consumer, at_least_every_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self, consumer: str, at_least_every_s: float) -> None:
        if consumer not in self._open:
            return
        front, watched_parts = self._open[consumer]
        for part in list(front._core.partitions):  # it grows with its topic
            if part not in watched_parts:
                watched_parts[part] = _Watched(consumer, part)
            watched = watched_parts[part]
            if watched.look() or time.monotonic() - watched.recorded_at >= at_least_every_s:
                watched.say(self._recorder)

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            with self._lock:
                for consumer in self._open:
                    self._look(consumer, _SAY_S)
