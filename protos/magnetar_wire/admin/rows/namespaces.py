"""Rows of the table of admin calls: namespaces, their policies and their bundles."""

from __future__ import annotations

import itertools
from typing import Any, Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.raw_answer import CountAnswer, TextAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.namespaces import BundlesData, NamespaceJson
from magnetar_wire.admin.json.parts import Field, Object, Part, Schema
from magnetar_wire.admin.json.values import InvalidJson, InvalidValue, UnsupportedValue, format_value
from magnetar_wire.admin.policies import POLICIES, Level
from magnetar_wire.admin.policy_routes import change_routes, read_routes

__all__ = ["BUNDLES", "NAMESPACES"]

_ANY: Final = Scope.ANY_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_ADMIN: Final = Role.TENANT_ADMIN

_NAME: Final = Level.NAMESPACE.base
_BUNDLE: Final = f"{_NAME}/{{bundle}}"
_NAMESPACE: Final = NamespaceJson()
# Which Pulsar's brokers do not report.
_SUBSCRIPTIONS: Final = CountAnswer("subscriptions", "X-Magnetar-Subscriptions", "The number of subscriptions.")
_CONFLICTS: Final = {int(ErrorCode.NOT_ALLOWED): 409}
# As where the policy is set alone.
_INVALID_POLICIES: Final = {one.field: one.namespace.invalid_status for one in POLICIES if one.namespace is not None}
_ALGORITHMS: Final = {
    "range_equally_divide": pb.SplitBy.SPLIT_BY_RANGE,
    "topic_count_equally_divide": pb.SplitBy.SPLIT_BY_TOPICS,
    "specified_positions_divide": pb.SplitBy.SPLIT_BY_POSITION,
}
_BY_LOAD: Final = "flow_or_qps_equally_divide"

_TOPIC_HASHES: Final = Object(
    {"namespace": "namespace", "bundle": "bundle", "hashPositions": Field("topics", of=Field("hash"), key="topic")}
)


class _BundleList(BundlesData):
    """BundlesData of the answer of the call `bundles`, which has the range of each bundle."""

    fields = frozenset(["bundles"])

    def to_json(self, message: Any) -> Any:
        ranges = [one.bundle.partition("_") for one in message.bundles]
        bounds = [start for start, _, _ in ranges] + [end for _, _, end in ranges[-1:]]
        return {"boundaries": bounds, "numBundles": len(ranges)}

    def fill(self, message: Any, value: Any, where: str) -> None:
        given = value.get("boundaries") if isinstance(value, dict) else None
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise InvalidJson(f"{where}: there are no boundaries")
        for start, end in itertools.pairwise(given):
            message.bundles.add(bundle=f"{start}_{end}")


class _Algorithm(Part):
    """The query's parameter with the way to split a bundle."""

    fields = frozenset(["by"])

    def to_json(self, message: Any) -> Any:
        return next((name for name, by in _ALGORITHMS.items() if by == message.by), None) if message.by else None

    def fill(self, message: Any, value: Any, where: str) -> None:
        if value == _BY_LOAD:
            raise UnsupportedValue(f"{where}: {_BY_LOAD} is not supported yet")
        if not isinstance(value, str) or value not in _ALGORITHMS:
            raise InvalidValue(f"{where}: {format_value(value)} is none of {', '.join(_ALGORITHMS)}")
        message.by = _ALGORITHMS[value]

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "string", "enum": list(_ALGORITHMS)}


