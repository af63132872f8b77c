"""Namespaces and their bundles over HTTP."""

from __future__ import annotations

import itertools
from typing import NoReturn

import pytest

from magnetar import exceptions
from magnetar.admin import AutoTopicCreation, DispatchRate, NamespacePolicies, Retention, TopicPolicies
from magnetar_broker.errors import NotOwner, RequestNotStarted
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topics.topics import Topics
from tests.unit.broker.http.admin_scene import running_http

_DEFAULT_BOUNDARIES = ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]


async def test_a_namespace_is_created_with_policies_and_shown_with_all_of_them() -> None:
    """TOP-4: the answer has the names and defaults of Pulsar's."""
    async with running_http() as scene:
        admin = scene.broker.admin
        body = {
            "replication_clusters": ["standalone"],
            "message_ttl_in_seconds": 60,
            "retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
            "deduplicationEnabled": True,
            "compaction_threshold": 7,
            "properties": {"k": "v"},
            "topicDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": 10}},
            "bundles": {"numBundles": 2, "boundaries": []},
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
            "offload_threshold": -1,
            "nonsense": 1,
        }
        answer = await scene.ask("PUT", "namespaces/public/a", body)
        assert answer.status == 204
        warnings = answer.headers["warning"].count("is stored, and not yet in effect")
        assert "compactionThreshold is stored, and not yet in effect" in answer.headers["warning"]
        read = await scene.ask("GET", "namespaces/public/a")
        assert read.headers["warning"].count("is stored, and not yet in effect") == warnings
        shown = read.body
        rate = {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 0,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 0,
        }
        assert shown == {
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
            "replication_clusters": ["standalone"],
            "allowed_clusters": [],
            "bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
            "backlog_quota_map": {},
            "clusterDispatchRate": {"standalone": rate},
            "topicDispatchRate": {"standalone": rate},
            "subscriptionDispatchRate": {},
            "replicatorDispatchRate": {},
            "clusterSubscribeRate": {},
            "deduplicationEnabled": True,
            "compaction_threshold": 7,
            "publishMaxMessageRate": {},
            "latency_stats_sample_rate": {},
            "message_ttl_in_seconds": 60,
            "retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
            "deleted": False,
            "encryption_required": False,
            "subscription_auth_mode": "None",
            "offload_threshold": -1,
            "offload_threshold_in_seconds": -1,
            "schema_compatibility_strategy": "UNDEFINED",
            "is_allow_auto_update_schema": True,
            "schema_validation_enforced": False,
            "subscription_types_enabled": [],
            "properties": {"k": "v"},
            "migrated": False,
        }
        policies = await admin.namespaces.policies("public/a")
        assert (policies.retention, policies.message_ttl_seconds) == (Retention(10, 5), 60)
        assert policies.dispatch_rate == DispatchRate(10, 0, 0)
        assert (await scene.ask("PUT", "namespaces/public/a")).status == 409
        assert (await scene.ask("PUT", "namespaces/public/b", {"replication_clusters": []})).status == 204
        assert await admin.namespaces.policies("public/b") == NamespacePolicies()
        assert (await scene.ask("PUT", "namespaces/nobody/a")).status == 404
        assert await scene.get("namespaces/public") == ["public/a", "public/b", "public/default"]
        assert (await scene.ask("GET", "namespaces/nobody")).status == 404


async def test_bodies_that_cannot_hold_create_no_namespace() -> None:
    async with running_http() as scene:
        for status, body in (
            (400, {"message_ttl_in_seconds": "many"}),
            (412, {"message_ttl_in_seconds": -5}),
            (400, {"retention_policies": {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5}}),
            (400, {"persistence": {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 3}}),
            (403, {"replication_clusters": ["elsewhere"]}),
            (403, {"replication_clusters": ["global"]}),
            (412, {"bundles": {"numBundles": 100_000_000}}),
            (412, {"bundles": {"boundaries": ["0x00000000", "0x90000000"]}}),
            (412, {"bundles": {"boundaries": ["0", "0xffffffff"]}}),
            (400, {"bundles": {"numBundles": True}}),
            (405, {"auth_policies": {"namespace_auth": {"amy": ["produce"]}}}),
            (405, {"offload_policies": {"managedLedgerOffloadDriver": "S3"}}),
            (405, {"topicDispatchRate": {"a": {}, "b": {}}}),
            (400, {"topicDispatchRate": 7}),
            (400, 7),
        ):
            answer = await scene.ask("PUT", "namespaces/public/a", body)
            assert (answer.status, bool(answer.reason)) == (status, True), (body, answer)
        assert await scene.get("namespaces/public") == ["public/default"]


