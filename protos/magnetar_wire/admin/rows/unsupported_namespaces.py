"""Paths of namespaces in Pulsar's REST API that a broker answers with 405."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from magnetar_wire.admin.http.route_table import UnsupportedRoute

__all__ = ["UNSUPPORTED_NAMESPACES"]


def _list(base: str, missing: str, paths: Mapping[str, str]) -> Iterator[UnsupportedRoute]:
    """List the routes of paths below `base`, each with its verbs."""
    for path, verbs in paths.items():
        for verb in verbs.split():
            yield UnsupportedRoute(verb, base + path, missing)


_PERMISSIONS: Final = "authorization, and so granting permissions,"
_OFFLOAD: Final = "offloading of ledgers to long-term storage"
_NAMESPACES: Final = "/admin/v2/namespaces"
_NAMESPACE: Final = f"{_NAMESPACES}/{{namespace}}"

UNSUPPORTED_NAMESPACES: Final[tuple[UnsupportedRoute, ...]] = (
    *_list(
        _NAMESPACES,
        _PERMISSIONS,
        {"/grantPermissionsOnTopics": "POST", "/revokePermissionsOnTopics": "POST"},
    ),
    *_list(
        _NAMESPACE,
        _PERMISSIONS,
        {
            "/permissions": "GET",
            "/permissions/{role}": "POST DELETE",
            "/permissions/subscription": "GET",
            "/permissions/subscription/{subscription}": "POST",
            "/permissions/subscription/{subscription}/{role}": "DELETE",
        },
    ),
    *_list(_NAMESPACES, "anti-affinity of namespaces", {"/{cluster}/antiAffinity/{group}": "GET"}),
    *_list(_NAMESPACE, "anti-affinity of namespaces", {"/antiAffinity": "GET POST DELETE"}),
    *_list(_NAMESPACE, "filtering entries", {"/entryFilters": "GET POST DELETE"}),
    *_list(_NAMESPACE, "migration of clusters", {"/migration": "POST"}),
    *_list(
        _NAMESPACE,
        _OFFLOAD,
        {
            "/offloadDeletionLagMs": "GET PUT DELETE",
            "/offloadPolicies": "GET POST",
            "/offloadThreshold": "GET PUT",
            "/offloadThresholdInSeconds": "GET PUT",
            "/removeOffloadPolicies": "DELETE",
            "/scanOffloadedLedgers": "GET",
        },
    ),
    *_list(_NAMESPACE, "affinity of bookies", {"/persistence/bookieAffinity": "GET POST DELETE"}),
    *_list(
        _NAMESPACE, "limiting resources by groups", {"/resourcegroup": "GET DELETE", "/resourcegroup/{group}": "POST"}
    ),
    *_list(_NAMESPACE, "deleting a bundle, or a policy that has no DELETE in Pulsar's API,", {"/{bundle}": "DELETE"}),
)
