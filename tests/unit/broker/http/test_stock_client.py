"""Pulsar's own client for Python with an `http://` service URL: it looks up topics and partitions over HTTP."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pulsar

from tests.unit.broker.http.admin_scene import running_http

_DOMAIN = "persistent://public/default/"
_TIMEOUT_MS = 30_000


async def test_topics_partitions_patterns_and_readers() -> None:
    """WIRE-2: lookups by HTTP of the stock client for Python."""
    async with running_http(pulsar=True) as scene:
        await scene.broker.admin.topics.create_partitioned("parts", 3)
        await asyncio.to_thread(_use_client, f"http://{scene.address}")
        # It was created on first use.
        assert f"{_DOMAIN}a b" in await scene.broker.admin.topics.list("public/default")


def _use_client(url: str) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    earliest: Any = pulsar.InitialPosition.Earliest
    try:
        client.create_producer(f"{_DOMAIN}a b").send(b"x")
        consumer = client.subscribe(f"{_DOMAIN}a b", "s", initial_position=earliest)
        assert consumer.receive(_TIMEOUT_MS).data() == b"x"
        reader = client.create_reader(f"{_DOMAIN}a b", pulsar.MessageId.earliest)
        assert reader.read_next(_TIMEOUT_MS).data() == b"x"

        assert client.get_topic_partitions(f"{_DOMAIN}parts") == [
            f"{_DOMAIN}parts-partition-{part}" for part in range(3)
        ]
        producer = client.create_producer(f"{_DOMAIN}parts")
        sent = [b"%d" % number for number in range(4)]
        for payload in sent:
            producer.send(payload)
        for topic in (f"{_DOMAIN}parts", re.compile("public/default/par.*")):
            consumer = client.subscribe(topic, str(type(topic)), initial_position=earliest)
            assert sorted(consumer.receive(_TIMEOUT_MS).data() for _ in sent) == sent
    finally:
        client.close()
