"""Routes and JSON of the admin calls: what the client writes is what the broker reads, and nothing else passes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import pytest
from google.protobuf.message import Message
from hypothesis import event, example, given
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator

from magnetar_protos import admin_pb2
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.admin.http.raw_answer import RawAnswer, TextAnswer
from magnetar_wire.admin.http.route import InvalidTarget, Route
from magnetar_wire.admin.http.route_table import RouteTable
from magnetar_wire.admin.json.parts import Part
from magnetar_wire.admin.json.values import InvalidJson, parse_json
from magnetar_wire.errors import WireError
from tests.examples import examples
from tests.property.admin_values import JSON, json_values, messages, requests

T = TypeVar("T")
Row = tuple[AdminCall, Route]
ROUTES: Final[list[Row]] = [
    (call, route) for call in ADMIN_CALLS.values() for route in call.routes if not route.client_only
]
TABLE: Final = RouteTable((route.verb, route.segments, (call, route)) for call, route in ROUTES)
BODIES: Final = [(call.request, route.body) for call, route in ROUTES if route.body is not None]
ANSWERS: Final = [(call.response, route.answer) for call, route in ROUTES if isinstance(route.answer, Part)]
RAW: Final = [(call.response, route.answer) for call, route in ROUTES if isinstance(route.answer, RawAnswer)]
PARTS: Final[list[tuple[type[Message], Part]]] = [*BODIES, *ANSWERS]


def _draw_row(data: st.DataObject, rows: Sequence[T]) -> T:
    """Return one of the rows. Only its number is drawn: what Hypothesis prints of a row would be too long."""
    return rows[data.draw(st.integers(0, len(rows) - 1))]


def _send(route: Route, request: Any) -> Any:
    """Return the request that a broker makes of what a client writes."""
    sent = route.write(request)
    path, _, query = sent.target.partition("?")
    match = TABLE.find(sent.verb, path.encode("ascii"))
    assert match is not None
    assert match.found is not None
    call, found = match.found
    assert found is route
    body = None if sent.body is None else parse_json(json.dumps(sent.body, ensure_ascii=False).encode())
    made = call.request()
    route.make_request(made, match.values, query, body)
    return made


@given(st.data())
@examples(1200)
def test_a_request_that_a_route_carries_arrives_as_it_is(data: st.DataObject) -> None:
    """ADM-1: the HTTP request of a call carries its whole message."""
    call, route = _draw_row(data, ROUTES)
    request = data.draw(requests(call, route))
    carried = route.carries(request)
    event(f"carried: {carried}")
    if carried:
        assert _send(route, request) == request


def test_each_route_carries_a_request() -> None:
    """A route that carries nothing would never be used by the client, and not be tested above."""
    for call, route in ROUTES:
        if route.body is not None or route.query:
            continue
        made: Any = call.request()
        match = TABLE.find(route.verb, _fill_placeholders(route))
        assert match is not None
        route.make_request(made, match.values, "", None)
        assert route.carries(made), f"{route.verb} {route.path}"


def _fill_placeholders(route: Route) -> bytes:
    values = {"{domain}": "persistent"}
    return "/".join(values.get(one, "7") if one[0] == "{" else one for one in route.segments).encode()


@given(st.data())
@examples(800)
def test_json_that_a_part_reads_is_written_alike(data: st.DataObject) -> None:
    kind, part = _draw_row(data, PARTS)
    value = data.draw(json_values(part.schema(kind.DESCRIPTOR)))
    first, second = kind(), kind()
    try:
        part.fill(first, value, "it")
    except InvalidJson:
        event("refused")
        return
    written = part.to_json(first)
    if written is not None:
        part.fill(second, json.loads(json.dumps(written)), "it")
        assert part.to_json(second) == written


@given(st.data(), JSON)
@examples(800)
def test_json_that_a_part_does_not_read_is_refused_with_a_reason(data: st.DataObject, value: Any) -> None:
    kind, part = _draw_row(data, PARTS)
    if value is None:
        return
    try:
        part.fill(kind(), value, "it")
    except InvalidJson as error:
        text = str(error)
        assert text.encode()
        assert len(text) < 1000


@given(st.data())
@examples(400)
def test_answers_fit_their_description(data: st.DataObject) -> None:
    kind, part = _draw_row(data, ANSWERS)
    value = part.to_json(data.draw(messages(kind)))
    if value is not None:
        schema = part.schema(kind.DESCRIPTOR)
        errors = [error.message for error in OAS31Validator(schema).iter_errors(json.loads(json.dumps(value)))]
        assert not errors


@given(st.data())
@examples(400)
def test_answers_that_are_not_json_arrive_as_they_are(data: st.DataObject) -> None:
    kind, answer = _draw_row(data, RAW)
    response, received, again = data.draw(messages(kind)), kind(), kind()
    if answer.find_refusal(response) is not None:
        return
    try:
        headers, body = answer.to_http(response)
    except WireError:
        event("not stored by a broker")
        return
    lines = {name: [value] if isinstance(value, str) else list(value) for name, value in headers.items()}
    for name, values in lines.items():
        for value in values:
            # Bytes from 0x80 on are text that is not ASCII.
            assert all(byte >= 0x20 and byte != 0x7F for byte in f"{name}{value}".encode("latin-1"))
    answer.fill(received, {name.lower(): ", ".join(values) for name, values in lines.items()}, body)
    # It is the same when it is sent on.
    sent_on, same_body = answer.to_http(received)
    answer.fill(again, {name.lower(): str(value) for name, value in sent_on.items()}, same_body)
    assert same_body.strip() == body.decode().strip().encode() if isinstance(answer, TextAnswer) else same_body == body


# ── paths ──

SEGMENT: Final = st.sampled_from(
    [b"a", b"b", b"x", b"persistent", b"non-persistent", b"%61", b"%2F", b"..", b"", b"%ff"]
)
PATTERN: Final = st.sampled_from(["a", "b", "{x}", "{domain}", "{y}"])


def _find_by_model(routes: list[tuple[str, list[str], int]], verb: str, path: bytes) -> Any:
    """The dumb model: try every route; at the first difference the more exact segment wins."""
    segments = path.removeprefix(b"/").removesuffix(b"/").split(b"/")
    try:
        decoded = [unquote_to_bytes(one).decode() for one in segments]
    except UnicodeDecodeError:
        return "undecodable"
    if "" in decoded:
        return None

    def rank(pattern: str, segment: str) -> int | None:
        if pattern == "{domain}":
            return 1 if segment in ("persistent", "non-persistent") else None
        return 2 if pattern[0] == "{" else 0 if pattern == segment else None

    found = []
    for number, (one, patterns, _) in enumerate(routes):
        ranks = [rank(*pair) for pair in zip(patterns, decoded, strict=False)]
        if len(patterns) == len(decoded) and None not in ranks:
            found.append((ranks, one, number))
    with_verb = [(ranks, number) for ranks, one, number in found if one == verb]
    if with_verb:
        return min(with_verb)[1]
    return sorted({one for _, one, _ in found}) or None


@given(
    st.lists(st.tuples(st.sampled_from(["GET", "PUT"]), st.lists(PATTERN, min_size=1, max_size=4)), max_size=8),
    st.sampled_from(["GET", "PUT", "POST"]),
    st.lists(SEGMENT, min_size=1, max_size=4).map(b"/".join),
)
@examples(1000)
def test_a_path_is_found_as_by_a_plain_search(given_: list[tuple[str, list[str]]], verb: str, path: bytes) -> None:
    unique = {
        (verb, *("{}" if one in ("{x}", "{y}") else one for one in patterns)): (verb, patterns)
        for verb, patterns in given_
    }
    routes = [(verb, patterns, number) for number, (verb, patterns) in enumerate(unique.values())]
    expected = _find_by_model(routes, verb, b"/" + path)
    try:
        match = RouteTable(routes).find(verb, b"/" + path)
    except InvalidTarget:
        assert expected == "undecodable"
        return
    if match is None:
        assert expected is None
    elif match.found is None:
        assert list(match.verbs) == expected
    else:
        assert match.found == expected
        literals = sum(1 for one in routes[expected][1] if one[0] != "{")
        assert len(match.values) == len(routes[expected][1]) - literals


def test_two_routes_of_the_same_paths_are_refused() -> None:
    one = ("GET", ["a", "{x}"], 1)
    with pytest.raises(ValueError, match="two routes GET /a/"):
        RouteTable([one, ("GET", ["a", "{y}"], 2)])
    table = RouteTable([one, ("PUT", ["a", "{y}"], 2), ("GET", ["a", "b"], 3), ("GET", ["a", "{domain}"], 4)])
    assert [table.find("GET", path).found for path in (b"/a/b", b"/a/c", b"/a/persistent")] == [3, 1, 4]  # type: ignore[union-attr]


@given(st.binary(max_size=60) | st.lists(SEGMENT, max_size=25).map(b"/".join))
@example(b"/" * 10_000)
@example(b"/a" * 21)
@example(b"/admin/v2/persistent/" + b"%41" * 5000)
@example(b"/admin/v2/tenants/%ff")
@example(b"/admin/v2/tenants/%")
@example(b"/admin/v2/tenants/%0a%00")
@example(b"/admin/v2/tenants/../..")
@examples(1000)
def test_any_bytes_are_a_path_or_not(path: bytes) -> None:
    for prefix in (b"", b"/admin/v2/", b"/admin/v2/persistent/t/n/"):
        try:
            match = TABLE.find("GET", prefix + path)
        except InvalidTarget:
            continue
        assert match is None or match.found is None or "" not in match.values


@given(
    st.integers(0, len(ROUTES) - 1),
    st.text(max_size=30) | st.binary(max_size=30).map(lambda data: data.decode("latin-1")),
)
@example(0, "a=1&" * 200)
@example(0, "%ff=%ff&force=%00")
@examples(800)
def test_any_query_is_read_or_refused(number: int, query: str) -> None:
    call, route = ROUTES[number]
    values = ["persistent" if one == "{domain}" else "7" for one in route.segments if one[0] == "{"]
    names = [f"{name}={query}" for name in route.query]
    for text in (query, "&".join(names)):
        with contextlib.suppress(InvalidTarget, InvalidJson):
            route.make_request(call.request(), values, text, None)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("orders", "/admin/v2/persistent/public/default/orders"),
        ("acme/n/x", "/admin/v2/persistent/acme/n/x"),
        ("non-persistent://acme/n/a%b/c", "/admin/v2/non-persistent/acme/n/a%25b%2Fc"),
        ("acme/x", None),
        ("other://acme/n/x", None),
        ("persistent://acme//x", None),
        ("", None),
    ],
)
def test_a_topic_has_one_path_in_each_form_of_its_name(name: str, path: str | None) -> None:
    route, request = Route("GET", "/admin/v2/{topic}"), admin_pb2.TopicRequest(topic=name)
    assert route.carries(request) is (path is not None)
    if path is not None:
        assert route.write(request).target == path
