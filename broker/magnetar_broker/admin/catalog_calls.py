"""Admin calls on tenants, namespaces and their policies. Rules of their nodes are in magnetar_broker/catalog."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.names import cut_page, parse_boundaries, parse_namespace_name
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.catalog.policies import find_unmet_policies, select_policies
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.namespace_bundles import decode_bundles
from magnetar_broker.system_topics import SYSTEM_NAMESPACE
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.policies import Level, find_missing_effects

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
        self._check_clusters(request)
        await self._catalog.tenants.create(request.tenant, request.settings)
        return pb.Done()

    async def update_tenant(self, request: pb.TenantRequest) -> pb.Done:
        self._check_clusters(request)
        await self._catalog.tenants.update(request.tenant, request.settings)
        return pb.Done()

    def _check_clusters(self, request: pb.TenantRequest) -> None:
        if request.needs_clusters and not request.settings.allowed_clusters:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"tenant {request.tenant}: allowedClusters has no cluster: name at least {self._catalog.cluster}",
            )

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
        node = (await self._catalog.namespaces.get(parse_namespace_name(request.namespace))).node
        policies = select_policies(node.policies, request.only, self._catalog.policy_limits.cluster)
        bundles = decode_bundles(node.bundle_starts)
        return pb.NamespaceAnswer(
            policies=policies,
            warnings=find_missing_effects(policies, Level.NAMESPACE),
            boundaries=[f"0x{one.lower:08x}" for one in bundles] + [f"0x{bundles[-1].upper:08x}"],
            cluster=self._catalog.policy_limits.cluster,
        )

    async def create_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        name = parse_namespace_name(request.namespace)
        starts = parse_boundaries(request.boundaries)
        await self._catalog.namespaces.create(name, request.policies, request.bundles, starts)
        return self._report(request.namespace, request.policies)

    async def update_namespace(self, request: pb.NamespaceRequest) -> pb.NamespaceChanged:
        if request.bundles or request.boundaries:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                "bundles are set when a namespace is created: split a bundle instead",
            )
        await self._catalog.update_policies(parse_namespace_name(request.namespace), request.policies)
        return self._report(request.namespace, request.policies)

    async def change_policies(self, request: pb.ChangePoliciesRequest) -> pb.NamespaceChanged:
        name = parse_namespace_name(request.namespace)
        await self._catalog.change_policies(name, request.set, request.remove)
        return self._report(request.namespace, request.set)

    async def namespace_properties(self, request: pb.NamespacePropertiesRequest) -> pb.NamespacePropertiesAnswer:
        found = await self._catalog.namespaces.get(parse_namespace_name(request.namespace))
        properties = dict(found.node.policies.properties.values)
        if request.key:
            properties = {key: value for key, value in properties.items() if key == request.key}
        return _describe_properties(properties)

    async def change_namespace_properties(
        self, request: pb.ChangeNamespacePropertiesRequest
    ) -> pb.NamespacePropertiesAnswer:
        new = dict(request.set) | ({request.set_key: request.set_value} if request.set_key else {})
        both = sorted(set(new) & set(request.remove))
        if both:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"the property {both[0]!r:.100} is both set and removed")
        name = parse_namespace_name(request.namespace)
        removed = await self._catalog.change_properties(name, new, request.remove, all_others=request.remove_all)
        return _describe_properties(removed)

    def _report(self, namespace: str, policies: Policies) -> pb.NamespaceChanged:
        """Log and return the policies that the bookies can't meet now. They are accepted: more bookies may follow.
        Policies that have no effect yet are returned, too."""
        writable, registered = len(self._bookies.writable()), len(self._bookies.registered())
        warnings = find_unmet_policies(namespace, policies, writable, registered)
        for warning in warnings:
            _log.warning("%s", warning)
        return pb.NamespaceChanged(warnings=[*warnings, *find_missing_effects(policies, Level.NAMESPACE)])

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


def _describe_properties(properties: Mapping[str, str]) -> pb.NamespacePropertiesAnswer:
    value = next(iter(properties.values())) if len(properties) == 1 else ""
    return pb.NamespacePropertiesAnswer(properties=properties, value=value)
