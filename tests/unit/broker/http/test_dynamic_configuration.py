"""Settings that are changed while brokers run: their names, values, stores and effects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from magnetar import (
    ConsumerType,
    InitialPosition,
    InvalidArgument,
    MagnetarException,
    NotAllowedError,
    ProducerAccessMode,
)
from magnetar.schema import StringSchema
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.dynamic import DynamicSettings, NotDynamic, change_fields, describe_settings
from magnetar_broker.settings.process import BrokerSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.system_topics import heartbeat_topic
from magnetar_broker.topics.housekeeping import Housekeeping
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.token_bucket import UNLIMITED
from magnetar_broker.topics.topic import Topic
from magnetar_metadata.store import ABSENT
from magnetar_protos.admin_pb2 import NamesAnswer, NamesRequest
from magnetar_protos.catalog_pb2 import DynamicConfigurationNode
from magnetar_wire.clock import SystemClock
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting, settings_of
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.http.admin_scene import HttpScene, running_http

_PATH = "brokers/configuration"


async def test_overrides_are_set_listed_and_removed() -> None:
    """ADM-1: dynamic configuration, on HTTP and on gRPC."""
    async with running_http() as scene:
        brokers = scene.broker.admin.brokers
        assert "maxTopicsPerNamespace" in await scene.get(_PATH)
        assert await scene.get(_PATH) == await brokers.dynamic_settings()
        assert await scene.get(f"{_PATH}/values") == {}
        answer = await scene.ask("POST", f"{_PATH}/maxTopicsPerNamespace/77")
        assert (answer.status, answer.body) == (200, None)
        await brokers.set_dynamic_setting("admin_max_names", "9")
        expected = {"maxTopicsPerNamespace": "77", "admin_max_names": "9"}
        assert await scene.get(f"{_PATH}/values") == await brokers.dynamic_configuration() == expected
        runtime = await scene.get(f"{_PATH}/runtime")
        assert runtime == await brokers.runtime_configuration()
        assert (runtime["maxTopicsPerNamespace"], runtime["allowAutoTopicCreation"]) == ("77", "true")
        assert (await scene.ask("DELETE", f"{_PATH}/max_topics_per_namespace")).status == 200
        assert (await scene.ask("DELETE", f"{_PATH}/max_topics_per_namespace")).status == 200
        await brokers.delete_dynamic_setting("admin_max_names")
        assert await scene.get(f"{_PATH}/values") == {}
        assert (await scene.get(f"{_PATH}/runtime"))["maxTopicsPerNamespace"] == "0"


async def test_names_and_values_are_checked() -> None:
    async with running_http(default_num_partitions=3) as scene:
        for name, value, reason in (
            ("maxTopicsPerNamespac", "1", "did you mean 'maxTopicsPerNamespace'"),
            ("clusterName", "x", "can't be changed while the broker runs"),
            ("maxTopicsPerNamespace", "-1", "from 0 to"),
            ("defaultNumPartitions", "9" * 400, "out of range"),
            ("unloadIdleTopicsAfterSeconds", "9" * 5000, ""),
            ("maxTopicsPerNamespace", "many", "whole number"),
            ("allowAutoTopicCreationType", "round", "partitioned"),
            # It does not fit another setting.
            ("maxNumPartitionsPerPartitionedTopic", "2", "default_num_partitions is 3"),
        ):
            answer = await scene.ask("POST", f"{_PATH}/{name}/{value}")
            assert (answer.status, reason in answer.reason) == (412, True), answer
        for name in ("nope", "clusterName"):
            assert (await scene.ask("DELETE", f"{_PATH}/{name}")).status == 412
        with pytest.raises(NotAllowedError):
            await scene.broker.admin.brokers.set_dynamic_setting("cluster_name", "x")
        with pytest.raises(InvalidArgument):
            await scene.broker.admin.brokers.set_dynamic_setting("admin_max_names", "0")
        assert await scene.get(f"{_PATH}/values") == {}


@pytest.mark.parametrize("value", ["9" * 400, "9" * 5000, "x" * 20_000])
async def test_a_stored_value_that_can_not_be_used_is_reported_and_not_applied(value: str) -> None:
    """No broker fails to start or to follow for it."""
    node = DynamicConfigurationNode(overrides={"default_num_partitions": value, "max_topics_per_namespace": "5"})

    async with running_http() as scene:
        nodes = scene.broker.broker_session.catalog.nodes
        await nodes.change_or_replace(DynamicConfigurationNode, paths.DYNAMIC_CONFIGURATION, lambda _: node)
        await until(partial(_has_limit, scene, 5), "the other value is applied")
        async with running_http(beside=scene.broker) as other:
            assert _has_limit(other, 5)
        await scene.broker.admin.brokers.delete_dynamic_setting("default_num_partitions")
        await scene.broker.admin.brokers.set_dynamic_setting("max_topics_per_namespace", "6")
        await until(partial(_has_limit, scene, 6), "the broker follows")


async def test_following_goes_on_after_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_http() as scene, running_http(beside=scene.broker) as other:
        await scene.broker.admin.brokers.set_dynamic_setting("max_topics_per_namespace", "1")
        await until(partial(_has_limit, other, 1), "the other broker follows")
        failures: list[DynamicSettings] = []
        apply = DynamicSettings.apply

        def fail_once(settings: DynamicSettings, overrides: Any) -> None:
            if settings not in failures and overrides.get("max_topics_per_namespace") == "2":
                failures.append(settings)
                raise RuntimeError("unforeseen")
            apply(settings, overrides)

        monkeypatch.setattr(DynamicSettings, "apply", fail_once)
        node = DynamicConfigurationNode(overrides={"max_topics_per_namespace": "2"})
        nodes = scene.broker.broker_session.catalog.nodes
        await nodes.change_or_replace(DynamicConfigurationNode, paths.DYNAMIC_CONFIGURATION, lambda _: node)
        await until(lambda: len(failures) == 2, "both brokers have failed")
        await scene.broker.admin.brokers.set_dynamic_setting("max_topics_per_namespace", "3")
        for one in (scene, other):
            await until(partial(_has_limit, one, 3), "each broker follows")


async def test_they_are_followed_by_other_brokers_and_after_a_restart() -> None:
    async with running_http() as scene, running_http(beside=scene.broker) as other:
        await scene.ask("POST", f"{_PATH}/maxTopicsPerNamespace/5")
        for one in (scene, other):
            await until(partial(_has_limit, one, 5), "each broker follows")
        await scene.broker.admin.brokers.delete_dynamic_setting("maxTopicsPerNamespace")
        await until(partial(_has_limit, other, 0), "the other broker follows")
        await other.broker.admin.brokers.set_dynamic_setting("maxTopicsPerNamespace", "6")
        async with running_http(beside=scene.broker, max_topics_per_namespace=1) as third:
            assert _has_limit(third, 6)


def _has_limit(scene: HttpScene, limit: int) -> bool:
    return scene.broker.broker.settings.max_topics_per_namespace == limit


async def test_a_damaged_node_keeps_no_broker_from_starting() -> None:
    async with running_http() as scene:
        assert scene.broker.store is not None
        await scene.broker.store.put(paths.DYNAMIC_CONFIGURATION, b"damaged", ABSENT)
        async with running_http(beside=scene.broker) as other:
            assert await other.get(f"{_PATH}/values") == {}
            assert (await other.ask("POST", f"{_PATH}/maxTopicsPerNamespace/5")).status == 200
            await until(partial(_has_limit, scene, 5), "the other broker follows")


def test_secrets_are_not_described() -> None:
    class WithSecret(Configuration):
        password: SecretStr = setting(SecretStr("x"), "A secret.", subject=Subject.ADMIN)
        names: tuple[str, ...] = setting(("a", "b"), "A list.", subject=Subject.ADMIN)

    assert describe_settings(WithSecret(), WithSecret()) == {"names": "a,b"}


def test_overrides_that_a_broker_can_not_have_are_left_out() -> None:
    settings = BrokerServiceSettings(max_num_partitions_per_partitioned_topic=10)
    dynamic = DynamicSettings(settings)
    # A setting of the process that its parts do not have is no typing error.
    with pytest.raises(NotDynamic, match="brokerId can't be changed while the broker runs"):
        DynamicSettings(settings, BrokerSettings(broker_id="b", metadata="zookeeper://z:2181")).find("brokerId")
    view = change_fields(settings, {"max_consumers_per_subscription": 3})
    # The first does not fit what this broker was started with; the second is of another version.
    overrides = {"default_num_partitions": "11", "of_another_version": "1", "max_consumers_per_subscription": "7"}
    dynamic.apply(overrides | {"max_topics_per_namespace": "8"})
    assert (settings.default_num_partitions, settings.max_topics_per_namespace) == (1, 8)
    assert (view.max_consumers_per_subscription, view.max_topics_per_namespace) == (3, 8)
    # Two that fit only together.
    dynamic.apply({"default_num_partitions": "20", "max_num_partitions_per_partitioned_topic": "30"})
    assert (settings.default_num_partitions, settings.max_topics_per_namespace) == (20, 0)


# ── effects: each dynamic setting changes what a running broker does ──

_numbers = itertools.count()
# Of each setting: an override, what shows the effect, and what that shows without and with the override.
_Probe = Callable[[HttpScene], Awaitable[Any]]
_EFFECTS: dict[str, tuple[str, _Probe, Any, Any]] = {}


def _shows(name: str, override: str, without: Any, overridden: Any) -> Callable[[_Probe], _Probe]:
    def add(probe: _Probe) -> _Probe:
        _EFFECTS[name] = override, probe, without, overridden
        return probe

    return add


def _new_name() -> str:
    return f"topic-{next(_numbers)}"


async def _new_topic(scene: HttpScene) -> str:
    name = _new_name()
    await scene.broker.admin.topics.create(name)
    return name


async def _new_loaded_topic(scene: HttpScene) -> Topic:
    return await scene.broker.broker_session.topics.get(TopicName.parse(_new_name()), create=True)


async def _is_refused(work: Awaitable[Any]) -> bool:
    try:
        await work
    except (MagnetarException, BrokerError):
        return True
    return False


@_shows("allow_auto_topic_creation", "false", False, True)
async def _first_use_is_refused(scene: HttpScene) -> Any:
    return await _is_refused(scene.broker.broker_session.catalog.check_lookup(TopicName.parse("new")))


@_shows("allow_auto_topic_creation_type", "partitioned", 0, 2)
async def _partitions_on_first_use(scene: HttpScene) -> Any:
    return await scene.broker.broker_session.catalog.resolve_partitions(TopicName.parse(_new_name()), create=True)


@_shows("default_num_partitions", "3", 2, 3)
async def _default_partitions(scene: HttpScene) -> Any:
    assert (await scene.ask("POST", f"{_PATH}/allowAutoTopicCreationType/partitioned")).status == 200
    return await _partitions_on_first_use(scene)


@_shows("max_num_partitions_per_partitioned_topic", "5", False, True)
async def _six_partitions_are_refused(scene: HttpScene) -> Any:
    return await _is_refused(scene.broker.admin.topics.create_partitioned(_new_name(), 6))


@_shows("max_topics_per_namespace", "1", False, True)
async def _second_topic_is_refused(scene: HttpScene) -> Any:
    namespace = f"public/{_new_name()}"
    await scene.broker.admin.namespaces.create(namespace)
    await scene.broker.admin.topics.create(f"{namespace}/one")
    return await _is_refused(scene.broker.admin.topics.create(f"{namespace}/two"))


@_shows("default_number_of_namespace_bundles", "7", 4, 7)
async def _default_bundles(scene: HttpScene) -> Any:
    namespace = f"public/{_new_name()}"
    await scene.broker.admin.namespaces.create(namespace)
    return len(await scene.broker.admin.namespaces.bundles(namespace))


@_shows("load_balancer_namespace_maximum_bundles", "5", (False, False), (True, True))
async def _six_bundles_are_refused(scene: HttpScene) -> Any:
    namespaces, namespace = scene.broker.admin.namespaces, f"public/{_new_name()}"
    created = await _is_refused(namespaces.create(f"public/{_new_name()}", bundles=6))
    await namespaces.create(namespace, bundles=5)
    bundle = (await namespaces.bundles(namespace))[0].bundle
    return created, await _is_refused(namespaces.split_bundle(namespace, bundle))


@_shows("admin_max_names", "1", 2, 1)
async def _names_in_one_answer(scene: HttpScene) -> Any:
    request = NamesRequest(include_system=True).SerializeToString()
    answer = await scene.broker.broker_session.admin.serve_client("tenants", request)
    return len(NamesAnswer.FromString(answer).names)


@_shows("admin_max_peeked_entries", "2", False, True)
async def _three_peeked_entries_are_refused(scene: HttpScene) -> Any:
    topic = await _new_topic(scene)
    await scene.broker.admin.subscriptions.create(topic, "s")
    return await _is_refused(scene.broker.admin.subscriptions.peek(topic, "s", 3))


@_shows("health_check_timeout_seconds", "0.000001", 200, 503)
async def _health(scene: HttpScene) -> Any:
    return (await scene.ask("GET", "brokers/health")).status


@_shows("health_check_max_age_seconds", "100", True, False)
async def _health_is_checked_again(scene: HttpScene) -> Any:
    health, topic = scene.broker.broker.health, str(heartbeat_topic(scene.broker.broker.broker_id))
    await health.check()
    before = (await scene.broker.admin.topics.stats(topic)).messages_ever
    await health.check()
    return (await scene.broker.admin.topics.stats(topic)).messages_ever > before


@_shows("expose_topic_level_metrics_in_prometheus", "false", True, False)
@_shows("max_topics_in_metrics", "0", True, False)
async def _topic_has_metrics(scene: HttpScene) -> Any:
    topic = await _new_topic(scene)
    await scene.broker.admin.subscriptions.create(topic, "s")
    return f"/{topic}" in (await scene.ask("GET", "/metrics")).body.decode()


@_shows("max_producers_per_topic", "1", False, True)
async def _second_producer_is_refused(scene: HttpScene) -> Any:
    async with scene.broker.client() as client:
        topic = _new_name()
        await client.create_producer(topic)
        return await _is_refused(client.create_producer(topic))


@_shows("max_consumers_per_subscription", "1", False, True)
async def _second_consumer_is_refused(scene: HttpScene) -> Any:
    async with scene.broker.client() as client:
        topic = _new_name()
        await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
        return await _is_refused(client.subscribe(topic, "s", consumer_type=ConsumerType.Shared))


@_shows("max_subscriptions_per_topic", "1", False, True)
async def _second_subscription_is_refused(scene: HttpScene) -> Any:
    topic = await _new_topic(scene)
    await scene.broker.admin.subscriptions.create(topic, "s")
    return await _is_refused(scene.broker.admin.subscriptions.create(topic, "s2"))


@_shows("subscription_types_enabled", "Exclusive,Failover", False, True)
async def _shared_subscription_is_refused(scene: HttpScene) -> Any:
    async with scene.broker.client() as client:
        return await _is_refused(client.subscribe(_new_name(), "s", consumer_type=ConsumerType.Shared))


@_shows("allow_auto_subscription_creation", "false", False, True)
async def _new_subscription_is_refused(scene: HttpScene) -> Any:
    async with scene.broker.client() as client:
        return await _is_refused(client.subscribe(_new_name(), "s"))


@_shows("unload_idle_topics_after_seconds", "3000", False, True)
@_shows("broker_delete_inactive_topics_enabled", "true", False, True)
async def _topic_ends_after_an_hour(scene: HttpScene) -> Any:
    return await _end_in_an_hour(scene, TopicName.parse(_new_name()))


@_shows("managed_ledger_inactive_ledger_rollover_time_seconds", "0.001", False, True)
async def _ledger_of_an_idle_topic_is_closed(scene: HttpScene) -> Any:
    topic = _new_name()
    async with scene.broker.client() as client:
        await (await client.create_producer(topic)).send(b"the last message")
    log = (await scene.broker.broker_session.topics.get(TopicName.parse(topic), create=False)).log
    log.tick()
    began = SystemClock().monotonic()
    await until(lambda: SystemClock().monotonic() > began + 0.01, "time has passed")
    log.tick()
    for _ in range(1_000):
        await asyncio.sleep(0)
    return log.closed_ledgers == 1


async def _end_in_an_hour(scene: HttpScene, name: TopicName) -> bool:
    """Return whether the topic is closed or deleted if nobody uses it for an hour."""
    session = scene.broker.broker_session
    topic = await session.topics.get(name, create=True)
    async with OrderedTaskGroup() as tasks:
        Housekeeping(
            session.topics,
            scene.broker.broker.settings,
            _InAnHour(),
            delete_empty_partitioned=session.admin.delete_empty_partitioned,
        ).maintain_topic(topic, tasks)
    return topic.ended is not None


@_shows("broker_delete_inactive_topics_mode", "delete_when_subscriptions_caught_up", False, True)
async def _topic_with_a_subscription_is_inactive(scene: HttpScene) -> Any:
    assert (await scene.ask("POST", f"{_PATH}/brokerDeleteInactiveTopicsEnabled/true")).status == 200
    topic = await _new_topic(scene)
    await scene.broker.admin.subscriptions.create(topic, "s")
    return await _end_in_an_hour(scene, TopicName.parse(topic))


@_shows("broker_delete_inactive_partitioned_topic_metadata_enabled", "true", True, False)
async def _partitioned_topic_is_left(scene: HttpScene) -> Any:
    assert (await scene.ask("POST", f"{_PATH}/brokerDeleteInactiveTopicsEnabled/true")).status == 200
    topic, catalog = TopicName.parse(_new_name()), scene.broker.broker_session.catalog
    await scene.broker.admin.topics.create_partitioned(str(topic), 2)
    for index in range(2):
        assert await catalog.partitioned.find(topic) is not None
        assert await _end_in_an_hour(scene, topic.partition(index))
    return await catalog.partitioned.find(topic, fresh=True) is not None


class _InAnHour(SystemClock):
    def monotonic(self) -> float:
        return super().monotonic() + 3600


@_shows("broker_delete_inactive_topics_max_inactive_duration_seconds", "5000", True, False)
async def _enabled_topic_is_inactive_after_an_hour(scene: HttpScene) -> Any:
    assert (await scene.ask("POST", f"{_PATH}/brokerDeleteInactiveTopicsEnabled/true")).status == 200
    return await _topic_ends_after_an_hour(scene)


@_shows("max_concurrent_lookup_request", "1", False, True)
async def _second_lookup_is_refused(scene: HttpScene) -> Any:
    limit = scene.broker.broker.server.lookup_limit
    with limit.hold():
        try:
            with limit.hold():
                return False
        except BrokerError:
            return True


@_shows("broker_max_connections", "1", False, True)
@_shows("broker_max_connections_per_ip", "1", False, True)
async def _second_connection_is_refused(scene: HttpScene) -> Any:
    host, _, port = scene.broker.broker.pulsar_addresses[0].rpartition(":")
    counters = scene.broker.broker.counters
    opened, refused = counters.connections_opened, counters.connections_refused
    connections = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    try:
        await until(lambda: counters.connections_opened == opened + 2, "the broker has accepted both")
        return counters.connections_refused > refused
    finally:
        for _, writer in connections:
            writer.close()
        await until(lambda: not scene.broker.broker.pulsar_connections, "the connections are closed")


@_shows("is_allow_auto_update_schema_enabled", "false", False, True)
async def _schema_of_a_producer_is_refused(scene: HttpScene) -> Any:
    async with scene.broker.client() as client:
        return await _is_refused(client.create_producer(await _new_topic(scene), schema=StringSchema()))


@_shows("max_publish_rate_per_topic_in_messages", "1", False, True)
@_shows("max_publish_rate_per_topic_in_bytes", "1", False, True)
@_shows("broker_publisher_throttling_max_message_rate", "1", False, True)
@_shows("broker_publisher_throttling_max_byte_rate", "1", False, True)
async def _publishing_has_a_rate(scene: HttpScene) -> Any:
    return _has_rate((await _new_loaded_topic(scene)).publish_throttle.limits)


@_shows("dispatch_throttling_rate_per_topic_in_msg", "1", False, True)
@_shows("dispatch_throttling_rate_per_topic_in_byte", "1", False, True)
@_shows("dispatch_throttling_rate_in_msg", "1", False, True)
@_shows("dispatch_throttling_rate_in_byte", "1", False, True)
async def _dispatch_has_a_rate(scene: HttpScene) -> Any:
    return _has_rate((await _new_loaded_topic(scene)).subscriptions.rates.limits)


def _has_rate(limits: Iterable[RateLimit]) -> bool:
    found = list(limits)
    for limit in found:
        limit.reread_rate()
    return any(limit.get_allowance() is not UNLIMITED for limit in found)


@_shows("dispatch_throttling_rate_per_subscription_in_msg", "1", False, True)
@_shows("dispatch_throttling_rate_per_subscription_in_byte", "1", False, True)
async def _dispatch_of_a_subscription_waits(scene: HttpScene) -> Any:
    """The rate is reached by the first message."""
    topic, payload = await _new_topic(scene), b"x" * 100
    async with scene.broker.client() as client:
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        producer = await client.create_producer(topic, batching_enabled=False)
        await producer.send(payload)
        await consumer.receive()
        await producer.send(payload)
        loaded = await scene.broker.broker_session.topics.get(TopicName.parse(topic), create=False)
        [subscription] = loaded.subscriptions.stats()
        return "dispatch rate" in subscription.blocked_by


@_shows("dispatch_throttling_on_non_backlog_consumer_enabled", "false", True, False)
async def _dispatch_without_a_backlog_waits(scene: HttpScene) -> Any:
    assert (await scene.ask("POST", f"{_PATH}/dispatchThrottlingRatePerSubscriptionInMsg/1")).status == 200
    return await _dispatch_of_a_subscription_waits(scene)


@_shows("subscribe_throttling_rate_per_consumer", "1", False, True)
async def _second_subscribe_request_is_refused(scene: HttpScene) -> Any:
    topic = _new_name()
    async with scene.broker.client() as client, scene.broker.client(operation_timeout_seconds=1) as impatient:
        await (await client.subscribe(topic, "s", consumer_name="c")).close()
        return await _is_refused(impatient.subscribe(topic, "s", consumer_name="c"))


@_shows("dispatch_throttling_rate_relative_to_publish_rate", "true", False, True)
async def _rate_is_relative(scene: HttpScene) -> Any:
    return (await _new_loaded_topic(scene)).live_settings.current.topic_dispatch_rate.is_relative


@_shows("topic_visit_interval_minutes", "30", 3600, 1800)
async def _interval_of_visits(scene: HttpScene) -> Any:
    return scene.broker.broker_session.topic_visits.interval_s


@_shows("max_waiting_producers_per_topic", "1", False, True)
async def _second_waiting_producer_is_refused(scene: HttpScene) -> Any:
    topic, mode = _new_name(), ProducerAccessMode.WaitForExclusive
    async with scene.broker.client() as client:
        await client.create_producer(topic, access_mode=mode)
        waiting = [asyncio.create_task(client.create_producer(topic, access_mode=mode)) for _ in range(2)]
        producers = (await scene.broker.broker_session.topics.get(TopicName.parse(topic), create=False)).producers
        await until(lambda: producers.queued == 2 or any(one.done() for one in waiting), "they wait, or one is refused")
        refused = any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return refused


@_shows("subscribe_rate_period_per_consumer_in_second", "7", 30, 7)
async def _period_of_subscribe_requests(scene: HttpScene) -> Any:
    return (await _new_loaded_topic(scene)).live_settings.current.subscribe_rate.period_seconds


async def test_each_dynamic_setting_has_an_effect_on_a_running_broker() -> None:
    """ADM-1: dynamic configuration."""
    assert set(_EFFECTS) == {name for name, one in settings_of(BrokerSettings).items() if one.dynamic}
    started_with = {"health_check_max_age_seconds": 0, "default_num_partitions": 2}
    async with running_http(pulsar=True, **started_with) as scene:
        for name, (override, probe, without, overridden) in _EFFECTS.items():
            assert await probe(scene) == without, name
            answer = await scene.ask("POST", f"{_PATH}/{name}/{override}")
            assert answer.status == 200, (name, answer)
            assert await probe(scene) == overridden, name
            for other in await scene.get(f"{_PATH}/values"):
                assert (await scene.ask("DELETE", f"{_PATH}/{other}")).status == 200
