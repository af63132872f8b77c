"""The entry codec against the model in `entry_model`: the same bytes, the same messages, the same refusals.

What the codec is given comes in three kinds: messages that an application may send, bytes that no serialiser writes but
a parser meets (`raw_fields`), and entries that were good before something was changed in them.
"""

from __future__ import annotations

import itertools
import tracemalloc
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.batch_codec.column_decoding import NO_KEY, NO_PROPERTY, NO_SIZE, decode_columns
from magnetar_wire.batch_codec.message_decoding import decode_objects
from magnetar_wire.batch_codec.uniform_batch import decode_uniform
from magnetar_wire.entry import Entry, add_broker_metadata, decode_entry, encode_entry, split_broker_metadata
from magnetar_wire.errors import ChecksumMismatch, InvalidMessage, MalformedEntry, UnknownCompression, WireError
from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES
from tests.examples import examples, scaled
from tests.property import entry_model as model
from tests.property import raw_fields as raw
from tests.property.entry_model import Message

SHARED = MessageMetadata(producer_name="producer-1", sequence_id=7, publish_time=1_700_000_000_000)
COMPRESSIONS = (entry_pb2.NONE, entry_pb2.LZ4, entry_pb2.ZLIB, entry_pb2.ZSTD, entry_pb2.SNAPPY)
COMPRESSED = frozenset(map(CompressionType.Name, COMPRESSIONS[1:]))
COLUMNS = ("key", "ordering_key", "properties", "event_time", "sequence_id", "null_key", "compacted_out", "payload")
# A batch is decoded to the same messages by each path; the result of a path is one of these.
Answer = list[Message] | str
NOT_MINE, REFUSED = "not mine", "refused"


# -- messages an application may send ----------------------------------------------------------------------------------


def columns_of(messages: list[Message], *, ids: type = list) -> Messages:
    """Return the messages as columns; None for a column without values."""

    def column(name: str, nothing: object) -> list[Any] | None:
        values = [getattr(message, name) for message in messages]
        return None if all(value is nothing or value == nothing for value in values) else values

    sequence_ids: Any = column("sequence_id", None)
    if ids is array and sequence_ids is not None and None not in sequence_ids:
        sequence_ids = array("Q", sequence_ids)
    return Messages(
        [message.payload for message in messages],
        sequence_ids,
        column("key", None),
        column("ordering_key", None),
        column("properties", {}),
        column("event_time", 0),
        column("null_key", False),
        column("compacted_out", False),
    )


def messages_of(decoded: Messages) -> list[Message]:
    """Return the columns as messages, and check the columns."""
    count = len(decoded.payloads)

    def column(values: Sequence[Any] | None, nothing: object) -> Sequence[Any]:
        if values is None:
            return [nothing] * count
        assert len(values) == count
        return values

    return [
        Message(*values)
        for values in zip(
            column(decoded.payloads, None),
            column(decoded.keys, None),
            column(decoded.ordering_keys, None),
            map(dict, column(decoded.properties, {})),
            column(decoded.event_times, 0),
            column(decoded.sequence_ids, None),
            column(decoded.null_keys, False),
            column(decoded.compacted_out, False),
            range(count) if decoded.batch_indexes is None else decoded.batch_indexes,
            strict=True,
        )
    ]


def answer_of(decode: Callable[[], Messages | None]) -> Answer:
    try:
        decoded = decode()
        return NOT_MINE if decoded is None else messages_of(decoded)
    except WireError:
        return REFUSED


def model_of(decode: Callable[[], list[Message]]) -> Answer:
    try:
        return decode()
    except model.Refused:
        return REFUSED


def opened(stored: bytes, *, verify: bool = True, limit: int = MAX_UNCOMPRESSED_BYTES) -> Answer:
    """Return the codec's result for a whole entry."""
    return answer_of(lambda: decode_messages(decode_entry(stored, verify=verify), max_uncompressed_bytes=limit))


def modelled(stored: bytes, *, verify: bool = True) -> Answer:
    """Return the model's result."""
    return model_of(lambda: model.decode(stored, verify=verify))


def check_paths(batch: bytes, count: int) -> tuple[Answer, Answer, Answer]:
    """Compare every path that decodes a batch's payload with the model. Return the model's result and those of the fast
    paths.
    """
    expected = model_of(lambda: model.decode_batch(batch, count))
    assert answer_of(lambda: decode_objects(batch, count)) == expected
    uniform = answer_of(lambda: decode_uniform(batch, count))
    assert uniform in (NOT_MINE, expected)
    columns = answer_of(lambda: decode_columns(batch, count))
    assert columns in (NOT_MINE, expected)
    return expected, uniform, columns


