"""The statistics of a broker over HTTP, as Pulsar's tools read them."""

from __future__ import annotations

from typing import NoReturn

import pytest

from magnetar.admin import RegisteredBookie
from magnetar.admin._values import value_of
from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.admin_pb2 import RegisteredBookie as RegisteredBookieMessage
from magnetar_protos.broker_pb2 import ErrorCode
from tests.unit.broker.http.admin_scene import running_http


async def test_a_broker_shows_its_topics_and_their_sums() -> None:
    """ADM-1: broker statistics, on HTTP and on gRPC."""
    async with running_http(pulsar=True) as scene, scene.broker.client() as client:
        brokers = scene.broker.admin.brokers
        await scene.broker.admin.topics.create("t")
        await scene.broker.admin.subscriptions.create("t", "s")
        producer = await client.create_producer("t")
        await producer.send(b"12345")
        (topic,) = await brokers.topic_stats()
        name = "persistent://public/default/t"
        assert (topic.namespace, topic.stats.topic, topic.stats.messages_ever) == ("public/default", name, 1)
        tree = await scene.get("broker-stats/topics")
        shown = tree["public/default"][topic.bundle]["persistent"][name]
        assert (shown["msgInCounter"], shown["subscriptions"]["s"]["msgBacklog"]) == (1, 1)
        assert shown["publishers"][0]["producerName"] == producer.producer_name()

        (load,) = await brokers.bundle_loads()
        assert (load.bundle, load.topics, load.producers, load.subscriptions) == (topic.bundle, 1, 1, 1)
        report = await scene.get("broker-stats/load-report")
        assert report["webServiceUrl"] == f"http://{scene.address}"
        assert report["pulsarServiceUrl"] == f"pulsar://{scene.broker.broker.pulsar_addresses[0]}"
        assert report["bundles"] == list(report["lastStats"]) == [f"public/default/{topic.bundle}"]
        assert (report["numTopics"], report["numProducers"], report["numConsumers"]) == (1, 1, 0)
        (group,) = await scene.get("broker-stats/metrics")
        assert group["dimensions"] == {"namespace": "public/default"}
        assert (group["metrics"]["brk_msg_backlog"], group["metrics"]["brk_no_of_producers"]) == (1, 1)


async def test_a_topic_that_can_not_be_read_is_shown_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADM-1: statistics of all topics read none of them."""

    async def measure_backlog(self: Subscriptions, name: str) -> NoReturn:
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")

    monkeypatch.setattr(Subscriptions, "measure_backlog", measure_backlog)
    async with running_http() as scene, scene.broker.client() as client:
        await scene.broker.admin.subscriptions.create("t", "s")
        await (await client.create_producer("t")).send(b"12345")
        for admin in (scene.broker.admin, scene.admin):
            (topic,) = await admin.brokers.topic_stats()
            (subscription,) = topic.stats.subscriptions
            assert (subscription.backlog_entries, subscription.backlog_messages) == (1, 1)
        assert (await scene.get("broker-stats/load-report"))["numTopics"] == 1


async def test_bookies_are_listed() -> None:
    async with running_http() as scene:
        assert await scene.get("bookies/all") == {
            "bookies": [
                {"bookieId": "b0", "address": "b0:1", "writable": True},
                {"bookieId": "b1", "address": "b1:1", "writable": True},
            ]
        }
        assert await scene.get("bookies/racks-info") == {}
        bookies = await scene.broker.admin.brokers.bookies()
        assert await scene.admin.brokers.bookies() == bookies
        # Brokers of Pulsar list ids only.
        assert value_of(RegisteredBookie, RegisteredBookieMessage(bookie_id="b")) == RegisteredBookie("b", None, None)
        assert [(one.bookie_id, one.address, one.writable) for one in bookies] == [
            ("b0", "b0:1", True),
            ("b1", "b1:1", True),
        ]
