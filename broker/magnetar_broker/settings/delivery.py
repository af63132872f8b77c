"""Options of subscriptions, by Pulsar's names."""

from __future__ import annotations

from pydantic import Field

from magnetar_broker.core.dispatch.dispatch import DispatchLimits
from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import MAX_MESSAGE_BYTES

__all__ = ["SubscriptionSettings"]


class SubscriptionSettings(Configuration):
    # Create a subscription when a consumer subscribes to it for the first time. A namespace's policies can override it.
    allow_auto_subscription_creation: bool = True
    # Maximum number of messages of a Shared subscription that are delivered to one consumer and not acknowledged. At
    # this bound the consumer gets no more. 0: no limit. Exclusive and Failover subscriptions have no limit, as in
    # Pulsar.
    max_unacked_messages_per_consumer: int = Field(default=50_000, ge=0)
    # Maximum number of messages of a Shared subscription that are delivered to its consumers and not acknowledged. At
    # this bound the subscription delivers no more. 0: no limit. Exclusive and Failover subscriptions have no limit, as
    # in Pulsar.
    max_unacked_messages_per_subscription: int = Field(default=200_000, ge=0)
    # Maximum number of consumers of one subscription. 0: no limit.
    max_consumers_per_subscription: int = Field(default=0, ge=0)
    # Maximum number of entries that are read at a time for one subscription.
    dispatcher_max_read_batch_size: int = Field(default=100, gt=0)
    # Maximum size, in bytes, of the entries that are read at a time for one subscription.
    dispatcher_max_read_size_bytes: int = Field(default=MAX_MESSAGE_BYTES, gt=0)
    # Messages of a Shared subscription that one consumer gets before the next one's turn.
    dispatcher_max_round_robin_batch_size: int = Field(default=20, gt=0)

    @property
    def limits(self) -> DispatchLimits:
        return DispatchLimits(
            max_read_entries=self.dispatcher_max_read_batch_size,
            max_read_bytes=self.dispatcher_max_read_size_bytes,
            max_round_robin_messages=self.dispatcher_max_round_robin_batch_size,
            max_unacked_per_consumer=self.max_unacked_messages_per_consumer,
            max_unacked_per_subscription=self.max_unacked_messages_per_subscription,
        )
