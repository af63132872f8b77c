"""Policies of single topics, over gRPC and HTTP."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from magnetar import exceptions
from magnetar.admin import (
    AsyncAdmin,
    AutoSubscriptionCreation,
    NamespacePolicies,
    Persistence,
    Retention,
    TopicPolicies,
)
from magnetar_broker.system_topics import events_topic
from magnetar_cli.command import app
from magnetar_wire.admin.json.policies import QUOTA_BY_AGE, QUOTA_BY_SIZE
from magnetar_wire.admin.policies import POLICIES, Level, Policy
from magnetar_wire.topic_name import NamespaceName
from tests.unit.broker.http.admin_scene import running_http
from tests.unit.wire.test_policies import VALUES

_TOPIC = "persistent/public/default/orders"
_EVENTS = events_topic(NamespaceName("public", "default"))


async def test_a_topics_policy_overrides_that_of_its_namespace() -> None:
    """TOP-4: on HTTP and gRPC, and the brokers' settings apply where neither has one."""
    async with running_http() as scene:
        topics, namespaces = scene.broker.admin.topics, scene.broker.admin.namespaces
        await topics.create("orders")
        applied = f"{_TOPIC}/maxProducers?applied=true"
        assert (await scene.ask("GET", f"{_TOPIC}/maxProducers")).body is None
        assert await scene.get(applied) == 0
        await namespaces.change_policies("public/default", NamespacePolicies(max_producers_per_topic=7))
        assert (await scene.ask("GET", f"{_TOPIC}/maxProducers")).body is None
        assert await scene.get(applied) == 7
        answer = await scene.ask("POST", f"{_TOPIC}/maxProducers", 3)
        assert answer.status == 204
        assert "warning" not in answer.headers
        assert await scene.get(f"{_TOPIC}/maxProducers") == await scene.get(applied) == 3
        assert await topics.policies("orders") == TopicPolicies(max_producers_per_topic=3)
        everything = await topics.policies("orders", applied=True)
        assert (everything.max_producers_per_topic, everything.persistence) == (3, Persistence(2, 2, 2, 1.0))
        assert everything.deduplication_snapshot_entries == 1_000
        assert (await scene.ask("DELETE", f"{_TOPIC}/maxProducers")).status == 204
        assert await scene.get(applied) == 7
        # As in Pulsar, no value removes this one, and the default of another is an empty list.
        await topics.change_policies("orders", TopicPolicies(message_ttl_seconds=60))
        assert (await scene.ask("POST", f"{_TOPIC}/messageTTL")).status == 204
        assert await topics.policies("orders") == TopicPolicies()
        assert await scene.get(f"{_TOPIC}/subscriptionTypesEnabled") == []


async def test_changes_of_other_policies_do_not_undo_each_other() -> None:
    """TOP-4"""
    async with running_http() as scene:
        topics = scene.broker.admin.topics
        await topics.create("orders")
        retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
        assert (await scene.ask("POST", f"{_TOPIC}/retention", retention)).status == 204
        assert await topics.change_policies("orders", TopicPolicies(message_ttl_seconds=60)) == ()
        expected = TopicPolicies(retention=Retention(10, 5), message_ttl_seconds=60)
        assert await topics.policies("orders") == expected
        assert await topics.policies("orders", only=["retention"]) == TopicPolicies(retention=Retention(10, 5))
        await topics.change_policies("orders", TopicPolicies(), remove=["retention"])
        assert await topics.policies("orders") == TopicPolicies(message_ttl_seconds=60)
        assert (await scene.ask("DELETE", f"{_TOPIC}/policies")).status == 204
        assert await topics.policies("orders") == TopicPolicies()


def _path(policy: Policy, *, read: bool = False) -> str:
    path = policy.path(Level.TOPIC)
    assert path is not None
    if policy.field in (QUOTA_BY_SIZE, QUOTA_BY_AGE):
        kind = "message_age" if policy.field == QUOTA_BY_AGE else "destination_storage"
        return f"{_TOPIC}/backlogQuotaMap" if read else f"{_TOPIC}/backlogQuota?backlogQuotaType={kind}"
    if path.parameter and not read:
        return f"{_TOPIC}/{path.name or policy.name}?{path.parameter}={VALUES[policy.field]}"
    return f"{_TOPIC}/{path.name or policy.name}"


