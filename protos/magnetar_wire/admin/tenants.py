"""Rows of the table of admin calls: tenants."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope

__all__ = ["TENANTS"]

_ANY: Final = Scope.ANY_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_ADMIN: Final = Role.TENANT_ADMIN

# fmt: off
TENANTS: Final = (
    AdminCall("tenants", pb.NamesRequest, pb.NamesAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method("tenants.list() -> list[str]", "List all tenants."),
    )),
    AdminCall("tenant", pb.TenantRequest, pb.TenantAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("tenants.get(tenant: str) -> TenantSettings", "Return a tenant's settings.", result="settings"),
    )),
    AdminCall("create_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.create(tenant: str, settings: TenantSettings | None = None) -> None", "Create a tenant."),
    )),
    AdminCall("update_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.update(tenant: str, settings: TenantSettings) -> None", "Replace a tenant's settings."),
    )),
    AdminCall("delete_tenant", pb.DeleteRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "tenants.delete(tenant: str, force: bool = False) -> None",
            "Delete a tenant. One that has namespaces is refused, unless `force` deletes these with all their topics.",
            fields={"name": "tenant"},
        ),
    )),
)
# fmt: on
