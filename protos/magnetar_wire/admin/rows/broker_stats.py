"""Rows of the table of admin calls: the statistics of a broker, and the bookies that it knows."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Field, Object, Part, Schema
from magnetar_wire.admin.json.stats import TOPIC_STATS
from magnetar_wire.admin.json.values import InvalidJson, format_value
from magnetar_wire.admin.rows.lookup import url_part

__all__ = ["BROKER_STATS"]

_THIS: Final = Scope.THIS_BROKER
_SUPERUSER: Final = Role.SUPERUSER
_PATH: Final = "/admin/v2/broker-stats"
_DOMAIN_END: Final = "://"


class _TopicTree(Part):
    """The topics' statistics, by namespace, bundle, domain and name."""

    fields = frozenset(["topics"])

    def to_json(self, message: Message) -> Any:
        answer: Any = message
        tree: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for one in answer.topics:
            domains = tree.setdefault(one.namespace, {}).setdefault(one.bundle, {})
            domain = one.stats.topic.partition(_DOMAIN_END)[0]
            domains.setdefault(domain, {})[one.stats.topic] = TOPIC_STATS.to_json(one.stats)
        return tree

    def fill(self, message: Message, value: Any, where: str) -> None:
        answer: Any = message
        for namespace, bundles in _items(value, where):
            for bundle, domains in _items(bundles, where):
                for _, topics in _items(domains, where):
                    for topic, stats in _items(topics, where):
                        added = answer.topics.add(namespace=namespace, bundle=bundle)
                        TOPIC_STATS.fill(added.stats, stats, f"{where}.{topic}")
                        added.stats.topic = topic

    def schema(self, descriptor: Any) -> Schema:
        stats = TOPIC_STATS.schema(
            descriptor.fields_by_name["topics"].message_type.fields_by_name["stats"].message_type
        )
        for _ in range(4):
            stats = {"type": "object", "additionalProperties": stats}
        return stats


def _items(value: Any, where: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise InvalidJson(f"{where}: {format_value(value)} is not an object")
    return list(value.items())


class _LocalBrokerData(Part):
    """Pulsar's LocalBrokerData. What Magnetar can't know is left out."""

    fields = frozenset(["broker", "bundles"])
    _url = Object(
        {
            "webServiceUrl": url_part("http_address", "http"),
            "brokerVersionString": "version",
            "startTimestamp": "started_ms",
        }
    )

    def to_json(self, message: Message) -> Any:
        answer: Any = message
        broker, load, bundles = answer.broker, answer.broker.load, answer.bundles
        pulsar = next((one.pulsar_address for one in broker.listeners if one.pulsar_address), "")
        used = {"usage": 100 * load.cpu, "limit": 100.0}
        return (
            self._url.to_json(broker)
            | ({"pulsarServiceUrl": f"pulsar://{pulsar}"} if pulsar else {})
            | {
                "persistentTopicsEnabled": True,
                "nonPersistentTopicsEnabled": True,
                "cpu": used,
                "msgRateIn": sum(one.messages_in_per_s for one in bundles),
                "msgRateOut": sum(one.messages_out_per_s for one in bundles),
                "msgThroughputIn": sum(one.bytes_in_per_s for one in bundles),
                "msgThroughputOut": sum(one.bytes_out_per_s for one in bundles),
                "lastUpdate": load.time_ms,
                "lastStats": {f"{one.namespace}/{one.bundle}": _BUNDLE.to_json(one) for one in bundles},
                "numTopics": sum(one.topics for one in bundles),
                "numBundles": load.bundles,
                "numProducers": sum(one.producers for one in bundles),
                "numConsumers": sum(one.consumers for one in bundles),
                "bundles": [f"{one.namespace}/{one.bundle}" for one in bundles],
                "loadReportType": "LocalBrokerData",
            }
        )

    def fill(self, message: Message, value: Any, where: str) -> None:
        answer: Any = message
        given = dict(_items(value, where))
        self._url.fill(answer.broker, given, where)
        for name, stats in _items(given.get("lastStats") or {}, f"{where}.lastStats"):
            namespace, _, bundle = name.rpartition("/")
            _BUNDLE.fill(answer.bundles.add(namespace=namespace, bundle=bundle), stats, f"{where}.lastStats.{name}")

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "object"}


