"""Rows of the table of admin calls: namespaces, their policies and their bundles."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope

__all__ = ["BUNDLES", "NAMESPACES"]

_ANY: Final = Scope.ANY_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_ADMIN: Final = Role.TENANT_ADMIN

# fmt: off
NAMESPACES: Final = (
    AdminCall("namespaces", pb.NamesRequest, pb.NamesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("namespaces.list(tenant: str) -> list[str]", "List a tenant's namespaces.", fields={"within": "tenant"}),
    )),
    AdminCall("namespace", pb.NamespaceRequest, pb.NamespaceAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.policies(namespace: str) -> NamespacePolicies",
            "Return a namespace's policies.",
            result="policies",
        ),
    )),
    AdminCall("create_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method("namespaces.create"),
    )),
    AdminCall("update_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method(
            "namespaces.set_policies(namespace: str, policies: NamespacePolicies) -> tuple[str, ...]",
            "Replace all policies of a namespace.\n\n"
            "Returns a warning for each new policy that can't be met now, because too few bookies accept ledgers.",
            result="warnings",
        ),
    )),
    AdminCall("delete_namespace", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "namespaces.delete(namespace: str, force: bool = False) -> None",
            "Delete a namespace. One that has topics is refused, unless `force` deletes them, too.",
            fields={"name": "namespace"},
        ),
    )),
    AdminCall("bundles", pb.NamespaceRequest, pb.BundlesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.bundles(namespace: str) -> list[Bundle]",
            "List a namespace's bundles in the order of their ranges, with their owners.",
            result="bundles",
        ),
    )),
    AdminCall("unload_namespace", pb.UnloadNamespaceRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("namespaces.unload"),
    )),
)

BUNDLES: Final = (
    AdminCall("unload_bundle", pb.UnloadBundleRequest, pb.Done, Scope.BUNDLE, _SUPERUSER, repeated_at_owner=True,
              methods=(Method("namespaces.unload"),)),
    AdminCall("split_bundle", pb.SplitBundleRequest, pb.SplitBundleAnswer, Scope.BUNDLE, _SUPERUSER, methods=(
        Method("namespaces.split_bundle"),
    )),
    # The named broker claims a bundle that has no owner.
    AdminCall("take_bundle", pb.UnloadBundleRequest, pb.Done, Scope.NAMED_BROKER, Role.BROKER, idempotent=True),
)
# fmt: on
