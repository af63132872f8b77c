"""Admin calls on tenants, namespaces and their policies. Rules of their nodes are in magnetar_broker/catalog."""

from __future__ import annotations

import logging

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.names import cut_page, parse_namespace_name
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.catalog.policies import find_unmet_policies
from magnetar_broker.errors import BrokerError
from magnetar_broker.system_topics import SYSTEM_NAMESPACE
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["NamespaceCalls", "TenantCalls"]

_log = logging.getLogger(__name__)


class TenantCalls:
    def __init__(self, catalog: Catalog, deletions: Deletions) -> None:
        self._catalog = catalog
        self._deletions = deletions

    async def tenants(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        system = SYSTEM_NAMESPACE.tenant
        names = [name for name in await self._catalog.tenants.list_names() if request.include_system or name != system]
        return cut_page(names, request)

    async def tenant(self, request: pb.TenantRequest) -> pb.TenantAnswer:
        return pb.TenantAnswer(settings=await self._catalog.tenants.get_settings(request.tenant))

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


class NamespaceCalls:
    def __init__(self, catalog: Catalog, deletions: Deletions, ledgers: LedgerClient) -> None:
        self._catalog = catalog
        self._deletions = deletions
        self._bookies = ledgers.bookies

    async def namespaces(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        names = await self._catalog.namespaces.list_names(request.within)
        full_names = [f"{request.within}/{name}" for name in names]
        return cut_page(full_names, request)

    async def namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceAnswer:
        found = await self._catalog.namespaces.get(parse_namespace_name(request.namespace))
        return pb.NamespaceAnswer(policies=found.node.policies)

    async def create_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        name = parse_namespace_name(request.namespace)
        await self._catalog.namespaces.create(name, request.policies, request.bundles)
        return self._report_unmet(request)

    async def update_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        if request.bundles:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"bundles = {request.bundles}: it is set when a namespace is created, so split a bundle instead",
            )
        await self._catalog.update_policies(parse_namespace_name(request.namespace), request.policies)
        return self._report_unmet(request)

    def _report_unmet(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        """Log and return the policies that the bookies can't meet now. They are accepted: more bookies may follow."""
        writable, registered = len(self._bookies.writable()), len(self._bookies.registered())
        warnings = find_unmet_policies(request.namespace, request.policies, writable, registered)
        for warning in warnings:
            _log.warning("%s", warning)
        return pb.NamespaceChanged(warnings=warnings)

    async def delete_namespace(self, request: pb.DeleteRequest) -> pb.Done:
        delete_topics = self._deletions.delete_topics if request.force else None
        name = parse_namespace_name(request.name)
        await self._catalog.delete_namespace(
            name,
            delete_topics,
            self._deletions.release_bundles,
            delete_system_topics=self._deletions.delete_topics,
        )
        return pb.Done()
