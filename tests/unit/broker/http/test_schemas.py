"""Administration of topics' schemas, over HTTP and gRPC."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pytest

from magnetar import exceptions
from magnetar.admin import NamespacePolicies, SchemaCheck, TopicPolicies
from magnetar.schema import AvroSchema, SchemaInfo, SchemaType, StringSchema
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.large_work import LargeWork
from magnetar_protos.admin_pb2 import SchemaDefinitionRequest
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.json.schemas import MAX_SCHEMA_BODY_BYTES
from magnetar_wire.schemas import MAX_DEFINITION_BYTES, join_key_value
from tests.unit.broker.http.admin_scene import HttpScene, running_http, running_over

PATH: Final = "schemas/public/default"


def _record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Reading", "fields": list(fields)}, separators=(",", ":"))


_CELSIUS: Final = {"name": "celsius", "type": "double"}
FIRST: Final = _record(_CELSIUS)
# A field with a default can be added, with every strategy.
SECOND: Final = _record(_CELSIUS, {"name": "hall", "type": ["null", "string"], "default": None})
# A field without a default can't be read from older messages.
OTHER: Final = _record(_CELSIUS, {"name": "hall", "type": "string"})


def _post(definition: str, kind: str = "AVRO", **properties: str) -> dict[str, Any]:
    return {"type": kind, "schema": definition, "properties": properties}


def _info(definition: str, kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    return SchemaInfo(kind, "Reading", definition.encode())


async def _upload(scene: HttpScene, topic: str, body: Any) -> int:
    answer = await scene.ask("POST", f"{PATH}/{topic}/schema", body)
    assert answer.status == 200, answer
    return int(answer.body["version"]["version"])


async def test_versions_are_uploaded_found_and_listed() -> None:
    """SCH-1: the answers are Pulsar's; the same definition again is the same version."""
    async with running_http() as scene:
        await scene.broker.admin.topics.create("rooms")
        assert await scene.get(f"{PATH}/rooms/schemas") == {"getSchemaResponses": []}
        assert (await scene.ask("GET", f"{PATH}/rooms/metadata")).status == 200
        assert await _upload(scene, "rooms", _post(FIRST, unit="C")) == 0
        assert await _upload(scene, "rooms", _post(SECOND)) == 1
        assert await _upload(scene, "rooms", _post(FIRST)) == 0
        first, second = (await scene.get(f"{PATH}/rooms/schemas"))["getSchemaResponses"]
        timestamp = first.pop("timestamp")
        assert first == {"version": 0, "type": "AVRO", "data": FIRST, "properties": {"unit": "C"}}
        assert abs(timestamp - scene.broker.clock.time_ms()) < 600_000
        assert await scene.get(f"{PATH}/rooms/schema") == await scene.get(f"{PATH}/rooms/schema/1") == second
        assert await scene.get(f"{PATH}/rooms/schema/0") == first | {"timestamp": timestamp}
        assert (await scene.ask("POST", f"{PATH}/rooms/version", _post(SECOND))).body == {"version": 1}
        assert (await scene.ask("POST", f"{PATH}/rooms/version", _post(OTHER))).body == {"version": -1}
        metadata = await scene.get(f"{PATH}/rooms/metadata")
        assert [one["version"] for one in metadata["index"]] == [0, 1]
        assert metadata["info"] == metadata["index"][1]
        ledgers = (await scene.get("persistent/public/default/rooms/internalStats"))["schemaLedgers"]
        assert [one["ledgerId"] for one in ledgers] == [one["ledgerId"] for one in metadata["index"]]
        assert all(one["entries"] == 1 and one["size"] > len(FIRST) for one in ledgers)
        assert len((await scene.admin.topics.internal_stats("rooms")).schema_ledgers) == 2


