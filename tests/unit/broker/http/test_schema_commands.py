"""`magnetar schemas …`, over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from magnetar_cli.command import app
from magnetar_wire.schemas import join_key_value
from tests.unit.broker.http.admin_scene import HttpScene, running_http

_FIRST: Final = {"type": "record", "name": "Reading", "fields": [{"name": "celsius", "type": "double"}]}
_OTHER: Final = {"type": "record", "name": "Reading", "fields": [{"name": "kelvin", "type": "double"}]}
_MODULE: Final = """
from dataclasses import dataclass
from magnetar.schema import AvroSchema, Double, JsonSchema, Record
class Reading(Record):
    celsius = Double(required=True)
as_json = JsonSchema(Reading)
nothing = 5
@dataclass
class Plain:
    celsius: float
"""


async def _run(scene: HttpScene, *words: str) -> Result:
    command = ["schemas", *words, "--url", f"http://{scene.address}"]
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def _output(scene: HttpScene, *words: str) -> str:
    ended = await _run(scene, *words)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


async def test_schemas_are_uploaded_shown_checked_and_deleted(tmp_path: Path) -> None:
    """SCH-1, SCH-2"""
    first, other, string = tmp_path / "first.avsc", tmp_path / "other.avsc", tmp_path / "string.json"
    first.write_text(json.dumps(_FIRST))
    other.write_text(json.dumps(_OTHER))
    string.write_text(json.dumps({"type": "STRING", "schema": "", "properties": {"unit": "C"}}))
    async with running_http() as scene:
        assert await _output(scene, "upload", "rooms", str(first)) == "rooms: the schema is version 0\n"
        assert await _output(scene, "upload", "rooms", str(first)) == "rooms: the schema is version 0\n"
        shown = await _output(scene, "show", "rooms")
        assert "AVRO" in shown
        assert '"name": "celsius"' in shown
        assert await _output(scene, "check", "rooms", str(first)) == "rooms: compatible (FULL)\n"
        refused = await _run(scene, "check", "rooms", str(other))
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "kelvin" in refused.stderr
        assert refused.stderr.count("FULL") == 1
        refused = await _run(scene, "check", "rooms", str(other), "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["is_compatible"]) == (1, False)
        refused = await _run(scene, "upload", "rooms", str(other))
        assert refused.exit_code == 1
        assert "kelvin" in refused.stderr
        assert "--yes" in (await _run(scene, "delete", "rooms")).stderr
        assert await _output(scene, "delete", "rooms", "--yes") == "rooms: the schema is deleted\n"
        for words in (["show", "rooms"], ["show", "rooms", "--all"]):
            missing = await _run(scene, *words)
            assert (missing.exit_code, missing.stdout) == (1, "")
            assert "rooms" in missing.stderr
        await _output(scene, "upload", "rooms", str(string))
        found = json.loads(await _output(scene, "show", "rooms", "--json"))
        assert found.pop("created_ms") > 0
        expected = {"version": 2, "type": "STRING", "properties": {"unit": "C"}, "definition": None}
        assert found == expected
        await _output(scene, "upload", "rooms", "--schema-type", "string")
        assert len((await _output(scene, "show", "rooms", "--all", "--json")).splitlines()) == 1


async def test_a_class_of_python_is_uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1"""
    (tmp_path / "models_of_rooms.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    async with running_http() as scene:
        await _output(scene, "upload", "avro", "models_of_rooms:Reading")
        assert json.loads(await _output(scene, "show", "avro", "--json"))["definition"] == _FIRST
        await _output(scene, "upload", "plain", "models_of_rooms:Plain")
        assert json.loads(await _output(scene, "show", "plain", "--json"))["type"] == "AVRO"
        await _output(scene, "upload", "json", "models_of_rooms:as_json")
        await _output(scene, "upload", "json", "models_of_rooms:Reading", "--schema-type", "json")
        (shown,) = (await _output(scene, "show", "json", "--all", "--json")).splitlines()
        assert json.loads(shown)["type"] == "JSON"
        for source, reason in (
            ("models_of_rooms:Missing", "can't be imported"),
            ("no_module:Reading", "can't be imported"),
            ("models_of_rooms:nothing", "no schema can be made"),
        ):
            refused = await _run(scene, "upload", "avro", source)
            shown = " ".join(refused.stderr.replace("│", " ").split())
            assert (refused.exit_code, reason in shown) == (2, True), shown


async def test_key_and_value_are_shown_as_an_object(tmp_path: Path) -> None:
    """SCH-1: and uploaded as Pulsar's tools do."""
    definition = json.dumps({"key": "", "value": _FIRST})
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
    file = tmp_path / "pair.json"
    file.write_text(json.dumps({"type": "KEY_VALUE", "schema": definition, "properties": properties}))
    async with running_http() as scene:
        await _output(scene, "upload", "pairs", str(file))
        stored = (await scene.broker.admin.schemas.get("pairs")).schema
        assert stored.definition == join_key_value(b"", json.dumps(_FIRST, separators=(",", ":")).encode())
        shown = json.loads(await _output(scene, "show", "pairs", "--json"))
        assert (shown["definition"], shown["properties"]) == ({"key": "", "value": _FIRST}, properties)


async def test_what_is_no_schema_is_a_wrong_usage(tmp_path: Path) -> None:
    wrong, deep = tmp_path / "wrong.avsc", tmp_path / "deep.avsc"
    wrong.write_text('"int"', encoding="utf-16")
    deep.write_text("[" * 100_000)
    client_type = tmp_path / "client.json"
    client_type.write_text(json.dumps({"type": "AUTO_CONSUME", "schema": ""}))
    async with running_http() as scene:
        for words in (
            [],
            ["--schema-type", "avro"],
            ["--schema-type", "nothing"],
            ["--schema-type", "auto_consume"],
            [str(tmp_path / "missing.avsc")],
            [str(wrong)],
            [str(deep)],
            [str(client_type)],
        ):
            for command in ("upload", "check"):
                assert (await _run(scene, command, "rooms", *words)).exit_code == 2, words
        assert (await _run(scene, "show", "rooms", "--version", "0", "--all")).exit_code == 2
        assert await scene.get("persistent/public/default") == []
