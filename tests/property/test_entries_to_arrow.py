"""Entries as Arrow record batches, row by row against the results of magnetar_wire's decoder for the same entries.

That decoder is checked against a model of its own (test_entry_codec). The entries have the same sources: messages that
an application may send, and bytes that no serialiser writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_spark.arrow import EntriesToArrow, ProblemCounts
from magnetar_spark.arrow.batch_fields import read_batch_fields
from magnetar_spark.arrow.uniform_batch import read_uniform_batch
from magnetar_spark.errors import UnreadableEntry
from magnetar_spark.options.columns import COLUMNS
from magnetar_spark.options.decoding_options import BATCH_PAYLOAD_COLUMNS, DecodingOptions, Unreadable
from magnetar_wire.batch import Messages, decode_messages, encode_batch, encode_message
from magnetar_wire.entry import add_broker_metadata, decode_entry, encode_entry
from magnetar_wire.errors import WireError
from tests.examples import examples
from tests.property import entry_model as model
from tests.property import raw_fields as raw
from tests.property.entry_model import Message
from tests.property.test_entry_codec import (
    COMPRESSIONS,
    DIRECTED,
    IDS,
    SHARED,
    any_entry_metadata,
    batches,
    columns_of,
)

TOPIC = "persistent://public/default/orders"
LEDGER, ENTRY, TIME, INDEX = 7, 40, 1_700_000_000_123, 10**9
LAST_MS = 253_402_300_799_999

Row = dict[str, Any]


def signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def time_of(ms: int | None) -> int | None:
    """In µs; none where Spark can't represent it."""
    return None if ms is None or ms > LAST_MS else ms * 1000


