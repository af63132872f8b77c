"""Schemas at the gRPC listener: producers, consumers and the call `schema`, at any broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.server.grpc.schema_answers import SchemaAnswers
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, OpenProducer, SchemaAnswer, SchemaRequest
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.schemas import MAX_DEFINITION_BYTES, encode_schema_version
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Connection, Peer
from tests.produce_client import ProduceClient, entry
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene, running_broker
from tests.unit.broker.consume_client import ConsumeClient
from tests.unit.broker.subscription_scene import EARLIEST

_V0, _V1 = encode_schema_version(0), encode_schema_version(1)


def _record(*fields: dict[str, Any]) -> Schema:
    definition = json.dumps({"type": "record", "name": "R", "fields": list(fields)}).encode()
    return Schema(type=SchemaType.AVRO, name="R", definition=definition)


_A = {"name": "a", "type": "int"}
_FIRST, _SECOND = _record(_A), _record(_A, {"name": "b", "type": "int", "default": 0})
_OTHER = _record({"name": "a", "type": "string"})


def _of_type(number: int) -> Schema:
    return Schema(type=number)  # type: ignore[arg-type]


async def _get(connection: Connection, topic: str = "t", version: bytes = b"", incarnation: str = "") -> SchemaAnswer:
    request = SchemaRequest(topic=topic, schema_version=version, incarnation=incarnation)
    return SchemaAnswer.FromString(await connection.call("schema", request.SerializeToString(), timeout_s=60))


async def _subscribe(client: ConsumeClient, consumer_id: int, schema: Schema) -> int:
    """Return the code of the problem; 0: the consumer is open."""
    opened = OpenConsumer(
        consumer_id=consumer_id, topic="t", subscription=f"s{consumer_id}", durable=True, start=EARLIEST, schema=schema
    )
    await client.send(open=[opened])
    await until(lambda: consumer_id in client.epochs or consumer_id in client.ended, "it is answered")
    problem = client.ended.get(consumer_id)
    return 0 if problem is None else problem.code


async def test_producers_add_versions_that_any_broker_knows() -> None:
    """SCH-1"""
    async with running_broker() as scene:
        other = BrokerScene(beside=scene)
        await other.broker.start()
        connection, elsewhere = scene.transport.connect("broker:6652"), other.transport.connect(other.address)
        producers = ProduceClient(connection.open_stream("produce"))
        assert (await producers.open(1, "p1", schema=_FIRST)).schema_version == _V0
        assert (await producers.open(2, "p2", schema=_SECOND)).schema_version == _V1
        assert (await producers.open(3, "p3")).schema_version == b""
        for one in (connection, elsewhere):
            latest = await _get(one)
            assert (latest.schema_version, latest.schema) == (_V1, _SECOND)
            first = await _get(one, version=_V0)
            assert (first.schema_version, first.schema) == (_V0, _FIRST)
        await producers.send((1, 0, [entry(0, producer="p1", schema_version=_V0)]))
        await until(lambda: (1, 0) in producers.receipts, "it is persisted")
        await connection.close()
        await elsewhere.close()
        await other.close()


async def test_a_recreated_topic_s_schema_is_not_that_of_the_deleted_one() -> None:
    """SCH-1: a client that knows only the deleted topic never gets a definition of the later one."""
    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        deleted = (await producers.open(1, schema=_FIRST)).incarnation
        assert (await _get(connection, version=_V0, incarnation=deleted)).schema == _FIRST
        await scene.broker_session.topics.delete(TopicName.parse("t"), force=True)
        assert (await producers.open(2, schema=_OTHER)).schema_version == _V0
        assert (await _get(connection, version=_V0)).schema == _OTHER
        answer = await _get(connection, version=_V0, incarnation=deleted)
        assert answer.problem.code == ErrorCode.INCARNATION_CHANGED
        assert not answer.HasField("schema")
        await connection.close()


async def test_refusals_have_their_codes() -> None:
    """SCH-1, SCH-2"""
    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        await producers.open(1, "p1", schema=_FIRST)
        consumers = ConsumeClient(connection.open_stream("consume")).start()
        invalid = (Schema(type=SchemaType.AVRO, definition=b"{"), _of_type(99), _of_type(-1))
        for number, schema in enumerate((_OTHER, *invalid), 2):
            expected = ErrorCode.INCOMPATIBLE_SCHEMA if schema is _OTHER else ErrorCode.INVALID_ARGUMENT
            await producers.send(OpenProducer(producer_id=number, topic="t", producer_name=f"p{number}", schema=schema))
            assert await producers.code(number) == expected
            assert await _subscribe(consumers, number, schema) == expected
        assert not await _subscribe(consumers, 100, _FIRST)
        for topic, version, code in (
            ("none", b"", ErrorCode.NOT_FOUND),
            ("t", _V1, ErrorCode.NOT_FOUND),
            ("t", b"1", ErrorCode.INVALID_ARGUMENT),
            ("a/b", b"", ErrorCode.INVALID_TOPIC_NAME),
        ):
            assert (await _get(connection, topic, version)).problem.code == code
        await consumers.stop()
        await connection.close()


async def test_policies_that_can_not_be_read_are_not_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-2: with the topic's own policies another schema might be refused. Known schemas don't need them."""

    async def fail(*_: object) -> NoReturn:
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, "the owner of the events is away")

    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        consumers = ConsumeClient(connection.open_stream("consume")).start()
        for name in ("read", "fetch"):
            monkeypatch.setattr(TopicPolicyRpc, name, fail)
        await producers.send(OpenProducer(producer_id=1, topic="t", producer_name="p1", schema=_FIRST))
        assert await producers.code(1) == ErrorCode.SERVICE_NOT_READY
        monkeypatch.undo()
        assert (await producers.open(2, "p2", schema=_FIRST)).schema_version == _V0
        session = scene.broker_session
        assert (await session.read_schema_rules(TopicName.parse("t-partition-1"))).is_known
        for name in ("read", "fetch"):
            monkeypatch.setattr(TopicPolicyRpc, name, fail)
        assert (await producers.open(3, "p3", schema=_FIRST)).schema_version == _V0
        assert not await _subscribe(consumers, 1, _FIRST)
        monkeypatch.setattr(session.topic_policies, "knows", lambda _: False)
        assert await _subscribe(consumers, 2, _SECOND) == ErrorCode.SERVICE_NOT_READY
        await consumers.stop()
        await connection.close()