def check_batch(messages: list[Message], compression: CompressionType = entry_pb2.NONE, ids: type = list) -> None:
    stored = encode_batch(columns_of(messages, ids=ids), SHARED, compression)
    assert stored == model.encode_batch(messages, SHARED, compression)
    expected = model.decode(stored)
    assert messages_of(decode_messages(decode_entry(stored))) == expected
    plain = stored if not compression else model.encode_batch(messages, SHARED)
    assert check_paths(model.take_apart(plain)[1], len(messages))[0] == expected
    for index, message in enumerate(messages):  # the model decodes the encoded messages
        message.batch_index = index
    assert expected == messages


def check_single(message: Message, compression: CompressionType = entry_pb2.NONE) -> None:
    stored = encode_message(columns_of([message]), SHARED, compression)
    assert stored == model.encode_single(message, SHARED, compression)
    with_part = add_broker_metadata(stored, 1_700_000_000_001, 41)
    assert with_part == model.with_broker_part(stored, 1_700_000_000_001, 41)
    for entry in (stored, with_part):
        assert messages_of(decode_messages(decode_entry(entry))) == model.decode(entry)


SIZES = (0, 1, 2, 100, 127, 128, 129, 300, 16383, 16384)
IDS = (0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**28, 2**31, 2**32, 2**49, 2**56 - 1, 2**56, 2**63 - 1, 2**64 - 1)
NAMES = ("", "a", "name", "имя", "\0", "名" * 50, "long" * 40)


