"""Policies of namespaces over HTTP and gRPC: each row of the table of policies."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from magnetar import exceptions
from magnetar.admin import AsyncAdmin, BacklogQuota, NamespacePolicies, Retention
from magnetar_wire.admin.policies import POLICIES, POLICY_OF, Level, Policy
from tests.unit.broker.http.admin_scene import HttpScene, running_http
from tests.unit.wire.test_policies import VALUES

_SPACE: Final = "namespaces/public/default"
_ROWS: Final = [policy for policy in POLICIES if policy.namespace is not None and policy.namespace.setter]
# Values that are refused, of the right type and of the wrong one, with the status of the first.
_WRONG: Final[dict[str, tuple[int, Any, Any]]] = {
    "persistence": (400, {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 3, "bookkeeperAckQuorum": 1}, [3]),
    "auto_topic_creation": (
        412,
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 0},
        {"allowAutoTopicCreation": "yes"},
    ),
    "auto_subscription_creation": (400, [], {"allowAutoSubscriptionCreation": 1}),
    "retention": (400, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}, {"retentionTimeInMinutes": "x"}),
    "backlog_quota_size": (412, {"limitSize": -2, "policy": "producer_exception"}, {"policy": "x"}),
    "backlog_quota_age": (412, {"limitTime": -2, "policy": "producer_exception"}, {"limitTime": 5}),
    "delayed_delivery": (412, {"tickTime": -1, "active": True}, {"active": 1}),
    "inactive_topics": (
        412,
        {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": -1},
        {"inactiveTopicDeleteMode": "x"},
    ),
    "publish_rate": (412, {"publishThrottlingRateInMsg": -5}, {"publishThrottlingRateInMsg": "x"}),
    "dispatch_rate": (412, {"ratePeriodInSecond": -1}, "x"),
    "subscription_dispatch_rate": (412, {"ratePeriodInSecond": -1}, "x"),
    "replicator_dispatch_rate": (412, {"ratePeriodInSecond": -1}, "x"),
    "subscribe_rate": (412, {"ratePeriodInSecond": -1}, "x"),
    "schema_compatibility": (400, "nonsense", 7),
    "schema_auto_update": (400, "nonsense", 7),
    "subscription_auth_mode": (400, "nonsense", 7),
    "subscription_types_enabled": (400, ["Nonsense"], "Shared"),
    "replication_clusters": (403, ["elsewhere"], [7]),
    "allowed_clusters": (403, ["elsewhere"], [7]),
    "deduplication": (400, "x", 7),
    "allow_schema_auto_update": (400, "x", 7),
    "schema_validation_enforced": (400, "x", 7),
    "encryption_required": (400, "x", 7),
}


def _path(policy: Policy, *, read: bool = False) -> str:
    assert policy.namespace is not None
    if policy.name == "backlogQuota":
        kind = "destination_storage" if policy.field == "backlog_quota_size" else "message_age"
        return f"{_SPACE}/backlogQuotaMap" if read else f"{_SPACE}/backlogQuota?backlogQuotaType={kind}"
    return f"{_SPACE}/{policy.namespace.name or policy.name}"


async def _read(scene: HttpScene, policy: Policy) -> Any:
    """Return the JSON value, None if the policy is not set."""
    body = (await scene.ask("GET", _path(policy, read=True))).body
    if policy.name == "backlogQuota":
        return body.get("destination_storage" if policy.field == "backlog_quota_size" else "message_age")
    return body


def _only(field: str, value: Any) -> NamespacePolicies:
    values: dict[str, Any] = {field: value}
    return NamespacePolicies(**values)


async def _set_over_http(scene: HttpScene, admin: AsyncAdmin, policy: Policy) -> None:
    assert policy.namespace is not None
    before = await _read(scene, policy)
    body = None if policy.namespace.value is not None else VALUES[policy.field]
    answer = await scene.ask(policy.namespace.setter, _path(policy), body)
    assert answer.status == policy.namespace.set_status, (policy.field, answer)
    expected = f"{policy.name} is stored, and not yet in effect"
    assert (expected in answer.headers.get("warning", "")) is bool(policy.effect(Level.NAMESPACE)), answer
    read = await scene.ask("GET", _path(policy, read=True))
    assert (expected in read.headers.get("warning", "")) is bool(policy.effect(Level.NAMESPACE)), read
    assert await _read(scene, policy) == VALUES[policy.field]
    policies = await admin.namespaces.policies("public/default")
    value = getattr(policies, policy.field)
    assert value is not None

    if policy.namespace.remover:
        assert (await scene.ask("DELETE", _path(policy))).status == 204
    elif policy.namespace.removed_without_body:
        assert (await scene.ask(policy.namespace.setter, _path(policy))).status == 204
    else:
        await admin.namespaces.change_policies("public/default", NamespacePolicies(), remove=[policy.field])
    assert await _read(scene, policy) == before
    assert await admin.namespaces.policies("public/default") == NamespacePolicies()

    warnings = await admin.namespaces.change_policies("public/default", _only(policy.field, value))
    assert any(one.startswith(expected) for one in warnings) is bool(policy.effect(Level.NAMESPACE))
    assert await _read(scene, policy) == VALUES[policy.field]
    await admin.namespaces.set_policies("public/default", NamespacePolicies())
    assert await _read(scene, policy) == before


async def test_each_policy_is_the_same_over_http_and_grpc() -> None:
    """TOP-4, ADM-1: it is set by HTTP and read by gRPC, and the reverse; a policy without an effect is reported."""
    async with running_http() as scene:
        for policy in _ROWS:
            await _set_over_http(scene, scene.broker.admin, policy)


async def test_values_that_cannot_hold_are_refused_over_both() -> None:
    """TOP-4: and nothing changes."""
    async with running_http() as scene:
        admin = scene.broker.admin
        for policy in _ROWS:
            assert policy.namespace is not None
            if policy.namespace.value is not None:
                continue
            status, invalid, mistyped = _WRONG.get(policy.field, (412, -1, "x"))
            for body, expected in ((invalid, status), (mistyped, 400)):
                answer = await scene.ask(policy.namespace.setter, _path(policy), body)
                assert (answer.status, bool(answer.reason)) == (expected, True), (policy.field, body, answer)
        with pytest.raises(exceptions.InvalidArgument):
            await admin.namespaces.change_policies("public/default", NamespacePolicies(retention=Retention(0, 5)))
        with pytest.raises(exceptions.InvalidArgument):
            await admin.namespaces.change_policies("public/default", NamespacePolicies(message_ttl_seconds=-1))
        with pytest.raises(exceptions.InvalidArgument):
            await admin.namespaces.change_policies("public/default", NamespacePolicies(), remove=["nonsense"])
        assert await admin.namespaces.policies("public/default") == NamespacePolicies()


async def test_what_is_missing_in_a_rate_is_what_pulsar_takes() -> None:
    """TOP-4: as Pulsar 4.0.7 answers; and what is shown is what the brokers apply."""
    publish = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1}
    subscribe = {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30}
    dispatch = {"dispatchThrottlingRateInMsg": 0, "dispatchThrottlingRateInByte": 0} | {
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 0,
    }
    async with running_http() as scene:
        for name, given, missing in (
            ("publishRate", {"publishThrottlingRateInMsg": 5}, publish),
            ("publishRate", {"publishThrottlingRateInByte": 0}, publish),
            ("subscribeRate", {"subscribeThrottlingRatePerConsumer": 2}, subscribe),
            ("subscribeRate", {"ratePeriodInSecond": None}, subscribe),
            ("dispatchRate", {"dispatchThrottlingRateInMsg": 5}, dispatch),
        ):
            assert (await scene.ask("POST", f"{_SPACE}/{name}", given)).status == 204
            expected = missing | {key: value for key, value in given.items() if value is not None}
            assert await scene.get(f"{_SPACE}/{name}") == expected


async def test_the_last_size_of_a_backlog_quota_counts() -> None:
    """As Pulsar's brokers read both names of it."""
    async with running_http() as scene:
        for first, last in (("limit", "limitSize"), ("limitSize", "limit")):
            quota = {first: 1, last: 2, "policy": "producer_exception"}
            assert (await scene.ask("POST", f"{_SPACE}/backlogQuota", quota)).status == 204
            read = (await scene.ask("GET", f"{_SPACE}/backlogQuotaMap")).body["destination_storage"]
            assert (read["limit"], read["limitSize"]) == (2, 2)


