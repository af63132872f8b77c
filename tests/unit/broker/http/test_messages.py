"""Stored messages and internal statistics on Pulsar's REST paths, and the same through gRPC."""

from __future__ import annotations

import asyncio
import json

import pytest

from magnetar import CompressionType, ConsumerType, aio, exceptions
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_protos.admin_pb2 import PeekedEntry
from magnetar_protos.entry_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from magnetar_wire.admin.http.message_answer import read_entry, write_entry
from magnetar_wire.admin.json.values import InvalidJson
from magnetar_wire.entry import add_broker_metadata, encode_entry
from magnetar_wire.message_id import MessageId
from tests.unit.broker.http.admin_scene import HttpScene, running_http

_NS = "persistent/public/default"


async def _publish(client: aio.Client, topic: str, *payloads: bytes, batch: bool = False) -> list[MessageId]:
    producer = await client.create_producer(topic, batching_enabled=batch, compression_type=CompressionType.LZ4)
    sends = [producer.send(one, partition_key="k", properties={"a": "é\n"}) for one in payloads]
    ids = list(await asyncio.gather(*sends)) if batch else [await one for one in sends]
    await producer.close()
    return ids


async def test_a_message_is_found_by_its_id_by_its_time_and_by_its_number() -> None:
    """ADM-1: the headers are those of Pulsar's brokers."""
    async with running_http() as scene, scene.broker.client() as client:
        path = f"{_NS}/t"
        admins = (scene.broker.admin, scene.admin)
        await scene.broker.admin.topics.create("t")
        assert (await scene.get(f"{path}/lastMessageId"))["entryId"] == -1
        assert (await scene.ask("GET", f"{path}/examinemessage")).status == 412
        one, two = await _publish(client, "t", b"one", b"two")
        last = {"ledgerId": two.ledger_id(), "entryId": 1, "partitionIndex": -1, "batchIndex": -1, "batchSize": 0}
        assert await scene.get(f"{path}/lastMessageId") == last
        entry = f"{path}/ledger/{one.ledger_id()}/entry"
        answer = await scene.ask("GET", f"{entry}/0")
        assert (answer.status, answer.body) == (200, b"one")
        headers = {name: value for name, value in answer.headers.items() if name.startswith("x-pulsar-")}
        assert headers["x-pulsar-message-id"] == f"{one.ledger_id()}:0"
        assert json.loads(headers["x-pulsar-property"]) == {"a": "é\n"}
        assert headers["x-pulsar-partition-key"] == "k"
        assert headers["x-pulsar-compression"] == "LZ4"
        assert headers["x-pulsar-broker-entry-metadata-index"] == "0"
        assert headers["x-pulsar-publish-time"].endswith("Z")
        assert "x-pulsar-num-batch-message" not in headers
        for query, payload in (
            ("", b"two"),
            ("?initialPosition=earliest", b"one"),
            ("?initialPosition=earliest&messagePosition=2", b"two"),
            ("?initialPosition=latest&messagePosition=2", b"one"),
            ("?initialPosition=latest&messagePosition=9", b"one"),
        ):
            assert (await scene.ask("GET", f"{path}/examinemessage{query}")).body == payload
        assert (await scene.get(f"{path}/messageid/0"))["entryId"] == 0
        assert (await scene.get(f"{path}/messageid/{2**40 * 4}"))["entryId"] == 2
        for bad, status in (
            (f"{entry}/2", 404),
            (f"{entry}/-1", 404),
            (f"{entry}/x", 400),
            (f"{path}/ledger/999999/entry/0", 404),
            (f"{path}/messageid/x", 400),
            (f"{path}/examinemessage?initialPosition=x", 412),
            (f"{_NS}/none/lastMessageId", 404),
            (f"{_NS}/none/ledger/1/entry/0", 404),
        ):
            answer = await scene.ask("GET", bad)
            assert (answer.status, bool(answer.reason)) == (status, True), bad
        for admin in admins:
            assert await admin.topics.last_message_id("t") == two
            assert await admin.topics.find_message_id("t", 1) == one
            (message,) = await admin.topics.messages_at("t", one)
            assert (message.message_id, message.payload, message.key) == (one, b"one", "k")
            assert message.properties == {"a": "é\n"}
            (message,) = await admin.topics.examine_messages("t", "earliest", 2)
            assert message.payload == b"two"
            with pytest.raises(exceptions.NotFound):
                await admin.topics.messages_at("t", MessageId(-1, one.ledger_id(), 5))


async def test_headers_have_the_case_that_pulsars_client_looks_for() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        (one,) = await _publish(client, "t", b"one")
        host, _, port = scene.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = f"/admin/v2/{_NS}/t/ledger/{one.ledger_id()}/entry/0"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
        head, _, _ = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert {b"X-Pulsar-PROPERTY", b"X-Pulsar-Message-ID"} <= {line.split(b":")[0] for line in head.splitlines()}


async def test_an_emptied_topic_has_no_last_message() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        await _publish(client, "t", b"one")
        await scene.broker.admin.topics.unload("t")
        await scene.broker.admin.topics.truncate("t")
        for admin in (scene.broker.admin, scene.admin):
            assert (await admin.topics.last_message_id("t")).entry_id() == -1
        assert (await scene.get(f"{_NS}/t/lastMessageId"))["entryId"] == -1