def filled(column: str, index: int, draw: Random, style: int) -> Any:
    """A value for a message's column. `style` makes a batch's columns alike, or not."""
    match column:
        case "payload":
            if style % 4 == 3:
                return None
            size = 100 if style % 2 else draw.choice(SIZES[:8])
            return draw.choice((draw.randbytes(size), b"\x18d@\x05"[:size] * (size // 4)))
        case "key":
            text = draw.choice(("", "key", f"user-{index}", "ключ", "\0\1", "\1\2", "k" * 200))
            as_bytes = draw.randbytes(draw.choice((0, 1, 2, 3, 20, 130)))
            return (text, as_bytes, draw.choice((text, as_bytes)))[style % 3]
        case "ordering_key":
            return draw.choice((b"", b"\0\1", draw.randbytes(7), draw.randbytes(200)))
        case "properties":
            names = NAMES[:3] if style % 2 else draw.sample(NAMES, draw.randrange(len(NAMES) + 1))
            return {
                name: draw.choice(("", "v", "значение", "\0", "v" * draw.choice((100, 128, 200)))) for name in names
            }
        case "event_time":
            return draw.choice((0, 1, 1_700_000_000_000, 2**63 - 1, 2**64 - 1))
        case "sequence_id":
            first = IDS[style % len(IDS)]
            if style % 3 == 0:
                return min(first + index, 2**64 - 1)
            return draw.choice(IDS) if style % 3 == 1 else max(first - 2, 0) + 3 * index if first < 2**60 else first
        case _:
            return True


@st.composite
def batches(draw: st.DrawFn) -> list[Message]:
    """A batch in which each column is set for none, some or all of the messages."""
    count = draw(st.one_of(st.integers(1, 6), st.integers(1, 80), st.sampled_from([63, 64, 65, 128, 300])))
    how = {name: draw(st.sampled_from(["none", "none", "all", "some"])) for name in COLUMNS[:-1]}
    how["payload"] = draw(st.sampled_from(["all", "all", "some"]))
    styles = {name: draw(st.integers(0, 44)) for name in COLUMNS}
    contents = Random(draw(st.integers(0, 2**32)))
    messages = [Message() for _ in range(count)]
    for name in COLUMNS:
        for index, message in enumerate(messages):
            if how[name] == "all" or (how[name] == "some" and contents.random() < 0.5):
                setattr(message, name, filled(name, index, contents, styles[name]))
    ends = messages[0].sequence_id, messages[-1].sequence_id
    if None in ends and any(message.sequence_id is not None for message in messages):
        messages[0].sequence_id = messages[-1].sequence_id = 5
    return messages


@given(batches(), st.sampled_from(COMPRESSIONS), st.sampled_from([list, array]))
@examples(250, stable=True)
def test_a_batch_is_the_models_bytes_and_messages(
    messages: list[Message], compression: CompressionType, ids: type
) -> None:
    """Entries have the public layout, with the same bytes as protobuf's encoder."""
    check_batch(messages, compression, ids)
    check_single(replace(messages[0], compacted_out=False, batch_index=0), compression)


@pytest.mark.parametrize("payload", ["alike", "null", "some null"])
def test_every_combination_of_columns(payload: str) -> None:
    """Each of seven columns in none, all and some of a batch's three messages: 2187 batches per kind of payload."""
    draw = Random(11)
    some = (True, False, True)
    for number, how in enumerate(itertools.product(range(3), repeat=7)):
        messages = [Message() for _ in range(3)]
        for index, message in enumerate(messages):
            if payload == "null" or (payload == "some null" and some[index]):
                message.payload = None
            else:
                message.payload = bytes((index,)) * 5
            for name, which in zip(COLUMNS[:-1], how, strict=True):
                if which == 1 or (which == 2 and some[index]):
                    setattr(message, name, filled(name, index, draw, number))
        check_batch(messages)


@pytest.mark.parametrize("first", IDS)
@pytest.mark.parametrize("count", [1, 2, 64, 300])
def test_sequence_ids_over_every_varint_boundary(first: int, count: int) -> None:
    for start in (first, max(0, first - count // 2)):
        ids = [min(start + index, 2**64 - 1) for index in range(count)]
        check_batch([Message(b"payload", sequence_id=value) for value in ids], ids=array)
        check_batch([Message(b"p" * (index % 3), sequence_id=value) for index, value in enumerate(ids)])


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 70_000])
def test_lengths_over_every_varint_boundary(size: int) -> None:
    """The lengths of payloads, keys, properties' names and values, alone and with a neighbor that is one longer."""
    text = "k" * size
    for more in (0, 1):
        sizes = (size, size + more)
        check_batch([Message(b"p" * each) for each in sizes])
        check_batch([Message(b"p" * each, sequence_id=index) for index, each in enumerate(sizes)])
        check_batch([Message(b"p", key="k" * each) for each in sizes])
        check_batch([Message(b"p", ordering_key=b"k" * each) for each in sizes])
        check_batch([Message(b"p", properties={"n": "v" * each, "m": ""}) for each in sizes])
        check_batch([Message(b"p", properties={"n" * each: "v"}) for each in sizes])
    check_single(Message(text.encode()))
    if size <= 300:  # an entry's metadata has a limit
        check_single(Message(text.encode(), key=text, properties={text: text}))


def test_many_properties() -> None:
    many = {f"name-{index}": "v" * (index % 200) for index in range(500)}
    check_batch([Message(b"p", properties=many), Message(b"q", properties=many)])
    check_batch([Message(b"p", properties=many), Message(b"q", properties={"other": "one"}), Message(b"r")])


def test_both_fast_paths_are_used() -> None:
    """The comparison of results proves nothing if a fast path always returns None."""
    plain = [Message(b"payload", sequence_id=300 + index) for index in range(100)]
    batch = model.take_apart(model.encode_batch(plain, SHARED))[1]
    assert NOT_MINE not in check_paths(batch, 100)
    keyed = [
        Message(
            b"p" * (index % 7),
            f"k{index}",
            properties={"a": "b"},
            event_time=2**40 + index,
            sequence_id=5,
        )
        for index in range(100)
    ]
    batch = model.take_apart(model.encode_batch(keyed, SHARED))[1]
    assert check_paths(batch, 100)[2] != NOT_MINE


# -- bytes that no encoder writes
# ----------------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
@examples(250, stable=True)
def test_raw_batches(draw: Random) -> None:
    batch, count = raw.any_batch(draw)
    check_paths(batch, count)
    head = raw.words(1, b"p") + b"\x10\7\x18\1" + raw.tag(11, 0) + raw.varint(count % 2**64)
    stored = model.frame(head, batch)
    assert opened(stored) == modelled(stored)


def test_many_raw_batches() -> None:
    """The same, many times and from a seeded generator. Enough of them are valid, and enough of those are decoded by
    the fast paths.
    """
    seen = {"good": 0, "bad": 0, "by columns": 0, "uniform": 0, "found by columns, refused later": 0}
    for seed in range(scaled(12_000)):
        batch, count = raw.any_batch(Random(seed))
        try:
            expected, uniform, columns = check_paths(batch, count)
        except BaseException as error:
            error.add_note(f"seed {seed}, {count} messages in {batch.hex()}")
            raise
        seen["bad" if expected == REFUSED else "good"] += 1
        seen["by columns"] += columns not in (NOT_MINE, REFUSED)
        seen["uniform"] += uniform != NOT_MINE
        seen["found by columns, refused later"] += columns == REFUSED
    assert min(seen.values()) > 20, seen


def any_entry_metadata(draw: Random) -> bytes:
    required = [raw.words(1, draw.choice((b"p", b"", b"\xff"))), b"\x10" + raw.any_number(draw), b"\x18\1"]
    fields = required if draw.random() < 0.9 else draw.sample(required, 2)
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        kind = draw.randrange(6)
        if kind == 0:
            fields.append(raw.words(4, raw.any_pair(draw)))
        elif kind == 1:
            fields.append(raw.words(draw.choice((5, 6, 7, 14, 15, 16, 18, 26, 32)), draw.choice(raw.TEXTS)))
        elif kind == 2:
            fields.append(raw.tag(draw.choice((12, 17, 19, 20, 22, 25, 27, 28, 29, 30)), 0) + raw.any_number(draw))
        elif kind == 3:
            fields.append(raw.tag(draw.choice((8, 9, 11, 31)), 0) + raw.varint(draw.choice((0, 1, 2, 5, 2**31 - 1))))
        elif kind == 4:
            fields.append(raw.any_field(draw, (*range(1, 33), 100)))
        else:
            fields.append(raw.words(13, draw.choice((b"", raw.pair(b"k", b"v"), b"\x0a\1"))))
    if draw.random() < 0.3:
        draw.shuffle(fields)
    return b"".join(fields)


@given(st.randoms(use_true_random=False))
@examples(150, stable=True)
def test_raw_entry_metadata(draw: Random) -> None:
    check_raw_entry(draw)


def test_much_raw_entry_metadata() -> None:
    seen = {True: 0, False: 0}
    for seed in range(4000):
        seen[check_raw_entry(Random(seed))] += 1
    assert min(seen.values()) > 300, seen


def check_raw_entry(draw: Random) -> bool:
    payload = draw.choice((b"", b"payload", raw.record(b"\x18\5", b"hello"), raw.record(b"\x18\5", b"hello") * 2))
    stored = model.frame(any_entry_metadata(draw), payload)
    if draw.random() < 0.2:
        part = b"".join(raw.any_field(draw, (1, 2, 3)) for _ in range(draw.randrange(3)))
        stored = b"\x0e\2" + len(part).to_bytes(4, "big") + part + stored
    expected = modelled(stored)
    assert opened(stored) == expected
    return expected == REFUSED


def records(*metadata: bytes) -> bytes:
    return b"".join(raw.record(each, b"hello") for each in metadata)


def record_pair(first: bytes, second: bytes) -> bytes:
    """Two records after a valid one: the column decoder guesses from the first record."""
    return records(b"\x18\5", first, second)


GROUPS = b"\x5b" * 100 + b"\x5c" * 100
DIRECTED = {
    "a packed payload size": record_pair(b"\x18\5", b"\x1a\1\5"),
    "a packed payload size under a tag longer than need be": record_pair(b"\x18\5", b"\x9a\0\1\5"),
    "a tag yet longer": record_pair(b"\x18\5", b"\x9a\x80\x80\0\1\5"),
    "a packed sequence id under a tag longer than need be": record_pair(b"\x18\5@\1", b"\x18\5\xc2\0\1\5"),
    "a packed sequence id beside a plain one": record_pair(b"\x18\5@\1", b"\x18\5\x42\1\5@\1"),
    "packed event times": record_pair(b"\x18\5\x28\1", b"\x18\5\x2a\1\5"),
    "packed numbers, none": record_pair(b"\x18\5\x28\1", b"\x18\5\x2a\0\x28\1\x42\0\x1a\0"),
    "a group left open, closed in the next": record_pair(b"\x18\5\x5b", b"\x5c\x18\5"),
    "an unknown field that reaches into what follows": record_pair(b"\x18\5\x5a\2", b"\x18\5"),
    "a key that reaches into what follows": record_pair(b"\x18\5\x12\1", b"\x18\5"),
    "a varint that ends in what follows": record_pair(b"\x18\5\x40\x80", b"\x18\5"),
    "groups as deep as they may be": record_pair(b"\x18\5", b"\x18\5" + GROUPS),
    "groups deeper": record_pair(b"\x18\5", b"\x18\5\x5b" + GROUPS + b"\x5c"),
    "groups in a property as deep as a record's may be": record_pair(
        b"\x18\5", b"\x18\5" + raw.words(1, raw.pair(b"a", b"b") + GROUPS)
    ),
    "groups in a property": record_pair(b"\x18\5", b"\x18\5" + raw.words(1, raw.pair(b"a", b"b") + GROUPS[1:-1])),
    "an empty property": record_pair(b"\x18\5" + raw.words(1, raw.pair(b"a", b"b")), b"\x18\5\x0a\0"),
    "a property of the separator's bytes": record_pair(
        b"\x18\5" + raw.words(1, raw.pair(b"a", b"b")), b"\x18\5\x0a\2\x18\1"
    ),
    "a name twice": record_pair(
        b"\x18\5" + raw.words(1, raw.pair(b"a", b"b")) + raw.words(1, raw.pair(b"a", b"c")), b"\x18\5"
    ),
    "two sizes, the last counts": record_pair(b"\x18\3\x18\5", b"\x18\3\x18\5"),
    "a size of five bytes and more than 32 bits": record_pair(b"\x18\5", b"\x18\x85\x80\x80\x80\x10"),
    "a negative size": record_pair(b"\x18\5", b"\x18" + raw.varint(2**64 - 1)),
    "a flag of two": record_pair(b"\x18\5\x48\2", b"\x18\5\x20\2"),
    "a flag of 2^63": record_pair(b"\x18\5\x48" + raw.varint(2**63), b"\x18\5"),
    "a flag of 2^64 and no bit of a uint64": record_pair(b"\x18\5\x48" + b"\x80" * 9 + b"\2", b"\x18\5"),
    "no base64": record_pair(b"\x18\5\x30\1\x12\2a=", b"\x18\5"),
    "base64 of nothing": record_pair(b"\x18\5\x30\1\x12\0", b"\x18\5"),
    "base64, and no key": record_pair(b"\x18\5\x30\1", b"\x18\5"),
    "a key that is no UTF-8": record_pair(b"\x18\5\x12\1\xff", b"\x18\5"),
    "a property that is no UTF-8": record_pair(b"\x18\5", b"\x18\5" + raw.words(1, raw.pair(b"a", b"\xff"))),
}


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_batches(name: str) -> None:
    check_paths(DIRECTED[name], 3)


def test_record_that_forges_the_separator_is_refused() -> None:
    """A record consumes the first bytes of the decoder's separator, and the next record adds the same fields again. If
    a peer knew the separator, the counts would be right, and bytes that are not a batch would be decoded.
    """
    no_property, no_key = raw.words(1, NO_PROPERTY), raw.words(2, NO_KEY.encode())
    no_size = b"\x18" + raw.varint(NO_SIZE[0])
    ids = [raw.tag(8, 0) + raw.varint(value) for value in (200, 0x7F << 56, 2**63 - 1, 2**64 - 1)]
    put_back = [no_property, no_property + no_key, *ids]
    put_back += [an_id + no_property for an_id in ids]
    put_back += [an_id + no_property + no_key + no_size for an_id in ids]
    for back in put_back:
        for swallowed in range(1, 40):
            opened = b"\x18\5\x5a" + raw.varint(swallowed)
            assert check_paths(record_pair(opened, back + b"\x18\5"), 3)[0] == REFUSED
        assert check_paths(record_pair(b"\x18\5\x5b", b"\x5c" + back + b"\x18\5"), 3)[0] == REFUSED


# -- entries that something was changed in -----------------------------------------------------------------------------


def entries() -> dict[str, bytes]:
    draw = Random(3)
    mixed = [
        Message(b"hello", "key", b"\0\1", {"a": "ж"}, 5, 9, True),
        Message(None, b"\xff", None, {}, 0, 10),
        Message(b"", None, b"", {"a": "b", "": ""}, 2**63, 11, False, True),
    ]
    uniform = [Message(b"payload", sequence_id=300 + index) for index in range(5)]
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=9, compacted_batch_indexes=[0, 3, 8]
    )
    compacted = model.frame(metadata.SerializeToString(), raw.record(b"\x18\5", b"hello") * 3)
    found = {
        "single": model.with_broker_part(model.encode_single(mixed[0], SHARED), 2**40, 2**33),
        "mixed batch": model.encode_batch(mixed, SHARED),
        "uniform batch": model.with_broker_part(model.encode_batch(uniform, SHARED), 1, 2),
        "compacted batch": compacted,
    }
    for compression in COMPRESSIONS[1:]:
        text = bytes(draw.choices(b"abc", k=60))
        found[CompressionType.Name(compression)] = model.encode_single(Message(text), SHARED, compression)
    return found


ENTRIES = entries()


def agrees(changed: bytes, *, compressed: bool) -> bool:
    """Return whether the codec and the model agree on `changed`, without verifying the checksum. The decompressors are
    stricter than the model: the model accepts everything that the codec accepts, and the other way round without
    compression.
    """
    answer = opened(changed, verify=False)
    if compressed and answer == REFUSED:
        return True
    return answer == modelled(changed, verify=False)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_bit_turned(name: str) -> None:
    stored = ENTRIES[name]
    original = messages_of(decode_messages(decode_entry(stored)))
    part = len(stored) - len(split_broker_metadata(stored)[1])
    for bit in range(8 * len(stored)):
        turned = bytearray(stored)
        turned[bit >> 3] ^= 1 << (bit & 7)
        changed = bytes(turned)
        answer = opened(changed)
        if bit < 8 * part:  # no checksum covers the broker's part
            assert answer in (REFUSED, original)
        else:
            assert answer == REFUSED
        if bit >= 8 * (part + 10):
            with pytest.raises(ChecksumMismatch):
                decode_entry(changed)
        assert agrees(changed, compressed=name in COMPRESSED)


@pytest.mark.parametrize("name", ENTRIES)
def test_cut_off_at_every_byte(name: str) -> None:
    """With the old checksum, with the old one unverified, and with a new one."""
    stored, compressed = ENTRIES[name], name in COMPRESSED
    part = len(stored) - len(split_broker_metadata(stored)[1])
    for end in range(len(stored)):
        cut = stored[:end]
        assert opened(cut) == REFUSED
        assert agrees(cut, compressed=compressed)
        if end >= part + 10:
            covered = cut[part + 6 :]
            resealed = cut[: part + 2] + crc32c(covered).to_bytes(4, "big") + covered
            answer = opened(resealed)
            assert answer == modelled(resealed)


@pytest.mark.parametrize("name", ENTRIES)
def test_bytes_behind_the_end(name: str) -> None:
    stored = ENTRIES[name]
    for more in (b"\0", b"\0\0\0\2\x18\0", stored):
        assert opened(stored + more) == REFUSED
        assert agrees(stored + more, compressed=name in COMPRESSED)


def test_bytes_changed_at_random() -> None:
    """Several changes at once, insertions and deletions, with a new checksum, as a hostile peer could send them."""
    draw = Random(5)
    plain = [stored for name, stored in ENTRIES.items() if name not in COMPRESSED]
    for _ in range(4000):
        metadata, payload = (bytearray(part) for part in _parts(draw.choice(plain)))
        for _ in range(draw.randrange(1, 4)):
            part = draw.choice((metadata, payload))
            at = draw.randrange(len(part) + 1)
            part[at : at + draw.choice((0, 1, 1, 2))] = draw.choice((b"", b"\0", b"\xff", b"\x18", draw.randbytes(1)))
        stored = model.frame(bytes(metadata), bytes(payload))
        answer = opened(stored)
        assert answer == modelled(stored), stored.hex()


def _parts(stored: bytes) -> tuple[bytes, bytes]:
    metadata, payload = model.take_apart(stored)
    return metadata.SerializeToString(), payload


@pytest.mark.parametrize("count", [2**31 - 1, 2**31 - 2, 1_000_000, 4, 2, 1, 0, -1, -(2**31)])
@pytest.mark.parametrize("indexes", [[], [0, 1, 2], [2, 1, 0], [0, 0, 1], [-1, 0, 1], [0, 1, 2**31 - 1], [5, 6, 7]])
def test_forged_counts_take_no_memory(count: int, indexes: list[int]) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=count)
    metadata.compacted_batch_indexes.extend(indexes)
    for records in (
        raw.record(b"\x18\5", b"hello") * 3,
        raw.record(b"\x18\5", b"hello") + raw.record(b"\x18\4", b"four") * 2,
    ):
        stored = model.frame(metadata.SerializeToString(), records)
        peak, answer = _peak(partial(opened, stored))
        assert peak < 100_000
        if indexes or count < 1000:
            assert answer == modelled(stored)
        else:
            assert answer == REFUSED


@pytest.mark.parametrize("at", ["metadata", "broker's part", "record", "payload"])
@pytest.mark.parametrize("size", [2**31 - 1, 2**31, 2**32 - 1, 1_000_000])
def test_forged_sizes_take_no_memory(at: str, size: int) -> None:
    word = size.to_bytes(4, "big")
    forged = {
        "metadata": b"\x0e\1\0\0\0\0" + word + b"x" * 50,
        "broker's part": b"\x0e\2" + word + b"x" * 50,
        "record": model.frame(b"\x0a\1p\x10\1\x18\1\x58\2", word + b"\x18\0" * 20),
        "payload": model.frame(b"\x0a\1p\x10\1\x18\1\x58\2", raw.record(b"\x18" + raw.varint(size), b"x") * 2),
    }[at]
    peak, answer = _peak(lambda: opened(forged, verify=False))
    assert answer == REFUSED
    assert peak < 100_000


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
@pytest.mark.parametrize("size", [0, 59, 61, 1_000_001, 134_217_728, 134_217_729, 2**32 - 1])
def test_forged_uncompressed_sizes(compression: CompressionType, size: int) -> None:
    metadata, payload = model.take_apart(ENTRIES[CompressionType.Name(compression)])
    metadata.uncompressed_size = size
    stored = model.frame(metadata.SerializeToString(), payload)
    peak, answer = _peak(lambda: opened(stored, limit=1_000_000))
    assert answer == REFUSED
    assert peak < 1_200_000


def _peak(decode: Callable[[], Answer]) -> tuple[int, Answer]:
    tracemalloc.start()
    try:
        answer = decode()
        return tracemalloc.get_traced_memory()[1], answer
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=200), st.sampled_from(range(-1, 8)), st.sampled_from([0, 1, 5, 100, 2**20, 2**27]))
@examples(300, stable=True)
def test_garbage_for_compressed_data(payload: bytes, compression: int, size: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, uncompressed_size=size)
    metadata.compression = compression  # type: ignore[assignment]
    entry = Entry(metadata, payload)
    if compression not in CompressionType.values():
        with pytest.raises(UnknownCompression):
            decode_messages(entry)
        return
    answer = answer_of(lambda: decode_messages(entry))
    if answer != REFUSED:
        assert answer == modelled(model.frame(metadata.SerializeToString(), payload))


