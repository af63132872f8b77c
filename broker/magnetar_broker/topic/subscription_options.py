"""Options of subscriptions, by Pulsar's names."""

from __future__ import annotations

from pydantic import Field

from magnetar_broker.core.dispatch.dispatch import DispatchLimits
from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import MAX_MESSAGE_BYTES

__all__ = ["SubscriptionOptions"]


class SubscriptionOptions(Configuration):
    # A consumer that subscribes makes the subscription where there is none.
    allow_auto_subscription_creation: bool = True
    # Delivered and not acknowledged, of Shared subscriptions: whoever holds so many messages waits, and so does the
    # subscription as a whole; 0: without bound. Of Exclusive and Failover nothing is held, however much was delivered:
    # the cursor says it all, as in Pulsar, where applications count on reading on without an acknowledgement.
    max_unacked_messages_per_consumer: int = Field(default=50_000, ge=0)
    max_unacked_messages_per_subscription: int = Field(default=200_000, ge=0)
    # 0: any number.
    max_consumers_per_subscription: int = Field(default=0, ge=0)
    # What is read at a time for one subscription.
    dispatcher_max_read_batch_size: int = Field(default=100, gt=0)
    dispatcher_max_read_size_bytes: int = Field(default=MAX_MESSAGE_BYTES, gt=0)
    # Of Shared: how many messages a consumer gets before the next one has its turn.
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