def key_of(key: str | bytes | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def expected_rows(
    stored: bytes, position: tuple[int, int] = (LEDGER, ENTRY), first: int = 0, stop: int = 2**63
) -> list[Row]:
    """The plain way: a message at a time. Raises WireError."""
    entry = decode_entry(stored)
    if entry.is_marker:
        return []
    metadata, broker, messages = entry.metadata, entry.broker, decode_messages(entry)

    if messages.properties is not None:
        messages.properties[0]  # where one of them is malformed the batch is

    def of(column: Sequence[Any] | None, at: int, nothing: Any = None) -> Any:
        return nothing if column is None else column[at]

    rows = []
    for at, payload in enumerate(messages.payloads):
        index_in_batch = of(messages.batch_indexes, at, at)
        if of(messages.compacted_out, at) or not first <= index_in_batch < stop:
            continue
        own_id = of(messages.sequence_ids, at)
        key = of(messages.keys, at)
        if messages.keys is None and entry.is_batch and metadata.HasField("partition_key"):
            key = metadata.partition_key
        behind = metadata.num_messages_in_batch - 1 - index_in_batch if entry.is_batch else 0
        rows.append(
            {
                "key": key_of(key),
                "value": payload,
                "topic": TOPIC,
                "partition": 3,
                "message_id": (*position, index_in_batch if entry.is_batch else -1),
                "publish_time": time_of(metadata.publish_time),
                "event_time": time_of(of(messages.event_times, at) or None),
                "broker_time": time_of(broker.broker_timestamp)
                if broker is not None and broker.HasField("broker_timestamp")
                else None,
                "index": signed(broker.index - behind) if broker is not None and broker.HasField("index") else None,
                "properties": dict(of(messages.properties, at, {})),
                "sequence_id": signed((metadata.sequence_id + index_in_batch) % 2**64 if own_id is None else own_id),
                "producer_name": metadata.producer_name,
            }
        )
    return rows


def rows_of(batch: Any) -> list[Row]:
    """A record batch's rows; times in µs."""
    batch.validate(full=True)
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values = column.to_pylist()
        if name == "properties":
            values = [None if pairs is None else dict(pairs) for pairs in values]
        elif name == "message_id":
            values = [tuple(each.values()) for each in values]
        columns[name] = values
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def converted(
    entries: Sequence[bytes],
    columns: Sequence[str] = COLUMNS,
    *,
    ledger_id: int = LEDGER,
    first_entry_id: int = ENTRY,
    skip: int = 0,
    stop: int = 0,
    **options: Any,
) -> list[Row]:
    converter = EntriesToArrow(columns, TOPIC, 3, **options)
    found = [*converter.convert_entries(ledger_id, first_entry_id, entries, skip, stop), *converter.finish()]
    return [row for batch in found for row in rows_of(batch)]


def check(stored: bytes) -> list[Row] | None:
    """Holds an entry's rows against the expected ones; None if both refuse it."""
    try:
        expected = expected_rows(stored)
    except WireError:
        with pytest.raises(UnreadableEntry, match=f"entry {LEDGER}:{ENTRY} of {TOPIC}-partition-3 can't be read: "):
            converted([stored])
        return None
    assert converted([stored]) == expected
    return expected


def in_log(entry: bytes, index: int = INDEX) -> bytes:
    return add_broker_metadata(entry, TIME, index)


# -- messages an application may send ----------------------------------------------------------------------------------


@given(batches(), st.sampled_from(COMPRESSIONS), st.integers(0, 90), st.integers(0, 90))
@examples(120, stable=True)
def test_a_batch_is_the_rows_of_its_messages(
    messages: list[Message], compression: CompressionType, skip: int, stop: int
) -> None:
    """SPK-3: whole, and cut within; the same as the decoder's messages, column by column."""
    stored = in_log(encode_batch(columns_of(messages), SHARED, compression))
    check(stored)
    assert converted([stored], skip=skip, stop=stop) == expected_rows(stored, first=skip, stop=stop or 2**63)
    single = encode_message(columns_of([replace(messages[0], compacted_out=False, batch_index=0)]), SHARED, compression)
    check(in_log(single))
    check(single)  # without a broker's part there is no index, and no broker time


@given(batches(), st.sets(st.sampled_from(COLUMNS), min_size=1))
@examples(60, stable=True)
def test_only_requested_columns_are_converted(messages: list[Message], columns: set[str]) -> None:
    stored = in_log(encode_batch(columns_of(messages), SHARED))
    chosen = sorted(columns)
    assert converted([stored], chosen) == [{name: row[name] for name in chosen} for row in expected_rows(stored)]


@given(st.lists(st.tuples(batches(), st.booleans()), min_size=1, max_size=12), st.integers(1, 50), st.integers(1, 5000))
@examples(60, stable=True)
def test_many_entries_make_few_record_batches(
    sent: list[tuple[list[Message], bool]], max_rows: int, max_bytes: int
) -> None:
    """For all limits, the rows are the same in the same order; and no record batch has more rows than its maximum."""
    entries, expected = [], []
    for number, (messages, alone) in enumerate(sent):
        shared = MessageMetadata(producer_name=f"p{number % 3}", sequence_id=number, publish_time=number)
        entry = (
            encode_message(columns_of([replace(messages[0], compacted_out=False)]), shared)
            if alone
            else encode_batch(columns_of(messages), shared)
        )
        entries.append(in_log(entry, INDEX + number) if number % 4 else entry)
        expected += expected_rows(entries[-1], (LEDGER, ENTRY + number))
    converter = EntriesToArrow(COLUMNS, TOPIC, 3, max_batch_rows=max_rows, max_batch_bytes=max_bytes)
    found = [*converter.convert_entries(LEDGER, ENTRY, entries), *converter.finish()]
    assert [row for batch in found for row in rows_of(batch)] == expected
    assert all(0 < batch.num_rows <= max_rows for batch in found)
    assert converted(entries) == expected


@pytest.mark.parametrize("first", IDS)
@pytest.mark.parametrize("count", [1, 2, 64, 300])
def test_sequence_ids_over_every_varint_boundary(first: int, count: int) -> None:
    for start in (first, max(0, first - count // 2)):
        ids = [min(start + index, 2**64 - 1) for index in range(count)]
        for size in (0, 1, 2, 7, 100):
            check(in_log(encode_batch(columns_of([Message(b"p" * size, sequence_id=value) for value in ids]), SHARED)))
        varied = [Message(b"p" * (index % 3), sequence_id=value) for index, value in enumerate(ids)]
        check(in_log(encode_batch(columns_of(varied), SHARED)))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 70_000])
def test_lengths_over_every_varint_boundary(size: int) -> None:
    for more in (0, 1):
        sizes = (size, size + more)
        for messages in (
            [Message(b"p" * each) for each in sizes],
            [Message(b"p" * each, sequence_id=index) for index, each in enumerate(sizes)],
            [Message(b"p", key="k" * each) for each in sizes],
            [Message(b"p", ordering_key=b"k" * each, event_time=each) for each in sizes],
            [Message(b"p", properties={"n": "v" * each, "m": ""}) for each in sizes],
            [Message(b"p", properties={"n" * each: "v"}) for each in sizes],
        ):
            check(in_log(encode_batch(columns_of(messages), SHARED)))


def test_both_fast_paths_are_used() -> None:
    """Comparing rows proves nothing where the slow way took all of them."""
    plain = [Message(b"payload", sequence_id=300 + index) for index in range(100)]
    assert read_uniform_batch(model.take_apart(model.encode_batch(plain, SHARED))[1], 100) is not None
    for keyed in (
        [
            Message(b"p" * (i % 7), f"k{i}", properties={"a": "b", "c": "d"}, event_time=2**40, sequence_id=i)
            for i in range(99)
        ],
        [Message(b"p" * 50, "k" * (i % 5), ordering_key=b"o" if i % 2 else None, sequence_id=130) for i in range(99)],
        [Message(b"p" * (i * 7), "k" if i % 3 else None, properties={"a": "b"} if i % 4 else {}) for i in range(99)],
    ):
        batch = model.take_apart(model.encode_batch(keyed, SHARED))[1]
        assert read_batch_fields(batch, 99, values=True, keys=True, properties=True) is not None


# -- what no producer of ours sends ------------------------------------------------------------------------------------


def test_compaction_left_some_messages_of_a_batch() -> None:
    """RET-5's batches: indexes stay, compacted messages are no rows, and the topic's index counts them."""
    metadata = MessageMetadata(
        producer_name="p", sequence_id=5, publish_time=2, num_messages_in_batch=9, compacted_batch_indexes=[0, 3, 8]
    )
    stored = in_log(model.frame(metadata.SerializeToString(), raw.record(b"\x18\5", b"hello") * 3))
    assert [row["message_id"][2] for row in check(stored) or []] == [0, 3, 8]
    assert [row["index"] for row in converted([stored], skip=1)] == [INDEX - 5, INDEX]
    removed = [Message(b"a"), Message(b"b", compacted_out=True), Message(b"c", "key")]
    stored = in_log(encode_batch(columns_of(removed), SHARED))
    assert [row["value"] for row in check(stored) or []] == [b"a", b"c"]
    stored = in_log(encode_batch(columns_of([Message(b"b", compacted_out=True)]), SHARED))
    assert check(stored) == []


def test_markers_are_no_rows() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=2, marker_type=10)
    marker = in_log(model.frame(metadata.SerializeToString(), b"anything"))
    row = in_log(encode_message(Messages([b"a"]), SHARED))
    assert converted([marker, row, marker]) == expected_rows(row, (LEDGER, ENTRY + 1))