async def test_a_version_that_does_not_exist_is_not_found() -> None:
    """SCH-1: and one that is no number is a wrong path."""
    async with running_http() as scene:
        assert (await scene.ask("GET", f"{PATH}/rooms/schema/0")).status == 404
        await _upload(scene, "rooms", _post(FIRST))
        for version in ("2", "-1", "9223372036854775807"):
            assert (await scene.ask("GET", f"{PATH}/rooms/schema/{version}")).status == 404, version
        for version in ("x", "1.5", "0x1", "%20", "99999999999999999999"):
            assert (await scene.ask("GET", f"{PATH}/rooms/schema/{version}")).status == 400, version


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_administrators_use_large_work_in_turn_as_their_host(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCH-1: so that many requests of one do not delay clients and other administrators."""
    hosts: list[str] = []
    run = LargeWork.run

    async def noted(work: LargeWork, host: str, *arguments: Any) -> Any:
        hosts.append(host)
        return await run(work, host, *arguments)

    monkeypatch.setattr(LargeWork, "run", noted)
    async with running_over(protocol) as scene:
        large = json.dumps({"type": "record", "name": "Reading", "doc": "x" * 20_000, "fields": [_CELSIUS]})
        schemas = scene.admin.schemas
        assert await schemas.find_version("rooms", _info(large)) is None
        await schemas.check("rooms", _info(large.replace("x", "y")))
        await schemas.upload("rooms", _info(large.replace("x", "z")))
        assert hosts == ["in-process" if protocol == "grpc" else "127.0.0.1"] * 3


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_the_python_client_administers_schemas(protocol: str) -> None:
    """SCH-1, SCH-2: the same over both protocols."""
    async with running_over(protocol) as scene:
        schemas = scene.admin.schemas
        with pytest.raises(exceptions.NotFound):
            await schemas.get("rooms")
        assert await schemas.upload("rooms", _info(FIRST)) == 0
        assert await schemas.check("rooms", _info(SECOND)) == SchemaCheck(True, "", "FULL")
        assert await schemas.upload("rooms", _info(SECOND)) == 1
        found = await schemas.get("rooms", 0)
        assert (found.version, found.schema.type, found.schema.definition) == (0, SchemaType.AVRO, FIRST.encode())
        assert [one.version for one in await schemas.list("rooms")] == [0, 1]
        assert (await schemas.get("rooms")).schema.definition == SECOND.encode()
        assert await schemas.find_version("rooms", _info(SECOND)) == 1
        assert await schemas.find_version("rooms", _info(OTHER)) is None
        refused = await schemas.check("rooms", _info(OTHER))
        assert (refused.is_compatible, refused.strategy) == (False, "FULL")
        assert "hall" in refused.reason
        with pytest.raises(exceptions.IncompatibleSchema, match="hall"):
            await schemas.upload("rooms", _info(OTHER))
        with pytest.raises(exceptions.InvalidArgument):
            await schemas.upload("rooms", _info('{"type": "record"}'))
        with pytest.raises(exceptions.NotFound):
            await schemas.get("rooms", 2)
        assert [one.version for one in await schemas.metadata("rooms")] == [0, 1]
        assert await schemas.delete("rooms") == 2
        assert await schemas.list("rooms") == []
        assert [one.ledger_id is None for one in await schemas.metadata("rooms")] == [False, False, True]
        assert await schemas.upload("rooms", _info("", SchemaType.STRING)) == 3
        assert await schemas.delete("rooms", force=True) is None
        with pytest.raises(exceptions.NotFound):
            await schemas.get("rooms")
        with pytest.raises(exceptions.TopicNotFound):
            await schemas.delete("missing")
        with pytest.raises(exceptions.InvalidArgument, match="is no schema"):
            await schemas.upload("rooms", "text")  # type: ignore[arg-type]


async def test_all_versions_are_listed_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1: one answer over gRPC has a limited size, and over HTTP too many are refused."""
    monkeypatch.setattr("magnetar_broker.admin.schema_calls.PAGE_BYTES", 100)
    monkeypatch.setattr("magnetar_broker.admin.schema_calls.MAX_WHOLE_BYTES", 1000)
    async with running_http() as scene:
        fields = [_CELSIUS | {"name": f"f{number}", "default": 0.0} for number in range(8)]
        for count in range(1, 9):
            await _upload(scene, "rooms", _post(_record(*fields[:count])))
        assert [one.version for one in await scene.broker.admin.schemas.list("rooms")] == list(range(8))
        answer = await scene.ask("GET", f"{PATH}/rooms/schemas")
        assert (answer.status, answer.headers["x-magnetar-error"]) == (413, "MESSAGE_TOO_BIG")


async def test_a_schema_that_is_not_compatible_is_refused_with_field_and_rule() -> None:
    """SCH-2: the strategy is the topic's, else its namespace's; that clients may add no versions does not count."""
    async with running_http() as scene:
        admin = scene.broker.admin
        await _upload(scene, "rooms", _post(FIRST))
        answer = await scene.ask("POST", f"{PATH}/rooms/schema", _post(OTHER))
        assert (answer.status, answer.headers["x-magnetar-error"]) == (409, "INCOMPATIBLE_SCHEMA")
        assert "hall" in answer.reason
        checked = await scene.ask("POST", f"{PATH}/rooms/compatibility", _post(OTHER))
        assert checked.status == 202
        assert checked.body == {
            "schemaCompatibilityStrategy": "FULL",
            "compatibility": False,
            "reason": answer.reason,
        }
        await admin.namespaces.change_policies(
            "public/default", NamespacePolicies(schema_compatibility="FORWARD", allow_schema_auto_update=False)
        )
        checked = await scene.ask("POST", f"{PATH}/rooms/compatibility", _post(OTHER))
        assert checked.body == {"schemaCompatibilityStrategy": "FORWARD", "compatibility": True}
        await admin.topics.change_policies("rooms", TopicPolicies(schema_compatibility="ALWAYS_INCOMPATIBLE"))
        assert (await scene.ask("POST", f"{PATH}/rooms/schema", _post(OTHER))).status == 409
        await admin.topics.change_policies("rooms", TopicPolicies(), remove=["schema_compatibility"])
        assert await _upload(scene, "rooms", _post(OTHER)) == 1


async def test_a_deleted_schema_is_not_found_and_binds_no_later_one() -> None:
    """SCH-1"""
    async with running_http() as scene:
        await _upload(scene, "rooms", _post(FIRST))
        deleted = await scene.ask("DELETE", f"{PATH}/rooms/schema")
        assert (deleted.status, deleted.body) == (200, {"version": 1})
        for path in ("schema", "schema/0", "schema/1"):
            assert (await scene.ask("GET", f"{PATH}/rooms/{path}")).status == 404
        assert await scene.get(f"{PATH}/rooms/schemas") == {"getSchemaResponses": []}
        assert (await scene.ask("POST", f"{PATH}/rooms/version", _post(FIRST))).body == {"version": -1}
        index = (await scene.get(f"{PATH}/rooms/metadata"))["index"]
        assert [(one["version"], one["entryId"]) for one in index] == [(0, 0), (1, -1)]
        assert await _upload(scene, "rooms", _post("", "STRING")) == 2
        assert (await scene.ask("DELETE", f"{PATH}/rooms/schema?force=true")).body == {"version": -1}
        assert (await scene.ask("GET", f"{PATH}/rooms/schema")).status == 404
        assert (await scene.ask("DELETE", f"{PATH}/missing/schema")).status == 404


async def test_partitions_share_the_schema_of_their_topic() -> None:
    """SCH-1"""
    async with running_http() as scene:
        await scene.broker.admin.topics.create_partitioned("rooms", 2)
        assert await _upload(scene, "rooms-partition-1", _post(FIRST)) == 0
        assert await _upload(scene, "rooms", _post(SECOND)) == 1
        for name in ("rooms", "rooms-partition-0", "rooms-partition-1"):
            assert (await scene.get(f"{PATH}/{name}/schema"))["version"] == 1
        answer = await scene.ask("POST", f"{PATH}/halls-partition-0/schema", _post(FIRST))
        assert answer.status == 404


async def test_an_upload_creates_the_topic_as_its_first_use_would() -> None:
    """SCH-1: a schema needs its topic. In Pulsar it does not."""
    async with running_http(default_num_partitions=3) as scene:
        namespaces = scene.broker.admin.namespaces
        await _upload(scene, "plain", _post(FIRST))
        assert await scene.get("persistent/public/default") == ["persistent://public/default/plain"]
        policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
        await scene.ask("POST", "namespaces/public/default/autoTopicCreation", policy)
        await _upload(scene, "parts", _post(FIRST))
        assert (await scene.broker.admin.topics.get_partitioned("parts")).partitions == 3
        await scene.ask("POST", "namespaces/public/default/autoTopicCreation", {"allowAutoTopicCreation": False})
        refused = await scene.ask("POST", f"{PATH}/other/schema", _post(FIRST))
        assert (refused.status, refused.headers["x-magnetar-error"]) == (404, "TOPIC_NOT_FOUND")
        assert (await scene.ask("POST", f"{PATH}/other/compatibility", _post(FIRST))).body["compatibility"] is True
        for path in ("schema", "compatibility"):
            missing = await scene.ask("POST", f"schemas/public/missing/other/{path}", _post(FIRST))
            assert missing.status == 404, path
        assert "public/missing" not in await namespaces.list("public")


async def test_system_topics_have_no_schema() -> None:
    async with running_http() as scene:
        assert (await scene.ask("POST", f"{PATH}/__change_events/schema", _post(FIRST))).status == 412
        assert (await scene.ask("DELETE", f"{PATH}/__change_events/schema")).status == 412
        assert (await scene.ask("GET", f"{PATH}/__change_events/schema")).status == 404


async def test_key_and_value_are_shown_as_an_object() -> None:
    """SCH-1: as Pulsar shows the definition of KEY_VALUE, which it stores in another form."""
    properties = {
        "key.schema.type": "STRING",
        "value.schema.type": "AVRO",
        "kv.encoding.type": "SEPARATED",
        **{
            f"{part}.schema.{name}": text
            for part in ("key", "value")
            for name, text in (("name", ""), ("properties", "{}"))
        },
    }
    shown = f'{{"key":"","value":{FIRST}}}'
    async with running_http() as scene:
        await _upload(scene, "rooms", _post(f'{{ "value": {FIRST}, "key": "" }}', "KEY_VALUE", **properties))
        found = await scene.get(f"{PATH}/rooms/schema")
        assert (found["type"], found["data"], found["properties"]) == ("KEY_VALUE", shown, properties)
        for admin in (scene.admin, scene.broker.admin):
            assert (await admin.schemas.get("rooms")).schema.definition == join_key_value(b"", FIRST.encode())
        stored = SchemaInfo(SchemaType.KEY_VALUE, "", join_key_value(b"", FIRST.encode()), properties)
        assert await scene.admin.schemas.find_version("rooms", stored) == 0


_BAD_BODIES: Final[tuple[tuple[Any, int], ...]] = (
    (_post("nope"), 422),
    (_post(""), 422),
    (_post('{"type": "record"}'), 422),
    (_post("{}", "JSON"), 422),
    (_post("x", "STRING"), 422),
    (_post("", "AUTO_CONSUME"), 422),
    (_post("", "AUTO_PUBLISH"), 422),
    (_post("{}", "PROTOBUF_NATIVE"), 422),
    (_post("", "KEY_VALUE"), 422),
    (_post('{"key": ""}', "KEY_VALUE"), 422),
    (_post('{"key": ' + "[" * 100_000 + ', "value": ""}', "KEY_VALUE"), 422),
    (_post("[" * 100_000 + "]" * 100_000), 422),
    (_post('{"type":"array","items":' * 2000 + '"int"' + "}" * 2000), 422),
    ({"type": "AVRO"}, 422),
    (_post(FIRST, "NOPE"), 400),
    (_post(FIRST, "avro"), 400),
    ({"schema": FIRST}, 400),
    ({"type": 4, "schema": FIRST}, 400),
    ({"type": "AVRO", "schema": {"type": "int"}}, 400),
    ({"type": "AVRO", "schema": FIRST, "properties": []}, 400),
    ({"type": "AVRO", "schema": FIRST, "properties": {"a": 1}}, 400),
    ([], 400),
    ("x", 400),
    (5, 400),
    (None, 400),
)


async def test_bad_bodies_are_refused() -> None:
    """SCH-1: nothing is stored, and no topic is created."""
    async with running_http() as scene:
        for body, status in _BAD_BODIES:
            for path in ("schema", "compatibility", "version"):
                answer = await scene.ask("POST", f"{PATH}/rooms/{path}", body)
                assert answer.status == status, (path, str(body)[:100], answer)
        assert await scene.get("persistent/public/default") == []


async def test_large_bodies_have_a_limited_number_of_values() -> None:
    """SCH-1: each takes fifty times its size in memory."""
    many = "[" + "[]," * 200_000 + "[]]"
    names = "{" + ",".join(f'"{number}":""' for number in range(200_000)) + "}"
    async with running_http() as scene:
        for body in (many, names, '"' * 400_000):
            answer = await scene.ask("POST", f"{PATH}/rooms/schema", raw=body.encode())
            assert (answer.status, "150,000 values" in answer.reason) == (400, True)
            pair = _post(f'{{"key":{body},"value":""}}', "KEY_VALUE")
            answer = await scene.ask("POST", f"{PATH}/rooms/schema", pair)
            assert (answer.status, "150,000 values" in answer.reason) == (422, True)
        infinite = _post('{"key":1e999,"value":""}', "KEY_VALUE")
        assert (await scene.ask("POST", f"{PATH}/rooms/schema", infinite)).status == 422


async def test_a_definition_of_the_maximum_size_is_accepted() -> None:
    """SCH-1: bodies may be as large as the largest definition in JSON."""
    doc = '"' * (MAX_DEFINITION_BYTES - 2000)
    fitting = json.dumps({"type": "record", "name": "R", "doc": "", "fields": []}).replace(
        '"doc": ""', f'"doc": "{"x" * (MAX_DEFINITION_BYTES - 2000)}"'
    )
    async with running_http() as scene:
        assert await _upload(scene, "rooms", _post(fitting)) == 0
        assert (await scene.get(f"{PATH}/rooms/schema"))["data"] == fitting
        assert (await scene.admin.schemas.get("rooms")).schema.definition == fitting.encode()
        above = await scene.ask("POST", f"{PATH}/rooms/schema", _post(fitting.replace("xx", "x" * 4000, 1)))
        assert above.status == 422
        assert f"{MAX_DEFINITION_BYTES:,}" in above.reason
        quoted = await scene.ask("POST", f"{PATH}/rooms/schema", _post(doc))
        assert quoted.status == 422
        too_large = await scene.ask("POST", f"{PATH}/rooms/schema", raw=b" " * (MAX_SCHEMA_BODY_BYTES + 1))
        assert too_large.status == 413
        other_path = await scene.ask("PUT", "tenants/acme", raw=b" " * 100_000)
        assert other_path.status == 413


async def test_an_upload_with_an_unknown_outcome_is_not_reported_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1"""
    async with running_http() as scene:

        async def lose_answer(*arguments: Any, **options: Any) -> int:
            raise BrokerError(ErrorCode.METADATA_ERROR, "the answer was lost")

        monkeypatch.setattr(scene.broker.broker_session.schemas, "register", lose_answer)
        answer = await scene.ask("POST", f"{PATH}/rooms/schema", _post(FIRST))
        assert (answer.status, answer.headers["x-magnetar-error"]) == (500, "METADATA_ERROR")


@dataclass
class Reading:
    celsius: float


async def test_a_schema_object_or_a_class_is_uploaded() -> None:
    """SCH-1"""
    async with running_http() as scene:
        schemas = scene.admin.schemas
        assert await schemas.upload("rooms", Reading) == await schemas.upload("rooms", AvroSchema(Reading)) == 0
        assert (await schemas.get("rooms")).schema.type is SchemaType.AVRO
        assert await schemas.upload("words", StringSchema()) == 0
        with pytest.raises(exceptions.InvalidArgument, match="no schema can be made"):
            await schemas.upload("rooms", object)
        with pytest.raises(exceptions.InvalidArgument, match="is no schema"):
            await schemas.upload("rooms", None)  # type: ignore[arg-type]
        answer = await scene.broker.broker_session.admin.call("upload_schema", SchemaDefinitionRequest(topic="rooms"))
        assert answer.problem.code == ErrorCode.INVALID_ARGUMENT
