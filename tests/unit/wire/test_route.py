"""How paths become requests, and back: what single calls do not show."""

from __future__ import annotations

import pytest

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.http.raw_answer import TextAnswer
from magnetar_wire.admin.http.route import InvalidTarget, Route
from magnetar_wire.admin.http.route_table import RouteTable, UnsupportedFamily
from magnetar_wire.admin.json.parts import Field
from magnetar_wire.admin.json.values import InvalidJson, parse_json


def test_a_family_stands_for_the_paths_without_a_route() -> None:
    family = UnsupportedFamily("/a/{one}/peers", "peers")
    table = RouteTable([("GET", ["a", "{one}", "peers", "known"], "route")], [(family.segments, "family")])
    for verb, path, found in (
        ("GET", b"/a/x/peers/known", "route"),
        ("GET", b"/a/x/peers", "family"),
        ("PATCH", b"/a/x/peers/y/z?q=1", "family"),
    ):
        match = table.find(verb, path)
        assert match is not None
        assert match.found == found, path
    # The path is known, and the verb is not.
    match = table.find("POST", b"/a/x/peers/known")
    assert match is not None
    assert (match.found, match.verbs) == (None, ("GET",))
    for path in (b"/a/x", b"/a/x/peersx", b"/b/x/peers"):
        assert table.find("GET", path) is None


def test_implied_fields_are_set_by_the_broker_only() -> None:
    route = Route("GET", "/x/{topic}", implied={"needs_pulsar": True})
    request = pb.LookupTopicRequest()
    route.make_request(request, ["persistent", "a", "b", "c"], "", None)
    assert (request.topic, request.needs_pulsar) == ("persistent://a/b/c", True)
    for given in (False, True):
        sent = pb.LookupTopicRequest(topic="persistent://a/b/c", needs_pulsar=given)
        assert route.carries(sent)
        assert route.write(sent).target == "/x/persistent/a/b/c"


def test_errors_have_the_names_that_users_know() -> None:
    skip = Route("POST", "/skip/{entries=numMessages}", query={"all": "all"}, body=Field("entries"))
    for value, query, expected in (
        ("x", "", 'numMessages: "x" is not a whole number from 0 to 18446744073709551615'),
        ("-1", "", 'numMessages: "-1" is not a whole number from 0 to 18446744073709551615'),
        ("1", "all=maybe", 'all: "maybe" is not true or false'),
    ):
        with pytest.raises(InvalidTarget) as refusal:
            skip.make_request(pb.SkipRequest(), [value], query, None)
        assert str(refusal.value) == expected
    for body, expected in (
        (b"True", "not JSON"),
        (b"true", "the body: true is not a whole number"),
        (b"1e999", "the body: a number that is too large is not a whole number"),
        (b"9" * 5000, "the body has a number with too many digits"),
    ):
        with pytest.raises(InvalidJson, match=expected):
            skip.make_request(pb.SkipRequest(), ["1"], "", parse_json(body))
    assert skip.segments == ["skip", "{numMessages}"]


def test_the_query_goes_before_headers() -> None:
    route = Route(
        "GET", "/x/{topic}", query={"listenerName": "listener_name"}, headers={"X-Pulsar-ListenerName": "listener_name"}
    )
    for query, expected in (("listenerName=query", "query"), ("listenerName=", "header"), ("", "header")):
        request = pb.LookupTopicRequest()
        headers = {"x-pulsar-listenername": "header"}
        route.make_request(request, ["persistent", "a", "b", "c"], query, None, headers)
        assert request.listener_name == expected


def test_a_text_answer_is_the_field_itself() -> None:
    answer, message = TextAnswer("bundle"), pb.TopicBundleAnswer(bundle="0x00000000_0xffffffff")
    assert answer.to_http(message) == ({}, b"0x00000000_0xffffffff")
    read = pb.TopicBundleAnswer()
    answer.fill(read, {}, b"0x00000000_0xffffffff\n")
    assert read == message
    with pytest.raises(InvalidJson):
        answer.fill(read, {}, b"\xff")
