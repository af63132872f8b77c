"""One stored entry as Pulsar's REST API sends it: the payload as the body, and its metadata in headers `X-Pulsar-…`.

The body is the decompressed payload: of a batch all its messages with their metadata, as in the entry, so that the
client splits them. An encrypted payload is sent as it is stored. The entry's id is in `X-Pulsar-Message-ID`, and its
properties are a JSON object in `X-Pulsar-PROPERTY`.

A client makes an entry of the headers and the body again, which has the same messages.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from magnetar_protos import entry_pb2
from magnetar_protos.admin_pb2 import PeekedEntry
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.json.values import InvalidJson
from magnetar_wire.compression import decompress
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry
from magnetar_wire.errors import WireError

__all__ = ["MessageEntryAnswer", "read_entry", "write_entry"]

_ID: Final = "X-Pulsar-Message-ID"
_PROPERTIES: Final = "X-Pulsar-PROPERTY"
_BROKER_TIME: Final = "X-Pulsar-Broker-Entry-METADATA-timestamp"
_BROKER_INDEX: Final = "X-Pulsar-Broker-Entry-METADATA-index"
# Of a batch: the messages that the subscription has acknowledged, as bits. Pulsar's brokers do not send it.
_ACKNOWLEDGED: Final = "X-Magnetar-Acknowledged"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)


def _time_to_text(time_ms: int) -> str:
    try:
        text = (_EPOCH + time_ms * _MS).isoformat(timespec="milliseconds").removesuffix("+00:00")
    except OverflowError:  # a producer sets any number
        return str(time_ms)
    return text.rstrip("0").removesuffix(".") + "Z" if "." in text else text + "Z"


def _text_to_time(text: str) -> int:
    if text.lstrip("-").isdigit():
        return int(text)
    return (datetime.datetime.fromisoformat(text) - _EPOCH) // _MS


class _Kind(NamedTuple):
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]


_TEXT: Final = _Kind(str, str)
_NUMBER: Final = _Kind(str, int)
_TIME: Final = _Kind(_time_to_text, _text_to_time)
_BOOLEAN: Final = _Kind(lambda value: str(value).lower(), lambda text: text == "true")
_BYTES: Final = _Kind(lambda value: base64.b64encode(value).decode(), base64.b64decode)
_COMPRESSION: Final = _Kind(
    lambda value: entry_pb2.CompressionType.Name(value), lambda text: entry_pb2.CompressionType.Value(text)
)

# The headers after "X-Pulsar-" of fields of MessageMetadata, which are there if the field is.
_FIELDS: Final[Mapping[str, tuple[str, _Kind]]] = {
    "publish-time": ("publish_time", _TIME),
    "event-time": ("event_time", _TIME),
    "deliver-at-time": ("deliver_at_time", _TIME),
    "num-batch-message": ("num_messages_in_batch", _NUMBER),
    "null-value": ("null_value", _BOOLEAN),
    "producer-name": ("producer_name", _TEXT),
    "sequence-id": ("sequence_id", _NUMBER),
    "replicated-from": ("replicated_from", _TEXT),
    "partition-key": ("partition_key", _TEXT),
    "compression": ("compression", _COMPRESSION),
    "uncompressed-size": ("uncompressed_size", _NUMBER),
    "encryption-algo": ("encryption_algo", _TEXT),
    "Base64-encryption-param": ("encryption_param", _BYTES),
    "Base64-schema-version": ("schema_version", _BYTES),
    "partition-key-b64-encoded": ("partition_key_b64_encoded", _BOOLEAN),
    "Base64-ordering-key": ("ordering_key", _BYTES),
    "marker-type": ("marker_type", _NUMBER),
    "txnid-least-bits": ("txnid_least_bits", _NUMBER),
    "txnid-most-bits": ("txnid_most_bits", _NUMBER),
    "highest-sequence-id": ("highest_sequence_id", _NUMBER),
    "uuid": ("uuid", _TEXT),
    "num-chunks-from-msg": ("num_chunks_from_msg", _NUMBER),
    "total-chunk-msg-size": ("total_chunk_msg_size", _NUMBER),
    "chunk-id": ("chunk_id", _NUMBER),
    "null-partition-key": ("null_partition_key", _BOOLEAN),
}


class MessageEntryAnswer(RawAnswer):
    """The response's first `PeekedEntry`: its field of that kind, repeated or not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_refusal(self, message: Message) -> tuple[int, str, str] | None:
        value = getattr(message, self._name)
        is_missing = not isinstance(value, PeekedEntry) and not value
        return (404, "there is no such message", ErrorCode.Name(ErrorCode.NOT_FOUND)) if is_missing else None

    def measure(self, message: Message) -> int:
        opened = decode_entry(self._get_entry(message).stored)
        is_compressed = opened.metadata.compression and not opened.metadata.encryption_keys
        return opened.metadata.uncompressed_size if is_compressed else len(opened.payload)

    def to_http(self, message: Message) -> tuple[Mapping[str, str | Sequence[str]], bytes]:
        return write_entry(self._get_entry(message))

    def _get_entry(self, message: Message) -> PeekedEntry:
        value = getattr(message, self._name)
        entry: PeekedEntry = value if isinstance(value, PeekedEntry) else value[0]
        return entry

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        value = getattr(message, self._name)
        read_entry(value if isinstance(value, PeekedEntry) else value.add(), headers, body)


