"""Lookups of topics over HTTP, as stock clients with an `http://` service URL make them."""

from __future__ import annotations

import pytest

from magnetar import TopicNotFound
from tests.unit.broker.http.admin_scene import running_http

_LOOKUP = "/lookup/v2/topic/persistent/public/default"


async def test_any_broker_answers_with_the_owner_s_addresses() -> None:
    """WIRE-2: the lookup of clients whose service URL is HTTP."""
    async with running_http(pulsar=True) as scene:
        pulsar = f"pulsar://{scene.broker.broker.pulsar_addresses[0]}"
        found = await scene.get(f"{_LOOKUP}/a%20b?authoritative=false")
        assert found == {
            "brokerUrl": pulsar,
            "httpUrl": f"http://{scene.address}",
            "nativeUrl": pulsar,
            "brokerUrlSsl": "",
        }
        owner = await scene.broker.admin.topics.lookup_addresses("a b")
        assert (owner.pulsar_address, owner.http_address) == (pulsar.removeprefix("pulsar://"), scene.address)
        assert await scene.get(f"{_LOOKUP}/a%20b/bundle") == owner.bundle.encode()
        assert await scene.broker.admin.topics.bundle_range("a b") == owner.bundle
        # Looking a topic up does not create it.
        assert await scene.broker.admin.topics.list("public/default") == []


async def test_the_listener_is_named_by_query_or_header() -> None:
    async with running_http(pulsar=True) as scene:
        for target, headers in ((f"{_LOOKUP}/t?listenerName=x", {}), (f"{_LOOKUP}/t", {"X-Pulsar-ListenerName": "x"})):
            answer = await scene.ask("GET", target, headers=headers)
            assert (answer.status, "listener 'x'" in answer.reason) == (412, True)
        assert (await scene.ask("GET", f"{_LOOKUP}/t?listenerName=internal")).status == 200


async def test_lookups_that_are_refused() -> None:
    async with running_http(allow_auto_topic_creation=False) as scene:
        await scene.broker.admin.topics.create("there")
        for path, status in (
            # The broker has no listener for Pulsar's protocol.
            (f"{_LOOKUP}/there", 503),
            (f"{_LOOKUP}/missing", 404),
            ("/lookup/v2/topic/persistent/public/missing/t", 404),
            ("/lookup/v2/topic/persistent/public/missing/t/bundle", 404),
            ("/lookup/v2/topic/weird/public/default/t", 404),
            ("/lookup/v2/topic/persistent/public", 404),
        ):
            answer = await scene.ask("GET", path)
            assert (answer.status, bool(answer.reason)) == (status, True), (path, answer)
        with pytest.raises(TopicNotFound):
            await scene.broker.admin.topics.lookup_addresses("missing")
        counters = scene.broker.broker.counters
        assert (counters.lookups, counters.lookups_failed) == (4, 4)


async def test_a_broker_at_all_addresses_returns_the_one_that_the_client_reached() -> None:
    async with running_http(pulsar=True) as scene:
        scene.broker.broker.pulsar_context.advertises_reached_address = True
        port = scene.broker.broker.pulsar_addresses[0].rpartition(":")[2]
        for host, expected in (
            ("magnetar.example:18080", "magnetar.example"),
            ("[::1]", "[::1]"),
            ("evil/path", "127.0.0.1"),
            ("a b", "127.0.0.1"),
        ):
            answer = await scene.ask("GET", f"{_LOOKUP}/t", headers={"Host": host})
            assert answer.body["brokerUrl"] == f"pulsar://{expected}:{port}", host
        answer = await scene.ask("GET", f"{_LOOKUP}/t?listenerName=internal", headers={"Host": "x"})
        assert answer.body["brokerUrl"] == f"pulsar://127.0.0.1:{port}"
