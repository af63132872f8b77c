"""A topic's subscriptions: consumers join them here.

A subscription that does not exist is created on first use, if that is allowed. No consumer joins while a subscription
is being changed, and the limits and rates of subscribing are checked at the last moment.

`subscription_administration.py` changes subscriptions by name; `loaded_subscriptions.py` holds those that have
consumers.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.consumer_limits import check_consumers, check_subscribe_request, check_type
from magnetar_broker.topics.progress_subscription import check_consumable
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_administration import AdministeredSubscriptions
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer
from magnetar_wire.process.addresses import get_host

__all__ = ["Subscriptions"]

# The length of generated consumer names, before they are written as hex.
_TOKEN_BYTES: Final = 5


class Subscriptions(AdministeredSubscriptions):
    __slots__ = ()

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer:
        """Open a consumer, and call the sink's `opened`. Raises `BrokerError`."""
        check_subscribe_request(opened)
        check_consumable(opened.subscription, opened.subscription_properties)
        check_type(self._name, self._settings, opened.type)
        if opened.incarnation and opened.incarnation != self._log.incarnation:
            raise BrokerError(
                ErrorCode.INCARNATION_CHANGED,
                f"topic {self._name} was deleted and recreated: its incarnation was {opened.incarnation}, "
                f"and is {self._log.incarnation}; positions of the old topic are not valid in the new one",
            )
        self._check_rate(opened, sink.address)
        name = opened.consumer_name or self._randomness.token(_TOKEN_BYTES).hex()
        subscription = await self._find_to_join(opened)
        try:
            check_consumable(subscription.name, subscription.cursor.properties)
            self._check_limits(opened, sink.address)
            consumer = subscription.join(opened, name, sink)
            if subscription.durable:
                self.record_use(subscription.name)
            return consumer
        finally:
            subscription.release_if_idle()

    async def _find_to_join(self, opened: OpenConsumer) -> Subscription:
        """Return the subscription to join, created if that is allowed. It is not being changed, and nothing is awaited
        after that was checked."""
        key = opened.subscription, opened.durable
        while True:
            self._check_open()
            if self._changes.is_changing(key):
                await self._changes.wait_for_changes(key)
            elif (loaded := self._loaded.get(key)) is not None:
                # A consumer whose connection is closed, and which has not left yet, must not refuse another one. With
                # the last consumer the subscription is released: a consumer that joined that object would get nothing.
                loaded.remove_disconnected()
                if self._loaded.get(key) is loaded:
                    return loaded
            elif not opened.durable:
                start = await self._find_start(opened.start)
                if not self._changes.is_changing(key) and key not in self._loaded:
                    self._check_open()
                    self._cursors.check_capacity(self._count_transient())
                    return self._load_transient(opened.subscription, start)
            elif (cursor := self._cursors.get(opened.subscription)) is not None:
                return self._load(cursor)
            elif opened.subscription in self._cursors.names():
                await self._cursors.wait_until_open(opened.subscription)
            elif not await self._may_create():
                if opened.subscription in self._cursors.names():
                    continue
                raise self._not_found(opened.subscription)
            else:
                await self.create(opened.subscription, opened.start, opened.subscription_properties, may_exist=True)

    def _check_rate(self, opened: OpenConsumer, address: str) -> None:
        rate = self._settings.subscribe_rate
        host, name = get_host(address), opened.consumer_name or opened.consumer_id
        if not self._subscribe_counts.count(host, opened.subscription, name, rate, self._clock.monotonic()):
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"consumer {name!r} has subscribed to {self._name} {rate.per_consumer} times in "
                f"{rate.period_seconds:,.0f} s, the maximum (subscribe_throttling_rate_per_consumer, or the policy "
                "subscribe_rate): retry later",
            )

    def _check_limits(self, opened: OpenConsumer, address: str) -> None:
        """Raise `BrokerError` if the topic accepts no such consumer. Nothing is awaited between this and the joining:
        others may have joined, or policies may have changed, since the request came."""
        check_type(self._name, self._settings, opened.type)
        connected = [
            consumer.sink.address
            for subscription in self._loaded.values()
            for consumer in subscription.consumers
            if not consumer.sink.is_broken
        ]
        check_consumers(self._name, self._settings, connected, address)
