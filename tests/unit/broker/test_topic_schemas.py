"""Which producers and consumers a topic admits by their schemas."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.topics.topic_schemas import SchemaAccess, TopicSchemas
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.schemas import encode_schema_version
from magnetar_wire.topic_name import TopicName
from tests.running import within
from tests.unit.broker.fake_schema_registry import FakeSchemaRegistry

_NAME = TopicName.parse("t")
_STRING, _LONG = Schema(type=SchemaType.STRING), Schema(type=SchemaType.INT64)
_WITHOUT = (Schema(), Schema(type=SchemaType.BYTES, name="b"), Schema(type=SchemaType.AUTO_CONSUME))
_CLIENT = "client:1"
_V0 = encode_schema_version(0)


class _Scene:
    def __init__(self, timeout_s: float = 60.0, policies_age_s: float = 0.0) -> None:
        self.policies_gate = asyncio.Event()
        self.policies_gate.set()
        self.registry = FakeSchemaRegistry()
        self.rules = SchemaRules(SchemaCompatibility.FULL, allow_auto_update=True, validation_enforced=False)
        self.policies_fail = False
        self.policies_read = 0
        self.access = SchemaAccess(self.registry, self._find_rules, self._find_rules, timeout_s, policies_age_s, 0.01)
        self.schemas = TopicSchemas(_NAME, self.access)

    async def _find_rules(self, name: TopicName) -> SchemaRules:
        self.policies_read += 1
        await self.policies_gate.wait()
        if self.policies_fail:
            raise BrokerError(ErrorCode.METADATA_ERROR, "the store is away")
        return self.rules

    async def consume(self, schema: Schema, *, unused: bool = False) -> None:
        await self.schemas.admit_consumer(schema, _CLIENT, lambda: unused)


async def test_schema_of_a_producer_becomes_a_version() -> None:
    """(SCH-1)"""
    scene = _Scene()
    assert await scene.schemas.admit_producer(_STRING, _CLIENT) == _V0
    assert await scene.schemas.admit_producer(_STRING, _CLIENT) == _V0
    assert await TopicSchemas(TopicName.parse("t-partition-3"), scene.access).admit_producer(_STRING, _CLIENT) == _V0
    with pytest.raises(BrokerError) as raised:
        await scene.schemas.admit_producer(_LONG, _CLIENT)
    assert raised.value.code == ErrorCode.INCOMPATIBLE_SCHEMA


async def test_registry_is_not_used_without_a_schema() -> None:
    scene = _Scene()
    for schema in _WITHOUT:
        assert await scene.schemas.admit_producer(schema, _CLIENT) == b""
        await scene.consume(schema)
    assert not scene.registry.calls


async def test_enforced_validation_refuses_producers_without_a_schema() -> None:
    """(SCH-2) In effect for the next producer. Topics without a schema, and consumers, are not affected."""
    scene = _Scene()
    await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT)
    scene.rules = replace(scene.rules, validation_enforced=True)
    assert await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT) == b""
    await scene.schemas.admit_producer(_STRING, _CLIENT)
    for schema in _WITHOUT:
        with pytest.raises(BrokerError, match="schema_validation_enforced") as raised:
            await scene.schemas.admit_producer(schema, _CLIENT)
        assert raised.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
        await scene.consume(schema)


async def test_consumer_adds_the_first_schema_of_an_unused_topic_only() -> None:
    """(SCH-2)"""
    scene = _Scene()
    with pytest.raises(BrokerError, match="has no schema") as raised:
        await scene.consume(_STRING)
    assert raised.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
    scene.rules = replace(scene.rules, compatibility=SchemaCompatibility.ALWAYS_COMPATIBLE)
    await scene.consume(_STRING)
    assert not scene.registry.schemas[_NAME]
    await scene.consume(_STRING, unused=True)
    assert scene.registry.schemas[_NAME] == [_STRING]
    await scene.consume(_STRING)
    with pytest.raises(BrokerError, match="differs"):
        await scene.consume(_LONG, unused=True)
    assert scene.registry.schemas[_NAME] == [_STRING]


async def test_consumer_adds_no_schema_where_versions_are_added_by_administrators() -> None:
    """(SCH-2)"""
    scene = _Scene()
    scene.rules = replace(scene.rules, allow_auto_update=False)
    with pytest.raises(BrokerError, match="administrators"):
        await scene.consume(_STRING, unused=True)


async def test_consumer_adds_no_schema_to_a_system_topic() -> None:
    scene = _Scene()
    system = TopicSchemas(TopicName.parse("__change_events"), scene.access)
    with pytest.raises(BrokerError, match="has no schema"):
        await system.admit_consumer(_STRING, _CLIENT, lambda: True)


async def test_silent_registry_fails_the_opening_in_bounded_time() -> None:
    """(SCH-1) With an error that clients retry."""
    scene = _Scene(timeout_s=0.01)
    scene.registry.gate.clear()
    for work in (scene.schemas.admit_producer(_STRING, _CLIENT), scene.consume(_STRING), scene.access.read(_NAME, b"")):
        with pytest.raises(BrokerError, match="retry") as raised:
            await within(work, "the refusal")
        assert raised.value.code == ErrorCode.SERVICE_NOT_READY
    assert await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT) == b""
    scene.rules = replace(scene.rules, validation_enforced=True)
    with pytest.raises(BrokerError, match="retry"):
        await within(scene.schemas.admit_producer(_WITHOUT[0], _CLIENT), "the refusal")


async def test_unreadable_policies_do_not_affect_producers_without_a_schema(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the reason, once."""
    caplog.set_level(logging.INFO)
    scene = _Scene()
    scene.policies_fail = True
    with pytest.raises(BrokerError, match="away"):
        await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT)
    scene.policies_fail = False
    await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT)
    scene.policies_fail = True
    for _ in range(3):
        assert await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT) == b""
    with pytest.raises(BrokerError, match="away"):
        await scene.schemas.admit_producer(_STRING, _CLIENT)
    scene.policies_gate.clear()
    for _ in range(2):
        assert await within(scene.schemas.admit_producer(_WITHOUT[0], _CLIENT), "the admission") == b""
    reasons = [text.rpartition("the known ones apply: ")[2] for text in caplog.messages if "the known ones" in text]
    assert reasons == ["the store is away", "no answer for 0.01 s"]