# -- what can't be encoded ---------------------------------------------------------------------------------------------

BAD: dict[str, dict[str, Any]] = {
    "payloads": {
        "text": ["x", "y"],
        "a number": [0, b"x"],
        "a buffer whose length is not its bytes'": [memoryview(b"12345678").cast("I")] * 2,
        "one of those among bytes": [b"x", memoryview(b"12345678").cast("I")],
        "no sequence": iter([b"x", b"y"]),
    },
    "sequence_ids": {
        "negative": [-1, 5],
        "too large": [2**64, 2**64],
        "too large, later": [1, 2**64],
        "text": ["1", "2"],
        "a fraction": [1.0, 2.0],
        "the first only": [1, None],
        "the last only": [None, 1],
        "bytes": b"\1\2",
        "negative array": array("q", [-1, -2]),
        "no sequence": iter([1, 2]),
    },
    "keys": {
        "a number": [5, 6],
        "a buffer": [bytearray(b"\xff"), "key"],
        "a surrogate": ["\ud800", "key"],
        "a surrogate beside bytes": ["\ud800", b"key"],
        "no sequence": iter(["a", "b"]),
    },
    "ordering_keys": {"text": ["a", "b"], "a number": [1, 2], "a buffer": [bytearray(b"x"), None]},
    "properties": {
        "None": [None, None],
        "a list": [["a"], ["a"]],
        "text": ["a", "a"],
        "None for a name": [{None: "v"}, {None: "v"}],
        "None for a name, in one": [{None: "v"}, {}],
        "None for a value": [{"n": None}, {"n": None}],
        "bytes for a name": [{b"n": "v"}, {}],
        "bytes for a value": [{"n": b"v"}, {"n": b"v"}],
        "a number for a value": [{"n": 1}, {"m": "1"}],
        "a surrogate in a name": [{"\ud800": ""}, {}],
        "a surrogate in a value": [{"n": "\ud800"}, {"n": ""}],
    },
    "event_times": {"negative": [-1, 0], "too large": [2**64, 0], "text": ["1", 0], "a fraction": [1.5, 0]},
    "batch_indexes": {"indexes of its own": [0, 5]},
}


