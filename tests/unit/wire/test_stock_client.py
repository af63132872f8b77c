"""The record of what a stock client writes: it is what was sent, and the installed client still writes it.

Entries are taken apart here with the generated code alone, and not by the codec that is to be held against the record.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import lz4.block
import pytest
import zstandard
from crc32c import crc32c
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as ProtobufMessage
from google.protobuf.unknown_fields import UnknownFieldSet

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

RECORD = Path(__file__).parents[2] / "vectors" / "pulsar_client.json"
RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
CASES: dict[str, Any] = RECORDED["cases"]

Fields = dict[str, Any]
DECOMPRESS: dict[int, Callable[[bytes, int], bytes]] = {
    CompressionType.NONE: lambda data, size: data,
    CompressionType.LZ4: lambda data, size: bytes(lz4.block.decompress(data, uncompressed_size=size)),
    CompressionType.ZLIB: lambda data, size: zlib.decompress(data),
    CompressionType.ZSTD: lambda data, size: zstandard.ZstdDecompressor().decompress(data),
    CompressionType.SNAPPY: lambda data, size: bytes(cramjam.snappy.decompress_raw(data)),
}
# What no two sends have in common. The uuid is the producer's name and a number here, but need not be.
TIMES_AND_NAMES = ("publish_time", "uuid")


def _parsed(message: ProtobufMessage, data: bytes) -> Fields:
    """The fields that are there. None is unknown to our .proto, and written by us they are the same bytes."""
    message.ParseFromString(data)
    assert len(UnknownFieldSet(message)) == 0
    assert message.SerializeToString() == data
    return MessageToDict(message, preserving_proto_field_name=True)


def _taken_apart(entry: bytes) -> tuple[Fields, list[tuple[Fields, bytes]]]:
    """The entry's metadata, and its messages with theirs. A chunk has its payload as it stands, compressed or not."""
    assert entry[:2] == b"\x0e\x01"
    assert int.from_bytes(entry[2:6], "big") == crc32c(entry[6:])
    metadata = MessageMetadata()
    end = 10 + int.from_bytes(entry[6:10], "big")
    fields = _parsed(metadata, entry[10:end])
    payload = entry[end:]
    if metadata.HasField("chunk_id"):
        return fields, [({}, payload)]
    payload = DECOMPRESS[metadata.compression](payload, metadata.uncompressed_size)
    if metadata.compression:
        assert len(payload) == metadata.uncompressed_size
    if not metadata.HasField("num_messages_in_batch"):
        return fields, [({}, payload)]
    messages = []
    while payload:
        single = SingleMessageMetadata()
        end = 4 + int.from_bytes(payload[:4], "big")
        of_message = _parsed(single, payload[4:end])
        messages.append((of_message, payload[end : end + single.payload_size]))
        payload = payload[end + single.payload_size :]
    assert len(messages) == metadata.num_messages_in_batch
    return fields, messages


def _comparable(case: dict[str, Any]) -> list[Any]:
    sends = []
    for sent in case["sent"]:
        metadata, messages = _taken_apart(base64.b64decode(sent["entry"]))
        for name in TIMES_AND_NAMES:
            metadata.pop(name, None)
        sends.append(({**sent, "entry": None}, metadata, messages))
    return sends


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    pytest.importorskip("pulsar", reason="the stock client is not installed")
    from tests.vectors.capture import capture

    return capture()


def test_the_installed_client_writes_the_recorded_entries(live: dict[str, Any]) -> None:
    assert list(live["cases"]) == list(CASES)
    for name, case in live["cases"].items():
        for field in ("messages", "options", "max_message_bytes"):
            assert case[field] == CASES[name][field], f"{name}: the record is of other {field}; capture again"
        assert _comparable(case) == _comparable(CASES[name]), name


def test_the_installed_client_still_chooses_the_recorded_partitions(live: dict[str, Any]) -> None:
    """What hashing is held against is what the client does."""
    ours_to_match = ("JavaStringHash", "Murmur3_32Hash")
    for part in ("partitions", "keys"):
        assert live["routing"][part] == RECORDED["routing"][part]
    for scheme in ours_to_match:
        assert live["routing"]["chosen"][scheme] == RECORDED["routing"]["chosen"][scheme]