def write_entry(entry: PeekedEntry) -> tuple[Mapping[str, str | Sequence[str]], bytes]:
    """Return the headers and the body. Raises WireError if the entry can't be decoded."""
    opened = decode_entry(entry.stored)
    metadata = opened.metadata
    headers: dict[str, str | Sequence[str]] = {_ID: f"{entry.ledger_id}:{entry.entry_id}"}
    headers[_PROPERTIES] = json.dumps({one.key: one.value for one in metadata.properties}, separators=(",", ":"))
    if opened.broker is not None:
        headers[_BROKER_TIME] = _time_to_text(opened.broker.broker_timestamp)
        headers[_BROKER_INDEX] = str(opened.broker.index)
    for name, (field, kind) in _FIELDS.items():
        if metadata.HasField(field):
            headers[f"X-Pulsar-{name}"] = _to_header(kind.to_text(getattr(metadata, field)))
    if opened.is_batch:
        headers["X-Pulsar-batch-size"] = str(len(entry.stored) - metadata.ByteSize())
    if metadata.HasField("num_chunks_from_msg"):
        headers["X-Pulsar-PROPERTY-TOTAL-CHUNKS"] = str(metadata.num_chunks_from_msg)
        headers["X-Pulsar-PROPERTY-CHUNK-ID"] = str(metadata.chunk_id)
    if metadata.replicate_to:
        headers["X-Pulsar-replicated-to"] = [_to_header(one) for one in metadata.replicate_to]
    if metadata.encryption_keys:
        keys = [base64.b64encode(key.SerializeToString()).decode() for key in metadata.encryption_keys]
        headers["X-Pulsar-Base64-encryption-keys"] = keys
    if entry.acknowledged:
        headers[_ACKNOWLEDGED] = base64.b64encode(entry.acknowledged).decode()
    is_encrypted = bool(metadata.encryption_keys)
    headers["X-Pulsar-Is-Encrypted"] = str(is_encrypted).lower()
    # There are no transactions yet, so no message is uncommitted.
    headers["X-Pulsar-txn-uncommitted"] = "false"
    if is_encrypted:
        return headers, opened.payload
    return headers, bytes(decompress(opened.payload, metadata.compression, metadata.uncompressed_size))


def read_entry(entry: PeekedEntry, headers: Mapping[str, str], body: bytes) -> None:
    """Make an entry of an answer. `headers`: names in lower case; the values of several with one name are joined by
    commas. Raises InvalidJson."""
    try:
        ledger_id, entry_id = headers[_ID.lower()].split(":")[:2]
        entry.ledger_id, entry.entry_id = int(ledger_id), int(entry_id)
        metadata = _read_metadata(headers)
        if metadata.compression and not metadata.encryption_keys:
            metadata.compression, metadata.uncompressed_size = entry_pb2.NONE, len(body)
        entry.stored = encode_entry(metadata, body)
        entry.acknowledged = base64.b64decode(headers.get(_ACKNOWLEDGED.lower(), ""))
        if _BROKER_TIME.lower() in headers and _BROKER_INDEX.lower() in headers:
            time_ms = _text_to_time(headers[_BROKER_TIME.lower()])
            entry.stored = add_broker_metadata(entry.stored, time_ms, int(headers[_BROKER_INDEX.lower()]))
    except (KeyError, ValueError, TypeError, OverflowError, binascii.Error, WireError) as error:
        raise InvalidJson(f"the answer is no stored message: {type(error).__name__}: {error}") from None


def _read_metadata(headers: Mapping[str, str]) -> entry_pb2.MessageMetadata:
    # An answer has these but for odd producers, and an entry needs them.
    metadata = entry_pb2.MessageMetadata(producer_name="", sequence_id=0, publish_time=0)
    for name, (field, kind) in _FIELDS.items():
        text = headers.get(f"x-pulsar-{name.lower()}")
        if text is not None:
            setattr(metadata, field, kind.from_text(_from_header(text)))
    properties = json.loads(headers.get(_PROPERTIES.lower(), "{}"))
    if not isinstance(properties, dict):
        raise InvalidJson(f"the header {_PROPERTIES} is no JSON object")
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    for name in _split(headers.get("x-pulsar-replicated-to", "")):
        metadata.replicate_to.append(_from_header(name))
    for text in _split(headers.get("x-pulsar-base64-encryption-keys", "")):
        metadata.encryption_keys.add().ParseFromString(base64.b64decode(text))
    return metadata


def _split(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]


def _to_header(text: str) -> str:
    """Return the text as UTF-8 in the latin-1 of headers, without control characters."""
    printable = "".join(one if one.isprintable() else "?" for one in text)
    return printable.encode(errors="replace").decode("latin-1").strip()


def _from_header(text: str) -> str:
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text
