"""Makes the record of what the installed stock client writes: `python -m tests.vectors.capture`.

What is written is what the client sent, untouched. A second capture differs in times alone: producer names are given,
and batches close on a flush and not by the clock.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import pulsar
from pulsar.schema import BytesSchema, StringSchema

from tests.vectors import native_client
from tests.vectors.broker import Recorder, Sent, serving
from tests.vectors.cases import CASES, KEYS, PARTITIONS, Case, Message

RECORD = Path(__file__).with_name("pulsar_client.json")
_ROUTED = "persistent://public/default/routed"
# A batch closes when it is flushed, not before: as many messages, bytes and ms as no case has.
_OPEN_BATCH = {
    "batching_max_messages": 100_000,
    "batching_max_allowed_size_in_bytes": 1_048_576,
    "batching_max_publish_delay_ms": 3_600_000,
}


def capture() -> dict[str, Any]:
    """The record, as JSON has it."""
    cases = {}
    for limit, group in groupby(CASES, key=lambda case: case.max_message_bytes):
        with serving(limit) as broker:
            client = _client(broker)
            cases.update({case.name: _run(client, broker, case) for case in group})
            client.close()
    return {
        "client": f"pulsar-client {pulsar.__version__}",
        "cases": cases,
        "routing": {"partitions": PARTITIONS, "keys": KEYS, "chosen": _routes()},
    }


def _client(broker: Recorder) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _run(client: pulsar.Client, broker: Recorder, case: Case) -> dict[str, Any]:
    producer = client.create_producer(case.name, **_producer_arguments(case.options))
    results: list[pulsar.Result] = []
    for message in case.messages:
        arguments = {name: value for name, value in message.items() if name != "payload"}
        producer.send_async(_content(message, case.options), lambda result, _: results.append(result), **arguments)
    producer.flush()
    # Returns after the callbacks of all that it closes were called.
    producer.close()
    if results != [pulsar.Result.Ok] * len(case.messages):
        raise RuntimeError(f"{case.name}: the client answered {results}")
    return {
        "options": case.options,
        "max_message_bytes": case.max_message_bytes,
        "messages": case.messages,
        "sent": [_sent(sent) for sent in broker.take()],
    }


def _producer_arguments(options: dict[str, Any]) -> dict[str, Any]:
    enums = {"compression_type": pulsar.CompressionType, "batching_type": pulsar.BatchingType}
    arguments = {name: getattr(enums[name], value) if name in enums else value for name, value in options.items()}
    arguments["schema"] = StringSchema() if options.get("schema") == "String" else BytesSchema()
    return (_OPEN_BATCH if options.get("batching_enabled") else {}) | arguments


def _content(message: Message, options: dict[str, Any]) -> bytes | str | None:
    if message["payload"] is None:
        return None
    payload = base64.b64decode(message["payload"])
    return payload.decode() if options.get("schema") == "String" else payload


def _sent(sent: Sent) -> dict[str, Any]:
    """The entry, and the fields of the command beside it."""
    return {
        "sequence_id": sent.sequence_id,
        "num_messages": sent.num_messages,
        "highest_sequence_id": sent.highest_sequence_id,
        "is_chunk": sent.is_chunk,
        "entry": base64.b64encode(sent.entry).decode(),
    }


def _routes() -> dict[str, list[int]]:
    """Which partition each key went to, by the library's schemes, and by the Python client, which has no choice."""
    with serving(5_242_880, {_ROUTED: PARTITIONS}) as broker:
        chosen = {}
        for scheme in sorted(native_client.SCHEMES):
            native_client.send_keys(broker.url, _ROUTED, scheme, KEYS)
            chosen[scheme] = _partitions(broker.take())
        client = _client(broker)
        producer = client.create_producer(_ROUTED)
        for key in KEYS:
            producer.send(b"", partition_key=key)
        client.close()
        chosen["Python client"] = _partitions(broker.take())
    return chosen


def _partitions(sent: Iterable[Sent]) -> list[int]:
    return [int(one.topic.rpartition("-")[2]) for one in sent]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(capture(), ensure_ascii=False, indent=1) + "\n")
