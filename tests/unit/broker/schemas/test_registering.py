"""Versions of a topic's schema: added, found, read and limited."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas import definitions
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Persistence, Policies, SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.schemas import MAX_DEFINITION_BYTES
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.admin.catalog_scene import code_of
from tests.unit.broker.schemas.registry_scene import FULL, PARTITIONED, TOPIC, running_registry_scene, schema


async def test_versions_count_from_0_and_the_same_definition_has_the_same_version() -> None:
    """SCH-1: at this broker and at another one, without another ledger."""

    async with running_registry_scene() as scene:
        one, other = await scene.start_broker(), await scene.start_broker()
        assert not await one.has_schema(TOPIC)
        assert await one.find_latest(TOPIC) is None
        for registry in (one, other, one):
            assert await registry.register(TOPIC, schema("a"), FULL) == 0
        assert await other.register(TOPIC, schema("b"), FULL) == 1
        assert await one.register(TOPIC, schema("a"), FULL) == 0
        assert len(await scene.ledgers()) == 2

        assert await one.has_schema(TOPIC)
        assert [found.schema for found in await one.list_versions(TOPIC)] == [schema("a"), schema("b")]
        assert (await one.get(TOPIC, 0)).schema == schema("a")
        latest = await one.find_latest(TOPIC)
        assert latest is not None
        assert (latest.version, latest.schema) == (1, schema("b"))
        assert await one.find_version(TOPIC, schema("b")) == 1
        assert await one.find_version(TOPIC, schema("c")) is None
        with pytest.raises(BrokerError, match="no version 2") as error:
            await one.get(TOPIC, 2)
        assert error.value.code == ErrorCode.NOT_FOUND


async def test_partitions_share_the_schema_of_their_topic() -> None:
    """SCH-1"""

    async with running_registry_scene() as scene:
        catalog = scene.catalog()
        await catalog.bootstrap()
        await catalog.partitioned.create(PARTITIONED, 2, {})
        registry = await scene.start_broker()
        assert await registry.register(PARTITIONED.partition(1), schema("a"), FULL) == 0
        assert await registry.register(PARTITIONED.partition(0), schema("b"), FULL) == 1
        for name in (PARTITIONED, PARTITIONED.partition(0)):
            assert [found.version for found in await registry.describe(name)] == [0, 1]


async def test_brokers_that_register_at_the_same_time_get_the_same_versions() -> None:
    """SCH-1: each definition has one version."""

    async with running_registry_scene() as scene:
        brokers = [await scene.start_broker() for _ in range(3)]
        wanted = [f"f{number % 4}" for number in range(12)]
        found = await asyncio.gather(
            *(brokers[at % 3].register(TOPIC, schema(definition), FULL) for at, definition in enumerate(wanted))
        )
        assert sorted(set(found)) == [0, 1, 2, 3]
        assert len(set(zip(wanted, found, strict=True))) == 4
        for version, definition in zip(found, wanted, strict=True):
            assert (await brokers[0].get(TOPIC, version)).schema == schema(definition)
        assert len(await scene.ledgers()) == 4


async def test_of_two_schemas_that_do_not_fit_each_other_one_is_added() -> None:
    """SCH-2: though two brokers register them at the same time."""

    async with running_registry_scene() as scene:
        registering = [
            (await scene.start_broker()).register(TOPIC, schema(f"unfit_{number}"), FULL) for number in range(2)
        ]
        found = await asyncio.gather(*registering, return_exceptions=True)
        assert 0 in found
        (refused,) = (one for one in found if isinstance(one, BrokerError))
        assert refused.code == ErrorCode.INCOMPATIBLE_SCHEMA
        assert len(await scene.ledgers()) == 1


async def test_a_schema_is_parsed_once_for_many_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[Schema] = []
    examine = definitions.examine

    def noted(one: Schema, *arguments: Any) -> bytes:
        parsed.append(one)
        return examine(one, *arguments)

    monkeypatch.setattr(definitions, "examine", noted)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        for _ in range(5):
            assert await registry.register(TOPIC, schema("a"), FULL) == 0
        assert parsed == [schema("a")]
        for _ in range(2):
            assert await code_of(registry.register(TOPIC, Schema(type=SchemaType.AVRO), FULL)) == (
                ErrorCode.INVALID_ARGUMENT
            )


async def test_a_schema_that_does_not_fit_is_not_added() -> None:
    """SCH-2: it is compared with the earlier versions, unless the strategy is ALWAYS_COMPATIBLE."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        assert await registry.register(TOPIC, schema("unfit_1"), FULL) == 0
        for attempt in (registry.register, registry.check_compatible):
            with pytest.raises(BrokerError, match="version 0") as error:
                await attempt(TOPIC, schema("unfit_2"), FULL)
            assert error.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
        await registry.check_compatible(TOPIC, schema("unfit_1"), FULL)
        always = SchemaRules(SchemaCompatibility.ALWAYS_COMPATIBLE, True, False)
        assert await registry.register(TOPIC, schema("unfit_2"), always) == 1


