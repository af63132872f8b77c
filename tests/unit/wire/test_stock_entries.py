"""Entries of a stock client (tests/vectors), decoded by our codec to the messages that the application sent."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar_wire.batch import Messages, decode_messages
from magnetar_wire.compression import decompress
from magnetar_wire.entry import add_broker_metadata, decode_entry, split_broker_metadata
from magnetar_wire.errors import PartOfMessage

RECORD = json.loads((Path(__file__).parents[2] / "vectors" / "pulsar_client.json").read_text())
CASES: dict[str, Any] = RECORD["cases"]
CHUNKED = [name for name, case in CASES.items() if any(sent["is_chunk"] for sent in case["sent"])]


def rows(messages: Messages) -> Iterator[dict[str, Any]]:
    """Return one dictionary per message with its properties."""
    for index in range(len(messages)):
        row: dict[str, Any] = {"payload": messages.payloads[index]}
        if messages.keys is not None and messages.keys[index] is not None:
            row["partition_key"] = messages.keys[index]
        if messages.ordering_keys is not None and messages.ordering_keys[index] is not None:
            row["ordering_key"] = messages.ordering_keys[index]
        if messages.properties is not None and messages.properties[index]:
            row["properties"] = dict(messages.properties[index])
        if messages.event_times is not None and messages.event_times[index]:
            row["event_timestamp"] = messages.event_times[index]
        yield row


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    payload = message["payload"]
    row: dict[str, Any] = {"payload": None if payload is None else base64.b64decode(payload)}
    for name in ("partition_key", "properties", "event_timestamp"):
        if message.get(name):
            row[name] = message[name]
    if "ordering_key" in message:
        row["ordering_key"] = message["ordering_key"].encode()
    return row


def ordered(found: list[dict[str, Any]]) -> list[str]:
    """Sort the messages: key-based batching and delivery times change the order of sending."""
    return sorted(repr(sorted(row.items())) for row in found)


@pytest.mark.parametrize("name", [name for name in CASES if name not in CHUNKED])
def test_stock_client_messages_are_decoded_as_sent(name: str) -> None:
    case = CASES[name]
    found: list[dict[str, Any]] = []
    for sent in case["sent"]:
        stored = base64.b64decode(sent["entry"])
        entry = decode_entry(stored)
        messages = decode_messages(entry)
        assert messages.sequence_ids is not None
        assert messages.sequence_ids[0] == entry.metadata.sequence_id
        found += rows(messages)
        behind_a_broker = add_broker_metadata(stored, 1_700_000_000_000, 41)
        assert split_broker_metadata(behind_a_broker)[1] == stored
        assert list(rows(decode_messages(decode_entry(behind_a_broker)))) == list(rows(messages))
    assert ordered(found) == ordered([as_sent(message) for message in case["messages"]])


@pytest.mark.parametrize("name", CHUNKED)
def test_a_stock_client_s_chunks_make_up_the_message(name: str) -> None:
    """A single chunk raises a typed error; all of them are joined to the message, which is compressed as a whole."""
    whole: dict[str, list[bytes]] = {}
    uncompressed: dict[str, tuple[int, int]] = {}
    for sent in CASES[name]["sent"]:
        if not sent["is_chunk"]:
            continue
        entry = decode_entry(base64.b64decode(sent["entry"]))
        metadata = entry.metadata
        if metadata.num_chunks_from_msg > 1:
            with pytest.raises(PartOfMessage, match=f"chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg}"):
                decode_messages(entry)
        chunks = whole.setdefault(metadata.uuid, [])
        assert metadata.chunk_id == len(chunks)
        chunks.append(entry.payload)
        uncompressed[metadata.uuid] = (metadata.compression, metadata.uncompressed_size)
    assert whole
    payloads = [decompress(b"".join(chunks), *uncompressed[uuid]) for uuid, chunks in whole.items()]
    sent_payloads = [as_sent(message)["payload"] for message in CASES[name]["messages"]]
    assert all(payload in sent_payloads for payload in payloads)
