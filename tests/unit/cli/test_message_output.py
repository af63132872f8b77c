"""The output of messages with any content."""

from __future__ import annotations

import io
import json
import sys

import pytest

from magnetar_cli.messages.message_output import DisplayedMessage, Format, MessageWriter
from magnetar_cli.output import escape_unprintable


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
