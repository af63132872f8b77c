"""Topics on Pulsar's REST paths, and the same through gRPC."""

from __future__ import annotations

from typing import NoReturn

import pytest

from magnetar import exceptions
from magnetar.admin import PartitionedTopic
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_protos.broker_pb2 import ErrorCode
from tests.unit.broker.http.admin_scene import HttpScene, running_http

_NS = "persistent/public/default"
_VND = "application/vnd.partitioned-topic-metadata+json"


async def _check(scene: HttpScene, *expected: tuple[str, str, object, int]) -> None:
    """Make requests in order, and compare their statuses. A refusal has a reason."""
    for verb, path, body, status in expected:
        answer = await scene.ask(verb, path, body)
        assert answer.status == status, (verb, path, body, answer)
        assert status < 400 or answer.reason


async def test_a_topic_is_created_listed_and_deleted() -> None:
    """TOP-1, TOP-2: the statuses are those of Pulsar."""
    async with running_http() as scene:
        admin = scene.broker.admin
        await _check(
            scene,
            ("PUT", f"{_NS}/t", None, 204),
            ("PUT", f"{_NS}/t", None, 409),
            ("PUT", f"{_NS}/t/partitions", 3, 409),
            ("POST", f"{_NS}/t/partitions", 3, 409),
            ("DELETE", f"{_NS}/t/partitions", None, 409),
            ("PUT", "persistent/public/none/t", None, 404),
            ("PUT", "persistent/none/default/t", None, 404),
            ("PUT", f"{_NS}/t-partition-0", None, 412),
            ("PUT", f"{_NS}/__change_events", None, 412),
            ("PUT", f"{_NS}/a%2Fb", None, 412),
            ("PUT", f"{_NS}/%00", None, 412),
            ("PUT", "persistent/public/t", None, 405),
            ("PUT", f"{_NS}/u%20%C3%A4", {"k": "v"}, 204),
        )
        names = ["persistent://public/default/t", "persistent://public/default/u ä"]
        assert await scene.get(_NS) == await admin.topics.list("public/default") == names
        bundle = await admin.topics.bundle_range("t")
        assert names[0] in await scene.get(f"{_NS}?bundle={bundle}")
        assert await scene.get(f"{_NS}?bundle=0x00000000_0x00000001") == []
        await _check(
            scene,
            ("GET", f"{_NS}?bundle=x", None, 412),
            ("GET", "persistent/public/none", None, 404),
            ("DELETE", f"{_NS}/t", None, 204),
            ("DELETE", f"{_NS}/t", None, 404),
            ("DELETE", f"{_NS}/t?force=true", None, 404),
            ("DELETE", f"{_NS}/t?force=perhaps", None, 400),
            ("DELETE", f"{_NS}/t/partitions", None, 404),
            ("PUT", f"{_NS}/t/unload", None, 404),
            ("DELETE", f"{_NS}/t/truncate", None, 404),
            ("POST", f"{_NS}/t/trim", None, 404),
        )
        for name in ("a/b", "persistent://public/t", "weird://public/default/t", "public/default/t/u/v"):
            with pytest.raises(exceptions.InvalidTopicName, match="write persistent://tenant/namespace/topic"):
                await admin.topics.create(name)


async def test_partitions_are_created_read_grown_and_deleted() -> None:
    async with running_http() as scene:
        admin = scene.broker.admin
        await _check(
            scene,
            ("PUT", f"{_NS}/p/partitions", 2, 204),
            ("PUT", f"{_NS}/p/partitions", 2, 409),
            ("PUT", f"{_NS}/p", None, 409),
            ("PUT", f"{_NS}/q/partitions", 0, 406),
            ("PUT", f"{_NS}/q/partitions", -1, 406),
            ("PUT", f"{_NS}/q/partitions", 1_000_000, 406),
            ("PUT", f"{_NS}/q/partitions", "x", 400),
            ("PUT", f"{_NS}/q/partitions", None, 400),
            ("PUT", f"{_NS}/q/partitions", {"properties": {}}, 400),
            ("PUT", f"{_NS}/m/partitions", {"partitions": 1, "properties": {"a": "b"}}, 204),
            ("PUT", f"{_NS}/p-partition-9", None, 412),
        )
        assert await scene.get(f"{_NS}/p/partitions") == {"partitions": 2, "deleted": False}
        assert await scene.get(f"{_NS}/p-partition-0/partitions") == {"partitions": 0, "deleted": False}
        assert (await scene.get(f"{_NS}/m/partitions"))["properties"] == {"a": "b"}
        assert await admin.topics.get_partitioned("m") == PartitionedTopic(1, {"a": "b"})
        parts = [f"persistent://public/default/{name}" for name in ("m-partition-0", "p-partition-0", "p-partition-1")]
        assert await scene.get(_NS) == await admin.topics.list("public/default") == parts
        assert await scene.get(f"{_NS}/partitioned") == [f"persistent://public/default/{name}" for name in "mp"]
        await _check(
            scene,
            ("POST", f"{_NS}/p/partitions", 4, 204),
            ("POST", f"{_NS}/p/partitions", 4, 204),
            ("POST", f"{_NS}/p/partitions", 3, 422),
            ("POST", f"{_NS}/p/partitions", 0, 422),
            ("POST", f"{_NS}/p/partitions", "x", 400),
            ("POST", f"{_NS}/none/partitions", 3, 409),
            ("DELETE", f"{_NS}/p", None, 409),
            ("DELETE", f"{_NS}/p-partition-1", None, 204),
        )
        assert len(await scene.get(_NS)) == 4
        await _check(
            scene,
            ("POST", f"{_NS}/p/createMissedPartitions", None, 204),
            ("POST", f"{_NS}/none/createMissedPartitions", None, 404),
        )
        assert len(await scene.get(_NS)) == 5
        await _check(
            scene,
            ("DELETE", f"{_NS}/p/partitions", None, 204),
            ("DELETE", f"{_NS}/m/partitions?force=true", None, 204),
            ("DELETE", f"{_NS}/m/partitions", None, 404),
        )
        assert await scene.get(_NS) == []