@pytest.mark.parametrize(("column", "kind"), [(column, kind) for column, kinds in BAD.items() for kind in kinds])
@pytest.mark.parametrize("beside", ["nothing", "keys", "nulls"])
def test_bad_messages_are_refused(column: str, kind: str, beside: str) -> None:
    """By both encoders, alone and with others; an invalid second message by the batch's encoder only."""
    columns: dict[str, Any] = {"payloads": [b"x", b"y"]}
    if beside == "keys":
        columns["properties"] = [{"a": "b"}, {}]
    if beside == "nulls":
        columns["payloads"] = [b"x", None]
    columns[column] = BAD[column][kind]
    with pytest.raises(InvalidMessage):
        encode_batch(Messages(**columns), SHARED)
    fine_alone = {"the first only", "the last only", "too large, later", "bytes", "one of those among bytes"}
    if not hasattr(columns[column], "__next__") and kind not in fine_alone:
        alone = {name: values[:1] for name, values in columns.items()}
        with pytest.raises(InvalidMessage):
            encode_message(Messages(**alone), SHARED)


@pytest.mark.parametrize("name", [name for name in Messages.__slots__ if name != "payloads"])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_columns_of_another_length_are_refused(name: str, length: int) -> None:
    messages = Messages([b"x", b"y"], **{name: [None] * length})  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match=name):
        encode_batch(messages, SHARED)


