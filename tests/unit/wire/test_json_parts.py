"""JSON of the admin calls: values that do not fit are refused, and the error can be sent."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import pytest

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.catalog_pb2 import Persistence, TenantNode
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.parts import Converted, Either, Field, Object, Part
from magnetar_wire.admin.json.values import InvalidJson, OutOfRange, parse_json

# Deeper than Python's recursion: it can still be parsed at some depth below that.
DEEP: Final = 100_000
HALF: Final = "\ud800"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEEP,
        b'{"a":' * DEEP,
        b"NaN",
        b"-Infinity",
        b"\xff",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b"9" * 5000,
        b"{} {}",
        b'{"a": 1,}',
        b"'a'",
        b"\x00",
        b'["\\ud800"]',
        b'{"\\uDfff": 1}',
    ],
)
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson) as refusal:
        parse_json(body)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("body", [b"", b" \n", b"null"])
def test_a_body_can_be_absent(body: bytes) -> None:
    assert parse_json(body) is None


def test_a_surrogate_pair_is_a_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_of_a_name_that_is_there_twice_the_last_one_counts() -> None:
    assert parse_json(b'{"a": 1, "a": 2}') == {"a": 2}


def _nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        (pb.TenantSettings, Field("admin_roles"), [HALF]),
        (pb.TenantSettings, Field("admin_roles"), _nested(5000)),
        (pb.TenantSettings, Field("admin_roles"), [None]),
        (pb.DeleteRequest, Field("force"), 1),
        (pb.NamesRequest, Field("limit"), True),
        (pb.NamesRequest, Field("limit"), 2**32),
        (pb.NamesRequest, Field("limit"), 1.0),
        (pb.NamesRequest, Object({"limit": "limit"}), [1]),
        (pb.NamesRequest, Object({"limit": "limit"}, required="limit"), {}),
        (pb.NamesRequest, Converted("limit", str, int), "4294967296"),
        (pb.NamesRequest, Converted("limit", str, int), float("inf")),
        (pb.NamesRequest, Converted("within", str, str), HALF),
        (pb.NamesRequest, Converted("limit", str, lambda value: value["a"]), {}),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: Any, part: Part, value: Any) -> None:
    with pytest.raises(InvalidJson) as refusal:
        part.fill(kind(), value, "it")
    assert str(refusal.value).startswith("it")
    json.dumps({"reason": str(refusal.value)}, ensure_ascii=False).encode()
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("name", [HALF, "x" * 10_000])
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (pb.PartitionsRequest, Field("properties")),
        (pb.SubscriptionStats, Field("consumers", of=Object({}), key="consumer_name")),
    ],
)
def test_the_error_about_a_member_can_be_sent_with_any_name(kind: Any, part: Part, name: str) -> None:
    with pytest.raises(InvalidJson) as refusal:
        part.fill(kind(), {name: 7}, "it")
    assert len(str(refusal.value).encode()) < 300


def test_bytes_are_base64() -> None:
    part = Object({"id": "incarnation"})
    for data, text in ((b"", ""), (b"\x00\xff", "AP8=")):
        tenant = TenantNode(incarnation=data)
        assert part.to_json(tenant) == {"id": text}
        read = TenantNode()
        part.fill(read, {"id": text}, "it")
        assert read == tenant
    with pytest.raises(InvalidJson, match="not base64"):
        part.fill(TenantNode(), {"id": "=="}, "it")


def test_numbers_up_to_the_largest_are_read() -> None:
    part, largest = Field("max_mark_delete_rate"), sys.float_info.max
    policy = Persistence()
    part.fill(policy, largest, "it")
    assert part.to_json(policy) == largest
    for value in (float("inf"), 10**400, "1", True):
        with pytest.raises(InvalidJson):
            part.fill(policy, value, "it")


_PARTITIONS: Final = Route(
    "PUT",
    "/admin/v2/{topic}/partitions",
    body=Either(Field("partitions"), Object({"partitions": "partitions", "properties": "properties"})),
    object_type="application/vnd.example+json",
    out_of_range_status=406,
)


@pytest.mark.parametrize(
    ("request_", "body", "content_type"),
    [
        (pb.PartitionsRequest(topic="persistent://a/b/c", partitions=3), 3, "application/json"),
        (
            pb.PartitionsRequest(topic="persistent://a/b/c", partitions=3, properties={"k": "v"}),
            {"partitions": 3, "properties": {"k": "v"}},
            "application/vnd.example+json",
        ),
    ],
)
def test_a_body_is_a_short_value_or_an_object_of_its_own_type(request_: Any, body: Any, content_type: str) -> None:
    written = _PARTITIONS.write(request_)
    assert (written.body, written.content_type) == (body, content_type)
    read = pb.PartitionsRequest()
    _PARTITIONS.make_request(read, ["persistent", "a", "b", "c"], "", body)
    assert read == request_


@pytest.mark.parametrize(
    ("body", "kind"), [(-1, OutOfRange), (2**32, OutOfRange), (1.5, InvalidJson), (True, InvalidJson)]
)
def test_a_number_out_of_range_differs_from_a_wrong_type(body: Any, kind: type[InvalidJson]) -> None:
    with pytest.raises(InvalidJson) as refusal:
        _PARTITIONS.make_request(pb.PartitionsRequest(), ["persistent", "a", "b", "c"], "", body)
    assert type(refusal.value) is kind


def test_an_empty_field_can_be_absent() -> None:
    part = Object({"partitions": "partitions", "properties": Field("properties", absent_if_empty=True)})
    assert part.to_json(pb.PartitionsRequest()) == {"partitions": 0}
    assert part.to_json(pb.PartitionsRequest(properties={"k": "v"}))["properties"] == {"k": "v"}
