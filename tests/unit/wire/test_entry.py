"""The entry: the rules of entry.proto, one after the other."""

from __future__ import annotations

import copy
import pickle
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from crc32c import crc32c

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import BrokerEntryMetadata, EncryptionKeys, MessageMetadata
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.batch_codec.column_decoding import _LazyProperties, decode_columns
from magnetar_wire.batch_codec.uniform_batch import encode_uniform
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry, split_broker_metadata
from magnetar_wire.errors import (
    ChecksumMismatch,
    EncryptedEntry,
    InvalidMessage,
    MalformedEntry,
    PartOfMessage,
    TooLarge,
    UnknownCompression,
)
from magnetar_wire.limits import MAX_BATCH_MESSAGES, MAX_UNCOMPRESSED_BYTES
from magnetar_wire.varints import MAX_INT32

SHARED = MessageMetadata(producer_name="p", sequence_id=7, publish_time=9)
# The same, written without protobuf: field 1 is text, 2 and 3 are numbers.
HEAD = b"\x0a\1p\x10\7\x18\x09"


def raw_entry(head: bytes, payload: bytes) -> bytes:
    covered = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\1" + crc32c(covered).to_bytes(4, "big") + covered


def decoded(head: bytes, payload: bytes) -> Messages:
    return decode_messages(decode_entry(raw_entry(head, payload)))


# -- the layout --------------------------------------------------------------------------------------------------------


def test_an_entry_is_magic_checksum_size_metadata_payload() -> None:
    assert encode_entry(SHARED, b"hello") == raw_entry(HEAD, b"hello")
    entry = decode_entry(raw_entry(HEAD, b"hello"))
    assert (entry.metadata, entry.payload, entry.broker) == (SHARED, b"hello", None)


def test_broker_metadata_precedes_the_entry() -> None:
    whole = add_broker_metadata(b"entry", 1, 300)
    assert whole == b"\x0e\2" + b"\0\0\0\5" + b"\x08\1\x10\xac\2" + b"entry"
    assert split_broker_metadata(whole) == (BrokerEntryMetadata(broker_timestamp=1, index=300), b"entry")
    assert split_broker_metadata(b"entry") == (None, b"entry")


def test_broker_metadata_is_decoded_with_the_entry() -> None:
    entry = decode_entry(add_broker_metadata(raw_entry(HEAD, b"hello"), 0, 2**64 - 1))
    assert entry.broker == BrokerEntryMetadata(broker_timestamp=0, index=2**64 - 1)
    assert entry.payload == b"hello"


