"""The entry codec against a protobuf object for each message.

A thousand messages of 100 bytes in one batch, from a list of bytes and an array of sequence ids to a stored entry and
back, checksum included. The other arm is what one writes first: a SingleMessageMetadata object for each message,
serialised or parsed, its fields set or read. It ends with the same bytes, and with the same lists.

`decode_arrow` makes record batches, all columns of Spark's, of ten such entries as a broker stores them; its other arm
puts the same lists into the same columns.

Keyed messages have a key and two properties each, whose lengths differ from message to message as such things' do. The
`varied` benches, beyond the required ones, have payloads of 50 to 150 bytes as well.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from magnetar_protos.entry_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar_spark.arrow import EntriesToArrow
from magnetar_spark.options.columns import build_arrow_schema
from magnetar_wire.batch import Messages, decode_messages, encode_batch
from magnetar_wire.entry import add_broker_metadata, decode_entry, split_broker_metadata
from tests.bench.harness import Result, ratio

COUNT = 1000
SIZE = 100
AGAINST = "a protobuf object per message"
SHARED = MessageMetadata(producer_name="producer-1", sequence_id=0, publish_time=1_700_000_000_000)


def plain_messages(draw: random.Random, sizes: list[int]) -> Messages:
    return Messages([draw.randbytes(size) for size in sizes], array("Q", range(5_000_000, 5_000_000 + len(sizes))))


def keyed_messages(draw: random.Random, sizes: list[int]) -> Messages:
    messages = plain_messages(draw, sizes)
    messages.keys = [f"user-{draw.randrange(100_000)}" for _ in sizes]
    messages.properties = [
        {"source": f"sensor-{index % 37}", "trace": draw.randbytes(draw.randrange(6, 9)).hex()}
        for index in range(len(sizes))
    ]
    return messages


def encode_with_objects(messages: Messages) -> bytes:
    ids = messages.sequence_ids
    assert ids is not None
    parts: list[bytes] = []
    for index, payload in enumerate(messages.payloads):
        assert payload is not None
        head = SingleMessageMetadata(payload_size=len(payload), sequence_id=ids[index])
        if messages.keys is not None:
            key = messages.keys[index]
            assert isinstance(key, str)
            head.partition_key = key
        if messages.properties is not None:
            for name, value in messages.properties[index].items():
                head.properties.add(key=name, value=value)
        serialised = head.SerializeToString()
        parts += (struct.pack(">I", len(serialised)), serialised, payload)
    batch = b"".join(parts)
    metadata = MessageMetadata()
    metadata.CopyFrom(SHARED)
    metadata.num_messages_in_batch = len(messages)
    metadata.sequence_id = ids[0] or 0
    metadata.highest_sequence_id = ids[-1] or 0
    serialised = metadata.SerializeToString()
    covered = struct.pack(">I", len(serialised)) + serialised + batch
    return b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered


def decode_with_objects(
    entry: bytes, keyed: bool
) -> tuple[list[bytes], array[int], list[str], list[SingleMessageMetadata]]:
    checksum, size = struct.unpack_from(">II", entry, 2)
    assert crc32c(entry[6:]) == checksum
    metadata = MessageMetadata.FromString(entry[10 : 10 + size])
    batch = entry[10 + size :]
    payloads, ids, keys, heads = [], array("Q"), [], []
    at = 0
    for _ in range(metadata.num_messages_in_batch):
        (size,) = struct.unpack_from(">I", batch, at)
        start = at + 4 + size
        head = SingleMessageMetadata.FromString(batch[at + 4 : start])
        at = start + head.payload_size
        payloads.append(batch[start:at])
        ids.append(head.sequence_id)
        if keyed:
            keys.append(head.partition_key)
            heads.append(head)  # its properties are parsed, on first access
    return payloads, ids, keys, heads


def decode(entry: bytes) -> Messages:
    return decode_messages(decode_entry(entry))


def pair(name: str, messages: Messages, floors: tuple[float | None, float | None]) -> Iterator[Result]:
    encode_name, decode_name = f"codec.encode{name}", f"codec.decode{name}"
    entry = encode_batch(messages, SHARED)
    keyed = messages.keys is not None
    assert entry == encode_with_objects(messages)
    ours, theirs = decode(entry), decode_with_objects(entry, keyed)
    assert (ours.payloads, ours.sequence_ids, ours.keys or []) == theirs[:3]
    yield ratio(
        encode_name,
        lambda: encode_batch(messages, SHARED),
        lambda: encode_with_objects(messages),
        against=AGAINST,
        floor=floors[0],
    )
    yield ratio(
        decode_name, lambda: decode(entry), lambda: decode_with_objects(entry, keyed), against=AGAINST, floor=floors[1]
    )


def arrow_of_lists(stored: Sequence[bytes], topic: str, schema: Any) -> Any:
    """The columns of the Spark connector, from lists."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for entry_id, entry in enumerate(stored):
        broker, rest = split_broker_metadata(entry)
        assert broker is not None
        payloads, ids, _, _ = decode_with_objects(rest, False)
        count = len(payloads)
        columns["key"] += [None] * count
        columns["value"] += payloads
        columns["topic"] += [topic] * count
        columns["partition"] += [0] * count
        columns["message_id"] += [
            {"ledger_id": 1, "entry_id": entry_id, "batch_index": index} for index in range(count)
        ]
        columns["publish_time"] += [SHARED.publish_time * 1000] * count
        columns["event_time"] += [None] * count
        columns["broker_time"] += [broker.broker_timestamp * 1000] * count
        columns["index"] += range(broker.index - count + 1, broker.index + 1)
        columns["properties"] += [[]] * count
        columns["sequence_id"] += ids
        columns["producer_name"] += [SHARED.producer_name] * count
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def decode_arrow(name: str, messages: Messages, entries: int, floor: float | None) -> Result:
    entry, topic, schema = encode_batch(messages, SHARED), "persistent://public/default/topic", build_arrow_schema()
    stored = [add_broker_metadata(entry, 1_700_000_000_000, 999 + COUNT * index) for index in range(entries)]
    converter = EntriesToArrow(schema.names, topic, 0)
    (batch,) = converter.convert_entries(1, 0, stored)
    assert batch.equals(arrow_of_lists(stored, topic, schema))
    return ratio(
        name,
        lambda: list(converter.convert_entries(1, 0, stored)),
        lambda: arrow_of_lists(stored, topic, schema),
        against=AGAINST,
        floor=floor,
    )


def benches() -> Iterator[Result]:
    draw = random.Random(7)
    fixed = [SIZE] * COUNT
    varied = [draw.randrange(50, 151) for _ in range(COUNT)]
    yield from pair("", plain_messages(draw, fixed), (8, 3))
    yield from pair("_keyed", keyed_messages(draw, fixed), (1.5, 2))
    yield from pair("_varied", plain_messages(draw, varied), (None, None))
    yield from pair("_keyed_varied", keyed_messages(draw, varied), (None, None))
    yield decode_arrow("codec.decode_arrow", plain_messages(draw, fixed), 10, 15)