@pytest.mark.parametrize("kind", ["partitioned", "non-partitioned"])
async def test_http_clients_create_topics_on_first_use(kind: str) -> None:
    """TOP-2: client libraries ask for the partitions before they look up a topic."""
    async with running_http(allow_auto_topic_creation_type=kind, default_num_partitions=2) as scene:
        partitions = 2 if kind == "partitioned" else 0
        await _check(scene, ("GET", f"{_NS}/t/partitions", None, 404))
        assert await scene.get(f"{_NS}/t/partitions?checkAllowAutoCreation=true") == {
            "partitions": partitions,
            "deleted": False,
        }
        assert (await scene.broker.admin.topics.find_partitions("u", create=True)).partitions == partitions
        assert len(await scene.get(f"{_NS}/partitioned")) == partitions
        async with scene.broker.client() as client:
            await (await client.create_producer("t")).close()
        assert (await scene.get(f"{_NS}/t/partitions"))["partitions"] == partitions
    async with running_http(allow_auto_topic_creation=False) as scene:
        await _check(scene, ("GET", f"{_NS}/t/partitions?checkAllowAutoCreation=true", None, 404))


async def test_properties_of_topics_with_and_without_partitions() -> None:
    async with running_http() as scene:
        admin = scene.broker.admin
        await admin.topics.create("t", {"k": "v"})
        await admin.topics.create_partitioned("p", 2, {"k": "v"})
        for name in "tp":
            path = f"{_NS}/{name}/properties"
            assert await scene.get(path) == {"k": "v"}
            await _check(
                scene,
                ("PUT", path, {"k2": "v2", "ä": ""}, 204),
                ("DELETE", f"{path}?key=k", None, 204),
                ("DELETE", f"{path}?key=none", None, 204),
                ("PUT", path, None, 204),
                ("DELETE", path, None, 204),
                ("PUT", path, {"k": 7}, 400),
                ("PUT", path, ["k"], 400),
                ("PUT", path, {"k": "x" * 16_384}, 412),
                ("PUT", f"{_NS}/{name}/unload", None, 204),
            )
            assert await scene.get(path) == {"k2": "v2", "ä": ""}
            await admin.topics.update_properties(name, {"k2": "v3"})
            await admin.topics.remove_properties(name, ["ä", "none"])
            assert await admin.topics.properties(name) == {"k2": "v3"}
        assert await scene.get(f"{_NS}/p-partition-0/properties") == {}
        await _check(
            scene,
            ("GET", f"{_NS}/none/properties", None, 404),
            ("PUT", f"{_NS}/none/properties", {}, 404),
            ("DELETE", f"{_NS}/none/properties?key=k", None, 404),
            ("DELETE", f"{_NS}/t", None, 204),
            ("PUT", f"{_NS}/t", None, 204),
        )
        assert await scene.get(f"{_NS}/t/properties") == {}


async def test_a_topic_is_created_with_its_properties_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async def change_properties(self: ManagedLedger, *_: object) -> NoReturn:
        raise BrokerError(ErrorCode.METADATA_ERROR, "a second step that fails")

    monkeypatch.setattr(ManagedLedger, "change_properties", change_properties)
    async with running_http() as scene:
        await _check(scene, ("PUT", f"{_NS}/t", {"k": "v"}, 204), ("PUT", f"{_NS}/t", {"k": "w"}, 409))
        await scene.broker.admin.topics.create("g", {"k": "v"})
        for name in "tg":
            assert await scene.get(f"{_NS}/{name}/properties") == {"k": "v"}