# fmt: off
NAMESPACES: Final = (
    AdminCall("namespaces", pb.NamesRequest, pb.NamesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("namespaces.list(tenant: str) -> list[str]", "List a tenant's namespaces.", fields={"within": "tenant"}),
    ), routes=(Route("GET", "/admin/v2/namespaces/{within:tenant}", answer=Field("names")),)),
    AdminCall("namespace", pb.NamespaceRequest, pb.NamespaceAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.policies(namespace: str) -> NamespacePolicies",
            "Return a namespace's policies.",
            result="policies",
        ),
        Method("namespaces.policy_warnings"),
    ), routes=(Route("GET", _NAME, answer=_NAMESPACE), *read_routes(Level.NAMESPACE))),
    AdminCall("create_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method("namespaces.create"),
    ), routes=(
        Route("PUT", _NAME, body=_NAMESPACE, statuses_about=_INVALID_POLICIES,
              summary="Create a namespace, with policies and bundles."),
    )),
    AdminCall("update_namespace", pb.NamespaceRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method("namespaces.set_policies"),
    )),
    AdminCall("change_policies", pb.ChangePoliciesRequest, pb.NamespaceChanged, _ANY, _ADMIN, methods=(
        Method("namespaces.change_policies"),
    ), routes=change_routes(Level.NAMESPACE)),
    AdminCall("namespace_properties", pb.NamespacePropertiesRequest, pb.NamespacePropertiesAnswer, _ANY, _ADMIN,
              idempotent=True, methods=(
        Method("namespaces.properties"),
    ), routes=(
        Route("GET", f"{_NAME}/properties", answer=Field("properties"), summary="Return a namespace's properties."),
        Route("GET", f"{_NAME}/property/{{key}}", answer=TextAnswer("value"), summary="Return one property."),
    )),
    AdminCall("change_namespace_properties", pb.ChangeNamespacePropertiesRequest, pb.NamespacePropertiesAnswer, _ANY,
              _ADMIN, methods=(
        Method("namespaces.change_properties"),
    ), routes=(
        Route("PUT", f"{_NAME}/properties", body=Field("set"), needs_body=True, summary="Set properties."),
        Route("DELETE", f"{_NAME}/properties", fixed={"remove_all": True}, summary="Remove all properties."),
        Route("PUT", f"{_NAME}/property/{{set_key=key}}/{{set_value=value}}", summary="Set one property."),
        Route("DELETE", f"{_NAME}/property/{{remove=key}}", answer=TextAnswer("value"), summary="Remove one property."),
    )),
    AdminCall("delete_namespace", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "namespaces.delete(namespace: str, force: bool = False) -> None",
            "Delete a namespace. One that has topics is refused, unless `force` deletes them, too.",
            fields={"name": "namespace"},
        ),
    ), routes=(
        Route("DELETE", "/admin/v2/namespaces/{name:namespace}", query={"force": "force"}, statuses=_CONFLICTS),
    )),
    AdminCall("bundles", pb.NamespaceRequest, pb.BundlesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method("namespaces.bundles"),
    ), routes=(Route("GET", f"{_NAME}/bundles", answer=_BundleList(), summary="Return the boundaries of bundles."),)),
    AdminCall("unload_namespace", pb.UnloadNamespaceRequest, pb.Done, _ANY, _SUPERUSER, methods=(
        Method("namespaces.unload"),
    ), routes=(Route("PUT", f"{_NAME}/unload", summary="Unload all bundles of a namespace from their brokers."),)),
    AdminCall("clear_namespace_backlog", pb.NamespaceSubscriptionRequest, pb.NamespaceTopicsAnswer, _ANY, _ADMIN,
              methods=(
        Method(
            "namespaces.clear_backlog(namespace: str, subscription: str | None = None, bundle: str | None = None) "
            "-> int",
            "Acknowledge the whole backlog of a subscription, or of all, on all topics of a namespace or bundle. "
            "Return the number of subscriptions, counted on each topic and partition.",
            result="subscriptions",
        ),
    ), routes=(
        Route("POST", f"{_NAME}/clearBacklog", answer=_SUBSCRIPTIONS),
        Route("POST", f"{_NAME}/clearBacklog/{{subscription}}", answer=_SUBSCRIPTIONS),
        Route("POST", f"{_BUNDLE}/clearBacklog", answer=_SUBSCRIPTIONS),
        Route("POST", f"{_BUNDLE}/clearBacklog/{{subscription}}", answer=_SUBSCRIPTIONS),
    )),
    AdminCall("unsubscribe_namespace", pb.NamespaceSubscriptionRequest, pb.NamespaceTopicsAnswer, _ANY, _ADMIN,
              methods=(
        Method(
            "namespaces.unsubscribe(namespace: str, subscription: str, bundle: str | None = None) -> int",
            "Delete a subscription on all topics of a namespace or bundle. It is refused on a topic where it has "
            "consumers. Return the number of topics and partitions that had it.",
            result="subscriptions",
        ),
    ), routes=(
        Route("POST", f"{_NAME}/unsubscribe/{{subscription}}", answer=_SUBSCRIPTIONS),
        Route("POST", f"{_BUNDLE}/unsubscribe/{{subscription}}", answer=_SUBSCRIPTIONS),
    )),
)

BUNDLES: Final = (
    AdminCall("unload_bundle", pb.UnloadBundleRequest, pb.Done, Scope.BUNDLE, _SUPERUSER, repeated_at_owner=True,
              methods=(Method("namespaces.unload"),), routes=(
        Route("PUT", f"{_BUNDLE}/unload", query={"destinationBroker": "destination"},
              summary="Unload a bundle from its broker."),
    )),
    AdminCall("split_bundle", pb.SplitBundleRequest, pb.SplitBundleAnswer, Scope.BUNDLE, _SUPERUSER, methods=(
        Method("namespaces.split_bundle"),
    ), routes=(
        Route("PUT", f"{_BUNDLE}/split", query={"splitAlgorithmName": _Algorithm(), "unload": "unload"},
              body=Field("positions"), summary="Split a bundle."),
    )),
    AdminCall("topic_hashes", pb.TopicHashesRequest, pb.TopicHashesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "namespaces.topic_hashes(namespace: str, bundle: str, topics: Sequence[str] = ()) -> list[TopicHash]",
            "Return the hashes of topics of a bundle, or of all its topics: bundles are ranges of hashes.",
            result="topics",
        ),
    ), routes=(
        Route("GET", f"{_BUNDLE}/topicHashPositions", query={"topics": "topics"}, answer=_TOPIC_HASHES),
    )),
    # The named broker claims a bundle that has no owner.
    AdminCall("take_bundle", pb.UnloadBundleRequest, pb.Done, Scope.NAMED_BROKER, Role.BROKER, idempotent=True),
)
# fmt: on
