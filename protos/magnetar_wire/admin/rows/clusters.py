"""Rows of the table of admin calls: clusters.

Brokers know their own cluster. Data of other clusters are stored for Pulsar's tools, and have no effect yet: there is
no geo-replication.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Field, Object

__all__ = ["CLUSTERS"]

_ANY: Final = Scope.ANY_BROKER
_USE: Final = Role.PRODUCE_OR_CONSUME
_SUPERUSER: Final = Role.SUPERUSER
_PATH: Final = "/admin/v2/clusters"
_NAME: Final = f"{_PATH}/{{cluster}}"


class _PeerNames(Field):
    """A list that is absent if it is empty."""

    def to_json(self, message: Message) -> Any:
        return super().to_json(message) or None


# Pulsar's ClusterData.
_DATA: Final = Field(
    "data",
    of=Object(
        {
            "serviceUrl": "service_url",
            "serviceUrlTls": "service_url_tls",
            "brokerServiceUrl": "broker_service_url",
            "brokerServiceUrlTls": "broker_service_url_tls",
            "proxyServiceUrl": "proxy_service_url",
            "proxyProtocol": "proxy_protocol",
            "authenticationPlugin": "authentication_plugin",
            "authenticationParameters": "authentication_parameters",
            "peerClusterNames": _PeerNames("peer_cluster_names"),
            "brokerClientTlsEnabled": "broker_client_tls_enabled",
            "tlsAllowInsecureConnection": "tls_allow_insecure_connection",
            "brokerClientTlsEnabledWithKeyStore": "broker_client_tls_enabled_with_key_store",
            "listenerName": "listener_name",
            "brokerClientTlsTrustStoreType": "broker_client_tls_trust_store_type",
            "brokerClientTlsTrustStore": "broker_client_tls_trust_store",
            "brokerClientTlsTrustStorePassword": "broker_client_tls_trust_store_password",
            "brokerClientTlsKeyStoreType": "broker_client_tls_key_store_type",
            "brokerClientTlsKeyStore": "broker_client_tls_key_store",
            "brokerClientTlsKeyStorePassword": "broker_client_tls_key_store_password",
            "brokerClientTrustCertsFilePath": "broker_client_trust_certs_file_path",
            "brokerClientCertificateFilePath": "broker_client_certificate_file_path",
            "brokerClientKeyFilePath": "broker_client_key_file_path",
            "brokerClientSslFactoryPlugin": "broker_client_ssl_factory_plugin",
            "brokerClientSslFactoryPluginParams": "broker_client_ssl_factory_plugin_params",
        }
    ),
)


def _change(verb: str) -> Route:
    return Route(verb, _NAME, body=_DATA, needs_body=True, empty_status=200, statuses={ErrorCode.INVALID_ARGUMENT: 400})


# fmt: off
CLUSTERS: Final = (
    AdminCall("clusters", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("clusters.list() -> list[str]", "List the clusters: the brokers' own, and those that were created."),
    ), routes=(Route("GET", _PATH, answer=Field("names")),)),
    AdminCall("cluster", pb.ClusterRequest, pb.ClusterAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "clusters.get(cluster: str) -> Cluster",
            "Return how a cluster is reached; the brokers' own at the addresses of its brokers, unless others were "
            "set.",
            result="data",
        ),
    ), routes=(Route("GET", _NAME, answer=_DATA),)),
    AdminCall("create_cluster", pb.ClusterRequest, pb.ClusterChanged, _ANY, _SUPERUSER, methods=(
        Method(
            "clusters.create(cluster: str, data: Cluster) -> tuple[str, ...]",
            "Store the data of another cluster.\n\nReturns warnings: they have no effect yet.",
            result="warnings",
        ),
    ), routes=(_change("PUT"),)),
    AdminCall("update_cluster", pb.ClusterRequest, pb.ClusterChanged, _ANY, _SUPERUSER, methods=(
        Method(
            "clusters.update(cluster: str, data: Cluster) -> tuple[str, ...]",
            "Replace all data of a cluster.\n\nReturns warnings, as `create` does.",
            result="warnings",
        ),
    ), routes=(_change("POST"),)),
    AdminCall("delete_cluster", pb.ClusterRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "clusters.delete(cluster: str) -> None",
            "Delete the data of another cluster. One that a tenant allows is refused.",
        ),
    ), routes=(Route("DELETE", _NAME),)),
)
# fmt: on
