"""Rows of the table of admin calls: the lookups of topics over HTTP, `/lookup/v2`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope
from magnetar_wire.admin.http.raw_answer import TextAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Converted, Field, Object, Part

__all__ = ["LOOKUP", "url_part"]

_ANY: Final = Scope.ANY_BROKER
_USE: Final = Role.PRODUCE_OR_CONSUME
_PATH: Final = "/lookup/v2/topic/{topic}"


def url_part(name: str, scheme: str) -> Part:
    """Return the part of an address that is written as a URL, which is absent without an address."""
    to_url: Callable[[str], str | None] = lambda address: f"{scheme}://{address}" if address else None  # noqa: E731
    return Converted(name, to_url, lambda url: url.removeprefix(f"{scheme}://").rstrip("/"), {"type": "string"})


# Pulsar's LookupData. URLs for TLS are absent: brokers have no listeners with TLS yet.
_LOOKUP_DATA: Final = Field(
    "owner",
    of=Object(
        {
            "brokerUrl": url_part("pulsar_address", "pulsar"),
            "httpUrl": url_part("http_address", "http"),
            "nativeUrl": url_part("pulsar_address", "pulsar"),
        },
        constants={"brokerUrlSsl": ""},
    ),
)

# fmt: off
LOOKUP: Final = (
    AdminCall("lookup_topic", pb.LookupTopicRequest, pb.LookupTopicAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("topics.lookup_addresses"),
    ), routes=(
        # Clients also send `authoritative`, which means nothing here: any broker answers with the owner.
        Route("GET", _PATH, query={"listenerName": "listener_name"}, implied={"needs_pulsar": True},
              headers={"X-Pulsar-ListenerName": "listener_name", "Host": "reached_at"}, answer=_LOOKUP_DATA,
              summary="Return the addresses of a topic's owner."),
    )),
    AdminCall("topic_bundle", pb.TopicRequest, pb.TopicBundleAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.bundle_range(topic: str) -> str",
            "Return the bundle that a topic is in, or would be in.",
            result="bundle",
        ),
    ), routes=(Route("GET", f"{_PATH}/bundle", answer=TextAnswer("bundle")),)),
)
# fmt: on
