"""Input is split at separators, and parsed as JSON or lines with keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from magnetar_cli.messages import message_input
from magnetar_cli.messages.message_input import (
    InputMessage,
    InvalidInput,
    make_keyed_line_parser,
    parse_json_message,
    read_whole_message,
    split_messages,
)


@pytest.mark.parametrize("separator", [b"\n", b"\0", b"\r\n", b"ab", b"aab", b"aaa"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_input_is_split_identically_for_any_read_size(separator: bytes, size: int) -> None:
    for parts in itertools.product([b"", b"x", b"a", b"aa"], repeat=4):
        text = separator.join(parts)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        expected = text.split(separator)
        if not expected[-1]:
            expected.pop()
        assert [one for found in split_messages(pieces, separator) for one in found] == expected, (text, separator)


def test_complete_lines_are_yielded_before_more_input_is_read() -> None:
    read: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"one\ntwo\nthr", b"ee\n"):
            read.append(piece)
            yield piece

    lines = split_messages(pieces(), b"\n")
    assert next(lines) == [b"one", b"two"]
    assert len(read) == 1
    assert list(lines) == [[b"three"]]


def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_input, "MAX_MESSAGE_BYTES", 1000)
    for separator in (b"\n", b"\r\n"):
        with pytest.raises(InvalidInput, match="1,000 bytes"):
            list(split_messages(itertools.repeat(b"x" * 100), separator))
    with pytest.raises(InvalidInput, match="1,000 bytes"):
        read_whole_message(itertools.repeat(b"x" * 100))


def test_lines_with_keys() -> None:
    parse = make_keyed_line_parser(b"::")
    assert parse(b"k::v::w") == InputMessage(b"v::w", "k")
    assert parse(b"\xff::") == InputMessage(b"", b"\xff")
    with pytest.raises(InvalidInput, match="between key and value"):
        parse(b"no key")


def test_json_objects() -> None:
    assert parse_json_message(b'{"value": "a", "key": "k", "properties": {"p": "q"}, "event_time": 5}') == InputMessage(
        b"a", "k", {"p": "q"}, 5
    )
    assert parse_json_message(b'{"value_base64": "/w==", "key_base64": "/w=="}') == InputMessage(b"\xff", b"\xff")
    assert parse_json_message(b'{"value": null, "message_id": "1:2:-1", "index": 7}') == InputMessage(None)
    assert parse_json_message('{"value": {"a": [1, "ö"]}}'.encode()) == InputMessage('{"a": [1, "ö"]}'.encode())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"val": "x"}', "the unknown field 'val'"),
        (b"{}", "neither value nor value_base64"),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value_base64": 7}', "not base64"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both"),
        (b'{"value": "\\ud800"}', "an incomplete character"),
        (b'{"value": "a", "properties": {"p": 1}}', "not an object of strings"),
        (b'{"value": "a", "event_time": "soon"}', "event_time is not a time"),
        (b'{"value": "a", "event_time": "0001-01-01T00:00:00"}', "event_time is not a time"),
        (b'{"value": "a", "event_time": {}}', "event_time is not a time"),
    ],
)
def test_invalid_json_messages_are_refused_with_the_reason(line: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        parse_json_message(line)
