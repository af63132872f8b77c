"""Namespaces, which contain topics, and their policies.

**Nothing is created in a namespace that is being deleted.** Creating a topic checks, in its own transaction, that the
namespace's node has the version at which it was read and is not marked; creating a partitioned topic also raises
`partitioned_made`. A deletion marks the node first, then looks for topics. A topic that was created before the mark is
found, and none is created after it.

A namespace can be deleted and created again under the same name, and the new node has the same versions as the old one.
So each incarnation has a node of its own, created and deleted with the namespace; the creation of a topic, and each
change of the leases on the namespace, checks that it exists. The leases' node is deleted in the same transaction, so
none is left behind, and its versions do not repeat during an incarnation.

System topics do not prevent a deletion without force. They are deleted after the mark BEGUN, which the node gets only
if it has not changed since the mark IF_EMPTY: so nothing else was created.

A deletion without force that finds topics removes its mark again. If the broker is killed before that, the mark stays,
and means that nothing was deleted yet (IF_EMPTY): deleting the namespace again finishes the deletion or removes the
mark, and creating the namespace removes it. A deletion by force that was interrupted (BEGUN) can only be finished.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes, Found
from magnetar_broker.catalog.policies import PolicyLimits, change_policies, check_policies
from magnetar_broker.catalog.tenants import check_tenant_name, tenant_not_found
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_metadata.errors import Refused
from magnetar_metadata.store import ABSENT, Change, Check, Delete, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Deletion, NamespaceNode, Policies, Properties, TenantNode
from magnetar_protos.managed_ledger_pb2 import NamespaceLeases as LeasesNode
from magnetar_wire.bundles import default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["Namespaces"]


class Namespaces:
    def __init__(self, nodes: CatalogNodes, settings: CatalogSettings, find_limits: Callable[[], PolicyLimits]) -> None:
        self._nodes = nodes
        self._settings = settings
        self._find_limits = find_limits

    async def list_names(self, tenant: str) -> list[str]:
        """Return the names of a tenant's namespaces, without the tenant."""
        check_tenant_name(tenant)
        await self._nodes.sync()
        names = await self._nodes.list_children(f"{paths.NAMESPACES}/{tenant}")
        if not names and await self._nodes.read(TenantNode, paths.tenant(tenant), fresh=True) is None:
            raise tenant_not_found(tenant)
        return names

    async def get(self, name: NamespaceName, *, fresh: bool = True) -> Found[NamespaceNode]:
        """Return the namespace's node, marked or not. Raises NOT_FOUND."""
        found = await self._nodes.read(NamespaceNode, paths.namespace(name), fresh=fresh)
        if found is None:
            raise namespace_not_found(name)
        return found

    async def create(
        self, name: NamespaceName, policies: Policies, bundles: int = 0, starts: Sequence[int] = ()
    ) -> None:
        """Create the namespace. `bundles`: the number of its bundles; 0: the default of the settings. `starts`: their
        lower bounds, ascending from 0, instead of their number."""
        check_policies(policies, self._find_limits())
        limit = self._settings.load_balancer_namespace_maximum_bundles
        count = len(starts) or bundles
        if count > limit:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"{count:,} bundles: a namespace has 1 to {limit:,} (load_balancer_namespace_maximum_bundles)",
            )
        starts = starts or [
            bundle.lower for bundle in default_bundles(bundles or self._settings.default_number_of_namespace_bundles)
        ]
        node = NamespaceNode(incarnation=self._nodes.new_incarnation(), policies=policies, bundle_starts=starts)

        def count_namespace(tenant: TenantNode | None) -> TenantNode:
            if tenant is None:
                raise tenant_not_found(name.tenant)
            tenant.namespaces_made += 1
            return tenant

        creation = [
            self._nodes.build_put(paths.namespace(name), node),
            Put(paths.namespace_incarnation(node.incarnation), b"", ABSENT),
        ]
        try:
            await self._nodes.change(TenantNode, paths.tenant(name.tenant), count_namespace, along=creation)
        except Refused:
            await self._remove_mark(name)
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a namespace {name} already") from None

    async def update(self, name: NamespaceName, policies: Policies) -> None:
        """Replace all policies."""
        check_policies(policies, self._find_limits())

        def updated(node: NamespaceNode | None) -> NamespaceNode:
            node = require_active(name, node)
            node.policies.CopyFrom(policies)
            return node

        await self._nodes.change(NamespaceNode, paths.namespace(name), updated)

    async def change_policies(self, name: NamespaceName, new: Policies, removed: Sequence[str]) -> None:
        """Set the policies in `new`, and remove those in `removed`."""

        def changed(node: NamespaceNode | None) -> NamespaceNode:
            node = require_active(name, node)
            change_policies(node.policies, new, removed, self._find_limits())
            return node

        await self._nodes.change(NamespaceNode, paths.namespace(name), changed)

    async def change_properties(
        self, name: NamespaceName, new: Mapping[str, str], removed: Sequence[str], *, all_others: bool = False
    ) -> dict[str, str]:
        """Set properties, and remove others. Return those that it had before and are removed."""
        old: dict[str, str] = {}

        def changed(node: NamespaceNode | None) -> NamespaceNode:
            nonlocal old
            node = require_active(name, node)
            found = dict(node.policies.properties.values)
            old = {key: value for key, value in found.items() if (all_others or key in removed) and key not in new}
            properties = {key: value for key, value in found.items() if key not in old} | dict(new)
            policies = Policies(properties=Properties(values=properties))
            change_policies(node.policies, policies, (), self._find_limits())
            if not properties:
                node.policies.ClearField("properties")
            return node

        await self._nodes.change(NamespaceNode, paths.namespace(name), changed)
        return old

    async def delete(
        self,
        name: NamespaceName,
        topics: Callable[[NamespaceName], Awaitable[list[TopicName]]],
        delete_topics: Callable[[NamespaceName], Awaitable[None]] | None,
        release: Callable[[NamespaceName], Awaitable[None]] | None = None,
        *,
        delete_system_topics: Callable[[NamespaceName], Awaitable[None]] | None = None,
    ) -> None:
        """Delete the namespace. `topics` lists its topics, read afresh. `delete_topics` deletes them by force; None:
        refuse if there are any, or any but system topics, with `delete_system_topics`, which deletes those. `release`
        unloads its bundles when it is empty."""
        while True:
            marked = await self._mark(name, Deletion.DELETION_IF_EMPTY)
            found = await topics(name)
            if found and delete_topics is not None:
                await self._mark(name, Deletion.DELETION_BEGUN)
                await delete_topics(name)
                continue
            if found and delete_system_topics is not None and all(map(is_system_topic, found)):
                if await self._begin_unchanged(name, marked):
                    await delete_system_topics(name)
                continue
            if found:
                await self._remove_mark(name)
                users = [topic for topic in found if not is_system_topic(topic)] or found
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"namespace {name} has {len(users):,} topics, among them {users[0]}: delete them first, or delete "
                    "the namespace by force",
                )
            if release is not None:
                await release(name)
            changed = False

            def deleted(node: NamespaceNode | None, marked: NamespaceNode = marked) -> NamespaceNode | None:
                nonlocal changed
                changed = node is not None and node != marked
                return node if changed else None

            try:
                along = await self._delete_along(name, marked.incarnation)
                await self._nodes.change(NamespaceNode, paths.namespace(name), deleted, along=along)
            except Refused:
                continue  # a lease was taken, renewed or ended in the meantime
            if not changed:
                # The parent of its bundles' owner nodes. An owner that still has such a node deletes it later.
                await self._nodes.delete_empty(paths.owners(name))
                return

    async def _delete_along(self, name: NamespaceName, incarnation: bytes) -> list[Change]:
        """Return the deletions that go with that of the namespace's node: of its incarnation's and its leases' node."""
        marker, leases = paths.namespace_incarnation(incarnation), paths.namespace_leases(name)
        await self._nodes.sync()
        changes: list[Change] = []
        if await self._nodes.get_version(marker) is not None:
            changes.append(Delete(marker, 0))
            # So that no lease is created between this and the deletion.
            await self._nodes.create_if_absent(LeasesNode, leases, along=[Check(marker, 0)])
        version = await self._nodes.get_version(leases)
        return changes if version is None else [*changes, Delete(leases, version)]

    async def _mark(self, name: NamespaceName, mark: Deletion) -> NamespaceNode:
        """Mark the node and return it. A stronger mark stays."""

        def marked(node: NamespaceNode | None) -> NamespaceNode:
            if node is None:
                raise namespace_not_found(name)
            node.deletion = max(node.deletion, mark)
            return node

        node = await self._nodes.change(NamespaceNode, paths.namespace(name), marked)
        assert node is not None
        return node

    async def _begin_unchanged(self, name: NamespaceName, marked: NamespaceNode) -> bool:
        """Mark the node as BEGUN, if it is still as it was marked. Return whether it was."""
        is_unchanged = False

        def begun(node: NamespaceNode | None) -> NamespaceNode:
            nonlocal is_unchanged
            if node is None:
                raise namespace_not_found(name)
            is_unchanged = node == marked
            if is_unchanged:
                node.deletion = Deletion.DELETION_BEGUN
            return node

        await self._nodes.change(NamespaceNode, paths.namespace(name), begun)
        return is_unchanged

    async def _remove_mark(self, name: NamespaceName) -> None:
        def unmarked(node: NamespaceNode | None) -> NamespaceNode | None:
            if node is None:
                return None
            if node.deletion == Deletion.DELETION_IF_EMPTY:
                node.deletion = Deletion.DELETION_NONE
                node.marks_taken_away += 1
            elif node.deletion == Deletion.DELETION_BEGUN:
                raise deletion_in_progress(f"namespace {name}")
            return node

        await self._nodes.change(NamespaceNode, paths.namespace(name), unmarked)


def require_active(name: NamespaceName, node: NamespaceNode | None) -> NamespaceNode:
    """Return the node if topics may be created in the namespace. Raises `BrokerError`."""
    if node is None:
        raise namespace_not_found(name)
    if node.deletion != Deletion.DELETION_NONE:
        raise deletion_in_progress(f"namespace {name}")
    return node


def namespace_not_found(name: NamespaceName) -> BrokerError:
    return BrokerError(ErrorCode.NOT_FOUND, f"there is no namespace {name}: create it first")


def deletion_in_progress(what: str) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_ALLOWED, f"{what} is being deleted; if that was interrupted, delete it again to finish"
    )
