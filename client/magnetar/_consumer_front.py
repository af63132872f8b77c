"""What the synchronous consumer and the asyncio one share: all that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_part import ConsumerPart
from magnetar._message import Message
from magnetar._places import start_at
from magnetar._public_object import Unpicklable, repr_of
from magnetar._targets import Target
from magnetar.exceptions import CumulativeAcknowledgementNotAllowedError, InvalidConfiguration, OperationNotSupported
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.message_id import MessageId

__all__ = ["Acknowledgeable", "ConsumerFront", "no_receive", "seek_target"]

# A message, its id, or a number of either.
Acknowledgeable = Message | MessageId | Iterable[Message | MessageId]


class ConsumerFront(Unpicklable):
    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    def topic(self) -> str:
        """The topic's full name; of several, their names with commas between."""
        return ",".join(map(str, self._core.names))

    def subscription_name(self) -> str:
        return self._core.options.subscription_name

    def consumer_name(self) -> str:
        """As it was given, or drawn."""
        return self._core.name

    def is_connected(self) -> bool:
        """Whether all topics or partitions are, at the moment."""
        return self._core.connected

    def redeliver_unacknowledged_messages(self) -> None:
        """Everything that is not acknowledged is to come again, now. Returns at once, and nothing that was on its way
        before is received any more."""
        self._core.check_open()
        self._core.ask_for_all()

    def __repr__(self) -> str:
        return repr_of(self, "topic", "subscription_name", "consumer_name", "is_connected")

    def _refuse(self, message: Message | MessageId) -> None:
        self._core.check_open()
        self._core.refusing.put(self._core.targets.of(message))

    def _targets(self, what: Acknowledgeable) -> list[Target]:
        self._core.check_open()
        if isinstance(what, (Message, MessageId)):
            return [self._core.targets.of(what)]
        return [self._core.targets.of(one) for one in what]

    def _cumulative(self, what: Message | MessageId) -> list[Target]:
        self._core.check_open()
        if self._core.shared:
            raise CumulativeAcknowledgementNotAllowedError(
                f"the subscription {self.subscription_name()} is Shared, and has no order in which all messages up to "
                "one could be acknowledged: acknowledge each, or use Exclusive or Failover"
            )
        return [self._core.targets.of(what, cumulative=True)]

    def _put(self, targets: list[Target]) -> None:
        for target in targets:
            self._core.acknowledged.put(target)

    def _wants_receipt(self, receipt: bool | None) -> bool:
        return self._core.options.ack_receipt_enabled if receipt is None else receipt


def seek_target(core: ConsumerCore, where: MessageId | int) -> Callable[[ConsumerPart], StartAt | None]:
    """Where each part is to go: to the time or the end of the log that is named; or, of a message, only its own."""
    if not isinstance(where, (MessageId, int)) or isinstance(where, bool):
        raise TypeError(f"seek takes a message's id or a time in ms, not {type(where).__name__}")
    start = start_at(where, inclusive=core.options.start_message_id_inclusive)
    if start.WhichOneof("at") != "place" or len(core.parts) == 1:
        return lambda part: start
    target = core.targets.of(where)
    return lambda part: start if part is target.part else None  # type: ignore[union-attr]


def one_last_id(ids: list[MessageId]) -> MessageId:
    if len(ids) != 1:
        raise OperationNotSupported(f"this consumer reads {len(ids)} topics or partitions: use get_last_message_ids")
    return ids[0]


def no_receive(*_: Any) -> Any:
    raise InvalidConfiguration("a consumer with a message_listener hands all messages to that: receive nothing here")
