"""Rows of the table of admin calls: brokers, and their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.raw_answer import RawAnswer, TextAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Converted, Field, Object, Part, Schema
from magnetar_wire.admin.json.values import InvalidJson, check_text

__all__ = ["BROKERS", "CONFIGURATION"]

_ANY: Final = Scope.ANY_BROKER
_THIS: Final = Scope.THIS_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_PATH: Final = "/admin/v2/brokers"
_HTTP: Final = "http://"
_UNAVAILABLE: Final = 503


class _WebName(Part):
    """A broker's name in Pulsar's REST API: the address of its HTTP server, or its id if it has none."""

    fields = frozenset(["broker_id", "http_address"])

    def to_json(self, message: Message) -> Any:
        broker: Any = message
        return broker.http_address or broker.broker_id

    def fill(self, message: Message, value: Any, where: str) -> None:
        broker: Any = message
        broker.broker_id = broker.http_address = check_text(value, where)

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "string"}


class _OwnedNamespaces(Part):
    """Pulsar's NamespaceOwnershipStatus of each bundle, by its full name `tenant/namespace/bundle`."""

    fields = frozenset(["bundles"])

    def to_json(self, message: Message) -> Any:
        answer: Any = message
        status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
        return {f"{one.namespace}/{one.bundle}": status for one in answer.bundles}

    def fill(self, message: Message, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InvalidJson(f"{where} is not an object")
        answer: Any = message
        for name in value:
            namespace, _, bundle = name.rpartition("/")
            answer.bundles.add(namespace=namespace, bundle=bundle)

    def schema(self, descriptor: Any) -> Schema:
        status = {"broker_assignment": "string", "is_controlled": "boolean", "is_active": "boolean"}
        properties = {name: {"type": kind} for name, kind in status.items()}
        return {"type": "object", "additionalProperties": {"type": "object", "properties": properties}}


class _HealthText(RawAnswer):
    """`ok`; if the broker is not healthy, it is refused with the reasons."""

    content_type = "text/plain"

    def to_http(self, message: Message) -> tuple[dict[str, str], bytes]:
        return {}, b"ok"

    def find_refusal(self, message: Message) -> tuple[int, str] | None:
        answer: Any = message
        return None if answer.healthy else (_UNAVAILABLE, "; ".join(answer.reasons))

    def fill_refusal(self, message: Message, status: int, reason: str) -> bool:
        answer: Any = message
        if status == _UNAVAILABLE:
            answer.reasons.append(reason)
        return status == _UNAVAILABLE

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        answer: Any = message
        answer.healthy = True


_LEADER: Final = Object(
    {
        "serviceUrl": Converted(
            "http_address",
            lambda address: f"{_HTTP}{address}" if address else None,
            lambda url: url.removeprefix(_HTTP),
            {"type": "string"},
        ),
        "brokerId": _WebName(),
    }
)

# fmt: off
BROKERS: Final = (
    AdminCall("brokers", pb.BrokersRequest, pb.BrokersAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.list() -> list[ActiveBroker]",
            "List the brokers that serve topics, by their ids.",
            result="brokers",
        ),
    ), routes=(
        Route("GET", _PATH, answer=Field("brokers", of=_WebName())),
        Route("GET", f"{_PATH}/{{cluster=clusterName}}", answer=Field("brokers", of=_WebName())),
    )),
    AdminCall("leader_broker", pb.BrokersRequest, pb.LeaderBrokerAnswer, _ANY, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.leader() -> ActiveBroker",
            "Return the broker that has served longest. No broker leads the others: this is for Pulsar's tools.",
            result="broker",
        ),
    ), routes=(Route("GET", f"{_PATH}/leaderBroker", answer=Field("broker", of=_LEADER)),)),
    AdminCall("owned_bundles", pb.OwnedBundlesRequest, pb.OwnedBundlesAnswer, Scope.NAMED_BROKER, _SUPERUSER,
              idempotent=True, methods=(
        Method("brokers.bundles"),
    ), routes=(
        Route("GET", f"{_PATH}/{{cluster=clusterName}}/{{broker_id=brokerId}}/ownedNamespaces",
              answer=_OwnedNamespaces(), summary="List the bundles that a broker owns."),
    )),
    AdminCall("broker", pb.BrokerRequest, pb.BrokerAnswer, _THIS, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.info"),
    ), routes=(
        Route("GET", f"{_PATH}/version", answer=TextAnswer("version"), summary="Return the broker's version."),
    )),
    AdminCall("health", pb.HealthRequest, pb.HealthAnswer, _THIS, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.health() -> Health", "Let the broker that answers publish a message and read it back."),
    ), routes=(
        Route("GET", f"{_PATH}/health", answer=_HealthText()),
        Route("GET", f"{_PATH}/ready", answer=_HealthText()),
    )),
    AdminCall("check_backlog_quotas", pb.BrokerRequest, pb.Done, _THIS, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.check_backlog_quotas() -> None",
            "Enforce the backlog quotas of all topics of the broker that answers, now instead of at the interval.",
        ),
    ), routes=(Route("GET", f"{_PATH}/backlog-quota-check"),)),
)

CONFIGURATION: Final = (
    AdminCall("runtime_configuration", pb.ConfigurationRequest, pb.ConfigurationAnswer, _THIS, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.runtime_configuration() -> dict[str, str]",
            "Return all settings of the broker that answers, without secrets.",
            result="values",
        ),
    ), routes=(Route("GET", f"{_PATH}/configuration/runtime", answer=Field("values")),)),
    AdminCall("internal_configuration", pb.ConfigurationRequest, pb.ConfigurationAnswer, _THIS, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.internal_configuration() -> dict[str, str]",
            "Return where the cluster has its metadata, under Pulsar's names.",
            result="values",
        ),
    ), routes=(Route("GET", f"{_PATH}/internal-configuration", answer=Field("values")),)),
    AdminCall("dynamic_settings", pb.ConfigurationRequest, pb.DynamicSettingsAnswer, _ANY, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.dynamic_settings() -> list[str]",
            "List the settings that can be changed while the brokers run.",
            result="settings",
        ),
    ), routes=(Route("GET", f"{_PATH}/configuration", answer=Field("settings")),)),
    AdminCall("dynamic_configuration", pb.ConfigurationRequest, pb.ConfigurationAnswer, _ANY, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.dynamic_configuration() -> dict[str, str]",
            "Return the settings that were changed while the brokers ran.",
            result="values",
        ),
    ), routes=(Route("GET", f"{_PATH}/configuration/values", answer=Field("values")),)),
    AdminCall("set_dynamic_setting", pb.DynamicSettingRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "brokers.set_dynamic_setting(name: str, value: str) -> None",
            "Change a setting of all brokers while they run. They apply it within seconds, and when they start.",
        ),
    ), routes=(Route("POST", f"{_PATH}/configuration/{{name=configName}}/{{value=configValue}}", empty_status=200),)),
    AdminCall("delete_dynamic_setting", pb.DynamicSettingRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method(
            "brokers.delete_dynamic_setting(name: str) -> None",
            "Let all brokers use the value of a setting that they were started with.",
        ),
    ), routes=(Route("DELETE", f"{_PATH}/configuration/{{name=configName}}", empty_status=200),)),
)
# fmt: on