@pytest.mark.parametrize(("time", "index"), [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_invalid_broker_metadata_is_refused(time: int, index: int) -> None:
    with pytest.raises(InvalidMessage):
        add_broker_metadata(b"entry", time, index)


@pytest.mark.parametrize(
    "part", [b"\x0e\2", b"\x0e\2\0\0\0", b"\x0e\2\0\0\0\1", b"\x0e\2\xff\xff\xff\xff1234", b"\x0e\2\0\0\0\1\x08"]
)
def test_malformed_broker_metadata_is_refused(part: bytes) -> None:
    with pytest.raises(MalformedEntry):
        split_broker_metadata(part)
    with pytest.raises(MalformedEntry):
        decode_entry(part)


def test_an_entry_has_at_most_one_broker_metadata() -> None:
    with pytest.raises(MalformedEntry, match="0e02"):
        decode_entry(add_broker_metadata(add_broker_metadata(raw_entry(HEAD, b""), 1, 2), 3, 4))


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("compression", entry_pb2.CompressionType.values())
def test_an_entry_in_another_buffer_is_copied(kind: Any, compression: entry_pb2.CompressionType) -> None:
    for messages in (Messages([b"ab", b"cd"]), Messages([b"ab", b"c"], keys=["k", "l"], properties=[{"n": "v"}, {}])):
        stored = add_broker_metadata(encode_batch(messages, SHARED, compression), 1, 2)
        buffer = kind(stored)
        entry = decode_entry(buffer)
        broker, rest = split_broker_metadata(buffer)
        assert (broker, rest) == split_broker_metadata(stored)
        if isinstance(buffer, bytearray):
            buffer[:] = bytes(len(buffer))  # used again
        back = decode_messages(entry)
        assert {type(part) for part in (rest, entry.payload, *back.payloads)} == {bytes}
        assert back.payloads == messages.payloads


@pytest.mark.parametrize("take", [decode_entry, split_broker_metadata])
def test_an_entry_is_bytes(take: Any) -> None:
    for other in ("text", 20, None):
        with pytest.raises(TypeError, match="bytes"):
            take(other)


def test_the_checksum_covers_all_bytes_after_it() -> None:
    stored = raw_entry(HEAD, b"hello")
    for at in range(6, len(stored)):
        if at in range(6, 10):  # the metadata's size, which may be impossible before it is wrong
            continue
        changed = stored[:at] + bytes((stored[at] ^ 1,)) + stored[at + 1 :]
        with pytest.raises(ChecksumMismatch):
            decode_entry(changed)
    assert decode_entry(stored[:-1] + b"!", verify=False).payload == b"hell!"


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_producer_sequence_id_and_publish_time_are_required(missing: int) -> None:
    fields = {1: b"\x0a\1p", 2: b"\x10\7", 3: b"\x18\x09"}
    del fields[missing]
    with pytest.raises(MalformedEntry, match=("producer_name", "sequence_id", "publish_time")[missing - 1]):
        decode_entry(raw_entry(b"".join(fields.values()), b""))
    with pytest.raises(InvalidMessage):
        encode_entry(MessageMetadata.FromString(b"".join(fields.values())), b"")


@pytest.mark.parametrize("pair", [b"", b"\x0a\1n", b"\x12\1v"])
def test_a_propertys_name_and_value_are_required(pair: bytes) -> None:
    for batch in (b"", b"\x58\1"):
        with pytest.raises(MalformedEntry, match="properties"):
            decode_entry(raw_entry(HEAD + b"\x22" + bytes((len(pair),)) + pair + batch, b""))


@pytest.mark.parametrize("field", [b"\x2a", b"\x32", b"\xa2\1"])
def test_malformed_metadata_is_refused(field: bytes) -> None:
    with pytest.raises(MalformedEntry):
        decode_entry(raw_entry(HEAD + field + b"\5", b""))


@pytest.mark.parametrize("field", [b"\x0a", b"\x2a", b"\x32", b"\x3a", b"\x72", b"\xd2\1"])
def test_text_is_utf8(field: bytes) -> None:
    for text in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80"):
        with pytest.raises(MalformedEntry):
            decode_entry(raw_entry(HEAD + field + bytes((len(text),)) + text, b""))


# -- single messages ---------------------------------------------------------------------------------------------------


def test_the_fields_of_a_single_message_are_in_the_metadata() -> None:
    head = HEAD + b"\x22\6\x0a\1n\x12\1v" + b"\x32\1k" + b"\x60\5" + b"\x92\1\1o" + b"\xf0\1\1"
    message = decoded(head, b"hello")
    assert list(message.payloads) == [b"hello"]
    assert message.sequence_ids == array("Q", [7])
    assert (message.keys, message.ordering_keys, message.event_times) == (["k"], [b"o"], [5])
    assert (message.properties, message.null_keys) == ([{"n": "v"}], [True])
    assert encode_message(message, SHARED) == raw_entry(head, b"hello")


def test_a_null_value_is_not_an_empty_one() -> None:
    null, empty = (encode_message(Messages([payload]), SHARED) for payload in (None, b""))
    assert null == raw_entry(HEAD + b"\xc8\1\1", b"")
    assert empty == raw_entry(HEAD, b"")
    assert list(decode_messages(decode_entry(null)).payloads) == [None]
    assert list(decode_messages(decode_entry(empty)).payloads) == [b""]


def test_a_key_of_bytes_is_base64_with_a_flag() -> None:
    stored = encode_message(Messages([b""], keys=[b"\xff"]), SHARED)
    assert stored == raw_entry(HEAD + b"\x32\4/w==" + b"\x88\1\1", b"")
    assert decode_messages(decode_entry(stored)).keys == [b"\xff"]
    with pytest.raises(MalformedEntry, match="base64"):
        decoded(HEAD + b"\x32\3/w=" + b"\x88\1\1", b"")


def test_a_message_without_a_sequence_id_has_the_shared_one() -> None:
    for ids in (None, [None]):
        assert encode_message(Messages([b"x"], ids), SHARED) == raw_entry(HEAD, b"x")
        assert encode_batch(Messages([b"x"], ids), SHARED) == raw_entry(HEAD + b"\x58\1", b"\0\0\0\2\x18\1x")


def test_encode_message_refuses_two_messages() -> None:
    with pytest.raises(InvalidMessage):
        encode_message(Messages([b"x", b"y"]), SHARED)
    for encode in (encode_message, encode_batch):
        with pytest.raises(InvalidMessage):
            encode(Messages([]), SHARED)


def test_a_single_message_is_not_compacted_out_of_a_batch() -> None:
    with pytest.raises(InvalidMessage):
        encode_message(Messages([b"x"], compacted_out=[True]), SHARED)
    assert encode_message(Messages([b"x"], compacted_out=[False]), SHARED) == raw_entry(HEAD, b"x")


# -- batches -----------------------------------------------------------------------------------------------------------


def test_the_presence_of_the_count_marks_a_batch() -> None:
    """A batch of one is a batch."""
    stored = encode_batch(Messages([b"hello"], [300]), SHARED)
    head = b"\x0a\1p\x10\xac\2\x18\x09\x58\1\xc0\1\xac\2"
    assert stored == raw_entry(head, b"\0\0\0\5\x18\5\x40\xac\2hello")
    assert decode_entry(stored).is_batch
    assert not decode_entry(raw_entry(HEAD, b"hello")).is_batch


def test_the_metadata_of_a_batch_has_its_first_and_last_sequence_id() -> None:
    metadata = decode_entry(encode_batch(Messages([b"a", b"b", b"c"], [5, None, 9]), SHARED)).metadata
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (5, 9)
    for ids in ([None, 5], [5, None], [None, 5, None]):
        with pytest.raises(InvalidMessage):
            encode_batch(Messages([b"x"] * len(ids), ids), SHARED)


def test_a_record_without_a_payload_size_is_malformed() -> None:
    with pytest.raises(MalformedEntry, match="payload_size"):
        decoded(HEAD + b"\x58\1", b"\0\0\0\3\x12\1k")


@pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1])
def test_a_batch_with_a_wrong_count_is_malformed(count: int) -> None:
    head = MessageMetadata.FromString(HEAD)
    head.num_messages_in_batch = count
    with pytest.raises((MalformedEntry, TooLarge)):
        decoded(head.SerializeToString(), b"\0\0\0\2\x18\5hello" * 2)


