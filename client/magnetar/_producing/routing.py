"""Which partition a message goes to: see PartitionsRoutingMode.

In all modes but CustomPartition, a message with a key goes to the partition of the key's hash. Messages without a key
go round robin, or all to one partition. Round robin stays at a partition until a batch of it is closed, so that batches
stay large.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from magnetar._enums import PartitionsRoutingMode
from magnetar._options import ProducerOptions
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar._producing.partition_producer import PartitionProducer
from magnetar.exceptions import InvalidArgument
from magnetar_wire.hashing import partition_of
from magnetar_wire.randomness import Randomness

__all__ = ["RoutedMessage", "Router"]


class Router:
    def __init__(self, options: ProducerOptions, partitions: int, randomness: Randomness) -> None:
        self._options = options
        self._is_round_robin = options.message_routing_mode is PartitionsRoutingMode.RoundRobinDistribution
        # Where messages without a key go now. The first partition is drawn, so that many producers don't all begin with
        # the same one.
        self.first = self._current = randomness.below(partitions)
        # How many batches of that partition were closed when it became the current one.
        self._closed_before = 0

    def choose(self, message: OutgoingMessage, partitions: Sequence[PartitionProducer]) -> int:
        """Return the index of the partition that the message goes to. Any thread may call this."""
        if self._options.message_router is not None:
            return self._ask_application(message, len(partitions))
        if message.key is not None:
            text = b64encode(message.key).decode("ascii") if isinstance(message.key, bytes) else message.key
            return partition_of(text, len(partitions), self._options.hashing_scheme)
        if self._is_round_robin:
            if partitions[self._current].queue.closed_batches != self._closed_before:
                self._current = (self._current + 1) % len(partitions)
            self._closed_before = partitions[self._current].queue.closed_batches
        return self._current

    def _ask_application(self, message: OutgoingMessage, partitions: int) -> int:
        assert self._options.message_router is not None
        chosen = self._options.message_router(RoutedMessage(message), partitions)
        if type(chosen) is not int or not 0 <= chosen < partitions:
            raise InvalidArgument(f"message_router returned {chosen!r}: return a partition, 0 … {partitions - 1}")
        return chosen


class RoutedMessage:
    """A message as an application's router gets it: with those methods of a received message that make sense here."""

    __slots__ = ("_message",)

    def __init__(self, message: OutgoingMessage) -> None:
        self._message = message

    def data(self) -> bytes:
        return self._message.content or b""

    def value(self) -> bytes | None:
        return self._message.content

    def properties(self) -> dict[str, str]:
        return dict(self._message.properties or {})

    def partition_key(self) -> str | bytes:
        """Return the key; "" if the message has none."""
        return "" if self._message.key is None else self._message.key

    def ordering_key(self) -> str:
        return (self._message.ordering_key or b"").decode("utf-8", "replace")

    def event_timestamp(self) -> int:
        return self._message.event_time