async def test_definitions_of_the_maximum_size_pass_and_larger_ones_are_refused() -> None:
    """SCH-1. Those that wait for the registry count as memory of the stream, which is not read above its bound."""
    large = _record({"name": "a", "type": "int", "doc": "x" * (MAX_DEFINITION_BYTES - 1_000)})
    too_large = _record({"name": "a", "type": "int", "doc": "x" * MAX_DEFINITION_BYTES})
    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        assert (await producers.open(1, "p1", schema=large)).schema_version == _V0
        assert (await _get(connection)).schema == large
        await producers.send(OpenProducer(producer_id=2, topic="t", producer_name="p2", schema=too_large))
        assert await producers.code(2) == ErrorCode.INVALID_ARGUMENT
        await until(lambda: not scene.broker_session.budget.used_bytes, "nothing counts any more")
        await connection.close()


async def test_answers_that_are_not_read_are_bounded() -> None:
    """SCH-1: of each host, and of all together; a refused call is repeated."""
    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        await producers.open(1, "p1", schema=_record({"name": "a", "type": "int", "doc": "x" * 1_000}))
        answers = SchemaAnswers(scene.broker.server, max_bytes=5_000, max_bytes_per_host=2_500)
        request = SchemaRequest(topic="t").SerializeToString()
        ends: list[Callable[[], None]] = []

        async def get(address: str, when_ended: Callable[[Callable[[], None]], None] | None = ends.append) -> int:
            peer = Peer(address, when_ended)
            answer = SchemaAnswer.FromString(await answers.get_schema(peer, scene.broker_session, request))
            return answer.problem.code

        refused = ErrorCode.TOO_MANY_REQUESTS
        assert [await get(f"a:{port}") for port in range(3)] == [0, 0, refused]
        assert [await get("b:1"), await get("b:1"), await get("c:1")] == [0, 0, refused]
        ends.pop(0)()
        assert [await get("c:1"), await get("a:9")] == [0, refused]
        while ends:
            ends.pop()()
        assert not answers.pending_bytes
        assert [await get("a:1", None) for _ in range(9)] == [0] * 9
        await connection.close()


async def _open_many(producers: ProduceClient, schema: Schema) -> None:
    for number in range(2, 100):
        await producers.send(OpenProducer(producer_id=number, topic="t", producer_name=f"p{number}", schema=schema))


async def test_waiting_definitions_count_as_memory_of_their_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1"""
    gate = asyncio.Event()

    async def register(*_: object, **__: object) -> int:
        await gate.wait()
        return 0

    monkeypatch.setattr(SchemaRegistry, "register", register)
    async with running_broker(max_pending_publish_bytes_per_connection=300_000) as scene:
        connection = scene.transport.connect("broker:6652")
        producers = ProduceClient(connection.open_stream("produce"))
        await producers.open(1, "p1")
        schema = _record({"name": "a", "type": "int", "doc": "x" * 200_000})
        sending = asyncio.create_task(_open_many(producers, schema))
        budget = scene.broker_session.budget
        await until(lambda: budget.used_bytes >= 300_000, "the stream has its maximum")
        assert budget.used_bytes < 1_000_000
        gate.set()
        await sending
        await until(lambda: len(producers.opened) == 99, "all are opened")
        await until(lambda: not budget.used_bytes, "nothing counts any more")
        await connection.close()
