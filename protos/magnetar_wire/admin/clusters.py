"""Rows of the table of admin calls: clusters. There is one, since there is no geo-replication."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.json_parts import Field, Object
from magnetar_wire.admin.lookup import url_part
from magnetar_wire.admin.route import Route

__all__ = ["CLUSTERS"]

_ANY: Final = Scope.ANY_BROKER
_USE: Final = Role.PRODUCE_OR_CONSUME
_PATH: Final = "/admin/v2/clusters"

# Pulsar's ClusterData. URLs for TLS are absent: brokers have no listeners with TLS yet.
_CLUSTER_DATA: Final = Object(
    {"serviceUrl": url_part("http_address", "http"), "brokerServiceUrl": url_part("pulsar_address", "pulsar")},
    constants={
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
    },
)

# fmt: off
CLUSTERS: Final = (
    AdminCall("clusters", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("clusters.list() -> list[str]", "List the clusters that brokers know: their own."),
    ), routes=(Route("GET", _PATH, answer=Field("names")),)),
    AdminCall("cluster", pb.ClusterRequest, pb.ClusterAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "clusters.get(cluster: str) -> Cluster",
            "Return the addresses of a cluster: those of the broker that answers.",
            result="described",
        ),
    ), routes=(Route("GET", f"{_PATH}/{{cluster}}", answer=Field("described", of=_CLUSTER_DATA)),)),
)
# fmt: on
