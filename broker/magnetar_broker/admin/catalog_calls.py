"""What an administrator asks of tenants and namespaces."""

from __future__ import annotations

import logging

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.admin.bundle_calls import BundleCalls
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.names import namespace_named
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.core.policies import check_known, find_unmet
from magnetar_broker.core.system_topics import SYSTEM_NAMESPACE
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import NamespaceName

__all__ = ["CatalogCalls"]

_log = logging.getLogger(__name__)


class CatalogCalls:
    def __init__(self, catalog: Catalog, topics: TopicCalls, bundles: BundleCalls, ledgers: LedgerClient) -> None:
        self._catalog = catalog
        self._bookies = ledgers.bookies
        self._topics = topics
        self._bundles = bundles

    async def tenants(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        names = await self._catalog.tenants.names()
        system = SYSTEM_NAMESPACE.tenant
        return self.page([name for name in names if request.include_system or name != system], request)

    async def tenant(self, request: pb.TenantRequest) -> pb.TenantAnswer:
        return pb.TenantAnswer(settings=await self._catalog.tenants.settings(request.tenant))

    async def create_tenant(self, request: pb.TenantRequest) -> pb.Done:
        check_known(request, "create_tenant")
        await self._catalog.tenants.create(request.tenant, request.settings)
        return pb.Done()

    async def update_tenant(self, request: pb.TenantRequest) -> pb.Done:
        check_known(request, "update_tenant")
        await self._catalog.tenants.update(request.tenant, request.settings)
        return pb.Done()

    async def delete_tenant(self, request: pb.DeleteRequest) -> pb.Done:
        delete_topics = self._topics.delete_all if request.force else None
        await self._catalog.delete_tenant(request.name, delete_topics, self._release)
        return pb.Done()

    async def namespaces(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        names = await self._catalog.namespaces.names(request.within)
        return self.page([f"{request.within}/{name}" for name in names], request)

    async def namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceAnswer:
        found = await self._catalog.namespaces.get(namespace_named(request.namespace))
        return pb.NamespaceAnswer(policies=found.node.policies)

    async def create_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        check_known(request, "create_namespace")
        await self._catalog.namespaces.create(namespace_named(request.namespace), request.policies, request.bundles)
        return self._namespace_changed(request)

    async def update_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        check_known(request, "update_namespace")
        if request.bundles:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, "how many bundles a namespace has is said when it is made: split them"
            )
        await self._catalog.update_policies(namespace_named(request.namespace), request.policies)
        return self._namespace_changed(request)

    def _namespace_changed(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        """Log and return what the bookies can't meet now: it is accepted, since they may be on their way."""
        writable, registered = len(self._bookies.writable()), len(self._bookies.alive())
        warnings = find_unmet(request.namespace, request.policies, writable, registered)
        for warning in warnings:
            _log.warning("%s", warning)
        return pb.NamespaceChanged(warnings=warnings)

    async def delete_namespace(self, request: pb.DeleteRequest) -> pb.Done:
        delete_topics = self._topics.delete_all if request.force else None
        await self._catalog.delete_namespace(namespace_named(request.name), delete_topics, self._release)
        return pb.Done()

    async def _release(self, namespace: NamespaceName) -> None:
        """An owner that can't be asked now notices by itself that the namespace is gone."""
        try:
            await self._bundles.release(namespace)
        except BrokerError as error:
            _log.info("not every broker has let go of the bundles of %s, which is deleted: %s", namespace, error)

    async def topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        """Every topic that was made before the call, by any broker: a reader that has taken a lease on the namespace
        relies on that."""
        name = namespace_named(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        return self.page(await self._catalog.topics(name, include_system=request.include_system), request)

    async def partitioned_topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        name = namespace_named(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        return self.page(await self._catalog.partitioned_topics(name, include_system=request.include_system), request)

    def page(self, names: list[str], request: pb.NamesRequest) -> pb.NamesAnswer:
        """As many as one answer may have."""
        behind = sorted(name for name in names if name > request.after)
        most = self._catalog.options.admin_max_names
        limit = min(request.limit or most, most)
        return pb.NamesAnswer(names=behind[:limit], more=len(behind) > limit)
