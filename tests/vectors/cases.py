"""What the stock client is made to send: plain data, as it stands in the record.

A message is the arguments of the client's `send`, with the payload in base64 (None: no value). Options are those of
`create_producer`, with enum members by their names; `max_message_bytes` is what the broker announces.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
COMPRESSIONS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")


@dataclass(frozen=True)
class Case:
    name: str
    messages: list[Message]
    options: dict[str, Any] = field(default_factory=dict)
    max_message_bytes: int = 5_242_880


def _message(payload: bytes | None, **arguments: Any) -> Message:
    return {"payload": None if payload is None else base64.b64encode(payload).decode(), **arguments}


_PLAIN = [_message(b"first"), _message(b"second " * 40), _message(b"third")]

# Each on its own, so that one message has one thing besides its payload; then all together.
_EVERYTHING = {
    "partition_key": "key",
    "ordering_key": "ordering",
    "properties": {"b": "1", "a": "grün ☂ 𝄞", "": ""},
    "event_timestamp": 1_700_000_000_123,
}
_RICH = [
    _message(b"bare"),
    _message(b"key", partition_key="key"),
    _message(b"unicode key", partition_key="Schlüssel ☂ 𝄞"),
    _message(b"ordering key", ordering_key="ordering"),
    _message(b"properties", properties=_EVERYTHING["properties"]),
    _message(b"no properties", properties={}),
    _message(b"event time", event_timestamp=1_700_000_000_123),
    _message(b"everything", **_EVERYTHING),
    _message(bytes(range(256))),
]
_EMPTY = [_message(b""), _message(None), _message(None, partition_key="deleted"), _message(b"", partition_key="kept")]
_NUMBERED = [_message(b"a", sequence_id=7), _message(b"b", sequence_id=900), _message(b"c", sequence_id=2**40)]
_KEYED = [
    *(_message(f"{key}{number}".encode(), partition_key=key) for number in range(3) for key in "abc"),
    _message(b"without key"),
    _message(b"ordering key of another's key", ordering_key="a"),
    _message(b"ordering key wins", partition_key="a", ordering_key="other"),
]
_LONG = b"".join(b"%d," % number for number in range(600))
_BATCHED = {"batching_enabled": True}
_CHUNKED = {"chunking_enabled": True}


CASES = [
    *(Case(f"single-{kind}", _PLAIN, {"compression_type": kind}) for kind in COMPRESSIONS),
    *(Case(f"batch-{kind}", _PLAIN, {"compression_type": kind, **_BATCHED}) for kind in COMPRESSIONS),
    Case("single-rich", _RICH),
    Case("batch-rich", _RICH, _BATCHED),
    Case("batch-rich-first", [_RICH[7], *_RICH[:2]], _BATCHED),
    Case("single-empty", _EMPTY),
    Case("batch-empty", _EMPTY, _BATCHED),
    Case("single-empty-compressed", _EMPTY, {"compression_type": "LZ4"}),
    Case("batch-of-one-empty-compressed", _EMPTY[:1], {"compression_type": "SNAPPY", **_BATCHED}),
    Case("batch-of-one", _PLAIN[:1], _BATCHED),
    Case("single-numbered", _NUMBERED),
    Case("batch-numbered", _NUMBERED, _BATCHED),
    Case("single-numbered-from", _PLAIN, {"initial_sequence_id": 41}),
    Case("batch-numbered-from", _PLAIN, {"initial_sequence_id": 41, **_BATCHED}),
    Case("single-delayed", [_message(b"later", deliver_at=1_800_000_000_000), _message(b"now")]),
    Case(
        "batch-delayed",
        [_message(b"one"), _message(b"later", deliver_at=1_800_000_000_000), _message(b"two")],
        {"compression_type": "LZ4", **_BATCHED},
    ),
    Case("single-replicated", [_message(b"far", replication_clusters=["us", "eu"])]),
    Case("single-not-replicated", [_message(b"near", disable_replication=True)]),
    Case("batch-replicated", [_message(b"far", replication_clusters=["us", "eu"]), _message(b"anywhere")], _BATCHED),
    Case("batch-by-key", _KEYED, {"batching_type": "KeyBased", **_BATCHED}),
    Case("batch-by-key-compressed", _KEYED, {"batching_type": "KeyBased", "compression_type": "ZSTD", **_BATCHED}),
    Case("batch-by-ordering-key", _KEYED[-2:], {"batching_type": "KeyBased", **_BATCHED}),
    Case("single-schema", [_message("grün".encode())], {"schema": "String"}),
    Case("batch-schema", [_message("grün".encode())], {"schema": "String", **_BATCHED}),
    Case("chunked", [_message(b"small"), _message(_LONG, **_EVERYTHING), _message(b"after")], _CHUNKED, 1000),
    Case("chunked-compressed", [_message(_LONG, partition_key="k")], {"compression_type": "LZ4", **_CHUNKED}, 1000),
    Case("chunked-compressed-fits", [_message(b"x" * 2000)], {"compression_type": "ZSTD", **_CHUNKED}, 1000),
    Case("single-large", [_message(_LONG * 4)], {"compression_type": "ZSTD"}),
    Case("batch-large", [_message(b"%d" % number * 3) for number in range(300)], _BATCHED),
]

PARTITIONS = 13
KEYS = [
    *(f"key-{number}" for number in range(20)),
    *(f"Order-{3459134 + 7919 * number}" for number in range(10)),
    "a", "aa", "Aa", "BB", "0", " ", "~!@#$%^&*()", "MSX2oGKSXeVVEA==", "x" * 255, "y" * 256, "z" * 257, "long " * 300,
    "é", "ÿ", "naïve", "Schlüssel", "ключ", "キー", "键-1", "☂", "𝄞", "mixed é ☂ 𝄞", "ж" * 300,
]  # fmt: skip
