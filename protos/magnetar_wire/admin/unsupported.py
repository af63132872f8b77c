"""Paths of Pulsar's REST API that a broker answers with 405, and what is missing for each.

`/openapi.json` shows them, and the guide lists them. A path that becomes supported leaves this list and gets a route in
the table of admin calls.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.admin.route import UnsupportedRoute
from magnetar_wire.admin.unsupported_namespaces import UNSUPPORTED_NAMESPACES

__all__ = ["UNSUPPORTED"]

_TOPIC: Final = "/admin/v2/{topic}"
_BACKLOG: Final = "the estimate of the backlog of a topic that is not loaded"
_COMPACTION: Final = "compaction"
_OFFLOAD: Final = "offloading of ledgers to long-term storage"
_SHADOW: Final = "replication to shadow topics"
_PERMISSIONS: Final = "authorization, and so granting permissions,"
_REPLICATED: Final = "replication of subscriptions between clusters"

UNSUPPORTED: Final[tuple[UnsupportedRoute, ...]] = (
    UnsupportedRoute("GET", f"{_TOPIC}/backlog", _BACKLOG),
    UnsupportedRoute("PUT", f"{_TOPIC}/compaction", _COMPACTION),
    UnsupportedRoute("GET", f"{_TOPIC}/offload", _OFFLOAD),
    UnsupportedRoute("PUT", f"{_TOPIC}/offload", _OFFLOAD),
    UnsupportedRoute("GET", f"{_TOPIC}/shadowTopics", _SHADOW),
    UnsupportedRoute("PUT", f"{_TOPIC}/shadowTopics", _SHADOW),
    UnsupportedRoute("DELETE", f"{_TOPIC}/shadowTopics", _SHADOW),
    UnsupportedRoute("GET", f"{_TOPIC}/permissions", _PERMISSIONS),
    UnsupportedRoute("POST", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    UnsupportedRoute("DELETE", f"{_TOPIC}/permissions/{{role}}", _PERMISSIONS),
    UnsupportedRoute("GET", f"{_TOPIC}/subscription/{{subscription}}/replicatedSubscriptionStatus", _REPLICATED),
    UnsupportedRoute("POST", f"{_TOPIC}/subscription/{{subscription}}/replicatedSubscriptionStatus", _REPLICATED),
    *UNSUPPORTED_NAMESPACES,
)
