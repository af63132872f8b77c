"""Administration of a cluster: tenants, namespaces, topics, subscriptions, brokers, and their statistics.

    from magnetar.admin import Admin

    with Admin("magnetar://localhost:6652") as admin:
        admin.namespaces.create("public/orders")
        admin.topics.create_partitioned("public/orders/placed", 4)
        print(admin.topics.stats("public/orders/placed"))

`AsyncAdmin` is the same for asyncio. Errors are those of the rest of the SDK: `magnetar.exceptions`.

Most names are imported when they are first used. Processes that Spark starts only to read a query's columns need no
more than positions in a log, and the rest takes a third of a second to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from magnetar.admin.reading import LogPosition, MessagePosition, NamespaceLease, Piece, PieceFragment, Plan

if TYPE_CHECKING:
    from magnetar.admin._admin import Admin, AsyncAdmin
    from magnetar.admin.models import (
        ActiveBroker,
        BacklogAnalysis,
        BrokerInfo,
        BrokerLoad,
        BrokerTopic,
        Bundle,
        BundleLoad,
        Cluster,
        ConsumerStats,
        CursorStats,
        DeliveryReason,
        DrainingSlot,
        Health,
        InternalStats,
        LeaseStats,
        LedgerStats,
        LostEntry,
        NamespacePolicies,
        OwnedBundle,
        PartExplanation,
        PartitionedTopic,
        PartitionedTopicStats,
        PeekedMessage,
        ProducerStats,
        RegisteredBookie,
        SchemaCheck,
        SlotRange,
        StoredSchemaVersion,
        SubscriptionExplanation,
        SubscriptionStats,
        TenantSettings,
        TopicHash,
        TopicOwner,
        TopicPolicies,
        TopicSchema,
        TopicStats,
        Traffic,
    )
    from magnetar.admin.policies import (
        AutoSubscriptionCreation,
        AutoTopicCreation,
        BacklogQuota,
        DelayedDelivery,
        DispatchRate,
        InactiveTopics,
        Persistence,
        PublishRate,
        Retention,
        SubscribeRate,
    )

# The modules of names that are imported when they are first used.
_LATER = ("magnetar.admin.models", "magnetar.admin.policies", "magnetar.admin._admin")

__all__ = [
    "ActiveBroker",
    "Admin",
    "AsyncAdmin",
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BacklogAnalysis",
    "BacklogQuota",
    "BrokerInfo",
    "BrokerLoad",
    "BrokerTopic",
    "Bundle",
    "BundleLoad",
    "Cluster",
    "ConsumerStats",
    "CursorStats",
    "DelayedDelivery",
    "DeliveryReason",
    "DispatchRate",
    "DrainingSlot",
    "Health",
    "InactiveTopics",
    "InternalStats",
    "LeaseStats",
    "LedgerStats",
    "LogPosition",
    "LostEntry",
    "MessagePosition",
    "NamespaceLease",
    "NamespacePolicies",
    "OwnedBundle",
    "PartExplanation",
    "PartitionedTopic",
    "PartitionedTopicStats",
    "PeekedMessage",
    "Persistence",
    "Piece",
    "PieceFragment",
    "Plan",
    "ProducerStats",
    "PublishRate",
    "RegisteredBookie",
    "Retention",
    "SchemaCheck",
    "SlotRange",
    "StoredSchemaVersion",
    "SubscribeRate",
    "SubscriptionExplanation",
    "SubscriptionStats",
    "TenantSettings",
    "TopicHash",
    "TopicOwner",
    "TopicPolicies",
    "TopicSchema",
    "TopicStats",
    "Traffic",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in _LATER:
        found = importlib.import_module(module)
        if name in found.__all__:
            break
    value = globals()[name] = getattr(found, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
