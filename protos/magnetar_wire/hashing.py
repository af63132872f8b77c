"""The hashes of keys: for the partition of a message, and for its slot in a Key_Shared subscription.

**Partitions.** A producer of a partitioned topic hashes the key's text. The remainder is the partition. Messages with
the same key get the same partition only if all producers hash alike, so both schemes are bit-identical to Pulsar's:

- `JavaStringHash` (the default) is Java's `String.hashCode`: the UTF-16 code units are the digits of a number to base
  31, modulo 2^32, without the sign bit.
- `Murmur3_32Hash` is MurmurHash3 x86 32-bit of the UTF-8, with seed 0 and without the sign bit.

A key of bytes is sent as base64, and that text is hashed.

Not every stock client can be made to agree. Java's default is JavaStringHash, as here. The C++ library, and the Python
client that is based on it, default to a third scheme, Boost's hash, whose values depend on the version of Boost in the
build. The Python client can't select another one: only a router in the application makes it agree. The C++ library's
JavaStringHash hashes the UTF-8 bytes as signed chars, which equals Java's for ASCII keys only. Its Murmur3_32Hash is
the same as Java's and ours for every key. (Observed: tests/vectors.)

**Key_Shared.** The broker's hash does not depend on the producer's scheme: MurmurHash3 of the key's bytes, all 32 bits,
modulo 65,536 slots.
"""

from __future__ import annotations

import binascii
import enum
import operator
import sys
from typing import Final

import mmh3

KEY_SHARED_SLOTS: Final = 65_536
# The key of all messages that have none.
NO_KEY: Final = b"NON_KEY"
RING_POINTS: Final = 100
# Of the ring of consistent hashing.
RING_SLOTS: Final = 1 << 32

_WITHOUT_SIGN: Final = 0x7FFF_FFFF
# 31 to the power of 255 … 0 modulo 2^32: the weights of a block's digits. The products of one block add up to less than
# 2^56, so one mask at the end of a block is enough.
_BLOCK: Final = 256
_POWERS: Final = tuple(pow(31, _BLOCK - 1 - index, 1 << 32) for index in range(_BLOCK))
_NEXT_BLOCK: Final = pow(31, _BLOCK, 1 << 32)
_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


class HashingScheme(enum.Enum):
    """How a producer computes a partition from a key."""

    JavaStringHash = "JavaStringHash"
    Murmur3_32Hash = "Murmur3_32Hash"


def java_string_hash(key: str) -> int:
    """Return Java's `key.hashCode() & Integer.MAX_VALUE`. Raises UnicodeEncodeError if `key` contains surrogates.

    The sum of products runs in C: it takes 1 µs for a key of a dozen characters, 0.5 ms for one of 10,000.
    """
    units = key.encode("ascii") if key.isascii() else memoryview(key.encode(_UTF_16)).cast("H")
    head = len(units) % _BLOCK
    value: int = sum(map(operator.mul, units[:head], _POWERS[_BLOCK - head :]))
    for start in range(head, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        value = (value * _NEXT_BLOCK + sum(map(operator.mul, block, _POWERS))) & 0xFFFF_FFFF
    return value & _WITHOUT_SIGN


def murmur3_32(data: bytes) -> int:
    """Return all 32 bits of MurmurHash3 with seed 0, as an unsigned number.

    It accepts bytes only: mmh3 accepts a str, too, but one without UTF-8 crashes the process (5.3.1).
    """
    return mmh3.hash(data, 0, signed=False)


def murmur3_32_hash(key: str) -> int:
    """Return the hash of the scheme Murmur3_32Hash. Raises UnicodeEncodeError if `key` contains surrogates."""
    return murmur3_32(key.encode()) & _WITHOUT_SIGN


_HASH_OF_SCHEME: Final = {
    HashingScheme.JavaStringHash: java_string_hash,
    HashingScheme.Murmur3_32Hash: murmur3_32_hash,
}


def partition_of(key: str, partitions: int, scheme: HashingScheme = HashingScheme.JavaStringHash) -> int:
    """Return the partition, of `partitions`, of messages with this key. `key` is the text in the message's metadata."""
    if partitions < 1:
        raise ValueError(
            f"a key can't be assigned to one of {partitions} partitions: a partitioned topic has at least 1"
        )
    return _HASH_OF_SCHEME[scheme](key) % partitions


def ordering_bytes(partition_key: str | None, *, b64_encoded: bool = False, ordering_key: bytes | None = None) -> bytes:
    """Return the key of Key_Shared dispatch: the ordering key, else the key, else `NO_KEY`. None is absent; empty is
    not.

    A key that is declared as base64 and is not was sent by a faulty producer. Its text is used then: an error here
    would stop the subscription for all consumers.
    """
    if ordering_key is not None:
        return ordering_key
    if partition_key is None:
        return NO_KEY
    if b64_encoded:
        try:
            return binascii.a2b_base64(partition_key, strict_mode=True)
        except ValueError:
            pass
    return partition_key.encode()


def key_shared_slot(key: bytes) -> int:
    """Return the slot, 0 … 65,535, of a message with this result of `ordering_bytes`."""
    return murmur3_32(key) % KEY_SHARED_SLOTS


def ring_points(consumer_name: str, count: int = RING_POINTS) -> tuple[int, ...]:
    """Return the consumer's points on the ring of 2^32: the hashes of its name followed by 1 … `count`.

    Two points may be equal, also those of two consumers (`c1` with 1 and `c` with 11). The caller breaks the tie.
    """
    return tuple(murmur3_32(f"{consumer_name}{number}".encode()) for number in range(1, count + 1))
