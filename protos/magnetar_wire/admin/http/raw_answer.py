"""Answers that are not JSON: a text, or a number in a header. message_answer.py has the one with a stored message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from magnetar_wire.admin.json.values import InvalidJson

__all__ = ["CountAnswer", "RawAnswer", "TextAnswer"]


class RawAnswer:
    """An answer that is not JSON: bytes of its own content type, and headers."""

    content_type = "application/octet-stream"
    # The headers that it may have, with what they say: for the description of the API.
    headers: Mapping[str, str] = {}
    status = 200
    # The JSON schema of a body that is JSON: for the description of the API.
    schema: Mapping[str, Any] = {}

    def find_refusal(self, message: Message) -> tuple[int, str] | tuple[int, str, str] | None:
        """Return the status and the reason of a response that is no success, though it has no problem; also the name of
        the error's code, if it is not the status's usual one."""
        return None

    def fill_refusal(self, message: Message, status: int, reason: str) -> bool:
        """Set the fields from such an answer. Return whether it is one."""
        return False

    def measure(self, message: Message) -> int:
        """Return the size of a body that may be much larger than the message, before it is made. Raises WireError."""
        return 0

    def to_http(self, message: Message) -> tuple[Mapping[str, str | Sequence[str]], bytes]:
        """Return headers and body. A header with several values is sent as often. Raises WireError."""
        raise NotImplementedError

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        """Set the fields from headers, whose names are in lower case, and body. Raises InvalidJson."""
        raise NotImplementedError


class TextAnswer(RawAnswer):
    """A text field of the response, as it is."""

    content_type = "text/plain"

    def __init__(self, name: str) -> None:
        self._name = name

    def to_http(self, message: Message) -> tuple[dict[str, str], bytes]:
        return {}, str(getattr(message, self._name)).encode()

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        try:
            setattr(message, self._name, body.decode("utf-8").strip())
        except UnicodeDecodeError as error:
            raise InvalidJson(f"the answer is not UTF-8: {error}") from None


class CountAnswer(RawAnswer):
    """A number of the response as a header, and no body. Pulsar's brokers do not send it: then the number is -1."""

    status = 204

    def __init__(self, name: str, header: str, description: str) -> None:
        self._name = name
        self._header = header
        self.headers = {header: description}

    def to_http(self, message: Message) -> tuple[dict[str, str], bytes]:
        return {self._header: str(getattr(message, self._name))}, b""

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        text = headers.get(self._header.lower(), "-1")
        try:
            setattr(message, self._name, int(text))
        except ValueError:
            raise InvalidJson(f"{self._header}: {text!r:.100} is no number") from None
