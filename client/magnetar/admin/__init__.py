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
        AutoSubscriptionCreation,
        AutoTopicCreation,
        BrokerInfo,
        BrokerLoad,
        Bundle,
        Cluster,
        ConsumerStats,
        CursorStats,
        Health,
        InternalStats,
        LeaseStats,
        LedgerStats,
        LostEntry,
        NamespacePolicies,
        OwnedBundle,
        PartitionedTopic,
        PeekedMessage,
        Persistence,
        ProducerStats,
        SubscriptionStats,
        TenantSettings,
        TopicOwner,
        TopicStats,
        Traffic,
    )

__all__ = [
    "ActiveBroker",
    "Admin",
    "AsyncAdmin",
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BrokerInfo",
    "BrokerLoad",
    "Bundle",
    "Cluster",
    "ConsumerStats",
    "CursorStats",
    "Health",
    "InternalStats",
    "LeaseStats",
    "LedgerStats",
    "LogPosition",
    "LostEntry",
    "MessagePosition",
    "NamespaceLease",
    "NamespacePolicies",
    "OwnedBundle",
    "PartitionedTopic",
    "PeekedMessage",
    "Persistence",
    "Piece",
    "PieceFragment",
    "Plan",
    "ProducerStats",
    "SubscriptionStats",
    "TenantSettings",
    "TopicOwner",
    "TopicStats",
    "Traffic",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "magnetar.admin._admin" if name in ("Admin", "AsyncAdmin") else "magnetar.admin.models"
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
