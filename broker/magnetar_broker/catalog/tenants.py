"""Tenants, which own namespaces.

**Deleting a tenant while a namespace may be created.** Creating a namespace raises the tenant's `namespaces_made` in
the same transaction. So a deletion reads the tenant, finds no namespaces, and deletes the tenant's node if it is
unchanged. If a namespace was created in between, the node has changed, and the deletion begins again. If the broker
is killed at any step, nothing is left to repair.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes
from magnetar_broker.catalog.clusters import Clusters
from magnetar_broker.errors import BrokerError
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import TenantNode
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName

__all__ = ["Tenants", "check_tenant_name"]

_MAX_LISTED: Final = 1000
_MAX_NAME: Final = 256


def check_tenant_name(tenant: str) -> None:
    try:
        NamespaceName(tenant, "n")
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None


class Tenants:
    def __init__(self, nodes: CatalogNodes, clusters: Clusters) -> None:
        self._nodes = nodes
        self._clusters = clusters

    async def list_names(self) -> list[str]:
        await self._nodes.sync()
        return await self._nodes.list_children(paths.TENANTS)

    async def get_settings(self, tenant: str) -> TenantSettings:
        check_tenant_name(tenant)
        found = await self._nodes.read(TenantNode, paths.tenant(tenant), fresh=True)
        if found is None:
            raise tenant_not_found(tenant)
        return TenantSettings(admin_roles=found.node.admin_roles, allowed_clusters=found.node.allowed_clusters)

    async def create(self, tenant: str, settings: TenantSettings) -> None:
        check_tenant_name(tenant)
        await self._check(settings)
        incarnation = self._nodes.new_incarnation()

        def made(node: TenantNode | None) -> TenantNode:
            if node is not None:
                raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a tenant {tenant} already")
            return TenantNode(
                incarnation=incarnation,
                admin_roles=settings.admin_roles,
                allowed_clusters=settings.allowed_clusters,
            )

        await self._nodes.change(TenantNode, paths.tenant(tenant), made)

    async def update(self, tenant: str, settings: TenantSettings) -> None:
        check_tenant_name(tenant)
        await self._check(settings)

        def updated(node: TenantNode | None) -> TenantNode:
            if node is None:
                raise tenant_not_found(tenant)
            node.admin_roles[:] = settings.admin_roles
            node.allowed_clusters[:] = settings.allowed_clusters
            return node

        await self._nodes.change(TenantNode, paths.tenant(tenant), updated)

    async def delete(self, tenant: str, delete_namespace: Callable[[NamespaceName], Awaitable[None]] | None) -> None:
        """Delete the tenant. `delete_namespace`: delete each of its namespaces, too, by force; None: refuse if it has
        any. Raises `BrokerError`."""
        check_tenant_name(tenant)
        while True:
            found = await self._nodes.read(TenantNode, paths.tenant(tenant), fresh=True)
            if found is None:
                raise tenant_not_found(tenant)
            names = await self._nodes.list_children(f"{paths.NAMESPACES}/{tenant}")
            if names and delete_namespace is None:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"tenant {tenant} has {len(names):,} namespaces, among them {names[0]}: delete them first, or "
                    "delete the tenant by force",
                )
            for name in names:
                assert delete_namespace is not None
                await delete_namespace(NamespaceName(tenant, name))
            if names:
                continue
            expected, changed = found.node, False

            def deleted(node: TenantNode | None, expected: TenantNode = expected) -> TenantNode | None:
                nonlocal changed
                changed = node is not None and node != expected
                return node if changed else None

            await self._nodes.change(TenantNode, paths.tenant(tenant), deleted)
            if not changed:
                return

    async def _check(self, settings: TenantSettings) -> None:
        for what, names in (("adminRoles", settings.admin_roles), ("allowedClusters", settings.allowed_clusters)):
            if len(names) > _MAX_LISTED or any(not 0 < len(name) <= _MAX_NAME for name in names):
                raise BrokerError(
                    ErrorCode.INVALID_ARGUMENT,
                    f"{what} are at most {_MAX_LISTED:,} names of 1 to {_MAX_NAME} characters",
                )
        await self._clusters.check_known(settings.allowed_clusters, "allowedClusters")


def tenant_not_found(tenant: str) -> BrokerError:
    return BrokerError(ErrorCode.NOT_FOUND, f"there is no tenant {tenant}: create it first")
