"""The dispatch rule of each subscription type. A type that is not in the table is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRule
from magnetar_broker.topics.dispatch.exclusive_and_failover import ExclusiveRule, FailoverRule
from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_broker.topics.dispatch.shared import SharedRule
from magnetar_protos.broker_pb2 import SubscriptionType

__all__ = ["DISPATCH_RULES", "name_type"]

DISPATCH_RULES: Final[Mapping[SubscriptionType, type[DispatchRule]]] = {
    SubscriptionType.EXCLUSIVE: ExclusiveRule,
    SubscriptionType.FAILOVER: FailoverRule,
    SubscriptionType.SHARED: SharedRule,
    SubscriptionType.KEY_SHARED: KeySharedRule,
}


def name_type(type_: SubscriptionType) -> str:
    """Return the name of a type as users write it: Exclusive, Key_Shared."""
    return "_".join(word.capitalize() for word in SubscriptionType.Name(type_).split("_"))
