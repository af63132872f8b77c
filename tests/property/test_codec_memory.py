"""The memory of decoding entries of a few KB: hostile ones are refused before much is allocated, allowed ones have a
limit.

Each is decoded in a process of its own, whose peak is read from the operating system: Python does not count the memory
of protobuf's parser.
"""

from __future__ import annotations

import subprocess
import sys
from array import array
from collections.abc import Callable

import pytest
import zstandard
from crc32c import crc32c

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry, split_broker_metadata
from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import (
    MAX_BATCH_MESSAGES,
    MAX_BATCH_METADATA_BYTES,
    MAX_BROKER_METADATA_BYTES,
    MAX_ENTRY_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_METADATA_BYTES,
    MAX_RECORD_METADATA_BYTES,
    MAX_UNCOMPRESSED_BYTES,
)
from tests.property import raw_fields as raw

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a process' peak memory is read from Linux"),
]

SHARED = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
MIB = 1 << 20
PAIR = raw.words(1, raw.pair(b"", b""))
KEYED = raw.words(1, raw.pair(b"a", b"b")) * 2 + raw.words(2, b"key") + b"\x18\0@\5"
# A size that is written twice is decoded message by message only.
SLOW = b"\x18\0\x18\0"

_CHILD = """
import sys
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.errors import WireError

def peak():  # of this process alone: getrusage's has its parent's in it
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))

stored = sys.stdin.buffer.read()
before = peak()
try:
    messages = decode_messages(decode_entry(stored))
    answer = f"{len(messages)} {sum(map(len, messages.properties or []))}"
except WireError as error:
    answer = type(error).__name__
print(peak() - before, answer)
"""


def decoded_in_a_child(stored: bytes) -> tuple[int, str]:
    """Return by how many bytes the peak of the process rose, and how it ended."""
    done = subprocess.run([sys.executable, "-c", _CHILD], input=stored, capture_output=True, check=True, timeout=120)
    kib, answer = done.stdout.decode().strip().split(" ", 1)
    return int(kib) * 1024, answer


def compressed_batch(batch: bytes, count: int) -> bytes:
    metadata = MessageMetadata(num_messages_in_batch=count, compression=entry_pb2.ZSTD, uncompressed_size=len(batch))
    metadata.MergeFrom(SHARED)
    return encode_entry(metadata, zstandard.ZstdCompressor().compress(batch))