async def test_non_persistent_topics_and_the_calls_that_they_lack() -> None:
    """(TOP-5) They are listed while they are loaded. Pulsar answers 400, 405, 406, 412 or 500 to what they lack."""
    async with running_http() as scene:
        base, name = "non-persistent/public/default", "non-persistent://public/default/t"
        for path in (base, f"{base}/partitioned", f"{base}/0x00000000_0x40000000"):
            assert await scene.get(path) == []
        assert (await scene.ask("PUT", f"{base}/t")).status == 204
        assert (await scene.ask("PUT", f"{base}/t")).status == 409
        assert await scene.get(base) == await scene.get("namespaces/public/default/topics?mode=ALL") == [name]
        assert await scene.get("namespaces/public/default/topics?mode=NON_PERSISTENT") == [name]
        assert await scene.get("persistent/public/default") == await scene.get("namespaces/public/default/topics") == []
        stats = await scene.get(f"{base}/t/stats")
        assert (stats["msgDropRate"], stats["subscriptions"], stats["storageSize"]) == (0.0, {}, 0)
        assert (await scene.get(f"{base}/t/internalStats"))["numberOfEntries"] == 0
        assert await scene.get(f"{base}/t/subscriptions") == []
        for verb, path in (
            ("DELETE", "truncate"),
            ("GET", "lastMessageId"),
            ("GET", "messageid/0"),
            ("GET", "properties"),
            ("GET", "subscription/s/position/1"),
            ("POST", "all_subscription/expireMessages/3"),
            ("POST", "subscription/s/expireMessages/3"),
            ("POST", "subscription/s/resetcursor/0"),
            ("POST", "subscription/s/skip/1"),
            ("POST", "subscription/s/skip_all"),
            ("POST", "terminate"),
            ("POST", "trim"),
            ("PUT", "subscription/s"),
        ):
            answer = await scene.ask(verb, f"{base}/t/{path}")
            assert (answer.status, "is non-persistent" in answer.reason) == (405, True), (verb, path)
        with pytest.raises(exceptions.OperationNotSupported, match="is non-persistent"):
            await scene.broker.admin.subscriptions.create(name, "s")
        assert (await scene.ask("DELETE", f"{base}/t/subscription/s")).status == 404
        assert (await scene.ask("POST", f"{base}/t/maxProducers", 3)).status == 204
        assert (await scene.ask("PUT", f"{base}/t/unload")).status == 204
        assert await scene.get(base) == []
        assert (await scene.ask("GET", f"{base}/t/stats")).status == 404
        # A topic of the same name has the policies, until it is deleted.
        assert (await scene.ask("PUT", f"{base}/t")).status == 204
        assert await scene.get(f"{base}/t/maxProducers") == 3
        assert (await scene.ask("DELETE", f"{base}/t")).status == 204
        assert (await scene.ask("DELETE", f"{base}/t")).status == 404
        assert (await scene.ask("PUT", f"{base}/t")).status == 204
        assert (await scene.ask("GET", f"{base}/t/maxProducers")).body is None


async def test_partitioned_non_persistent_topics() -> None:
    """(TOP-3, TOP-5) The number of partitions is stored; a partition exists while it is used."""
    async with running_http() as scene, scene.broker.client() as client:
        base, name = "non-persistent/public/default", "non-persistent://public/default/p"
        assert (await scene.ask("PUT", f"{base}/p/partitions", 2)).status == 204
        assert (await scene.ask("PUT", f"{base}/p")).status == 409
        assert await scene.get(f"{base}/partitioned") == [name]
        assert await scene.get(base) == []
        consumer = await client.subscribe(name, "s")
        producer = await client.create_producer(name)
        await producer.send(b"1")
        assert (await consumer.receive(60_000)).data() == b"1"
        assert await scene.get(base) == [f"{name}-partition-0", f"{name}-partition-1"]
        stats = await scene.get(f"{base}/p/partitioned-stats")
        assert (stats["msgInCounter"], stats["msgDropRate"], list(stats["partitions"])) == (
            1,
            0.0,
            [f"{name}-partition-0", f"{name}-partition-1"],
        )
        assert stats["subscriptions"]["s"]["droppedMessages"] == 0
        assert await scene.get(f"{base}/p/subscriptions") == ["s"]
        assert list((await scene.get(f"{base}/p/partitioned-internalStats"))["partitions"]) == list(stats["partitions"])
        assert (await scene.ask("POST", f"{base}/p/createMissedPartitions")).status == 204
        assert (await scene.ask("POST", f"{base}/p/partitions", 3)).status == 204
        assert (await scene.get(f"{base}/p/partitions"))["partitions"] == 3
        assert (await scene.ask("DELETE", f"{base}/p/partitions")).status == 412
        assert (await scene.ask("DELETE", f"{base}/p/partitions?force=true")).status == 204
        assert (await scene.ask("DELETE", f"{base}/p/partitions")).status == 404