async def test_a_batch_is_answered_whole_and_split_by_the_client() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        ids = await _publish(client, "b", *(b"%d" % number for number in range(3)), batch=True)
        assert {one.entry_id() for one in ids} == {0}
        answer = await scene.ask("GET", f"{_NS}/b/ledger/{ids[0].ledger_id()}/entry/0")
        assert answer.headers["x-pulsar-num-batch-message"] == "3"
        assert int(answer.headers["x-pulsar-uncompressed-size"]) == len(answer.body)
        assert int(answer.headers["x-pulsar-batch-size"]) > 0
        last = await scene.get(f"{_NS}/b/lastMessageId")
        assert (last["batchIndex"], last["batchSize"], last["originalBatchSize"]) == (2, 0, 0)
        for admin in (scene.broker.admin, scene.admin):
            messages = await admin.topics.messages_at("b", ids[1])
            assert [one.payload for one in messages] == [b"0", b"1", b"2"]
            assert [one.message_id for one in messages] == ids
            assert await admin.topics.last_message_id("b") == ids[2]


async def test_internal_statistics_have_pulsars_names() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        (one,) = await _publish(client, "t", b"one")
        await scene.broker.admin.subscriptions.create("t", "s", MessageId.earliest, properties={"a": "b"})
        stats = await scene.get(f"{_NS}/t/internalStats")
        assert {name: stats[name] for name in ("entriesAddedCounter", "numberOfEntries", "currentLedgerEntries")} == {
            "entriesAddedCounter": 1,
            "numberOfEntries": 1,
            "currentLedgerEntries": 1,
        }
        assert stats["totalSize"] == stats["currentLedgerSize"] == stats["ledgers"][0]["size"] > 0
        assert (stats["state"], stats["lastConfirmedEntry"]) == ("LedgerOpened", f"{one.ledger_id()}:0")
        cursor = stats["cursors"]["s"]
        assert cursor["markDeletePosition"] == f"{one.ledger_id()}:-1"
        assert (cursor["active"], cursor["numberOfEntriesSinceFirstNotAckedMessage"]) == (False, 1)
        assert (cursor["individuallyDeletedMessages"], cursor["totalNonContiguousDeletedMessagesRange"]) == ("[]", 0)
        # Pulsar's client reads `properties` of cursors as numbers, and fails at others.
        assert (cursor["properties"], cursor["cursorProperties"]) == ({}, {"a": "b"})
        assert (stats["schemaLedgers"], stats["compactedLedger"]["ledgerId"]) == ([], -1)
        info = await scene.get(f"{_NS}/t/internal-info")
        assert [ledger["ledgerId"] for ledger in info["ledgers"]] == [one.ledger_id()]
        assert info["cursors"].keys() == {"s"}
        assert await scene.admin.topics.internal_stats("t") == await scene.broker.admin.topics.internal_stats("t")


async def test_partitioned_topics_have_no_messages_of_their_own() -> None:
    async with running_http() as scene:
        await scene.broker.admin.topics.create_partitioned("p", 2)
        for verb, path, body, status in (
            ("GET", "lastMessageId", None, 404),
            ("GET", "compaction", None, 404),
            ("GET", "messageid/0", None, 405),
            ("GET", "ledger/1/entry/0", None, 405),
            ("GET", "examinemessage", None, 405),
            ("GET", "internalStats", None, 404),
            ("GET", "internal-info", None, 404),
        ):
            answer = await scene.ask(verb, f"{_NS}/p/{path}", body)
            assert (answer.status, "p-partition-0" in answer.reason) == (status, True), path
        assert (await scene.get(f"{_NS}/p-partition-1/lastMessageId"))["partitionIndex"] == 1
        stats = await scene.get(f"{_NS}/p/partitioned-internalStats")
        names = [f"persistent://public/default/p-partition-{number}" for number in range(2)]
        assert (stats["metadata"], list(stats["partitions"])) == ({"partitions": 2, "deleted": False}, names)
        found = await scene.admin.topics.partitioned_internal_stats("p")
        assert found == await scene.broker.admin.topics.partitioned_internal_stats("p")
        assert (await scene.ask("GET", f"{_NS}/none/partitioned-internalStats")).status == 404


def _entry(metadata: MessageMetadata, payload: bytes = b"x") -> PeekedEntry:
    return PeekedEntry(ledger_id=3, entry_id=4, stored=add_broker_metadata(encode_entry(metadata, payload), 5, 6))


def _lower(entry: PeekedEntry) -> tuple[dict[str, str], bytes]:
    headers, body = write_entry(entry)
    return {name.lower(): one if isinstance(one, str) else ", ".join(one) for name, one in headers.items()}, body


