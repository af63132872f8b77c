"""Administration of a cluster: tenants, namespaces, topics, subscriptions, and what there is to see of them.

    from magnetar.admin import Admin

    with Admin("magnetar://localhost:6652") as admin:
        admin.namespaces.create("public/orders")
        admin.topics.create_partitioned("public/orders/placed", 4)
        print(admin.topics.stats("public/orders/placed"))

`AsyncAdmin` is the same for asyncio. What goes wrong is raised as in the rest of the SDK: `magnetar.exceptions`.
"""

from __future__ import annotations

from magnetar.admin._admin import Admin, AsyncAdmin
from magnetar.admin.models import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BrokerInfo,
    ConsumerStats,
    CursorStats,
    Health,
    InternalStats,
    LedgerStats,
    NamespacePolicies,
    PartitionedTopic,
    PeekedMessage,
    Persistence,
    ProducerStats,
    SubscriptionStats,
    TenantSettings,
    TopicStats,
    Traffic,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BrokerInfo",
    "ConsumerStats",
    "CursorStats",
    "Health",
    "InternalStats",
    "LedgerStats",
    "NamespacePolicies",
    "PartitionedTopic",
    "PeekedMessage",
    "Persistence",
    "ProducerStats",
    "SubscriptionStats",
    "TenantSettings",
    "TopicStats",
    "Traffic",
]
