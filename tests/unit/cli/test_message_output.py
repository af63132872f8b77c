"""The output of messages with any content."""

from __future__ import annotations

import io
import json
import sys

import pytest

from magnetar import MessageId
from magnetar.exceptions import SchemaUnavailable
from magnetar.schema import AutoConsumeSchema, AvroSchema, StringSchema
from magnetar_cli.messages.message_output import (
    DisplayedMessage,
    Format,
    MessageWriter,
    choose_schema,
    display_message,
)
from magnetar_cli.output import escape_unprintable
from magnetar_wire.schemas import encode_schema_version
from tests.unit.client.consume_scene import client_of


def written(monkeypatch: pytest.MonkeyPatch, output_format: Format, *messages: DisplayedMessage) -> bytes:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
    MessageWriter(output_format).write(messages)
    return out.getvalue()


def shown(value: bytes | None, key: bytes | None = None, **properties: str) -> DisplayedMessage:
    return DisplayedMessage(
        "persistent://public/default/t", "1:2:-1", value, key, properties, "p", 1_700_000_000_000, 0
    )


def test_one_message_is_one_line_and_nothing_that_a_terminal_acts_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = b"a\nb\r\x1b]0;title\x07\x9b31m\xc2\x9b\xe2\x80\xae\t"
    line = written(monkeypatch, Format.TEXT, shown(hostile, hostile, **{"x\n": "\x1b[2J"}))
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    assert b"a\\nb\\r\\x1b]0;title\\x07\\x9b31m\\x9b\\u202e\\t" in line
    assert escape_unprintable("plain, ünd nicht") == "plain, ünd nicht"


def test_json_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text, raw, null = map(
        json.loads,
        written(
            monkeypatch, Format.JSON, shown("ö\n".encode(), b"k"), shown(b"\xff", b"\xfe"), shown(None)
        ).splitlines(),
    )
    assert (text["value"], text["key"]) == ("ö\n", "k")
    assert (raw["value_base64"], raw["key_base64"]) == ("/w==", "/g==")
    assert null["value"] is None
    assert "key" not in null


def test_raw_format_writes_payload_bytes_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, Format.RAW, shown(b"\x00\xff"), shown(None)) == b"\x00\xff\n\n"


def test_a_null_value_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    empty, null = written(monkeypatch, Format.TEXT, shown(b""), shown(None)).splitlines()
    assert null.endswith(b"(no value)")
    assert not empty.endswith(b"(no value)")


async def test_values_are_printed_by_the_schema_version_of_their_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """(SCH-3) JSON of an Avro value, texts as they are, payloads without a version, and those that can't be decoded."""
    avro = AvroSchema(None, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]})
    async with client_of(operation_timeout_seconds=0.2) as (broker, client):
        name = "persistent://public/default/t"
        first, second = (
            broker.add_schema(name, schema.schema_info().to_message()) for schema in (avro, StringSchema())
        )
        topic = broker.topic("t")
        topic.publish(avro.encode({"a": "ö\n"}), b"\xff", None, schema_version=first)
        topic.publish(b"text", schema_version=second)
        topic.publish(b"plain")
        topic.publish(b"1", schema_version=encode_schema_version(7))
        reader = await client.create_reader("t", MessageId.earliest, AutoConsumeSchema())
        messages = [display_message(await reader.read_next()) for _ in range(6)]
        broker.has_registry.clear()
        topic.publish(b"later", schema_version=encode_schema_version(8))
        with pytest.raises(SchemaUnavailable):
            display_message(await reader.read_next())
        plain = await client.create_reader("t", MessageId.earliest)
        payload = display_message(await plain.read_next())
    capsys.readouterr()
    texts = written(monkeypatch, Format.TEXT, *messages, payload).decode().splitlines()
    assert [line.partition("  ")[2].partition("  ")[2] for line in texts] == [
        r'{"a": "ö\n"}',
        r"\xff",
        "(no value)",
        "text",
        "plain",
        "1",
        r"\x06ö\n",
    ]
    errors = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in errors] == ["magnetar"] * 2
    assert f"message {messages[1].message_id} can't be decoded: " in errors[0]
    assert "has no schema version 7" in errors[1]
    objects = list(map(json.loads, written(monkeypatch, Format.JSON, *messages, payload).splitlines()))
    assert [one.get("value") for one in objects] == [{"a": "ö\n"}, None, None, "text", "plain", "1", "\x06ö\n"]
    assert [one.get("schema_version") for one in objects] == [0, None, None, 1, None, None, None]
    assert objects[1]["value_base64"] == "/w=="
    assert [bool(one.get("decode_error")) for one in objects] == [False, True, False, False, False, True, False]


def test_raw_and_hex_formats_print_payloads() -> None:
    assert choose_schema(Format.TEXT, decode=True) == AutoConsumeSchema()
    assert choose_schema(Format.JSON, decode=False) is None
    assert choose_schema(Format.RAW, decode=True) is None
    assert choose_schema(Format.HEX, decode=True) is None