def test_too_many_messages_in_a_batch_are_refused() -> None:
    head = MessageMetadata.FromString(HEAD)
    head.num_messages_in_batch = MAX_BATCH_MESSAGES + 1
    with pytest.raises(TooLarge, match=str(MAX_BATCH_MESSAGES)):
        decoded(head.SerializeToString(), b"")
    with pytest.raises(TooLarge, match=str(MAX_BATCH_MESSAGES)):
        encode_batch(Messages([b""] * (MAX_BATCH_MESSAGES + 1)), SHARED)


def test_a_payload_above_the_readers_limit_is_not_compressed() -> None:
    payload = bytes(MAX_UNCOMPRESSED_BYTES + 1)  # the system's pages of zeros, which are never written
    with pytest.raises(TooLarge, match=str(MAX_UNCOMPRESSED_BYTES)):
        encode_message(Messages([payload]), SHARED, entry_pb2.ZSTD)


class ClaimsToBeLarge(bytes):
    def __len__(self) -> int:
        return MAX_INT32 + 1


def test_a_payload_size_has_31_bits() -> None:
    with pytest.raises(OverflowError):
        encode_uniform(Messages([ClaimsToBeLarge()]))
    for more in (None, ["key"]):
        with pytest.raises(InvalidMessage, match=str(MAX_INT32 + 1)):
            encode_batch(Messages([ClaimsToBeLarge()], keys=more), SHARED)


@pytest.mark.parametrize("beside", [None, ["k", "l"]])
@pytest.mark.parametrize("second", [b"cd", b"c", b""])
def test_a_payload_may_be_any_buffer_of_bytes(beside: list[str | bytes | None] | None, second: bytes) -> None:
    """All code paths: payloads of one size or of several, with keys or without, in a batch or alone."""
    plain = encode_batch(Messages([b"ab", second], keys=beside), SHARED)
    kinds: list[Callable[[bytes], Any]] = [
        bytearray,
        memoryview,
        lambda data: array("B", data),
        lambda data: memoryview(data).cast("b"),
    ]
    for kind in kinds:
        payloads: list[Any] = [kind(b"ab"), kind(second)]
        assert encode_batch(Messages(payloads, keys=beside), SHARED) == plain
        assert encode_batch(Messages([b"ab", payloads[1]], keys=beside), SHARED) == plain
        assert encode_message(Messages(payloads[:1]), SHARED) == encode_message(Messages([b"ab"]), SHARED)