async def test_bundles_are_chosen_split_and_unloaded() -> None:
    """ADM-1: bundles, unload and split."""
    async with running_http() as scene:
        boundaries = ["0x00000000", "0x90000000", "0xffffffff"]
        assert (await scene.ask("PUT", "namespaces/public/a", {"boundaries": boundaries})).status == 204
        assert await scene.get("namespaces/public/a/bundles") == {"boundaries": boundaries, "numBundles": 2}
        assert (await scene.get("namespaces/public/default/bundles"))["boundaries"] == _DEFAULT_BOUNDARIES
        assert (await scene.ask("PUT", "namespaces/public/b", {"bundles": {"numBundles": -1}})).status == 204
        assert (await scene.get("namespaces/public/b/bundles"))["boundaries"] == _DEFAULT_BOUNDARIES
        for verb, path in (("PUT", "unload"), ("PUT", "split"), ("POST", "clearBacklog")):
            missing = await scene.ask(verb, f"namespaces/public/a/0x00000000_0x80000000/{path}")
            assert (missing.status, missing.headers["x-magnetar-error"]) == (412, "NOT_FOUND"), path
            assert (await scene.ask(verb, f"namespaces/public/none/0x00000000_0x80000000/{path}")).status == 404
        for admin in (scene.broker.admin, scene.admin):
            with pytest.raises(exceptions.NotFound, match="has no bundle"):
                await admin.namespaces.unload("public/a", "0x00000000_0x80000000")
        bundle = "namespaces/public/a/0x00000000_0x90000000"
        assert (await scene.ask("PUT", f"{bundle}/split?splitAlgorithmName=nonsense")).status == 412
        assert (await scene.ask("PUT", f"{bundle}/split?splitAlgorithmName=flow_or_qps_equally_divide")).status == 405
        assert (await scene.ask("PUT", f"{bundle}/split?unload=true")).status == 204
        rest = "namespaces/public/a/0x48000000_0x90000000"
        positions = f"{rest}/split?splitAlgorithmName=specified_positions_divide"
        assert (await scene.ask("PUT", positions, [0x50000000, 0x10000000])).status == 412
        assert (await scene.ask("PUT", positions, [0x60000000, 0x50000000])).status == 204
        expected = ["0x00000000", "0x48000000", "0x50000000", "0x60000000", "0x90000000", "0xffffffff"]
        assert (await scene.get("namespaces/public/a/bundles"))["boundaries"] == expected
        await scene.broker.admin.topics.create("public/a/t")
        hashes = (await scene.get("namespaces/public/a/0x90000000_0xffffffff/topicHashPositions"))["hashPositions"]
        for lower, upper in itertools.pairwise(expected[:-1]):
            hashes |= (await scene.get(f"namespaces/public/a/{lower}_{upper}/topicHashPositions"))["hashPositions"]
        assert list(hashes) == ["persistent://public/a/t"]
        assert (await scene.ask("PUT", "namespaces/public/a/LARGEST/split")).status == 204
        assert len((await scene.get("namespaces/public/a/bundles"))["boundaries"]) == 7
        assert (await scene.ask("PUT", "namespaces/public/a/unload")).status == 204
        assert (await scene.ask("PUT", "namespaces/public/a/0x00000000_0x48000000/unload")).status == 204
        assert (await scene.ask("PUT", "namespaces/public/a/nonsense/unload")).status == 412
        assert (await scene.ask("DELETE", "namespaces/public/a/0x00000000_0x48000000")).status == 405


async def test_a_namespace_is_deleted_with_its_topics_by_force_only() -> None:
    async with running_http() as scene:
        await scene.ask("PUT", "namespaces/public/a")
        await scene.broker.admin.topics.create("public/a/t")
        assert await scene.get("namespaces/public/a/topics") == ["persistent://public/a/t"]
        assert await scene.get("namespaces/public/a/topics?mode=ALL") == ["persistent://public/a/t"]
        assert await scene.get("namespaces/public/a/topics?mode=NON_PERSISTENT") == []
        assert (await scene.ask("GET", "namespaces/public/a/topics?mode=nonsense")).status == 400
        assert (await scene.ask("GET", "namespaces/public/b/topics")).status == 404
        assert (await scene.ask("DELETE", "namespaces/public/a")).status == 409
        assert (await scene.ask("DELETE", "namespaces/public/a?force=true")).status == 204
        assert (await scene.ask("DELETE", "namespaces/public/a")).status == 404


async def test_stats_of_a_topic_name_the_policies_that_have_no_effect() -> None:
    async with running_http() as scene:
        admin = scene.broker.admin
        await admin.topics.create_partitioned("t", 2)
        await admin.namespaces.change_policies("public/default", NamespacePolicies(compaction_threshold_bytes=10))
        expected = ["compactionThreshold is stored, and not yet in effect: compaction is not supported yet"]
        assert (await admin.topics.stats("t-partition-0")).not_in_effect == expected
        await admin.topics.change_policies("t", TopicPolicies(compaction_threshold_bytes=20))
        assert (await admin.topics.stats("t")).not_in_effect == expected
        assert (await scene.get("persistent/public/default/t-partition-0/stats"))["notInEffect"] == expected