def test_a_batch_by_key_has_the_key_in_every_row() -> None:
    for shared, key in (
        (MessageMetadata(producer_name="p", sequence_id=5, publish_time=2, partition_key="k"), b"k"),
        (
            MessageMetadata(
                producer_name="p", sequence_id=5, publish_time=2, partition_key="AP8=", partition_key_b64_encoded=True
            ),
            b"\0\xff",
        ),
    ):
        for payloads in ([b"a", b"b"], [b"a", b"bc"], [b"a", None]):
            stored = in_log(encode_batch(Messages(payloads), shared))
            assert [row["key"] for row in converted([stored])] == [key, key]


def test_times_beyond_the_range_of_spark_are_null() -> None:
    for ms, known in ((LAST_MS, True), (LAST_MS + 1, False), (2**64 - 1, False)):
        shared = MessageMetadata(producer_name="p", sequence_id=5, publish_time=ms)
        stored = add_broker_metadata(encode_batch(columns_of([Message(b"a", event_time=ms)]), shared), ms, 0)
        (row,) = check(stored) or []
        for name in ("publish_time", "event_time", "broker_time"):
            assert row[name] == (ms * 1000 if known else None)


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_batches(name: str) -> None:
    check_raw(DIRECTED[name], 3)


def check_raw(batch: bytes, count: int) -> list[Row] | None:
    head = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    head.num_messages_in_batch = count
    return check(in_log(model.frame(head.SerializeToString(), batch)))