@pytest.mark.parametrize("beside", [None, ["k", "l"]])
@pytest.mark.parametrize("second", [b"abcd", b"ab"])
def test_a_payload_of_another_kind_is_refused(beside: list[str | bytes | None] | None, second: bytes) -> None:
    kinds: list[Callable[[bytes], Any]] = [
        lambda data: memoryview(data).cast("H"),
        lambda data: array("H", data),
        lambda data: memoryview(data)[::2],
    ]
    for kind in kinds:
        payloads: list[Any] = [kind(b"abcd"), kind(second)]
        with pytest.raises(InvalidMessage):
            encode_batch(Messages(payloads, keys=beside), SHARED)
        with pytest.raises(InvalidMessage):
            encode_message(Messages(payloads[:1]), SHARED)


class Name(str):
    """A str subclass, like a member of a StrEnum."""


class Key(bytes):
    pass


def test_subclasses_of_str_and_bytes_are_encoded() -> None:
    plain = Messages([b"x", b"y"], keys=["a", b"b"], ordering_keys=[b"o", None], properties=[{"n": "v"}, {}])
    named = Messages(
        [Key(b"x"), b"y"],
        keys=[Name("a"), Key(b"b")],
        ordering_keys=[Key(b"o"), None],
        properties=[{Name("n"): Name("v")}, {}],
    )
    assert encode_batch(named, SHARED) == encode_batch(plain, SHARED)
    assert encode_batch(Messages([b"x"], keys=[Key(b"b")]), SHARED) == encode_batch(
        Messages([b"x"], keys=[b"b"]), SHARED
    )


def test_a_zero_is_a_sequence_id_in_a_batch_with_gaps() -> None:
    """The batch is decoded message by message, because the fields of its metadata are not in order."""
    records = b"\0\0\0\4\x40\0\x18\1a" + b"\0\0\0\2\x18\1b" + b"\0\0\0\6\x40\1\x40\0\x18\1c"
    assert decoded(HEAD + b"\x58\3", records).sequence_ids == [0, None, 0]


# -- compacted batches -------------------------------------------------------------------------------------------------


def compacted(count: int, indexes: list[int], records: int) -> Messages:
    head = MessageMetadata.FromString(HEAD)
    head.num_messages_in_batch = count
    head.compacted_batch_indexes.extend(indexes)
    return decoded(head.SerializeToString(), b"".join(b"\0\0\0\2\x18\1" + bytes((65 + i,)) for i in range(records)))


def test_remaining_messages_have_their_original_indexes() -> None:
    messages = compacted(9, [0, 3, 8], 3)
    assert (list(messages.payloads), messages.batch_indexes) == ([b"A", b"B", b"C"], [0, 3, 8])
    assert compacted(2, [], 2).batch_indexes is None


@pytest.mark.parametrize("indexes", [[0, 3, 9], [-1, 0, 1], [0, 0, 1], [3, 0, 8], [0, 8, 3]])
def test_indexes_out_of_order_or_out_of_range_are_malformed(indexes: list[int]) -> None:
    with pytest.raises(MalformedEntry, match="batch of 9"):
        compacted(9, indexes, 3)


@pytest.mark.parametrize("records", [2, 4, 9])
def test_there_are_as_many_indexes_as_messages(records: int) -> None:
    with pytest.raises(MalformedEntry):
        compacted(9, [0, 3, 8], records)


def test_a_message_that_compaction_removed_has_its_index() -> None:
    messages = Messages([b"a", b"", b"c"], compacted_out=[False, True, False])
    back = decode_messages(decode_entry(encode_batch(messages, SHARED)))
    assert (list(back.payloads), back.compacted_out) == ([b"a", b"", b"c"], [False, True, False])


def test_batch_indexes_can_not_be_encoded() -> None:
    with pytest.raises(InvalidMessage, match="batch_indexes"):
        encode_batch(compacted(9, [0, 3, 8], 3), SHARED)


# -- entries that can't be opened --------------------------------------------------------------------------------------


