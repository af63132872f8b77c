"""What holds back several consumers of a subscription, as one reason.

For statistics and explanations only: nothing of this runs while entries are dispatched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason, describe_consumers

__all__ = ["add_priorities", "merge_shortages"]


def merge_shortages(consumers: Sequence[BaseConsumer]) -> DeliveryReason | None:
    """Return what holds all of these consumers back, or most of those that have permits. None: not all are held
    back."""
    found: dict[str, list[tuple[BaseConsumer, DeliveryReason]]] = {}
    for consumer in consumers:
        if (reason := consumer.find_shortage()) is None:
            return None
        found.setdefault(reason.code, []).append((consumer, reason))
    # Those that are being closed or have no permits do not matter if others have some.
    for code in (delivery_reasons.CLOSING.code, delivery_reasons.NO_PERMITS.code):
        if len(found) > 1:
            found.pop(code, None)
    most = max(found.values(), key=len, default=[])
    if not most:
        return None
    who = describe_consumers([consumer.name for consumer, _ in most], len(consumers))
    facts = {**most[0][1].facts, "who": who}
    if "messages" in facts:
        facts["messages"] = sum(consumer.capacity.unacked_messages for consumer, _ in most)
    return most[0][1].kind(**facts)


def add_priorities(
    consumers: Sequence[BaseConsumer], found: Mapping[BaseConsumer, DeliveryReason]
) -> dict[BaseConsumer, DeliveryReason]:
    """Return the reasons of the consumers that are held back, with those that have capacity, and get nothing because
    consumers of a higher priority have some, too."""
    able = [one for one in consumers if one not in found]
    served = min((one.priority_level for one in able), default=0)
    return {
        **found,
        **{
            one: delivery_reasons.LOWER_PRIORITY(level=served, own=one.priority_level)
            for one in able
            if one.priority_level > served
        },
    }