_BUNDLE: Final = Object(
    {
        "msgRateIn": "messages_in_per_s",
        "msgThroughputIn": "bytes_in_per_s",
        "msgRateOut": "messages_out_per_s",
        "msgThroughputOut": "bytes_out_per_s",
        "consumerCount": "consumers",
        "producerCount": "producers",
        "topics": "topics",
    }
)


class _Metrics(Part):
    """Pulsar's Metrics: the sums over the topics of each namespace."""

    fields = frozenset(["bundles"])
    _names: Final = {
        "brk_in_rate": "messages_in_per_s",
        "brk_in_tp_rate": "bytes_in_per_s",
        "brk_out_rate": "messages_out_per_s",
        "brk_out_tp_rate": "bytes_out_per_s",
        "brk_no_of_producers": "producers",
        "brk_no_of_consumers": "consumers",
        "brk_no_of_subscriptions": "subscriptions",
        "brk_msg_backlog": "backlog_entries",
        "brk_storage_size": "storage_bytes",
    }

    def to_json(self, message: Message) -> Any:
        answer: Any = message
        by_namespace: dict[str, list[Any]] = {}
        for one in answer.bundles:
            by_namespace.setdefault(one.namespace, []).append(one)
        return [
            {
                "metrics": {name: sum(getattr(one, field) for one in some) for name, field in self._names.items()},
                "dimensions": {"namespace": namespace},
            }
            for namespace, some in by_namespace.items()
        ]

    def fill(self, message: Message, value: Any, where: str) -> None:
        raise InvalidJson(f"{where}: the load report has these numbers")

    def schema(self, descriptor: Any) -> Schema:
        group = {
            "type": "object",
            "properties": {
                "metrics": {"type": "object", "additionalProperties": {"type": "number"}},
                "dimensions": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
        return {"type": "array", "items": group}


# fmt: off
BROKER_STATS: Final = (
    AdminCall("broker_topic_stats", pb.BrokerStatsRequest, pb.BrokerTopicStatsAnswer, _THIS, _SUPERUSER,
              idempotent=True, methods=(
        Method(
            "brokers.topic_stats() -> list[BrokerTopic]",
            "Return the statistics of all topics that are loaded at the broker that answers.",
            result="topics",
        ),
    ), routes=(Route("GET", f"{_PATH}/topics", answer=_TopicTree()),)),
    AdminCall("load_report", pb.BrokerStatsRequest, pb.LoadReportAnswer, _THIS, _SUPERUSER, idempotent=True, methods=(
        Method(
            "brokers.bundle_loads() -> list[BundleLoad]",
            "Return the sums over the loaded topics of each bundle at the broker that answers.",
            result="bundles",
        ),
    ), routes=(
        Route("GET", f"{_PATH}/load-report", answer=_LocalBrokerData(), summary="Return the load of the broker."),
        Route("GET", f"{_PATH}/metrics", answer=_Metrics(),
              summary="Return sums over the loaded topics of each namespace."),
    )),
    AdminCall("bookies", pb.BookiesRequest, pb.BookiesAnswer, Scope.ANY_BROKER, _SUPERUSER, idempotent=True, methods=(
        Method("brokers.bookies() -> list[RegisteredBookie]", "List the bookies that are registered.",
               result="bookies"),
    ), routes=(
        Route("GET", "/admin/v2/bookies/all",
              # Pulsar has the ids only.
              answer=Object({"bookies": Field("bookies", of=Object({
                  "bookieId": "bookie_id", "address": "address", "writable": "writable",
              }))})),
        # Bookies have no racks.
        Route("GET", "/admin/v2/bookies/racks-info", answer=Object({}), summary="List the racks of bookies: none."),
    )),
)
# fmt: on
