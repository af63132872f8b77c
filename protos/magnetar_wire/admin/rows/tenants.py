"""Rows of the table of admin calls: tenants."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Field, Object

__all__ = ["TENANTS"]

_ANY: Final = Scope.ANY_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_ADMIN: Final = Role.TENANT_ADMIN

_NAME: Final = "/admin/v2/tenants/{tenant}"
# Pulsar's TenantInfo.
_TENANT_INFO: Final = Field("settings", of=Object({"adminRoles": "admin_roles", "allowedClusters": "allowed_clusters"}))
# Over HTTP, no clusters are not all clusters, as in Pulsar: its tools would show another meaning.
_NEEDS_CLUSTERS: Final = {"needs_clusters": True}

# fmt: off
TENANTS: Final = (
    AdminCall("tenants", pb.NamesRequest, pb.NamesAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method("tenants.list() -> list[str]", "List all tenants."),
    ), routes=(Route("GET", "/admin/v2/tenants", answer=Field("names")),)),
    AdminCall("tenant", pb.TenantRequest, pb.TenantAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("tenants.get(tenant: str) -> TenantSettings", "Return a tenant's settings.", result="settings"),
    ), routes=(Route("GET", _NAME, answer=_TENANT_INFO),)),
    AdminCall("create_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.create"),
    ), routes=(
        Route("PUT", _NAME, body=_TENANT_INFO, implied=_NEEDS_CLUSTERS, summary="Create a tenant."),
    )),
    AdminCall("update_tenant", pb.TenantRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("tenants.update(tenant: str, settings: TenantSettings) -> None", "Replace a tenant's settings."),
    ), routes=(Route("POST", _NAME, body=_TENANT_INFO, implied=_NEEDS_CLUSTERS),)),
    AdminCall("delete_tenant", pb.DeleteRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "tenants.delete(tenant: str, force: bool = False) -> None",
            "Delete a tenant. One that has namespaces is refused, unless `force` deletes these with all their topics.",
            fields={"name": "tenant"},
        ),
    ), routes=(
        Route("DELETE", "/admin/v2/tenants/{name=tenant}", query={"force": "force"},
              statuses={ErrorCode.NOT_ALLOWED: 409}),
    )),
)
# fmt: on
