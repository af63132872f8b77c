"""How far somebody has come who reads a topic's log past the broker, as a durable subscription: what was not read yet
is kept for it.

It is that reader's alone: nothing is delivered by it. One that has consumers is refused, since what is acknowledged
here would never come to them.
"""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.topic.start_place import find_start
from magnetar_broker.topic.subscription import Subscription
from magnetar_protos.broker_pb2 import ErrorCode, StartAt

__all__ = ["advance"]


async def advance(subscription: Subscription, log: Log, to: StartAt | None) -> None:
    """Acknowledges everything in front of `to`, durably. It never goes back, so it may be repeated. `None`: only checks
    whether that could be done. The caller runs it as a change. Raises `BrokerError`."""
    if subscription.consumers:
        raise BrokerError(
            ErrorCode.CONSUMER_BUSY,
            f"subscription {subscription.name} has {len(subscription.consumers)} consumer(s), who would miss what "
            "is acknowledged as read elsewhere: use another subscription for the progress, or close them",
        )
    if to is None:
        return
    place = await find_start(log, to)
    if place.passed_over is not None:
        subscription.cursor.acknowledge((), [place.passed_over])
    await subscription.skip_to(place.mark_delete)
