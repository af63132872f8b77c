"""What a broker answers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client.parser import text_string_to_metric_families

from magnetar_broker.broker_session import sample_topic
from magnetar_broker.http.metrics import BrokerMetrics
from magnetar_broker.http.routes import BrokerHttp
from magnetar_wire.message_id import MessageId
from magnetar_wire.process.http_server import serve_http
from magnetar_wire.topic_name import TopicName
from tests.http_client import ask, ask_json
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene, running_broker

_QUICK = {"health_check_timeout_seconds": 0.2, "health_check_max_age_seconds": 0.0, "topic_close_timeout_seconds": 0.1}


@asynccontextmanager
async def served(scene: BrokerScene) -> AsyncIterator[str]:
    metrics = BrokerMetrics(scene.broker, scene.broker.settings, "mars")
    server = await serve_http(BrokerHttp(scene.broker, metrics).app, "127.0.0.1:0")
    try:
        yield server.address
    finally:
        await server.close()


async def scraped(address: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """By name and labels; read by Prometheus' own parser."""
    status, body = await ask(address, "/metrics")
    assert status == 200
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = tuple((key, value) for key, value in sorted(sample.labels.items()) if key != "cluster")
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} twice with {labels}"
            found[sample.name][labels] = sample.value
            if sample.name.startswith("pulsar_") and "latency" not in sample.name and "size_bytes" not in sample.name:
                assert sample.labels.get("cluster", "mars") == "mars"
    return found


async def test_health_endpoints_report_broker_state() -> None:
    """ADM-2."""

    async with running_broker(**_QUICK) as scene, served(scene) as address:
        assert await ask_json(address, "/health") == (200, {"healthy": True, "reasons": []})
        assert await ask(address, "/admin/v2/brokers/health") == (200, b"ok")
        for bookie in scene.bookies:
            bookie.hanging.add("add")
        status, health = await ask_json(address, "/health")
        assert (status, health["healthy"]) == (503, False)
        assert "has not answered" in health["reasons"][0]
        status, text = await ask(address, "/admin/v2/brokers/health")
        assert status == 503
        assert b"has not answered" in text
        # A client that is routed here could not be served.
        status, ready = await ask_json(address, "/ready")
        assert (status, ready["ready"]) == (503, False)
        assert "has not answered" in ready["reasons"][0]
        session, scene.broker.session = scene.broker.session, None
        assert (await ask_json(address, "/ready"))[0] == 503
        assert (await ask(address, "/metrics"))[0] == 200
        assert (await ask_json(address, "/status"))[1]["serves"] is False
        scene.broker.session = session
        status, response = await ask_json(address, "/status")
        assert (status, response["serves"], response["session"]) == (200, True, "connected")
        assert (response["topics"], response["waits_for"]) == (1, "")


async def test_root_describes_the_service() -> None:
    async with running_broker() as scene, served(scene) as address:
        status, root = await ask_json(address, "/")
        assert (status, root["service"], root["address"]) == (200, "Magnetar", "broker:6652")
        for path in root["see"]:
            assert (await ask(address, path))[0] == 200
        assert (await ask(address, "/none"))[0] == 404


async def test_metrics_count_dropped_messages() -> None:
    """(TOP-5) Of a non-persistent topic; its statistics have the same numbers."""
    async with running_broker(stats_update_frequency_in_secs=1000.0) as scene, served(scene) as address:
        name = "non-persistent://public/default/live"
        labels = (("namespace", "public/default"), ("subscription", "s"), ("topic", name))
        async with scene.client() as client:
            consumer = await client.subscribe(name, "s", receiver_queue_size=1)
            producer = await client.create_producer(name, batching_enabled=False)
            topic = scene.broker_session.topics.get_loaded(TopicName.parse(name))
            assert topic is not None
            await until(lambda: topic.subscriptions.stats()[0].consumers[0].permits == 1, "it has granted a permit")
            sample_topic(topic, 100.0)
            for _ in range(7):
                await producer.send(b"x")
            sample_topic(topic, 103.0)
            found, stats = await scraped(address), await scene.admin.topics.stats(name)
            assert found["pulsar_subscription_dropped_messages"][labels] == 6
            assert found["pulsar_subscription_msg_drop_rate"][labels] == stats.dropped_per_s == 2.0
            assert stats.subscription("s").dropped_messages == 6
            await consumer.close()
            await producer.close()