@given(st.randoms(use_true_random=False))
@examples(100, stable=True)
def test_raw_batches(draw: Random) -> None:
    check_raw(*raw.any_batch(draw))


def test_many_raw_batches() -> None:
    """Enough of them are good, and enough of those are read each way."""
    seen = {"good": 0, "bad": 0, "fields": 0, "uniform": 0}
    for seed in range(2000):
        batch, count = raw.any_batch(Random(seed))
        try:
            rows = check_raw(batch, count)
        except BaseException as error:
            error.add_note(f"seed {seed}, {count} messages in {batch.hex()}")
            raise
        seen["bad" if rows is None else "good"] += 1
        seen["fields"] += answers(lambda: read_batch_fields(batch, count, values=True, keys=True, properties=True))  # noqa: B023
        seen["uniform"] += answers(lambda: read_uniform_batch(batch, count))  # noqa: B023
    assert min(seen.values()) > 20, seen


def answers(read: Callable[[], object]) -> bool:
    try:
        return read() is not None
    except WireError:
        return False


def test_raw_entry_metadata() -> None:
    refused = 0
    for seed in range(1000):
        draw = Random(seed)
        payload = draw.choice((b"", b"payload", raw.record(b"\x18\5", b"hello"), raw.record(b"\x18\5", b"hello") * 2))
        stored = model.frame(any_entry_metadata(draw), payload)
        try:
            if decode_entry(stored).is_chunk:
                continue
        except WireError:
            pass
        refused += check(stored) is None
    assert 100 < refused < 900


