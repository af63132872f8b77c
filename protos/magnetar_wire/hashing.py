"""Where a key belongs: its partition, its slot in a Key_Shared subscription, a consumer's points on the hash ring.

**Partitions.** A producer on a partitioned topic hashes the key's text and takes the remainder. What carries one key
lands in one partition only among producers that hash alike, so both schemes are Pulsar's to the bit:

- `JavaStringHash` (the default) is Java's `String.hashCode`: the UTF-16 code units as the digits of a number to base
  31, modulo 2^32, without the sign bit.
- `Murmur3_32Hash` is MurmurHash3 x86 32-bit, seed 0, of the UTF-8, without the sign bit.

A key of bytes travels as its base64, and that text is what is hashed here.

Not every stock client can be had in step. Java's default is JavaStringHash, as ours. The C++ library, and the Python
client made of it, default to a third scheme, Boost's hash, whose values depend on the version of Boost that the library
was built with; and the Python client has no option for another, so that only a router written by the application makes
it agree with anyone. What the C++ library calls JavaStringHash goes over the UTF-8, byte by byte, as signed chars: it
is Java's for ASCII keys and no others. Its Murmur3_32Hash is Java's and ours for every key. (Observed: tests/vectors.)

**Key_Shared.** The broker's own hash does not depend on the producer's scheme: MurmurHash3 of the key's bytes, all 32
bits, modulo 65,536 slots.
"""

from __future__ import annotations

import binascii
import enum
import operator
import sys
from typing import Final

import mmh3

KEY_SHARED_SLOTS: Final = 65_536
# The bytes that stand for the key of all messages that have none.
NO_KEY: Final = b"NON_KEY"
RING_POINTS: Final = 100

_WITHOUT_SIGN: Final = 0x7FFF_FFFF
# 31 to the power of 255 … 0 modulo 2^32: what the digits of a block count. The products of one block add up to less
# than 2^56, so that one mask at the end of a block does.
_BLOCK: Final = 256
_POWERS: Final = tuple(pow(31, _BLOCK - 1 - place, 1 << 32) for place in range(_BLOCK))
_NEXT_BLOCK: Final = pow(31, _BLOCK, 1 << 32)
_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


class HashingScheme(enum.Enum):
    """How a producer makes a partition of a key."""

    JavaStringHash = "JavaStringHash"
    Murmur3_32Hash = "Murmur3_32Hash"


def java_string_hash(key: str) -> int:
    """Java's `key.hashCode() & Integer.MAX_VALUE`. Raises UnicodeEncodeError if `key` has surrogates of its own.

    The sum of products runs in C: 1 µs for a key of a dozen characters, 0.5 ms for one of 10,000.
    """
    units = key.encode("ascii") if key.isascii() else memoryview(key.encode(_UTF_16)).cast("H")
    head = len(units) % _BLOCK
    value: int = sum(map(operator.mul, units[:head], _POWERS[_BLOCK - head :]))
    for start in range(head, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        value = (value * _NEXT_BLOCK + sum(map(operator.mul, block, _POWERS))) & 0xFFFF_FFFF
    return value & _WITHOUT_SIGN


def murmur3_32(data: bytes) -> int:
    """All 32 bits of MurmurHash3, seed 0, as an unsigned number.

    Of bytes alone: mmh3 takes a str too, but one that has no UTF-8 kills the process (5.3.1).
    """
    return mmh3.hash(data, 0, signed=False)


def murmur3_32_hash(key: str) -> int:
    """The hash of the scheme Murmur3_32Hash. Raises UnicodeEncodeError if `key` has surrogates of its own."""
    return murmur3_32(key.encode()) & _WITHOUT_SIGN


_HASH_OF_SCHEME: Final = {
    HashingScheme.JavaStringHash: java_string_hash,
    HashingScheme.Murmur3_32Hash: murmur3_32_hash,
}


def partition_of(key: str, partitions: int, scheme: HashingScheme = HashingScheme.JavaStringHash) -> int:
    """Which of a topic's `partitions` what carries `key` goes to: the key's text as it stands in the metadata."""
    if partitions < 1:
        raise ValueError(
            f"a key can't be assigned to one of {partitions} partitions: a partitioned topic has at least 1"
        )
    return _HASH_OF_SCHEME[scheme](key) % partitions


def ordering_bytes(partition_key: str | None, *, b64_encoded: bool = False, ordering_key: bytes | None = None) -> bytes:
    """What Key_Shared goes by: the ordering key, else the key, else `NO_KEY`. None is absent; empty is there.

    A key that says it is base64 and is not came from a faulty producer. Its text is as good a key as any, and refusing
    it here would stop the subscription for everyone.
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
    """The slot, 0 … 65,535, of a message whose `ordering_bytes` are `key`."""
    return murmur3_32(key) % KEY_SHARED_SLOTS


def ring_points(consumer_name: str) -> tuple[int, ...]:
    """Where on the ring of 2^32 the consumer stands: at the hash of its name with 1 … 100 after it.

    Two points can fall together, also of two consumers (`c1` with 1 and `c` with 11): who uses them breaks the tie.
    """
    return tuple(murmur3_32(f"{consumer_name}{number}".encode()) for number in range(1, RING_POINTS + 1))