def test_incomplete_metadata_is_refused() -> None:
    for shared in (
        MessageMetadata(),
        MessageMetadata(producer_name="p"),
        MessageMetadata(sequence_id=1, publish_time=2),
    ):
        with pytest.raises(InvalidMessage):
            encode_batch(Messages([b"x"]), shared)
        with pytest.raises(InvalidMessage):
            encode_message(Messages([b"x"]), shared)
        with pytest.raises(MalformedEntry):
            decode_entry(model.frame(shared.SerializePartialToString(), b"x"))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just([]),
    st.just({}),
)


@given(
    st.fixed_dictionaries({}, optional={name: st.lists(JUNK, min_size=2, max_size=2) for name in Messages.__slots__})
)
@examples(400, stable=True)
def test_every_encoded_entry_can_be_decoded(columns: dict[str, Any]) -> None:
    """Columns of any objects: a typed error, or an entry that the model decodes."""
    messages = Messages(**({"payloads": [b"x", b"y"]} | columns))
    for encode, part in (
        (encode_batch, messages),
        (encode_message, Messages(**{"payloads": [b"x"]} | _firsts(columns))),
    ):
        try:
            stored = encode(part, SHARED)
        except WireError:
            continue
        assert len(model.decode(stored)) == len(part)


def _firsts(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: values[:1] for name, values in columns.items()}