async def test_metrics_count_topic_and_broker_activity() -> None:
    """ADM-2."""

    async with running_broker(stats_update_frequency_in_secs=1000.0) as scene:
        name = "persistent://public/default/orders"
        labels = (("namespace", "public/default"), ("topic", name))
        of_s = (labels[0], ("subscription", "s"), labels[1])
        async with served(scene) as address:
            await scene.admin.topics.create(name)
            await scene.admin.subscriptions.create(name, "s", MessageId.earliest)
            topic = scene.broker_session.topics.get_loaded(TopicName.parse(name))
            assert topic is not None
            sample_topic(topic, 100.0)
            async with scene.client() as client:
                producer = await client.create_producer(name, batching_enabled=False)
                for _ in range(3):
                    await producer.send(b"x" * 100)
                sample_topic(topic, 130.0)
                found = await scraped(address)
                assert found["pulsar_producers_count"][labels] == 1
                await producer.close()
            assert found["pulsar_in_messages_total"][labels] == 3
            assert found["pulsar_in_bytes_total"][labels] > 300
            assert found["pulsar_rate_in"][labels] > 0
            assert found["pulsar_storage_entries"][labels] == 3
            assert found["pulsar_storage_size"][labels] > 300
            assert found["pulsar_msg_backlog"][labels] == 3
            assert found["pulsar_subscriptions_count"][labels] == 1
            assert found["pulsar_subscription_back_log"][of_s] == 3
            assert found["pulsar_subscription_blocked"][of_s] == 1
            assert found["pulsar_broker_topics_count"][()] == 1
            assert found["pulsar_broker_in_messages_total"][()] == 3
            assert found["pulsar_broker_publish_latency_seconds_count"][()] == 3
            assert found["pulsar_broker_entry_size_bytes_sum"][()] > 300
            assert found["pulsar_broker_lookup_total"][()] >= 1
            assert found["pulsar_broker_metadata_connected"][()] == 1
            assert found["pulsar_ml_cache_entries"][()] == 3
            assert found["process_resident_memory_bytes"][()] > 0
            await scene.admin.topics.unload(name)
            found = await scraped(address)
            # The counters of the broker do not fall when topics are unloaded.
            assert found["pulsar_broker_in_messages_total"][()] == 3
            assert found["pulsar_broker_topics_count"][()] == 0
            assert "pulsar_in_messages_total" not in found


async def test_topics_above_the_bound_are_added_up_by_namespace() -> None:
    async with running_broker(max_topics_in_metrics=2) as scene, served(scene) as address:
        for number in range(6):
            await scene.admin.topics.create(f"t{number}")
            await scene.admin.subscriptions.create(f"t{number}", "s")
        found = await scraped(address)
        series = found["pulsar_subscriptions_count"]
        assert len(series) == 3
        assert series[("namespace", "public/default"), ("topic", "")] == 4
        assert sum(series.values()) == 6
        assert len(found["pulsar_subscription_back_log"]) == 2
        assert found["pulsar_broker_topics_count"][()] == 6


async def test_topics_need_not_be_shown_at_all() -> None:
    async with running_broker(expose_topic_level_metrics_in_prometheus=False) as scene, served(scene) as address:
        await scene.admin.topics.create("t")
        found = await scraped(address)
        assert list(found["pulsar_producers_count"]) == [(("namespace", "public/default"), ("topic", ""))]
