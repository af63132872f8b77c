"""How paths become requests, and back: what single calls do not show."""

from __future__ import annotations

import pytest

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.http.raw_answer import TextAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.http.route_table import RouteTable, UnsupportedFamily
from magnetar_wire.admin.json.values import InvalidJson


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