async def test_unreadable_policies_refuse_what_depends_on_them() -> None:
    """(SCH-2) With an error that clients retry. A version that there is already does not depend on them."""
    scene = _Scene()
    with pytest.raises(BrokerError, match="has no schema"):
        await scene.consume(_STRING)
    scene.rules = replace(
        scene.rules, compatibility=SchemaCompatibility.ALWAYS_COMPATIBLE, allow_auto_update=False, is_known=False
    )
    with pytest.raises(BrokerError, match="which decide on its schema, can't be read now") as raised:
        await scene.consume(_STRING)
    assert raised.value.code == ErrorCode.SERVICE_NOT_READY
    scene.registry.schemas[_NAME] = [_STRING]
    scene.policies_fail = True
    assert await scene.schemas.admit_producer(_STRING, _CLIENT) == _V0
    await scene.consume(_STRING)
    assert scene.registry.readable_by[-1] == SchemaRules(SchemaCompatibility.FULL, True, False, is_known=False)


async def test_many_producers_without_a_schema_read_policies_once() -> None:
    """None, if they were read when the topic was opened."""
    scene = _Scene(policies_age_s=3600.0)
    for _ in range(3):
        await scene.schemas.admit_producer(_WITHOUT[0], _CLIENT)
    assert scene.policies_read == 1
    opened = TopicSchemas(_NAME, scene.access, replace(scene.rules, validation_enforced=True))
    await scene.schemas.admit_producer(_STRING, _CLIENT)
    read = scene.policies_read
    with pytest.raises(BrokerError, match="schema_validation_enforced"):
        await opened.admit_producer(_WITHOUT[0], _CLIENT)
    assert scene.policies_read == read


async def test_versions_are_read_by_number_or_the_latest() -> None:
    """(SCH-1)"""
    scene = _Scene()
    newer = Schema(type=SchemaType.STRING, definition=b"newer")
    for schema in (_STRING, newer):
        await scene.schemas.admit_producer(schema, _CLIENT)
    assert await scene.access.read(_NAME, b"") == (encode_schema_version(1), newer)
    assert await scene.access.read(_NAME, _V0) == (_V0, _STRING)
    for version, name, code in (
        (encode_schema_version(2), "t", ErrorCode.NOT_FOUND),
        (encode_schema_version(2**63 - 1), "t", ErrorCode.NOT_FOUND),
        (b"\xff" * 8, "t", ErrorCode.INVALID_ARGUMENT),
        (b"1", "t", ErrorCode.INVALID_ARGUMENT),
        (b"", "other", ErrorCode.NOT_FOUND),
    ):
        with pytest.raises(BrokerError) as raised:
            await scene.access.read(TopicName.parse(name), version)
        assert raised.value.code == code


async def test_cancelled_opening_is_not_reported_as_slow() -> None:
    scene = _Scene()
    scene.registry.gate.clear()
    opening = asyncio.create_task(scene.schemas.admit_producer(_STRING, _CLIENT))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