async def test_without_automatic_updates_only_administrators_add_versions() -> None:
    """SCH-2: as in Pulsar, also the first one."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        fixed = SchemaRules(SchemaCompatibility.FULL, False, False)
        with pytest.raises(BrokerError, match="is_allow_auto_update_schema") as error:
            await registry.register(TOPIC, schema("a"), fixed)
        assert error.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
        assert await registry.register(TOPIC, schema("a"), fixed, explicit=True) == 0
        assert await registry.register(TOPIC, schema("a"), fixed) == 0
        with pytest.raises(BrokerError, match="is_allow_auto_update_schema"):
            await registry.register(TOPIC, schema("b"), fixed)


async def test_consumers_are_checked_against_what_there_is() -> None:
    """SCH-2"""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        with pytest.raises(BrokerError, match="has no schema") as error:
            await registry.check_readable(TOPIC, schema(), FULL)
        assert error.value.code == ErrorCode.INCOMPATIBLE_SCHEMA
        await registry.register(TOPIC, schema(), FULL)
        await registry.check_readable(TOPIC, schema("other"), FULL)
        with pytest.raises(BrokerError, match="version 0"):
            await registry.check_readable(TOPIC, schema("unfit"), FULL)


async def test_a_definition_is_stored_by_the_policies_of_the_topic() -> None:
    """SCH-1: `persistence`, as the topic's own ledgers."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        scene.policies = Policies(persistence=Persistence(ensemble_size=2, write_quorum=2, ack_quorum=1))
        await registry.register(TOPIC, schema(), FULL)
        (version,) = await registry.describe(TOPIC)
        assert (await scene.cluster.metadata(version.ledger_id)).striping == Striping(2, 2, 1)


async def test_a_topic_that_does_not_exist_gets_no_schema() -> None:
    async with running_registry_scene(topic=False) as scene:
        registry = await scene.start_broker()
        for attempt in (registry.register(TOPIC, schema(), FULL), registry.delete(TOPIC)):
            with pytest.raises(BrokerError) as error:
                await attempt
            assert error.value.code == ErrorCode.TOPIC_NOT_FOUND
        assert await scene.node() is None


async def test_versions_and_bytes_of_a_topic_are_limited() -> None:
    """A deletion by force removes them; known versions stay usable."""

    async with running_registry_scene() as scene:
        few = await scene.start_broker(BrokerServiceSettings(max_schema_versions_per_topic=2))
        small = await scene.start_broker(BrokerServiceSettings(max_schema_bytes_per_topic=5_000))
        for number in range(2):
            await few.register(TOPIC, schema(f"f{number}"), FULL)
        for registry, definition, named in (
            (few, schema("f2"), "max_schema_versions_per_topic is 2"),
            (small, schema("f2", padding=5_000), "max_schema_bytes_per_topic is 5,000"),
        ):
            with pytest.raises(BrokerError, match=named) as error:
                await registry.register(TOPIC, definition, FULL)
            assert error.value.code == ErrorCode.NOT_ALLOWED
        assert await few.register(TOPIC, schema("f1"), FULL) == 1
        await few.delete(TOPIC, force=True)
        assert await few.register(TOPIC, schema("f2"), FULL) == 3
        too_large = schema(padding=MAX_DEFINITION_BYTES)
        with pytest.raises(BrokerError, match="1,048,5") as error:
            await few.register(TOPIC, too_large, FULL)
        assert (error.value.code, error.value.about) == (ErrorCode.INVALID_ARGUMENT, "schema")
        too_large.properties.update((str(number), "") for number in range(1000))
        with pytest.raises(BrokerError, match="1001 properties"):
            await few.register(TOPIC, too_large, FULL)


async def test_a_new_version_is_decided_by_rules_as_they_are_then() -> None:
    """SCH-2: a known schema does not wait for them."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        await registry.register(TOPIC, schema("unfit_1"), FULL)
        gate, read = asyncio.Event(), asyncio.Event()

        async def read_rules(topic: TopicName) -> SchemaRules:
            assert topic == TOPIC
            read.set()
            await gate.wait()
            return always if await registry.find_version(TOPIC, schema("f2")) is None else FULL

        always = SchemaRules(SchemaCompatibility.ALWAYS_COMPATIBLE, allow_auto_update=True, validation_enforced=False)
        assert await registry.register(TOPIC, schema("unfit_1"), read_rules) == 0
        assert not read.is_set()
        adding = asyncio.create_task(registry.register(TOPIC, schema("unfit_2"), read_rules))
        await read.wait()
        assert await (await scene.start_broker()).register(TOPIC, schema("f2"), always) == 1
        gate.set()
        # The rules were read again, since the node had changed.
        assert await code_of(adding) == ErrorCode.INCOMPATIBLE_SCHEMA


async def test_nothing_is_decided_by_unknown_rules() -> None:
    """SCH-2: clients retry it. Consumers with the schema of the topic are admitted."""
    unknown = SchemaRules(
        SchemaCompatibility.ALWAYS_COMPATIBLE, allow_auto_update=True, validation_enforced=False, is_known=False
    )
    usual = replace(unknown, compatibility=SchemaCompatibility.FULL)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        assert await code_of(registry.register(TOPIC, schema("a"), unknown)) == ErrorCode.SERVICE_NOT_READY
        await registry.register(TOPIC, schema("a"), FULL)
        assert await registry.register(TOPIC, schema("a"), unknown) == 0
        await registry.check_readable(TOPIC, schema("a"), usual)
        for rules in (usual, unknown):
            assert await code_of(registry.check_readable(TOPIC, schema("b"), rules)) == ErrorCode.SERVICE_NOT_READY