def test_an_encrypted_entry_names_its_keys() -> None:
    metadata = MessageMetadata.FromString(HEAD)
    metadata.encryption_keys.append(EncryptionKeys(key="the-key", value=b"wrapped"))
    with pytest.raises(EncryptedEntry, match="the-key"):
        decode_messages(decode_entry(encode_entry(metadata, b"secret")))


def test_a_single_chunk_can_not_be_decoded() -> None:
    metadata = MessageMetadata.FromString(HEAD)
    metadata.uuid, metadata.num_chunks_from_msg, metadata.chunk_id = "the-uuid", 3, 1
    entry = decode_entry(encode_entry(metadata, b"a third"))
    assert entry.is_chunk
    with pytest.raises(PartOfMessage, match="chunk 1 of 3 of message 'the-uuid'"):
        decode_messages(entry)
    metadata.num_chunks_from_msg = 1
    assert list(decode_messages(decode_entry(encode_entry(metadata, b"whole"))).payloads) == [b"whole"]


def test_an_unknown_compression_is_detected() -> None:
    with pytest.raises(UnknownCompression, match="5"):
        decoded(HEAD + b"\x40\5", b"payload")


def test_a_marker_is_detected() -> None:
    assert decode_entry(raw_entry(HEAD + b"\xa0\1\0", b"")).is_marker
    assert not decode_entry(raw_entry(HEAD, b"")).is_marker


# -- properties, parsed when they are looked at ------------------------------------------------------------------------


def property_batch(*pairs: bytes) -> bytes:
    return b"".join(
        (6 + len(pair) - 2).to_bytes(4, "big") + b"\x0a" + bytes((len(pair),)) + pair + b"\x18\1x" for pair in pairs
    )


def test_malformed_properties_are_refused_at_each_access() -> None:
    batch = property_batch(b"\x0a\1n\x12\1v", b"\x0a\1n\x12\1\xff")
    messages = decode_columns(batch, 2)
    assert messages is not None
    assert messages.properties is not None
    for index in (0, 1, 0):  # also that of the valid message: the whole batch is malformed
        with pytest.raises(MalformedEntry, match="the batch is malformed"):
            messages.properties[index]
    for take in (list, pickle.dumps, copy.deepcopy):
        with pytest.raises(MalformedEntry, match="the batch is malformed"):
            take(messages.properties)


@pytest.mark.parametrize("pair", [b"\x0a\1n", b"\x12\1v", b"", b"\x18\1", b"\x18\0"])
def test_properties_without_name_or_value_are_refused(pair: bytes) -> None:
    messages = decode_columns(property_batch(b"\x0a\1n\x12\1v", pair), 2)
    assert messages is not None
    assert messages.properties is not None
    with pytest.raises(MalformedEntry, match="lacks"):
        list(messages.properties)


@pytest.mark.parametrize("looked_at", [False, True])
def test_decoded_messages_can_be_pickled_and_copied(looked_at: bool) -> None:
    original = Messages([b"x", b""], [1, 2], ["k", None], properties=[{"n": "v"}, {}])
    takes: list[Callable[[Messages], Any]] = [lambda each: pickle.loads(pickle.dumps(each)), copy.deepcopy, copy.copy]
    for take in takes:
        messages = decode_messages(decode_entry(encode_batch(original, SHARED)))
        assert isinstance(messages.properties, _LazyProperties)
        if looked_at:
            assert messages.properties[0] == {"n": "v"}
        taken = take(messages)
        assert list(taken.properties) == list(messages.properties) == [{"n": "v"}, {}]
        assert (taken.payloads, taken.keys) == (messages.payloads, messages.keys)
        assert encode_batch(taken, SHARED) == encode_batch(original, SHARED)


class Overtaken(_LazyProperties):
    """Properties that another thread parses after this one has seen that they are not parsed yet."""

    _found: list[Mapping[str, str]] | None = None
    _overtaken = False

    @property
    def _parsed(self) -> list[Mapping[str, str]] | None:
        if self._overtaken:
            return self._found
        self._overtaken = True
        assert self[0] == {"n": "v"}  # the other thread
        return None

    @_parsed.setter
    def _parsed(self, parsed: list[Mapping[str, str]] | None) -> None:
        self._found = parsed


def test_two_threads_may_parse_properties_at_once() -> None:
    properties = Overtaken([b"\x0a\1n\x12\1v", b"\x18\1", b"\x18\1"], 2)
    assert list(properties) == [{"n": "v"}, {}]
