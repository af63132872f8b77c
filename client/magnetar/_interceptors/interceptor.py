"""Interceptors: classes of an application that see, and may change, each message of a producer, consumer or reader.

The methods are those of Java's interfaces of the same names. They are plain methods, also with asyncio.
An error that an interceptor raises is logged, and has no effect on the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from magnetar._message import Message
from magnetar.exceptions import InvalidConfiguration
from magnetar_wire.message_id import MessageId

__all__ = ["ConsumerInterceptor", "ProducerInterceptor", "ProducerMessage", "ReaderInterceptor", "check_interceptors"]


@dataclass(slots=True)
class ProducerMessage:
    """A message that an application sends: the arguments of `send`. An interceptor may change them."""

    # The value, before a schema encodes it.
    content: Any
    properties: Mapping[str, str] | None = None
    partition_key: str | bytes | None = None
    ordering_key: str | bytes | None = None
    sequence_id: int | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool = False
    event_timestamp: int | None = None
    deliver_at: int | None = None
    deliver_after: timedelta | None = None


class ProducerInterceptor:
    """What an application does with each message that a producer sends. A subclass overrides what it needs."""

    def eligible(self, message: ProducerMessage) -> bool:
        """Return whether this interceptor is for the message. If not, neither `before_send` nor
        `on_send_acknowledgement` is called."""
        return True

    def before_send(self, producer: Any, message: ProducerMessage) -> ProducerMessage | None:
        """Return the message to send instead, or None to send this one. It may have been changed.

        Called by the thread or task that sends, before the message is encoded, and before its partition is chosen.
        """

    def on_send_acknowledgement(
        self, producer: Any, message: ProducerMessage, message_id: MessageId | None, exception: BaseException | None
    ) -> object:
        """The message is persisted, with this id, or has failed with this exception. It is the message that was sent.

        Called on the callback thread, before the callback of `send_async`; by the sender, if the message was refused at
        once; with asyncio by the task that sends.
        """

    def on_partitions_change(self, topic: str, partitions: int) -> object:
        """The topic has this many partitions now."""

    def close(self) -> object:
        """The producer has ended."""


class ConsumerInterceptor:
    """What an application does with each message that a consumer receives. A subclass overrides what it needs.

    `on_arrival`, `on_negative_acks_send`, `on_ack_timeout_send`, `on_partitions_change` and `close` are called on the
    callback thread, with asyncio on the loop; the others by the thread or task that receives or acknowledges.
    """

    def on_arrival(self, consumer: Any, message: Message[Any]) -> Any:
        """Return the message to receive instead, or None for this one. Called when the message has arrived in the
        receiver queue, and in any case before `before_consume`."""

    def before_consume(self, consumer: Any, message: Message[Any]) -> Any:
        """Return the message to receive instead, or None for this one. Called when the message is received, or before
        the listener is called. A message that is returned instead needs the method `message_id`."""

    def on_acknowledge(self, consumer: Any, message_id: MessageId, exception: BaseException | None) -> object:
        """The message was acknowledged, or that has failed with this exception. With a receipt, it is durable."""

    def on_acknowledge_cumulative(
        self, consumer: Any, message_id: MessageId, exception: BaseException | None
    ) -> object:
        """All messages up to this one were acknowledged, or that has failed with this exception."""

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> object:
        """The redelivery of these entries was requested, since messages of them were acknowledged negatively."""

    def on_ack_timeout_send(self, consumer: Any, message_ids: set[MessageId]) -> object:
        """The redelivery of these entries was requested, since messages of them were not acknowledged in time."""

    def on_partitions_change(self, topic: str, partitions: int) -> object:
        """The topic has this many partitions now. Not called for topics of a pattern, as in Java's client."""

    def close(self) -> object:
        """The consumer has ended."""


class ReaderInterceptor:
    """What an application does with each message that a reader reads. A subclass overrides what it needs."""

    def before_read(self, reader: Any, message: Message[Any]) -> Any:
        """Return the message to read instead, or None for this one. Called by the thread or task that reads, or before
        the listener is called. A message that is returned instead needs the method `message_id`."""

    def on_partitions_change(self, topic: str, partitions: int) -> object:
        """The topic has this many partitions now. Called on the callback thread, with asyncio on the loop."""

    def close(self) -> object:
        """The reader has ended. Called on the callback thread, with asyncio on the loop."""


def check_interceptors(
    interceptors: Any, kind: type[ProducerInterceptor | ConsumerInterceptor | ReaderInterceptor]
) -> None:
    """Raises InvalidConfiguration if these are not instances of the class."""
    given = () if interceptors is None else interceptors
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, kind) for one in given):
        raise InvalidConfiguration(f"interceptors = {interceptors!r}: use a list of instances of {kind.__name__}")