async def test_a_retention_exceeds_the_backlog_quotas() -> None:
    async with running_http() as scene:
        quota: dict[str, Any] = {"limitSize": 5 * 1024 * 1024, "policy": "producer_exception"}
        assert (await scene.ask("POST", f"{_SPACE}/backlogQuota", quota)).status == 204
        retention = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}
        assert (await scene.ask("POST", f"{_SPACE}/retention", retention)).status == 412
        quota["limitSize"] -= 1
        assert (await scene.ask("POST", f"{_SPACE}/backlogQuota", quota)).status == 204
        assert (await scene.ask("POST", f"{_SPACE}/retention", retention)).status == 204
        with pytest.raises(exceptions.MagnetarException, match="not below the retention"):
            await scene.broker.admin.namespaces.change_policies(
                "public/default", NamespacePolicies(backlog_quota_age=BacklogQuota("producer_exception", -1, 600))
            )


async def test_changes_of_different_policies_at_once_both_hold() -> None:
    """TOP-4: a change does not undo another administrator's."""
    async with running_http() as scene:
        admin = scene.broker.admin
        await asyncio.gather(
            *(
                admin.namespaces.change_policies("public/default", _only(field, 5))
                for field in ("message_ttl_seconds", "max_producers_per_topic", "max_consumers_per_topic")
            ),
            *(
                scene.ask("POST", f"{_SPACE}/{name}", 5)
                for name in ("maxTopicsPerNamespace", "deduplicationSnapshotInterval")
            ),
            *(scene.ask("PUT", f"{_SPACE}/property/p{number}/{number}") for number in range(3)),
        )
        assert await admin.namespaces.policies("public/default") == NamespacePolicies(
            message_ttl_seconds=5,
            max_producers_per_topic=5,
            max_consumers_per_topic=5,
            max_topics_per_namespace=5,
            deduplication_snapshot_entries=5,
            properties={"p0": "0", "p1": "1", "p2": "2"},
        )


def test_every_policy_has_a_field_of_the_client() -> None:
    fields = set(NamespacePolicies.__dataclass_fields__)
    assert fields == {policy.field for policy in POLICIES if policy.namespace is not None}
    assert set(VALUES) == set(POLICY_OF)