def as_many(metadata: bytes, payload: bytes = b"", limit: int = MAX_UNCOMPRESSED_BYTES) -> tuple[bytes, int]:
    record = raw.record(metadata, payload)
    count = min(MAX_BATCH_MESSAGES, limit // len(record))
    return record * count, count


def one_record(metadata: bytes) -> tuple[bytes, int]:
    return raw.record(metadata, b""), 1


# Each is created in its test: together they take a gigabyte.
HOSTILE: dict[str, Callable[[], tuple[bytes, int]]] = {
    "properties of one message, by columns": lambda: one_record(PAIR * 20_000_000 + b"\x18\0"),
    "properties of one message, by objects": lambda: one_record(PAIR * 20_000_000 + SLOW),
    "properties of the second message": lambda: (
        raw.record(b"\x18\0", b"") + raw.record(PAIR * 20_000_000 + b"\x18\0", b""),
        2,
    ),
    "properties of many messages": lambda: as_many(PAIR * 1000 + b"\x18\0"),
    "keyed messages, by columns": lambda: as_many(KEYED),
    "keyed messages, by objects": lambda: as_many(KEYED + SLOW),
    "keyed messages of two sizes": lambda: (raw.record(b"\x18\1", b"x") + raw.record(KEYED, b"") * 800_000, 800_001),
    "more messages than declared": lambda: (
        raw.record(b"\x18\1", b"x") + raw.record(b"\x18\0", b"") * 20_000_000,
        1000,
    ),
    "messages alike": lambda: as_many(b"\x18\0@\5"),
    "one unknown field": lambda: one_record(raw.words(200, bytes(100 * MIB)) + b"\x18\0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_oversized_batch_metadata_is_refused_before_allocation(name: str) -> None:
    """Allowed: the batch before compression, a copy of it, and the parser's memory for one message."""
    batch, count = HOSTILE[name]()
    peak, answer = decoded_in_a_child(compressed_batch(batch, count))
    assert answer == ("MalformedEntry" if name == "more messages than declared" else "TooLarge")
    assert peak < 2 * len(batch) + 20 * MIB


ALLOWED: dict[str, Callable[[], tuple[bytes, int]]] = {
    "properties": lambda: as_many(PAIR * 10_000 + b"\x18\0", limit=MAX_BATCH_METADATA_BYTES),
    "properties, by objects": lambda: as_many(PAIR * 10_000 + SLOW, limit=MAX_BATCH_METADATA_BYTES),
    "keyed messages": lambda: as_many(KEYED, limit=MAX_BATCH_METADATA_BYTES),
    "keyed messages, by objects": lambda: as_many(KEYED + SLOW, limit=MAX_BATCH_METADATA_BYTES),
    "keys alone": lambda: as_many(raw.words(2, b"") + b"\x18\0", limit=MAX_BATCH_METADATA_BYTES),
    "flags alone": lambda: as_many(b"\x18\0\x48\1", limit=MAX_BATCH_METADATA_BYTES),
    "nothing at all": lambda: as_many(b"\x18\0", limit=MAX_BATCH_METADATA_BYTES),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_largest_allowed_batch_metadata_uses_bounded_memory(name: str) -> None:
    batch, count = ALLOWED[name]()
    peak, answer = decoded_in_a_child(compressed_batch(batch, count))
    assert answer.split()[0] == str(count)
    assert peak < 450 * MIB


# -- the limits themselves ---------------------------------------------------------------------------------------------


def entry_of(metadata_bytes: int, payload: bytes) -> bytes:
    """Build an entry whose metadata has this many bytes."""
    head = SHARED.SerializeToString()
    rest = metadata_bytes - len(head)
    value = rest - 2 - len(raw.varint(rest - 4))
    head += raw.words(200, bytes(value))
    assert len(head) == metadata_bytes
    covered = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\1" + crc32c(covered).to_bytes(4, "big") + covered


def test_an_entrys_metadata_has_a_limit() -> None:
    largest = decode_entry(entry_of(MAX_METADATA_BYTES, b"x"))
    assert encode_entry(largest.metadata, b"x") == entry_of(MAX_METADATA_BYTES, b"x")
    with pytest.raises(TooLarge, match=str(MAX_METADATA_BYTES)):
        decode_entry(entry_of(MAX_METADATA_BYTES + 1, b"x"))
    with pytest.raises(TooLarge, match=str(MAX_METADATA_BYTES)):
        encode_message(Messages([b"x"], properties=[{"n": "v" * MAX_METADATA_BYTES}]), SHARED)


def test_oversized_entry_metadata_is_refused_before_allocation() -> None:
    head = SHARED.SerializeToString() + raw.words(4, raw.pair(b"", b"")) * 870_000
    covered = len(head).to_bytes(4, "big") + head
    peak, answer = decoded_in_a_child(b"\x0e\1" + crc32c(covered).to_bytes(4, "big") + covered)
    assert answer == "TooLarge"
    assert peak < 20 * MIB


def test_encoded_entries_leave_capacity_for_broker_metadata() -> None:
    largest = MAX_ENTRY_BYTES - MAX_BROKER_METADATA_BYTES
    metadata = decode_entry(entry_of(10_202, b"")).metadata
    stored = encode_entry(metadata, bytes(MAX_MESSAGE_BYTES))
    assert len(stored) == largest
    whole = add_broker_metadata(stored, 2**64 - 1, 2**64 - 1)
    assert len(whole) == MAX_ENTRY_BYTES
    assert decode_entry(whole).payload == bytes(MAX_MESSAGE_BYTES)
    with pytest.raises(TooLarge, match=str(MAX_ENTRY_BYTES)):
        decode_entry(entry_of(10_240, bytes(MAX_MESSAGE_BYTES)))
    with pytest.raises(TooLarge, match=str(largest)):
        encode_entry(decode_entry(entry_of(10_203, b"")).metadata, bytes(MAX_MESSAGE_BYTES))
    with pytest.raises(TooLarge, match=str(MAX_MESSAGE_BYTES)):
        encode_entry(SHARED, bytes(MAX_MESSAGE_BYTES + 1))
    with pytest.raises(TooLarge, match=str(MAX_ENTRY_BYTES)):
        add_broker_metadata(bytes(MAX_ENTRY_BYTES - 8), 1, 2)


def test_a_brokers_part_has_a_limit() -> None:
    part = raw.words(200, bytes(MAX_METADATA_BYTES))
    with pytest.raises(TooLarge, match=str(MAX_METADATA_BYTES)):
        split_broker_metadata(b"\x0e\2" + len(part).to_bytes(4, "big") + part)


def test_batches_up_to_the_metadata_limits_can_be_decoded() -> None:
    """With compression, since no such batch would fit an entry without it."""
    key_bytes = MAX_RECORD_METADATA_BYTES - 4 - 2  # the key's tag and size, and a payload size of 0
    for count, keys in ((1, key_bytes), (2, key_bytes), (1, key_bytes + 1), (2, key_bytes + 1)):
        messages = Messages([b""] * count, keys=["k" * keys] * count)
        if keys > key_bytes:
            with pytest.raises(TooLarge, match=str(MAX_RECORD_METADATA_BYTES)):
                encode_batch(messages, SHARED, entry_pb2.ZSTD)
        else:
            stored = encode_batch(messages, SHARED, entry_pb2.ZSTD)
            assert decode_messages(decode_entry(stored)).keys == messages.keys
    most = MAX_BATCH_METADATA_BYTES // 10_000  # of them in a batch
    for count in (most, most + 1):
        messages = Messages([b"x"] * count, keys=["k" * (10_000 - 4 - 3 - 2)] * count)
        if count > most:
            with pytest.raises(TooLarge, match=str(MAX_BATCH_METADATA_BYTES)):
                encode_batch(messages, SHARED, entry_pb2.ZSTD)
        else:
            stored = encode_batch(messages, SHARED, entry_pb2.ZSTD)
            assert decode_messages(decode_entry(stored)).keys == messages.keys


def test_messages_alike_are_held_to_the_same_limits() -> None:
    with pytest.raises(TooLarge, match=str(MAX_BATCH_METADATA_BYTES)):
        encode_batch(Messages([b""] * MAX_BATCH_MESSAGES, array("Q", bytes(8 * MAX_BATCH_MESSAGES))), SHARED)
    stored = encode_batch(Messages([b""] * MAX_BATCH_MESSAGES), SHARED)
    assert len(decode_messages(decode_entry(stored))) == MAX_BATCH_MESSAGES


def test_payloads_may_be_as_many_bytes_as_they_will() -> None:
    """A batch far above MAX_MESSAGE_BYTES before compression, with payloads of one size and of two."""
    for payloads in ([bytes(100_000)] * 200, [bytes(100_000), bytes(90_000)] * 100):
        messages = Messages(payloads, keys=[f"key-{index}" for index in range(200)])
        back = decode_messages(decode_entry(encode_batch(messages, SHARED, entry_pb2.ZSTD)))
        assert (back.payloads, back.keys) == (payloads, messages.keys)
