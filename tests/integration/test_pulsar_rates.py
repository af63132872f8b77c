"""A stock producer and consumer of a topic with rates: nothing is refused or lost, all stays in order."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pulsar
import pytest

from magnetar.admin import Admin, DispatchRate, NamespacePolicies, PublishRate
from tests.running import GENEROUS_S
from tests.stock_clients import LONG_MS, StockServer, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow

_COUNT = 2_000
_RATE = 1_000
# A batch may exceed the rate.
_SLACK = 100


def test_stock_clients_are_slowed_down_by_rates(server: StockServer, client: pulsar.Client) -> None:
    """RET-4, WIRE-2: at no time more than the rate allows since the beginning, and a burst of a second; all is stored,
    and received, in order."""
    namespace = f"public/{topic('rates').rpartition('/')[2]}"
    limit = DispatchRate(messages=_RATE)
    policies = NamespacePolicies(publish_rate=PublishRate(messages_per_s=_RATE), subscription_dispatch_rate=limit)
    with Admin(server.http_url) as admin:
        admin.namespaces.create(namespace, policies)
    name = f"persistent://{namespace}/t"
    consumer = client.subscribe(name, "s", receiver_queue_size=_COUNT)
    producer = client.create_producer(name, max_pending_messages=_COUNT)
    results: list[Any] = []
    began, too_early = time.monotonic(), []

    def count(result: Any, _: Any) -> None:
        results.append(result)
        if len(results) > (allowed := _RATE * (time.monotonic() - began + 1) + _SLACK):
            too_early.append((len(results), allowed))

    for number in range(_COUNT):
        producer.send_async(b"%d" % number, count)
    producer.flush()
    assert results == [pulsar.Result.Ok] * _COUNT
    assert not too_early
    received = [consumer.receive(LONG_MS).data() for _ in range(_COUNT)]
    assert received == [b"%d" % number for number in range(_COUNT)]
    path = f"persistent/{namespace}/t/stats"
    with urllib.request.urlopen(f"{server.http_url}/admin/v2/{path}", timeout=GENEROUS_S) as answer:
        stats = json.load(answer)
    assert stats["publishRateLimitedTimes"] > 0
    assert stats["subscriptions"]["s"]["dispatchThrottledMsgEventsBySubscriptionLimit"] > 0
