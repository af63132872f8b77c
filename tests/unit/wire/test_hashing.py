"""Hashes, compared with values of other implementations: Java, the documents, and the stock client's library."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from magnetar_wire.hashing import (
    NO_KEY,
    HashingScheme,
    java_string_hash,
    key_shared_slot,
    murmur3_32,
    murmur3_32_hash,
    ordering_bytes,
    partition_of,
    ring_points,
)

RECORD = Path(__file__).parents[2] / "vectors" / "pulsar_client.json"
ROUTING: dict[str, Any] = json.loads(RECORD.read_text())["routing"]
CHOSEN: dict[str, list[int]] = ROUTING["chosen"]
ASCII = [index for index, key in enumerate(ROUTING["keys"]) if key.isascii()]
NOT_ASCII = [index for index, key in enumerate(ROUTING["keys"]) if not key.isascii()]


# What Java 17 prints for `key.hashCode() & Integer.MAX_VALUE`.
JAVA_HASHES = {
    "": 0,
    "a": 97,
    "Aa": 2112,
    "BB": 2112,
    "hello": 99162322,
    "polygenelubricants": 0,
    "key-1": 101943363,
    "é": 233,
    "ключ": 33309882,
    "☂": 9730,
    "𝄞": 1772394,
}


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_java_string_hash_equals_that_of_java(key: str) -> None:
    assert java_string_hash(key) == JAVA_HASHES[key]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("k1", 2110152746), ("k2", 1479966664), ("key1", 462881061), ("key2", 1936800180), ("", 0)],
)
def test_murmur3_has_the_published_values(key: str, expected: int) -> None:
    """The values with which Pulsar's own clients are tested."""
    assert murmur3_32_hash(key) == expected
    assert murmur3_32(key.encode()) & 0x7FFF_FFFF == expected


@pytest.mark.parametrize("scheme", HashingScheme)
def test_a_key_has_the_partition_of_the_stock_client(scheme: HashingScheme) -> None:
    ours = [partition_of(key, ROUTING["partitions"], scheme) for key in ROUTING["keys"]]
    same = ASCII if scheme is HashingScheme.JavaStringHash else range(len(ours))
    assert len(same) > 30
    assert [ours[index] for index in same] == [CHOSEN[scheme.name][index] for index in same]


def test_the_java_string_hash_of_the_stock_library_hashes_signed_bytes() -> None:
    """So keys that are not ASCII get another partition than with Java and with this module."""

    def over_signed_bytes(key: str) -> int:
        value = 0
        for byte in key.encode():
            value = (value * 31 + (byte - 256 if byte > 127 else byte)) & 0xFFFF_FFFF
        return value & 0x7FFF_FFFF

    partitions = ROUTING["partitions"]
    keys = [ROUTING["keys"][index] for index in NOT_ASCII]
    chosen = [CHOSEN["JavaStringHash"][index] for index in NOT_ASCII]
    assert [over_signed_bytes(key) % partitions for key in keys] == chosen
    assert [partition_of(key, partitions) for key in keys] != chosen


def test_the_stock_python_client_uses_another_scheme() -> None:
    assert CHOSEN["Python client"] == CHOSEN["BoostHash"]
    assert CHOSEN["BoostHash"] not in (CHOSEN["JavaStringHash"], CHOSEN["Murmur3_32Hash"])


def test_java_string_hash_is_the_default_and_no_partitions_are_an_error() -> None:
    assert partition_of("hello", 1000) == 322
    assert partition_of("k1", 1000, HashingScheme.Murmur3_32Hash) == 746
    assert partition_of("hello", 1) == 0
    with pytest.raises(ValueError, match="at least 1"):
        partition_of("hello", 0)
    for scheme in HashingScheme:
        with pytest.raises(UnicodeEncodeError):
            partition_of("\ud800", 4, scheme)


def test_a_key_shared_slot_is_the_unsigned_hash_modulo_65536() -> None:
    assert murmur3_32(b"Order-3459134") == 3112179635
    assert key_shared_slot(b"Order-3459134") == 6067
    assert 0 <= key_shared_slot(b"") < 65_536


def test_the_ordering_key_precedes_the_key_and_the_default_key() -> None:
    assert ordering_bytes("key", ordering_key=b"ordering") == b"ordering"
    assert ordering_bytes("clé") == "clé".encode()
    assert ordering_bytes(None) == NO_KEY == b"NON_KEY"
    assert ordering_bytes(None, ordering_key=b"") == ordering_bytes("") == b""


def test_a_key_of_bytes_is_hashed_as_bytes() -> None:
    for key in (b"", b"\x00\xff\xfe", bytes(range(256))):
        assert ordering_bytes(base64.b64encode(key).decode(), b64_encoded=True) == key
    assert ordering_bytes("QUJD") == b"QUJD"


@pytest.mark.parametrize("key", ["not base64!", "QUJ", "QQ==QQ==", "ü", "QU JD"])
def test_a_key_that_is_not_the_declared_base64_is_hashed_as_text(key: str) -> None:
    assert ordering_bytes(key, b64_encoded=True) == key.encode()


def test_a_consumer_has_100_points_on_the_ring() -> None:
    """The points of the consumer in the documents."""
    points = ring_points("orders-aggregator-pod-2345-consumer")
    assert len(points) == 100
    assert (points[0], points[1], points[-1]) == (1003084738, 373317202, 320276078)