async def test_each_policy_of_a_topic_is_the_same_over_http_and_grpc() -> None:
    """TOP-4, ADM-1: it is set by HTTP and read by gRPC, and removed; one without an effect is reported."""
    async with running_http() as scene:
        topics = scene.broker.admin.topics
        await topics.create("orders")
        rows = [policy for policy in POLICIES if policy.topic is not None]
        for policy in rows:
            assert policy.topic is not None
            before = (await scene.ask("GET", _path(policy, read=True))).body
            body = None if policy.topic.value is not None or policy.topic.parameter else VALUES[policy.field]
            answer = await scene.ask(policy.topic.setter, _path(policy), body)
            assert answer.status == policy.topic.set_status, (policy.field, answer)
            expected = f"{policy.name} is stored, and not yet in effect"
            assert (expected in answer.headers.get("warning", "")) is bool(policy.effect(Level.TOPIC)), policy.field
            shown = await scene.get(_path(policy, read=True))
            if policy.field in (QUOTA_BY_SIZE, QUOTA_BY_AGE):
                [shown] = shown.values()
            assert shown == VALUES[policy.field], policy.field
            policies = await topics.policies("orders")
            assert [name for name in policies.__dataclass_fields__ if getattr(policies, name) is not None] == [
                policy.field
            ]
            if policy.topic.remover:
                assert (await scene.ask(policy.topic.remover, _path(policy))).status == 204
            else:
                await topics.change_policies("orders", TopicPolicies(), remove=[policy.field])
            assert (await scene.ask("GET", _path(policy, read=True))).body == before
            assert await topics.policies("orders") == TopicPolicies()


async def test_a_non_persistent_topic_warns_of_policies_without_an_effect() -> None:
    """TOP-5: when they are set and read, over HTTP and gRPC."""
    async with running_http() as scene:
        topics, name = scene.broker.admin.topics, "non-persistent://public/default/ticks"
        await topics.create(name)
        warning = "messageTTL is stored, and not in effect: a non-persistent topic stores no messages"
        assert await topics.change_policies(name, TopicPolicies(message_ttl_seconds=5)) == (warning,)
        assert await topics.policy_warnings(name) == (warning,)
        answer = await scene.ask("POST", f"{name.replace('://', '/')}/messageTTL?messageTTL=6")
        assert warning in answer.headers["warning"]


async def test_policies_belong_to_one_incarnation_of_a_topic() -> None:
    """TOP-7: one that is created again under the same name has none; with and without partitions."""
    async with running_http() as scene:
        topics = scene.broker.admin.topics
        policies = TopicPolicies(message_ttl_seconds=60)
        for partitioned in (False, True):
            await (topics.create_partitioned("orders", 2) if partitioned else topics.create("orders"))
            assert await topics.policies("orders") == TopicPolicies()
            await topics.change_policies("orders", policies)
            assert await topics.policies("orders") == policies
            await (topics.delete_partitioned("orders") if partitioned else topics.delete("orders"))
            assert (await scene.ask("GET", f"{_TOPIC}/messageTTL")).status == 404
            log = await scene.broker.broker_session.policy_logs.open(_EVENTS, create=False)
            assert log.list_events() == []


async def test_what_is_refused() -> None:
    """TOP-4, TOP-6: with the statuses of Pulsar's brokers, and nothing is changed."""
    async with running_http() as scene:
        topics = scene.broker.admin.topics
        await topics.create("orders")
        await topics.create_partitioned("parts", 2)
        for path, status in (
            ("persistent/public/default/none", 404),
            ("persistent/public/default/parts-partition-0", 412),
            (str(_EVENTS).replace("://", "/"), 412),
        ):
            assert (await scene.ask("POST", f"{path}/maxProducers", 3)).status == status, path
        for path in ("persistent/public/default/none", "persistent/public/default/parts-partition-0"):
            assert (await scene.ask("GET", f"{path}/maxProducers")).status in (404, 412)
        assert (await scene.ask("POST", f"{_TOPIC}/maxProducers", -3)).status == 412
        with pytest.raises(exceptions.InvalidArgument, match="has no such policy"):
            await topics.change_policies("orders", TopicPolicies(), remove=["max_topics_per_namespace"])
        assert await topics.policies("orders") == TopicPolicies()
        assert (await scene.ask("POST", "persistent/public/default/parts/maxProducers", 3)).status == 204
        assert await scene.get("persistent/public/default/parts/maxProducers") == 3


