"""Every row of the table of policies (client/policies.md), at each of its levels: set over HTTP while a topic has a
producer and a consumer, it has its effect within seconds. A policy that is only stored gives a warning.

The level `broker` is the brokers' setting that the policy replaces: changed over HTTP if it is dynamic, else the broker
is started with it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from magnetar import ConsumerType, InitialPosition, aio, exceptions
from magnetar.admin import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    NamespacePolicies,
    Persistence,
    PublishRate,
    Retention,
    SubscribeRate,
    TopicPolicies,
)
from magnetar.admin.models import SubscriptionStats, TopicStats
from magnetar.schema import AvroSchema
from magnetar_broker.catalog.policy_settings import settings_by_policies
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics import policy_refresh, subscription_expiry
from magnetar_broker.topics.topic import Topic
from magnetar_wire.admin.policies import POLICIES, POLICY_OF, Level
from magnetar_wire.admin.policy_effects import EFFECTS
from magnetar_wire.settings import settings_of
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.http.admin_scene import HttpScene, running_http
from tests.unit.wire.test_policies import read

_NAMESPACE: Final = "public/default"
_FAST: Final = {
    "metadata_cache_ttl_seconds": 0.02,
    "topic_housekeeping_interval_seconds": 0.02,
    "backlog_quota_check_interval_in_seconds": 0.02,
    "message_expiry_check_interval_in_minutes": 0.0005,
    "subscription_expiry_check_interval_in_minutes": 0.0005,
}
# A ledger for each entry.
_SHORT_LEDGERS: Final = {
    "managed_ledger_max_entries_per_ledger": 1,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
}
_LATER_MS: Final = 120_000


@dataclass
class First:
    a: int


@dataclass
class Second:
    a: int
    b: int = 0


class Live:
    """A topic `t` with a producer, a Shared consumer of subscription `s`, and a subscription `idle`."""

    def __init__(self, scene: HttpScene, client: aio.Client) -> None:
        self.scene = scene
        self.client = client
        self.numbers = itertools.count()
        # Of the broker's wall clock.
        self.later_ms = 0

    async def start(self) -> None:
        clock, time_ms = self.scene.broker.clock, self.scene.broker.clock.time_ms
        clock.time_ms = lambda: time_ms() + self.later_ms  # type: ignore[method-assign]
        self.scene.broker.broker_session.schema_access.policies_age_s = 0.02
        self.producer = await self.client.create_producer("t", batching_enabled=False)
        self.consumer = await self.subscribe("s", "t")
        await self.scene.admin.subscriptions.create("t", "idle")
        await self.producer.send(b"first")

    async def subscribe(self, name: str, topic: str = "t", **options: Any) -> Any:
        options = {"consumer_type": ConsumerType.Shared, "initial_position": InitialPosition.Earliest, **options}
        return await self.client.subscribe(topic, name, **options)

    @property
    def topic(self) -> Topic:
        topic = self.scene.broker.broker_session.topics.get_loaded(TopicName.parse("t"))
        assert topic is not None
        return topic

    async def stats(self) -> TopicStats:
        return await self.scene.admin.topics.stats("t")

    async def subscription(self, name: str) -> SubscriptionStats:
        return (await self.stats()).subscription(name)


async def _refused(opening: Awaitable[Any], *kinds: type[Exception]) -> bool:
    """Return whether it is refused for one of these reasons; close what was opened."""
    try:
        opened = await opening
    except kinds:
        return True
    except exceptions.Timeout:
        return False
    if hasattr(opened, "close"):
        await opened.close()
    return False


# What shows the effect of each policy: False before it is set.


async def _stores_on_one_bookie(live: Live) -> bool:
    placed = await live.producer.send(b"x")
    metadata = await live.scene.broker.broker_session.client.ledgers.read_metadata(placed.ledger_id())
    return metadata.striping.ensemble_size == 1


async def _creates_no_topic(live: Live) -> bool:
    return await _refused(live.client.create_producer(f"new-{next(live.numbers)}"), exceptions.TopicNotFound)


async def _creates_no_subscription(live: Live) -> bool:
    return await _refused(live.subscribe(f"new-{next(live.numbers)}"), exceptions.SubscriptionNotFound)


async def _retains(live: Live) -> bool:
    await live.producer.send(b"x")
    await live.scene.admin.subscriptions.skip_all("t", "s")
    await live.scene.admin.subscriptions.skip_all("t", "idle")
    return len((await live.scene.admin.topics.internal_stats("t")).ledgers) >= 5


async def _expires_messages(live: Live) -> bool:
    live.later_ms = _LATER_MS
    return (await live.subscription("idle")).backlog_entries == 0


async def _expires_subscriptions(live: Live) -> bool:
    return "idle" not in live.topic.subscriptions.names


async def _has_reached_its_quota(live: Live) -> bool:
    return await _refused(live.client.create_producer("t"), exceptions.ProducerBlockedQuotaExceededException)


async def _has_an_old_backlog(live: Live) -> bool:
    live.later_ms = _LATER_MS
    return await _has_reached_its_quota(live)


async def _drops_duplicates(live: Live) -> bool:
    producer = await live.client.create_producer("t", f"p-{next(live.numbers)}", batching_enabled=False)
    placed = [await producer.send(b"x", sequence_id=5) for _ in range(2)]
    await producer.close()
    return placed[1].entry_id() == -1


async def _stores_snapshots(live: Live) -> bool:
    for _ in range(10):
        await live.producer.send(b"x")
    cursor, log = live.topic.cursors.get_internal(DEDUPLICATION_CURSOR), live.topic.log
    return cursor is not None and log.entries_between(cursor.saved_mark_delete, log.last) <= 5


async def _deletes_unused_topics(live: Live) -> bool:
    if not next(live.numbers):
        await live.scene.admin.topics.create("unused")
    if (unused := live.scene.broker.broker_session.topics.get_loaded(TopicName.parse("unused"))) is not None:
        unused.inactive_since -= _LATER_MS
    return not any("unused" in name for name in await live.scene.admin.topics.list(_NAMESPACE))


async def _limits_publishes(live: Live) -> bool:
    sending = [asyncio.ensure_future(live.producer.send(b"x")) for _ in range(30)]
    try:
        return "publish rate of the topic" in (await live.stats()).waiting_for
    finally:
        await asyncio.gather(*sending)


async def _limits_dispatches(live: Live, name: str) -> bool:
    for _ in range(3):
        await live.producer.send(b"x")
    return f"dispatch rate of the {name}" in (await live.subscription("s")).blocked_by


async def _limits_dispatches_of_the_topic(live: Live) -> bool:
    return await _limits_dispatches(live, "topic")


async def _limits_dispatches_of_the_subscription(live: Live) -> bool:
    return await _limits_dispatches(live, "subscription")


async def _limits_subscribe_requests(live: Live) -> bool:
    async with live.scene.broker.client(operation_timeout_seconds=0.1) as impatient:
        for _ in range(2):
            opening = impatient.subscribe("t", "s", ConsumerType.Shared, consumer_name="c")
            if await _refused(opening, exceptions.TooManyLookupRequestException):
                return True
    return False


async def _limits_producers(live: Live) -> bool:
    return await _refused(live.client.create_producer("t"), exceptions.ProducerBusy)


async def _limits_consumers(live: Live) -> bool:
    return await _refused(live.subscribe("idle"), exceptions.ConsumerBusy)


async def _limits_consumers_of_the_subscription(live: Live) -> bool:
    return await _refused(live.subscribe("s"), exceptions.ConsumerBusy)


async def _limits_unacknowledged_of_the_consumer(live: Live) -> bool:
    await live.producer.send(b"x")
    return (await live.subscription("s")).consumers[0].blocked_on_unacknowledged


async def _limits_unacknowledged_of_the_subscription(live: Live) -> bool:
    await live.producer.send(b"x")
    return (await live.subscription("s")).blocked_on_unacknowledged


async def _limits_subscriptions(live: Live) -> bool:
    name = f"new-{next(live.numbers)}"
    return await _refused(live.subscribe(name), exceptions.NotAllowedError, exceptions.ConsumerBusy)


async def _enables_shared_only(live: Live) -> bool:
    opening = live.subscribe(f"new-{next(live.numbers)}", consumer_type=ConsumerType.Failover)
    return await _refused(opening, exceptions.NotAllowedError)


async def _limits_topics(live: Live) -> bool:
    return await _refused(live.client.create_producer(f"new-{next(live.numbers)}"), exceptions.NotAllowedError)


async def _limits_messages(live: Live) -> bool:
    return await _refused(live.producer.send(bytes(2000)), exceptions.MessageTooBig)


def _avro(model: type) -> Mapping[str, Any]:
    fields = [{"name": name, "type": "int", "default": 0} for name in model.__annotations__]
    definition = {"type": "record", "name": "R", "fields": fields}
    return {"type": "AVRO", "schema": json.dumps(definition), "properties": {}}


async def _finds_schemas_incompatible(live: Live) -> bool:
    if not next(live.numbers):
        await live.scene.admin.topics.create("typed")
        path = f"schemas/{_NAMESPACE}/typed"
        assert (await live.scene.ask("POST", f"{path}/schema", _avro(First))).status == 200
    answer = await live.scene.ask("POST", f"schemas/{_NAMESPACE}/typed/compatibility", _avro(Second))
    return answer.body["compatibility"] is False


async def _adds_no_schema_version(live: Live) -> bool:
    """With a topic of its own each time, whose first version needs no permission."""
    name = f"typed-{next(live.numbers)}"
    assert (await live.scene.ask("POST", f"schemas/{_NAMESPACE}/{name}/schema", _avro(First))).status == 200
    opening = live.client.create_producer(name, schema=AvroSchema(None, json.loads(_avro(Second)["schema"])))
    return await _refused(opening, exceptions.IncompatibleSchema)


async def _requires_a_schema(live: Live) -> bool:
    if not next(live.numbers):
        path = f"schemas/{_NAMESPACE}/t/schema"
        assert (await live.scene.ask("POST", path, _avro(First))).status == 200
    return await _refused(live.client.create_producer("t"), exceptions.IncompatibleSchema)


@dataclass(frozen=True, slots=True)
class Row:
    """How the effect of one policy is seen."""

    value: Any
    sees: Callable[[Live], Awaitable[bool]]
    # Instead of the policy, at the broker: its settings, by name; none: it has none.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Other settings that it needs.
    with_settings: Mapping[str, Any] = field(default_factory=dict)
    # The topic that has it at the level of topics.
    topic: str = "t"


_EXCEPTION: Final = "producer_exception"
ROWS: Final[Mapping[str, Row]] = {
    "persistence": Row(
        Persistence(1, 1, 1),
        _stores_on_one_bookie,
        {f"managed_ledger_default_{one}": 1 for one in ("ensemble_size", "write_quorum", "ack_quorum")},
        _SHORT_LEDGERS,
    ),
    "auto_topic_creation": Row(AutoTopicCreation(False), _creates_no_topic, {"allow_auto_topic_creation": False}),
    "auto_subscription_creation": Row(
        AutoSubscriptionCreation(False), _creates_no_subscription, {"allow_auto_subscription_creation": False}
    ),
    "retention": Row(
        Retention(-1, -1),
        _retains,
        {"default_retention_time_in_minutes": -1, "default_retention_size_in_mb": -1},
        _SHORT_LEDGERS,
    ),
    "message_ttl_seconds": Row(60, _expires_messages, {"ttl_duration_default_in_seconds": 60}),
    "subscription_expiration_minutes": Row(1, _expires_subscriptions, {"subscription_expiration_time_minutes": 1}),
    "backlog_quota_size": Row(
        BacklogQuota(_EXCEPTION, limit_size_bytes=10),
        _has_reached_its_quota,
        {"backlog_quota_default_limit_bytes": 10, "backlog_quota_default_retention_policy": _EXCEPTION},
    ),
    "backlog_quota_age": Row(
        BacklogQuota(_EXCEPTION, limit_time_seconds=60),
        _has_an_old_backlog,
        {"backlog_quota_default_limit_second": 60, "backlog_quota_default_retention_policy": _EXCEPTION},
    ),
    "deduplication": Row(True, _drops_duplicates, {"broker_deduplication_enabled": True}),
    "deduplication_snapshot_entries": Row(
        2,
        _stores_snapshots,
        {"broker_deduplication_entries_interval": 2},
        {"broker_deduplication_enabled": True},
    ),
    "inactive_topics": Row(
        InactiveTopics(True, "delete_when_no_subscriptions", 1),
        _deletes_unused_topics,
        {
            "broker_delete_inactive_topics_enabled": True,
            "broker_delete_inactive_topics_max_inactive_duration_seconds": 1,
        },
        topic="unused",
    ),
    "publish_rate": Row(PublishRate(100), _limits_publishes, {"max_publish_rate_per_topic_in_messages": 100}),
    "dispatch_rate": Row(
        DispatchRate(1), _limits_dispatches_of_the_topic, {"dispatch_throttling_rate_per_topic_in_msg": 1}
    ),
    "subscription_dispatch_rate": Row(
        DispatchRate(1),
        _limits_dispatches_of_the_subscription,
        {"dispatch_throttling_rate_per_subscription_in_msg": 1},
    ),
    "subscribe_rate": Row(
        SubscribeRate(1, 600),
        _limits_subscribe_requests,
        {"subscribe_throttling_rate_per_consumer": 1, "subscribe_rate_period_per_consumer_in_second": 600},
    ),
    "max_producers_per_topic": Row(1, _limits_producers, {"max_producers_per_topic": 1}),
    "max_consumers_per_topic": Row(1, _limits_consumers, {"max_consumers_per_topic": 1}),
    "max_consumers_per_subscription": Row(
        1, _limits_consumers_of_the_subscription, {"max_consumers_per_subscription": 1}
    ),
    "max_unacked_messages_per_consumer": Row(
        2, _limits_unacknowledged_of_the_consumer, {"max_unacked_messages_per_consumer": 2}
    ),
    "max_unacked_messages_per_subscription": Row(
        2, _limits_unacknowledged_of_the_subscription, {"max_unacked_messages_per_subscription": 2}
    ),
    "max_subscriptions_per_topic": Row(2, _limits_subscriptions, {"max_subscriptions_per_topic": 2}),
    "max_topics_per_namespace": Row(1, _limits_topics, {"max_topics_per_namespace": 1}),
    "max_message_size_bytes": Row(1000, _limits_messages, {"max_message_size": 1000}),
    "subscription_types_enabled": Row(("Shared",), _enables_shared_only, {"subscription_types_enabled": ["Shared"]}),
    "schema_compatibility": Row(
        "ALWAYS_INCOMPATIBLE",
        _finds_schemas_incompatible,
        {"schema_compatibility_strategy": "ALWAYS_INCOMPATIBLE"},
        topic="typed",
    ),
    "schema_auto_update": Row("AutoUpdateDisabled", _finds_schemas_incompatible),
    "allow_schema_auto_update": Row(False, _adds_no_schema_version, {"is_allow_auto_update_schema_enabled": False}),
    "schema_validation_enforced": Row(True, _requires_a_schema, {"is_schema_validation_enforced": True}),
}
# They have no effect on clients: they are only shown.
_SHOWN: Final = {
    "replication_clusters": ("standalone",),
    "allowed_clusters": ("standalone",),
    "properties": {"team": "storage"},
}
_DELAYED: Final = DelayedDelivery(active=False)
_STORED: Final[Mapping[str, Any]] = {
    "compaction_threshold_bytes": 1,
    "delayed_delivery": _DELAYED,
    "replicator_dispatch_rate": DispatchRate(1),
    "encryption_required": True,
    "subscription_auth_mode": "Prefix",
    "dispatcher_pause_on_ack_state": True,
}


@asynccontextmanager
async def _live(settings: Mapping[str, Any]) -> AsyncIterator[Live]:
    async with (
        running_http(**{**_FAST, **settings}) as scene,
        scene.broker.client(operation_timeout_seconds=1) as client,
    ):
        yield Live(scene, client)


async def _change(scene: HttpScene, level: Level, name: str, value: Any, topic: str = "t") -> tuple[str, ...]:
    if level is Level.NAMESPACE:
        policies = NamespacePolicies(**{name: value})
        return await scene.admin.namespaces.change_policies(_NAMESPACE, policies)
    return await scene.admin.topics.change_policies(topic, TopicPolicies(**{name: value}))


async def _remove(scene: HttpScene, level: Level, name: str, topic: str) -> None:
    if level is Level.NAMESPACE:
        await scene.broker.admin.namespaces.change_policies(_NAMESPACE, NamespacePolicies(), remove=[name])
    else:
        with suppress(exceptions.TopicNotFound):  # the policy has deleted it
            await scene.broker.admin.topics.change_policies(topic, TopicPolicies(), remove=[name])


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower()


def _levels(names: Mapping[str, Any]) -> list[tuple[str, Level]]:
    return [(name, level) for name in names for level in Level if POLICY_OF[name].path(level) is not None]


@pytest.fixture(autouse=True)
def _is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)
    monkeypatch.setattr(subscription_expiry, "MS_PER_MINUTE", 20)


@pytest.mark.parametrize(("name", "level"), _levels(ROWS))
async def test_a_policy_has_its_effect_on_a_live_topic(name: str, level: Level) -> None:
    """TOP-4, RET-2, RET-4: set and removed over HTTP, without a restart; or it gives a warning."""
    row = ROWS[name]
    async with _live(row.with_settings) as live:
        await live.start()
        if POLICY_OF[name].effect(level):
            await _check_warned(live, level, name, row.value)
            return
        assert not await row.sees(live)
        assert await _change(live.scene, level, name, row.value, row.topic) == ()
        await until(lambda: row.sees(live), f"{name} has its effect")
        await _remove(live.scene, level, name, row.topic)  # what waits for it goes on at once


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.settings])
async def test_the_brokers_setting_has_the_same_effect(name: str) -> None:
    """TOP-4: it is changed over HTTP if it is dynamic."""
    row = ROWS[name]
    declared = settings_of(BrokerServiceSettings)
    dynamic = all(declared[one].dynamic for one in row.settings)
    async with _live({**row.with_settings, **({} if dynamic else row.settings)}) as live:
        await live.start()
        if dynamic:
            assert not await row.sees(live)
            for one, value in row.settings.items():
                await live.scene.broker.admin.brokers.set_dynamic_setting(one, _text(value))
        await until(lambda: row.sees(live), f"{name} has its effect")
        if dynamic:
            for one in row.settings:
                await live.scene.broker.admin.brokers.delete_dynamic_setting(one)


async def _check_warned(live: Live, level: Level, name: str, value: Any) -> None:
    (warning,) = await _change(live.scene, level, name, value)
    assert f"{POLICY_OF[name].name} is stored, and not yet in effect" in warning

    async def is_shown() -> bool:
        return warning in (await live.stats()).not_in_effect

    await until(is_shown, "statistics show it")


async def test_policies_without_effect_give_a_warning() -> None:
    """TOP-4"""
    async with _live({}) as live:
        await live.start()
        for name, level in _levels(_STORED):
            await _check_warned(live, level, name, _STORED[name])


async def test_policies_that_concern_no_client_are_shown() -> None:
    async with _live({}) as live:
        await live.start()
        admin = live.scene.broker.admin
        for name, level in _levels(_SHOWN):
            assert await _change(live.scene, level, name, _SHOWN[name]) == ()
            reading = admin.namespaces.policies(_NAMESPACE) if level is Level.NAMESPACE else admin.topics.policies("t")
            assert getattr(await reading, name) == _SHOWN[name]


def test_every_row_is_tested_and_described() -> None:
    assert {*ROWS, *_SHOWN, *_STORED} == {policy.field for policy in POLICIES} == set(EFFECTS)
    assert not {name for name in _STORED if not all(POLICY_OF[name].effect(level) for level in Level)}


def test_the_guide_names_the_settings_that_a_policy_replaces() -> None:
    fields = set(BrokerServiceSettings.model_fields)
    for name, (settings, _) in EFFECTS.items():
        assert set(settings) <= fields, name
        # Those of retention without a subscription are replaced as a consequence.
        replaced = fields & {one for one in settings_by_policies(read(name)) if "without_subscription" not in one}
        assert replaced <= set(settings), name
        assert name not in ROWS or set(ROWS[name].settings) <= set(settings), name
