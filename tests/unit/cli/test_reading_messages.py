"""What input becomes: cut at separators, and read as JSON or keyed lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from magnetar_cli.messages import reading
from magnetar_cli.messages.reading import BadInput, Given, all_of, cut, json_message, keyed_line


@pytest.mark.parametrize("separator", [b"\n", b"\0", b"\r\n", b"ab", b"aab", b"aaa"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_input_is_split_identically_for_any_read_size(separator: bytes, size: int) -> None:
    for parts in itertools.product([b"", b"x", b"a", b"aa"], repeat=4):
        text = separator.join(parts)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        expected = text.split(separator)
        if not expected[-1]:
            expected.pop()
        assert [one for found in cut(pieces, separator) for one in found] == expected, (text, separator)


def test_complete_lines_are_yielded_before_more_input_is_read() -> None:
    read: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (b"one\ntwo\nthr", b"ee\n"):
            read.append(piece)
            yield piece

    lines = cut(pieces(), b"\n")
    assert next(lines) == [b"one", b"two"]
    assert len(read) == 1
    assert list(lines) == [[b"three"]]


def test_a_message_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_MESSAGE_BYTES", 1000)
    for separator in (b"\n", b"\r\n"):
        with pytest.raises(BadInput, match="1,000 bytes"):
            list(cut(itertools.repeat(b"x" * 100), separator))
    with pytest.raises(BadInput, match="1,000 bytes"):
        all_of(itertools.repeat(b"x" * 100))


def test_lines_with_keys() -> None:
    parse = keyed_line(b"::")
    assert parse(b"k::v::w") == Given(b"v::w", "k")
    assert parse(b"\xff::") == Given(b"", b"\xff")
    with pytest.raises(BadInput, match="between key and value"):
        parse(b"no key")


def test_json_objects() -> None:
    assert json_message(b'{"value": "a", "key": "k", "properties": {"p": "q"}, "event_time": 5}') == Given(
        b"a", "k", {"p": "q"}, 5
    )
    assert json_message(b'{"value_base64": "/w==", "key_base64": "/w=="}') == Given(b"\xff", b"\xff")
    assert json_message(b'{"value": null, "message_id": "1:2:-1", "index": 7}') == Given(None)
    assert json_message('{"value": {"a": [1, "ö"]}}'.encode()) == Given('{"a": [1, "ö"]}'.encode())


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
    with pytest.raises(BadInput, match=why):
        json_message(line)