def test_shared_metadata_lends_nothing_that_is_the_messages_own() -> None:
    """`shared` may be the metadata of a decoded entry: its key, its compression and its batch's size are not used."""
    shared = MessageMetadata()
    shared.CopyFrom(SHARED)
    shared.MergeFrom(
        MessageMetadata(
            partition_key="a=",
            partition_key_b64_encoded=True,
            null_value=True,
            num_messages_in_batch=3,
            compacted_batch_indexes=[1, 2],
            compression=entry_pb2.LZ4,
            uncompressed_size=9,
            event_time=5,
            ordering_key=b"o",
            null_partition_key=True,
            highest_sequence_id=99,
        )
    )
    shared.properties.add(key="n", value="v")
    before = shared.SerializeToString()
    for message in (
        Message(b"hello", sequence_id=7),
        Message(b"hello", "key", sequence_id=7),
        Message(None, sequence_id=7),
    ):
        stored = encode_message(columns_of([message]), shared)
        assert stored == model.encode_single(message, SHARED)
        assert model.decode(stored) == [message]
    batch = [Message(b"a", sequence_id=1), Message(b"b", sequence_id=2, batch_index=1)]
    assert model.decode(encode_batch(columns_of(batch), shared)) == batch
    assert shared.SerializeToString() == before


def test_an_entry_encodes_again_to_its_own_bytes() -> None:
    for name in ("single", "mixed batch", "uniform batch"):
        entry = decode_entry(ENTRIES[name])
        messages = decode_messages(entry)
        encode = encode_batch if entry.is_batch else encode_message
        assert encode(messages, entry.metadata) == split_broker_metadata(ENTRIES[name])[1]
        assert encode_entry(entry.metadata, entry.payload) == split_broker_metadata(ENTRIES[name])[1]
