"""Admin calls on tenants. Rules of their nodes are in tenants.py."""

from __future__ import annotations

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.name_pages import cut_page
from magnetar_broker.core.system_topics import SYSTEM_NAMESPACE
from magnetar_protos import admin_pb2 as pb

__all__ = ["TenantCalls"]


class TenantCalls:
    def __init__(self, catalog: Catalog, deletions: Deletions) -> None:
        self._catalog = catalog
        self._deletions = deletions

    async def tenants(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        system = SYSTEM_NAMESPACE.tenant
        names = [name for name in await self._catalog.tenants.names() if request.include_system or name != system]
        return cut_page(names, request, self._catalog.settings.admin_max_names)

    async def tenant(self, request: pb.TenantRequest) -> pb.TenantAnswer:
        return pb.TenantAnswer(settings=await self._catalog.tenants.settings(request.tenant))

    async def create_tenant(self, request: pb.TenantRequest) -> pb.Done:
        await self._catalog.tenants.create(request.tenant, request.settings)
        return pb.Done()

    async def update_tenant(self, request: pb.TenantRequest) -> pb.Done:
        await self._catalog.tenants.update(request.tenant, request.settings)
        return pb.Done()

    async def delete_tenant(self, request: pb.DeleteRequest) -> pb.Done:
        delete_topics = self._deletions.delete_topics if request.force else None
        await self._catalog.delete_tenant(request.name, delete_topics, self._deletions.release_bundles)
        return pb.Done()
