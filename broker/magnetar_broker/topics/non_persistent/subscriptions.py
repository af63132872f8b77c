"""Subscriptions of a non-persistent topic: each new entry is delivered now, or dropped.

Consumers are chosen by the same dispatch rules as of a persistent topic, by permits and by the capacity of their
connections. After each delivery a subscription skips to the end of the log, as an administrator would let it: what no
consumer took is dropped and counted, and nothing is redelivered. Acknowledgements are accepted, and have no effect.
There is no earlier position to seek to, so a seek is refused.
"""

from __future__ import annotations

import logging

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.client_positions import StartPosition
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import Acknowledge, ErrorCode, StartAt

__all__ = ["NonPersistentSubscriptions"]

_log = logging.getLogger(__name__)


class NonPersistentSubscription(Subscription):
    stores_messages = False
    __slots__ = ()

    def offer(self, messages: int) -> None:
        """Deliver the readable entries of the log, which have that number of messages, and drop the others."""
        before = self.counters.delivered.messages
        try:
            self._dispatch()
        finally:
            self.cursor.acknowledge_up_to(self.log.last)
            if self.dispatcher is not None:
                self.dispatcher.rule.record_acknowledged_up_to(self.cursor.mark_delete)
            self.counters.drop(max(0, messages - (self.counters.delivered.messages - before)))

    def acknowledge(self, consumer: Consumer, request: Acknowledge, *, active_only: bool = True) -> None:
        """Do nothing: no message is redelivered."""

    async def seek_for(self, consumer: Consumer, to: StartAt, moves_and_take_overs: int | None) -> None:
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            f"subscription {self.name} can't seek: {self.log.name} is non-persistent, and stores no messages",
        )


class NonPersistentSubscriptions(Subscriptions):
    __slots__ = ()
    _subscription_class = NonPersistentSubscription

    def offer(self, messages: int) -> None:
        """Offer new entries with that number of messages to all subscriptions."""
        for subscription in list(self._loaded.values()):
            assert isinstance(subscription, NonPersistentSubscription)
            try:
                subscription.offer(messages)
            except Exception:  # noqa: BLE001 (the others go on)
                _log.exception("Topic %s: subscription %s failed to deliver", self._name, subscription.name)

    async def _find_start(self, at: StartAt) -> StartPosition:
        """Begin with the next message: any position that is requested stands for it."""
        return StartPosition(self._log.last)

    async def _may_create(self) -> bool:
        """As in Pulsar, allow_auto_subscription_creation is for persistent topics."""
        return True