async def test_one_property_is_set_and_removed_without_the_others() -> None:
    async with running_http() as scene:
        space, namespaces = "namespaces/public/default", scene.broker.admin.namespaces
        assert (await scene.ask("PUT", f"{space}/properties", {"a": "b", "c": "d"})).status == 204
        assert (await scene.ask("PUT", f"{space}/property/k/v%2Fw")).status == 204
        assert await namespaces.properties("public/default") == {"a": "b", "c": "d", "k": "v/w"}
        assert (await scene.ask("GET", f"{space}/property/k")).body == b"v/w"
        assert (await scene.ask("GET", f"{space}/property/nope")).body is None
        assert (await scene.ask("DELETE", f"{space}/property/k")).body == b"v/w"
        assert await namespaces.change_properties("public/default", {"e": "f"}, remove=["a"]) == {"a": "b"}
        assert await scene.get(f"{space}/properties") == {"c": "d", "e": "f"}
        assert (await scene.ask("DELETE", f"{space}/properties")).status == 204
        assert await namespaces.policies("public/default") == NamespacePolicies()


async def test_backlogs_of_a_namespace_are_cleared_and_subscriptions_deleted() -> None:
    async with running_http() as scene:
        admin, space = scene.broker.admin, "namespaces/public/default"
        await admin.topics.create_partitioned("p", 2)
        await admin.topics.create("t")
        for topic, subscription in (("p", "one"), ("t", "one"), ("t", "two")):
            await admin.subscriptions.create(topic, subscription)
        assert await admin.namespaces.clear_backlog("public/default") == 4
        assert (await scene.ask("POST", f"{space}/clearBacklog/two")).status == 204
        assert (await scene.ask("POST", f"{space}/0x00000000_0x40000000/clearBacklog")).status == 204
        assert (await scene.ask("POST", f"{space}/0x00000000_0x30000000/clearBacklog")).status == 412
        assert (await scene.ask("POST", f"{space}/unsubscribe/one")).status == 204
        assert await admin.subscriptions.list("p") == []
        assert await admin.subscriptions.list("t") == ["two"]
        assert await admin.namespaces.unsubscribe("public/default", "nobody") == 0


async def test_a_deletion_that_is_done_in_part_is_not_reported_as_refused() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        admin, path = scene.broker.admin, "namespaces/public/default/unsubscribe/one"
        await client.subscribe("used", "one")
        answer = await scene.ask("POST", path)
        assert answer.status == 412, answer
        await admin.topics.create("t")
        await admin.subscriptions.create("t", "one")
        answer = await scene.ask("POST", path)
        assert (answer.status, "done on 1 subscriptions of 2 topics" in answer.reason) == (500, True), answer
        assert await admin.subscriptions.list("t") == []


async def test_a_split_that_is_not_unloaded_is_not_reported_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unload_bundle(self: BundleOwnership, *_: object) -> NoReturn:
        raise NotOwner("it moved")

    monkeypatch.setattr(BundleOwnership, "unload_bundle", unload_bundle)
    async with running_http(admin_forward_timeout_seconds=0.1) as scene:
        path = "namespaces/public/default"
        answer = await scene.ask("PUT", f"{path}/0x00000000_0x40000000/split?unload=true")
        assert (answer.status, "0x00000000_0x40000000 was split" in answer.reason) == (500, True), answer
        assert len((await scene.get(f"{path}/bundles"))["boundaries"]) == 6


async def test_a_deletion_that_is_begun_is_not_reported_as_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 means that nothing was done, but the namespace is marked."""

    async def delete(self: Topics, *_: object, **__: object) -> NoReturn:
        raise RequestNotStarted("it moved")

    async with running_http(admin_forward_timeout_seconds=0.1) as scene:
        await scene.broker.admin.namespaces.create("public/n")
        await scene.broker.admin.topics.create("public/n/t")
        with monkeypatch.context() as broken:
            broken.setattr(Topics, "delete", delete)
            answer = await scene.ask("DELETE", "namespaces/public/n?force=true")
            assert (answer.status, answer.headers["x-magnetar-error"]) == (500, "UNKNOWN_ERROR"), answer
            answer = await scene.ask("DELETE", "persistent/public/n/t")
            assert (answer.status, answer.headers["x-magnetar-error"]) == (503, "SERVICE_NOT_READY"), answer
        await scene.broker.admin.namespaces.delete("public/n", force=True)


async def test_topics_are_created_on_first_use_as_the_policy_says() -> None:
    """TOP-2: the policy of the namespace, set over gRPC and HTTP, goes before the brokers' setting."""
    async with running_http() as scene:
        admin, path = scene.broker.admin, "namespaces/public/default/autoTopicCreation"
        assert (await scene.ask("POST", path, {"allowAutoTopicCreation": False})).status == 204
        client = scene.broker.client()
        with pytest.raises(exceptions.TopicNotFound):
            await client.create_producer("t")
        partitioned = NamespacePolicies(auto_topic_creation=AutoTopicCreation(True, 3))
        await admin.namespaces.change_policies("public/default", partitioned)
        await client.create_producer("t")
        assert (await admin.topics.get_partitioned("t")).partitions == 3
        creation = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        assert await scene.get(path) == creation
        assert (await scene.ask("DELETE", path)).status == 204
        await client.create_producer("u")
        assert "persistent://public/default/u" in await admin.topics.list("public/default")
        await client.close()