def test_every_field_of_a_message_comes_back() -> None:
    metadata = MessageMetadata(
        producer_name="ä",
        sequence_id=2**63,
        publish_time=1_700_000_000_120,
        event_time=2**60,
        deliver_at_time=-5,
        properties=[KeyValue(key="a b", value="\r\nX-Evil: 1")],
        replicated_from="east",
        replicate_to=["east", "west"],
        partition_key="k",
        partition_key_b64_encoded=False,
        ordering_key=b"\0\xff",
        schema_version=b"\1",
        uuid="u",
        num_chunks_from_msg=2,
        chunk_id=1,
        total_chunk_msg_size=9,
        null_value=True,
        null_partition_key=True,
        encryption_keys=[EncryptionKeys(key="one", value=b"1"), EncryptionKeys(key="two", value=b"2")],
        encryption_algo="AES",
        encryption_param=b"p",
        txnid_least_bits=1,
        txnid_most_bits=2,
        highest_sequence_id=3,
        marker_type=7,
    )
    entry = _entry(metadata)
    headers, body = _lower(entry)
    assert headers["x-pulsar-publish-time"] == "2023-11-14T22:13:20.12Z"
    assert not any("\n" in value or "\r" in value for value in headers.values())
    again = PeekedEntry()
    read_entry(again, headers, body)
    assert again == entry


@pytest.mark.parametrize("broken", [{}, {"x-pulsar-message-id": "x"}, {"x-pulsar-property": "[7]"}])
def test_answers_that_are_no_message_are_refused(broken: dict[str, str]) -> None:
    headers, body = _lower(_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)))
    with pytest.raises(InvalidJson):
        read_entry(PeekedEntry(), headers | broken if broken else {}, body)


async def test_a_payload_that_can_not_be_decompressed_is_an_error_with_a_reason() -> None:
    async with running_http() as scene:
        await _store_garbage(scene)
        answer = await scene.ask("GET", f"{_NS}/t/examinemessage")
        assert (answer.status, "can't be decoded" in answer.reason) == (500, True)


async def _store_garbage(scene: HttpScene) -> None:
    await scene.broker.admin.topics.create("t")
    topic = scene.broker.broker_session.topics.loaded()[0]
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, compression="LZ4", uncompressed_size=9)
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    topic.log.append([NewEntry(encode_entry(metadata, b"no LZ4"), 1, 0)], stored.set_result)
    await stored


async def test_a_subscriptions_backlog_is_peeked_entry_by_entry() -> None:
    async with running_http() as scene, scene.broker.client() as client:
        await scene.broker.admin.topics.create("t")
        await scene.broker.admin.subscriptions.create("t", "s", MessageId.earliest)
        await _publish(client, "t", b"one", b"two", b"three")
        consumer = await client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
        messages = [await consumer.receive() for _ in range(3)]
        await consumer.acknowledge(messages[1])
        await consumer.close()
        for admin in (scene.broker.admin, scene.admin):
            (cursor,) = (await admin.topics.internal_stats("t")).cursors
            ledger_id = messages[1].message_id().ledger_id()
            assert (cursor.acknowledged_ranges, list(cursor.first_acknowledged)) == (
                1,
                [f"({ledger_id}:0..{ledger_id}:1]"],
            )
        path = f"{_NS}/t/subscription/s/position"
        assert [(await scene.ask("GET", f"{path}/{number}")).body for number in (1, 2)] == [b"one", b"three"]
        for bad, status in (("3", 404), ("x", 400), ("-1", 400), ("4294967295", 412)):
            answer = await scene.ask("GET", f"{path}/{bad}")
            assert (answer.status, bool(answer.reason)) == (status, True), bad
        assert (await scene.ask("GET", f"{_NS}/t/subscription/none/position/1")).status == 404
        for admin in (scene.broker.admin, scene.admin):
            peeked = await admin.subscriptions.peek("t", "s", 5)
            assert [one.payload for one in peeked] == [b"one", b"three"]
            with pytest.raises(exceptions.SubscriptionNotFound):
                await admin.subscriptions.peek("t", "none")


async def test_what_is_not_there_yet_is_refused_by_its_name() -> None:
    async with running_http() as scene:
        await scene.broker.admin.topics.create("t")
        assert await scene.get(f"{_NS}/t/compaction") == {"status": "NOT_RUN", "lastError": ""}
        assert await scene.admin.topics.compaction_status("t") == "NOT_RUN"
        assert (await scene.ask("GET", f"{_NS}/none/compaction")).status == 404
        for verb, path, missing in (
            ("PUT", "compaction", "compaction"),
            ("GET", "offload", "offloading"),
            ("PUT", "offload", "offloading"),
            ("GET", "backlog", "backlog"),
            ("PUT", "shadowTopics", "shadow topics"),
            ("POST", "permissions/r", "authorization"),
            ("GET", "permissions", "authorization"),
            ("GET", "subscription/s/replicatedSubscriptionStatus", "subscriptions between clusters"),
            ("GET", "entryFilters", "filtering entries"),
            ("DELETE", "offloadPolicies", "offloading"),
            ("POST", "s/dispatchRate", "a single subscription"),
        ):
            answer = await scene.ask(verb, f"{_NS}/t/{path}", [] if verb in ("PUT", "POST") else None)
            assert (answer.status, missing in answer.reason) == (405, True), (verb, path, answer)
