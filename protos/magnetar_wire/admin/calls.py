"""The table of admin calls. `call.py` explains its columns; the rows are in a file per subject.

A new call takes a row there, a handler in `magnetar_broker/admin/`, and its messages in admin.proto if it needs new
ones: CONTRIBUTING.md, "Adding an admin call".
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.rows.broker_stats import BROKER_STATS
from magnetar_wire.admin.rows.brokers import BROKERS, CONFIGURATION
from magnetar_wire.admin.rows.clusters import CLUSTERS
from magnetar_wire.admin.rows.lookup import LOOKUP
from magnetar_wire.admin.rows.messages import MESSAGES
from magnetar_wire.admin.rows.namespaces import BUNDLES, NAMESPACES
from magnetar_wire.admin.rows.reading import READING
from magnetar_wire.admin.rows.schemas import SCHEMA_CALLS
from magnetar_wire.admin.rows.subscriptions import SUBSCRIPTIONS
from magnetar_wire.admin.rows.tenants import TENANTS
from magnetar_wire.admin.rows.termination import TERMINATION
from magnetar_wire.admin.rows.topic_policies import TOPIC_POLICIES
from magnetar_wire.admin.rows.topics import PARTITIONED_TOPICS, TOPICS

__all__ = ["ADMIN_CALLS", "call_of_method"]

ADMIN_CALLS: Final[dict[str, AdminCall]] = {
    call.name: call
    for calls in (
        CLUSTERS,
        TENANTS,
        NAMESPACES,
        BUNDLES,
        TOPICS,
        PARTITIONED_TOPICS,
        TERMINATION,
        MESSAGES,
        TOPIC_POLICIES,
        SCHEMA_CALLS,
        LOOKUP,
        SUBSCRIPTIONS,
        BROKERS,
        CONFIGURATION,
        BROKER_STATS,
        READING,
    )
    for call in calls
}


def call_of_method(name: str) -> AdminCall:
    """Return the call that a method of `magnetar.admin` makes, e.g. "topics.truncate". Raises KeyError."""
    for call in ADMIN_CALLS.values():
        if any(method.name == name for method in call.methods):
            return call
    raise KeyError(name)