def _as_sent(message: dict[str, Any]) -> Fields:
    """The fields that a message sent with these arguments has."""
    fields: Fields = {}
    if message["payload"] is None:
        fields["null_value"] = True
    if "ordering_key" in message:
        fields["ordering_key"] = base64.b64encode(message["ordering_key"].encode()).decode()
    if "partition_key" in message:
        fields["partition_key"] = message["partition_key"]
    if "event_timestamp" in message:
        fields["event_time"] = str(message["event_timestamp"])
    if message.get("properties"):
        fields["properties"] = [{"key": key, "value": value} for key, value in message["properties"].items()]
    return fields


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case["sent"][0]["is_chunk"]])
def test_every_message_is_in_the_record_as_it_was_sent(name: str) -> None:
    """What the client was given comes out of the entries, message by message."""
    case = CASES[name]
    found = []
    for sent in case["sent"]:
        metadata, messages = _taken_apart(base64.b64decode(sent["entry"]))
        if sent["is_chunk"]:
            continue
        batched = "num_messages_in_batch" in metadata
        assert batched == (case["options"].get("batching_enabled", False) and "deliver_at_time" not in metadata)
        for single, payload in messages:
            found.append((single if batched else metadata, payload))
    whole = [message for message in case["messages"] if len(message["payload"] or "") < case["max_message_bytes"]]
    for message in whole:
        expected = _as_sent(message)
        payload = base64.b64decode(message["payload"] or "")
        matching = [fields for fields, data in found if data == payload and expected.items() <= fields.items()]
        assert matching, message
        if not expected:
            optional = {"partition_key", "ordering_key", "properties", "event_time", "null_value"}
            assert any(not optional & fields.keys() for fields in matching)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if any(s["is_chunk"] for s in case["sent"])])
def test_chunks_are_in_order_and_join_to_the_message(name: str) -> None:
    """The stock client compresses the whole and cuts it then, by the size of payloads, not of entries."""
    case = CASES[name]
    apart = [_taken_apart(base64.b64decode(sent["entry"])) for sent in case["sent"] if sent["is_chunk"]]
    chunks = [metadata for metadata, _ in apart]
    payload = b"".join(messages[0][1] for _, messages in apart)
    assert [chunk["chunk_id"] for chunk in chunks] == list(range(chunks[0]["num_chunks_from_msg"]))
    for shared in ("uuid", "sequence_id", "num_chunks_from_msg", "total_chunk_msg_size"):
        assert len({chunk[shared] for chunk in chunks}) == 1
    assert chunks[0]["total_chunk_msg_size"] == len(payload)
    assert all(len(messages[0][1]) <= case["max_message_bytes"] for _, messages in apart)
    compression = CompressionType.Value(chunks[0].get("compression", "NONE"))
    [large] = [message for message in case["messages"] if len(message["payload"]) > case["max_message_bytes"]]
    whole = DECOMPRESS[compression](payload, chunks[0].get("uncompressed_size", 0))
    assert whole == base64.b64decode(large["payload"])


def test_a_batch_has_the_first_messages_keys_and_numbers_each_message() -> None:
    """What a broker that opens no batch may rely on with this client, and what not."""
    metadata, messages = _taken_apart(base64.b64decode(CASES["batch-rich-first"]["sent"][0]["entry"]))
    assert metadata["partition_key"] == "key"
    assert base64.b64decode(metadata["ordering_key"]) == b"ordering"
    assert not {"properties", "event_time", "highest_sequence_id"} & metadata.keys()
    numbered, messages = _taken_apart(base64.b64decode(CASES["batch-numbered"]["sent"][0]["entry"]))
    assert numbered["sequence_id"] == "7"
    assert [single["sequence_id"] for single, _ in messages] == ["7", "900", str(2**40)]


def test_the_record_is_small_and_names_its_client() -> None:
    assert RECORD.stat().st_size < 300_000
    assert RECORDED["client"].startswith("pulsar-client ")
