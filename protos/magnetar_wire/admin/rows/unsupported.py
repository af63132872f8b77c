"""Paths of Pulsar's REST API that a broker answers with 405, and what is missing for each.

`/openapi.json` shows them. A path that becomes supported leaves this list and gets a route of a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar_wire.admin.http.route_table import UnsupportedFamily, UnsupportedRoute
from magnetar_wire.admin.rows.unsupported_namespaces import UNSUPPORTED_NAMESPACES

__all__ = ["UNSUPPORTED", "UNSUPPORTED_FAMILIES"]

_TOPIC: Final = "/admin/v2/{topic}"
_BACKLOG: Final = "the estimate of the backlog of a topic that is not loaded"
_COMPACTION: Final = "compaction"
_OFFLOAD: Final = "offloading of ledgers to long-term storage"
_SHADOW: Final = "replication to shadow topics"
_PERMISSIONS: Final = "authorization, and so granting permissions,"
_REPLICATED: Final = "replication of subscriptions between clusters"
_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_REPLICATION: Final = "geo-replication between clusters"
_DOMAINS: Final = "placing brokers in failure domains"
_ISOLATION: Final = "isolating namespaces on groups of brokers"


def _list(policy: str, missing: str) -> Iterator[UnsupportedRoute]:
    """List the routes of a policy of topics."""
    for verb in ("GET", "POST", "DELETE"):
        yield UnsupportedRoute(verb, f"{_TOPIC}/{policy}", missing)


UNSUPPORTED: Final[tuple[UnsupportedRoute, ...]] = (
    UnsupportedRoute("GET", f"{_TOPIC}/backlog", _BACKLOG),
    UnsupportedRoute("PUT", f"{_TOPIC}/compaction", _COMPACTION),
    UnsupportedRoute("GET", f"{_TOPIC}/offload", _OFFLOAD),
    UnsupportedRoute("PUT", f"{_TOPIC}/offload", _OFFLOAD),
    UnsupportedRoute("GET", f"{_TOPIC}/shadowTopics", _SHADOW),
    UnsupportedRoute("PUT", f"{_TOPIC}/shadowTopics", _SHADOW),
    UnsupportedRoute("DELETE", f"{_TOPIC}/shadowTopics", _SHADOW),
    *_list("offloadPolicies", _OFFLOAD),
    *_list("entryFilters", "filtering entries"),
    # Pulsar's paths have the subscription right after the topic.
    *_list("{subName}/dispatchRate", "limiting the rate of a single subscription"),
    UnsupportedRoute("GET", f"{_TOPIC}/permissions", _PERMISSIONS),
    UnsupportedRoute("POST", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    UnsupportedRoute("DELETE", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    UnsupportedRoute("GET", f"{_TOPIC}/subscription/{{subName}}/replicatedSubscriptionStatus", _REPLICATED),
    UnsupportedRoute("POST", f"{_TOPIC}/subscription/{{subName}}/replicatedSubscriptionStatus", _REPLICATED),
    *UNSUPPORTED_NAMESPACES,
    UnsupportedRoute("POST", "/admin/v2/brokers/shutdown", "shutting a broker down over HTTP (send it SIGTERM)"),
    UnsupportedRoute("GET", "/admin/v2/broker-stats/mbeans", "reading the JVM's MBeans (brokers are no Java programs)"),
    UnsupportedRoute(
        "GET",
        "/admin/v2/broker-stats/allocator-stats/{allocator}",
        "reading the JVM's buffers (brokers are no Java programs)",
    ),
    UnsupportedRoute("GET", "/admin/v2/broker-stats/bookieops", "counting operations on ledgers in flight"),
    UnsupportedRoute(
        "GET",
        "/admin/v2/broker-stats/broker-resource-availability/{namespace}",
        "ranking the brokers for a namespace",
    ),
)

UNSUPPORTED_FAMILIES: Final[tuple[UnsupportedFamily, ...]] = (
    UnsupportedFamily(f"{_CLUSTER}/peers", _REPLICATION),
    UnsupportedFamily(f"{_CLUSTER}/migrate", _REPLICATION),
    UnsupportedFamily(f"{_CLUSTER}/failureDomains", _DOMAINS),
    UnsupportedFamily(f"{_CLUSTER}/namespaceIsolationPolicies", _ISOLATION),
    UnsupportedFamily("/admin/v2/bookies/racks-info", "placing bookies in racks"),
    UnsupportedFamily("/admin/v2/resource-quotas", "limiting bundles by quotas"),
    UnsupportedFamily("/admin/v2/resourcegroups", "limiting namespaces by resource groups"),
    UnsupportedFamily("/topics", "publishing over HTTP"),
    UnsupportedFamily("/admin/v2/functions", "running Pulsar Functions"),
    UnsupportedFamily("/admin/v2/worker", "running Pulsar Functions"),
    UnsupportedFamily("/admin/v2/worker-stats", "running Pulsar Functions"),
    UnsupportedFamily("/admin/v3/functions", "running Pulsar Functions"),
    UnsupportedFamily("/admin/v3/source", "running connectors of Pulsar IO"),
    UnsupportedFamily("/admin/v3/sources", "running connectors of Pulsar IO"),
    UnsupportedFamily("/admin/v3/sink", "running connectors of Pulsar IO"),
    UnsupportedFamily("/admin/v3/sinks", "running connectors of Pulsar IO"),
    UnsupportedFamily("/admin/v3/packages", "the management of packages"),
    UnsupportedFamily("/admin/v3/transactions", "the administration of transactions"),
)
