"""Which partition a message goes to. See PartitionsRoutingMode.

A message with a key goes where the key's hash says, whatever the mode but CustomPartition. Without a key, round robin
stays with a partition until a batch of it is closed, so that batches stay large.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from magnetar._enums import HashingScheme, PartitionsRoutingMode
from magnetar._send_queue import SendQueue
from magnetar.exceptions import InvalidArgument
from magnetar_wire.hashing import partition_of
from magnetar_wire.randomness import Randomness

__all__ = ["OutgoingMessage", "Router"]


class OutgoingMessage:
    """A message as an application's router sees it: with the methods of a received one that make sense."""

    __slots__ = ("_content", "_event_timestamp", "_key", "_ordering_key", "_properties")

    def __init__(
        self,
        content: bytes | None,
        properties: Mapping[str, str] | None,
        key: str | bytes | None,
        ordering_key: bytes | None,
        event_timestamp: int,
    ) -> None:
        self._content = content
        self._properties = properties
        self._key = key
        self._ordering_key = ordering_key
        self._event_timestamp = event_timestamp

    def data(self) -> bytes:
        return self._content or b""

    def value(self) -> bytes | None:
        return self._content

    def properties(self) -> dict[str, str]:
        return dict(self._properties or {})

    def partition_key(self) -> str | bytes:
        """Empty: it has none."""
        return "" if self._key is None else self._key

    def ordering_key(self) -> str:
        return (self._ordering_key or b"").decode("utf-8", "replace")

    def event_timestamp(self) -> int:
        return self._event_timestamp


class HasQueue(Protocol):
    queue: SendQueue


class Router:
    def __init__(
        self,
        mode: PartitionsRoutingMode,
        scheme: HashingScheme,
        custom: Callable[[Any, int], int] | None,
        partitions: int,
        randomness: Randomness,
    ) -> None:
        self._mode = PartitionsRoutingMode.CustomPartition if custom is not None else mode
        self._scheme = scheme
        self._custom = custom
        # The one that is used, without a key. The first is drawn, so that many producers do not all begin with one.
        self.first = self._present = randomness.below(partitions)
        # How many batches of it were closed when it became that.
        self._closed_then = 0

    @property
    def custom(self) -> bool:
        return self._custom is not None

    def of_key(self, key: str | bytes, partitions: int) -> int:
        text = b64encode(key).decode("ascii") if isinstance(key, bytes) else key
        return partition_of(text, partitions, self._scheme)

    def next(self, parts: Sequence[HasQueue]) -> int:
        """Where a message without a key goes."""
        if self._mode is PartitionsRoutingMode.RoundRobinDistribution:
            if parts[self._present].queue.closed_batches != self._closed_then:
                self._present = (self._present + 1) % len(parts)
            self._closed_then = parts[self._present].queue.closed_batches
        return self._present

    def ask(self, message: OutgoingMessage, partitions: int) -> int:
        """What the application's router says."""
        assert self._custom is not None
        chosen = self._custom(message, partitions)
        if type(chosen) is not int or not 0 <= chosen < partitions:
            raise InvalidArgument(f"message_router returned {chosen!r}, and the partitions are 0 … {partitions - 1}")
        return chosen