def test_a_changed_bit_is_refused_or_no_message() -> None:
    keyed = [Message(b"hello", f"k{i}", properties={"a": "b"}, sequence_id=i) for i in range(3)]
    stored = encode_batch(columns_of(keyed), SHARED)
    for bit in range(8 * len(stored)):
        turned = bytearray(stored)
        turned[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(UnreadableEntry):
            converted([bytes(turned)])


def test_an_encrypted_entry_is_refused_by_name() -> None:
    shared = MessageMetadata(producer_name="p", sequence_id=5, publish_time=2)
    shared.encryption_keys.add(key="k1", value=b"x")
    with pytest.raises(UnreadableEntry, match=r"entry 7:40 of .*-partition-3 can't be read: .*'k1'.*not supported"):
        converted([in_log(encode_message(Messages([b"a"]), shared))])


@given(batches(), st.integers(0, 90), st.integers(0, 90))
@examples(60, stable=True)
def test_a_batch_that_can_not_be_decoded_has_the_rows_of_one_that_can(
    messages: list[Message], skip: int, stop: int
) -> None:
    """SPK-1: the same number, ids, indexes and times of the entry; null in the columns that stand in the payload."""
    there = [replace(message, compacted_out=False) for message in messages]
    stored = encode_batch(columns_of(there), SHARED)
    entry = decode_entry(stored)
    entry.metadata.encryption_keys.add(key="k1", value=b"x")
    hidden = in_log(encode_entry(entry.metadata, b"secret"))
    expected = expected_rows(in_log(stored), first=skip, stop=stop or 2**63)
    rows = converted([hidden], skip=skip, stop=stop, decoding=DecodingOptions(Unreadable.NULL))
    assert rows == [{**row, **dict.fromkeys(BATCH_PAYLOAD_COLUMNS)} for row in expected]
    readable = sorted(set(COLUMNS) - BATCH_PAYLOAD_COLUMNS)
    assert converted([hidden], readable, skip=skip, stop=stop) == [
        {name: row[name] for name in readable} for row in expected
    ]


def test_unreadable_entry_is_skipped_only_without_fail_on_data_loss() -> None:
    good = in_log(encode_message(Messages([b"a"]), SHARED))
    problems = ProblemCounts("orders")
    # Damage is a loss, of which `unreadable` has no say.
    for decoding in (DecodingOptions(Unreadable.SKIP), DecodingOptions(Unreadable.NULL)):
        with pytest.raises(UnreadableEntry, match=f"entry {LEDGER}:{ENTRY + 1} of .*failOnDataLoss=false"):
            converted([good, b"garbage", good], decoding=decoding)
    rows = converted([good, b"garbage", good], fail_on_data_loss=False, problems=problems)
    assert [row["message_id"][1] for row in rows] == [ENTRY, ENTRY + 2]
    ((count, first),) = problems.counts.values()
    assert count == 1
    assert f"entry {LEDGER}:{ENTRY + 1} of " in first


# -- large ones --------------------------------------------------------------------------------------------------------


def test_the_largest_message_is_a_record_batch_of_its_own() -> None:
    large = in_log(encode_message(Messages([b"x" * 5_242_000]), SHARED))
    small = in_log(encode_batch(Messages([b"y"] * 10), SHARED))
    converter = EntriesToArrow(("value",), TOPIC, -1)
    found = [*converter.convert_entries(1, 0, [small, large, small]), *converter.finish()]
    assert [batch.num_rows for batch in found] == [10, 1, 10]


def test_large_batch_is_split_into_many_record_batches() -> None:
    """Messages of nothing, named for a topic and a producer of long names, and large ones that compress to nothing."""
    shared = MessageMetadata(producer_name="p" * 9000, sequence_id=5, publish_time=2)
    many = in_log(encode_batch(Messages([b""] * 100_000), shared))
    converter = EntriesToArrow(("topic", "producer_name", "sequence_id"), TOPIC, -1)
    rows = 0
    for batch in converter.convert_entries(1, 0, [many]):
        assert batch.get_total_buffer_size() < 8_000_000
        assert batch.column("sequence_id").to_numpy().tolist() == list(range(5 + rows, 5 + rows + batch.num_rows))
        rows += batch.num_rows
    rows += sum(batch.num_rows for batch in converter.finish())
    assert rows == 100_000
    by_key = MessageMetadata(producer_name="p", sequence_id=5, publish_time=2, partition_key="k" * 9000)
    many = in_log(encode_batch(Messages([b""] * 20_000), by_key))
    converter = EntriesToArrow(("key",), TOPIC, -1)
    assert max(batch.nbytes for batch in converter.convert_entries(1, 0, [many])) < 5_000_000
    zeros = in_log(encode_batch(Messages([bytes(1_000_000)] * 100), SHARED, entry_pb2.ZSTD))
    converter = EntriesToArrow(("value",), TOPIC, -1)
    sizes = [batch.nbytes for batch in converter.convert_entries(1, 0, [zeros])]
    assert max(sizes) < 5_000_000
    assert np.sum(sizes) > 90_000_000