@pytest.mark.parametrize("setting", ["topic_level_policies_enabled", "system_topic_enabled"])
async def test_policies_of_topics_can_be_switched_off(setting: str) -> None:
    """TOP-6"""
    async with running_http(**{setting: False}) as scene:
        await scene.broker.admin.topics.create("orders")
        for verb, body in (("GET", None), ("POST", 3), ("DELETE", None)):
            assert (await scene.ask(verb, f"{_TOPIC}/maxProducers", body)).status == 405
        with pytest.raises(exceptions.OperationNotSupported, match="switched off"):
            await scene.broker.admin.topics.policies("orders")


async def test_policies_have_their_effect_on_one_topic() -> None:
    """TOP-4: subscriptions on first use at once, ledgers with the next one; also on partitions."""
    async with running_http(metadata_cache_ttl_seconds=0.001) as scene:
        topics = scene.broker.admin.topics
        client = scene.broker.client()
        for name in ("orders", "other"):
            await topics.create_partitioned(name, 1)
            async with await client.create_producer(name) as producer:
                await producer.send(b"x")
        policies = TopicPolicies(
            persistence=Persistence(1, 1, 1), auto_subscription_creation=AutoSubscriptionCreation(allowed=False)
        )
        assert await topics.change_policies("orders", policies) == ()
        with pytest.raises(exceptions.SubscriptionNotFound):
            await client.subscribe("orders", "s")
        await (await client.subscribe("other", "s")).close()
        for name, copies in (("orders", 1), ("other", 2)):
            await topics.truncate(name)
            async with await client.create_producer(name) as producer:
                await producer.send(b"x")
            topic = next(one for one in scene.broker.broker_session.topics.loaded() if name in str(one.name))
            ledger_id = topic.log.last.ledger_id
            metadata = await scene.broker.broker_session.client.ledgers.read_metadata(ledger_id)
            assert metadata.striping.write_quorum == copies
        await client.close()


async def test_the_admin_client_reads_and_changes_all_policies_over_http() -> None:
    """TOP-4, ADM-1: which has a path for each of them."""
    async with running_http() as scene, AsyncAdmin(f"http://{scene.address}") as admin:
        await admin.topics.create("orders")
        policies = TopicPolicies(persistence=Persistence(1, 1, 1), compaction_threshold_bytes=60)
        assert len(await admin.topics.change_policies("orders", policies)) == 1
        found = await admin.topics.policies("orders")
        assert (found.persistence, found.compaction_threshold_bytes, found.retention) == (
            policies.persistence,
            60,
            None,
        )
        applied = await admin.topics.policies("orders", applied=True)
        assert (applied.compaction_threshold_bytes, applied.retention) == (60, Retention(0, 0))
        assert len(await admin.topics.policy_warnings("orders")) == 1
        await admin.topics.change_policies(
            "orders", TopicPolicies(), remove=["compaction_threshold_bytes", "persistence"]
        )
        assert (await scene.broker.admin.topics.policies("orders")) == TopicPolicies()


async def test_the_command_sets_and_shows_the_policies_of_a_topic() -> None:
    """TOP-4: with a note on those that are not yet in effect."""
    async with running_http() as scene:
        await scene.broker.admin.topics.create("orders")

        async def run(*options: str) -> tuple[str, str]:
            command = ["topics", "policies", "orders", *options, "--url", f"http://{scene.address}"]
            ended = await asyncio.to_thread(CliRunner().invoke, app, command)
            assert ended.exit_code == 0, ended.stderr
            return ended.stdout, ended.stderr

        shown, warnings = await run("--compaction-threshold-bytes", "7", "--persistence", "1,1,1")
        assert "compactionThreshold is stored, and not yet in effect" in warnings
        lines = {line.split("  ")[0].strip(): line for line in shown.splitlines()}
        assert "7 (stored, not yet in effect)" in lines["compaction threshold bytes"]
        assert "not yet in effect" not in lines["persistence"]
        assert "retention" not in lines
        shown, _ = await run("--remove", "compaction-threshold-bytes", "--applied")
        assert "0" in next(line for line in shown.splitlines() if line.startswith("compaction threshold bytes"))
