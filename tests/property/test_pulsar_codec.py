"""The hand-written encoding of the listener for Pulsar's protocol against protobuf's, and its ids and bit sets against
plain models.
"""

from __future__ import annotations

from itertools import pairwise

from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.position import Position
from magnetar_broker.server.pulsar.acknowledged_ids import (
    entry_ranges,
    split_ack,
    split_redelivery,
    whole_and_partial,
)
from magnetar_broker.server.pulsar.frames import FrameReader
from magnetar_broker.server.pulsar.message_ids import acknowledged_bits, start_at, to_position, unacknowledged_words
from magnetar_broker.server.pulsar.replies import MessageHeads, ReceiptFrames
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandRedeliverUnacknowledgedMessages,
    CommandSendReceipt,
)

UINT64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 127, 128, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
ID_NUMBERS = st.integers(0, 2**63 - 1) | st.sampled_from([0, 1, 127, 128, 2**63 - 1])
PARTITIONS = st.just(-1) | st.integers(0, 2**31 - 1)
WORDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 1, -(2**63)]), max_size=4)
SIZES = st.integers(1, 200)


def message_id(ledger_id: int, entry_id: int, partition: int = -1) -> MessageIdData:
    made = MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    if partition >= 0:
        made.partition = partition
    return made


@given(UINT64, PARTITIONS, st.lists(st.tuples(UINT64, UINT64, ID_NUMBERS, ID_NUMBERS), min_size=1, max_size=4))
def test_receipt_frames_match_protobuf_encoding(
    producer_id: int, partition: int, receipts: list[tuple[int, int, int, int]]
) -> None:
    frames = ReceiptFrames(producer_id, partition)
    for sequence_id, highest, ledger_id, entry_id in receipts:
        expected = CommandSendReceipt(
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=message_id(ledger_id, entry_id, partition),
        )
        if highest:
            expected.highest_sequence_id = highest
        command = BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=expected)
        assert one_frame(frames.receipt(sequence_id, highest, Position(ledger_id, entry_id))) == (encoded(command), b"")


@given(
    UINT64, PARTITIONS, ID_NUMBERS, ID_NUMBERS, UINT64, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)))
)
def test_consecutive_receipts_match_protobuf_encoding(
    producer_id: int, partition: int, ledger_id: int, entry_id: int, sequence_id: int, steps: list[tuple[int, int]]
) -> None:
    """Within what they have in common, and out of it."""
    frames = ReceiptFrames(producer_id, partition)
    for entry, sequence in steps:
        entry_id, sequence_id = min(entry_id + entry, 2**63 - 1), min(sequence_id + sequence, 2**64 - 1)
        expected = CommandSendReceipt(
            producer_id=producer_id,
            sequence_id=sequence_id,
            message_id=message_id(ledger_id, entry_id, partition),
        )
        command = BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=expected)
        assert one_frame(frames.receipt(sequence_id, 0, Position(ledger_id, entry_id))) == (encoded(command), b"")


def test_receipt_without_position_has_an_invalid_message_id() -> None:
    """As for a message that was stored before: clients take this position for none."""
    frames = ReceiptFrames(1, -1)
    for sequence_id, ledger_id, entry_id in [(5, -1, -1), (6, 3, 0), (7, -1, -1), (8, 3, -1)]:
        expected = CommandSendReceipt(producer_id=1, sequence_id=sequence_id)
        expected.message_id.ledgerId, expected.message_id.entryId = ledger_id % 2**64, entry_id % 2**64
        command = BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=expected)
        assert one_frame(frames.receipt(sequence_id, 0, Position(ledger_id, entry_id))) == (encoded(command), b"")


@given(UINT64, PARTITIONS, ID_NUMBERS, ID_NUMBERS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2))))
def test_consecutive_messages_match_protobuf_encoding(
    consumer_id: int, partition: int, ledger_id: int, entry_id: int, steps: list[tuple[int, int]]
) -> None:
    heads = MessageHeads(consumer_id, partition)
    for step, count in steps:
        entry_id = min(entry_id + step, 2**63 - 1)
        expected = CommandMessage(consumer_id=consumer_id, message_id=message_id(ledger_id, entry_id, partition))
        if count:
            expected.redelivery_count = count
        command = BaseCommand(type=BaseCommand.MESSAGE, message=expected)
        found = one_frame(heads.head(Position(ledger_id, entry_id), heads.tail(count, (), None), 5) + b"entry")
        assert found == (encoded(command), b"entry")


@given(
    UINT64,
    PARTITIONS,
    st.lists(st.tuples(ID_NUMBERS, ID_NUMBERS), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    WORDS,
    st.none() | UINT64,
    st.binary(max_size=300),
)
def test_message_frames_match_protobuf_encoding(
    consumer_id: int,
    partition: int,
    entry_ids: list[tuple[int, int]],
    count: int,
    words: list[int],
    epoch: int | None,
    entry: bytes,
) -> None:
    heads = MessageHeads(consumer_id, partition)
    tail = heads.tail(count, words, epoch)
    for ledger_id, entry_id in entry_ids:
        expected = CommandMessage(
            consumer_id=consumer_id, message_id=message_id(ledger_id, entry_id, partition), ack_set=words
        )
        if count:
            expected.redelivery_count = count
        if epoch is not None:
            expected.consumer_epoch = epoch
        command = BaseCommand(type=BaseCommand.MESSAGE, message=expected)
        found = one_frame(heads.head(Position(ledger_id, entry_id), tail, len(entry)) + entry)
        assert found == (encoded(command), entry)


def encoded(command: Message) -> bytes:
    return command.SerializeToString(deterministic=True)


def one_frame(data: bytes) -> tuple[bytes, bytes] | None:
    reader = FrameReader(1_000_000)
    reader.feed(data)
    found = reader.next_frame()
    assert len(reader.unparsed) + reader.incomplete_bytes == 0
    assert reader.next_frame() is None
    return found


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_frames_are_parsed_from_reads_of_any_size(commands: list[bytes], sizes: list[int]) -> None:
    data = b"".join(
        (len(command) + 9).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + b"entry"
        for command in commands
    )
    reader, found, at = FrameReader(1_000), [], 0
    for size in sizes * (len(data) // sum(sizes) + 1):
        reader.feed(data[at : at + size])
        at += size
        while (one := reader.next_frame()) is not None:
            found.append(one)
        assert len(reader.unparsed) + reader.incomplete_bytes <= 52  # all but a byte of the largest
    assert found == [(command, b"entry") for command in commands]


@given(WORDS, SIZES)
def test_ack_set_marks_unacknowledged_messages(words: list[int], size: int) -> None:
    open_messages = {at for at in range(size) if at // 64 < len(words) and words[at // 64] >> (at % 64) & 1}
    bits = acknowledged_bits(words, size)
    assert {at for at in range(size) if not bits >> at & 1} == open_messages
    assert bits >> size == 0


@given(st.sets(st.integers(0, 199)), SIZES)
def test_ack_set_round_trips(acknowledged: set[int], size: int) -> None:
    bits = sum(1 << one for one in acknowledged if one < size)
    words = unacknowledged_words(bits.to_bytes(25, "little"), size)
    assert acknowledged_bits(words, size) == bits
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert not words or words[-1] != 0


@given(UINT64, UINT64, WORDS)
def test_start_position_is_the_first_unacknowledged_message(ledger_id: int, entry_id: int, words: list[int]) -> None:
    start = start_at(MessageIdData(ledgerId=ledger_id, entryId=entry_id, ack_set=words)).message_id
    assert (start.ledger_id - ledger_id) % 2**64 == 0
    assert (start.entry_id - entry_id) % 2**64 == 0
    first = next((at for at in range(64 * len(words)) if words[at // 64] >> (at % 64) & 1), 0)
    assert start.batch_index == (first or -1)


IDS = st.lists(
    st.builds(
        MessageIdData,
        ledgerId=st.sampled_from([1, 2, 2**64 - 1]),
        entryId=st.integers(0, 6) | st.just(2**64 - 1),
        ack_set=st.just([]) | WORDS,
    ),
    max_size=12,
)


@given(IDS)
def test_ids_become_ranges_of_the_same_entries(ids: list[MessageIdData]) -> None:
    whole, partial = whole_and_partial(ids)
    named = [(one.ledger_id, at) for one in whole for at in range(one.first_entry_id, one.last_entry_id + 1)]
    positions = [(to_position(one), any(one.ack_set)) for one in ids]
    assert named == [tuple(id_pair) for id_pair, part in positions if not part and min(id_pair) >= 0]
    assert [id_pair for id_pair, _ in partial] == [id_pair for id_pair, part in positions if part]
    follows = all(min(id_pair) >= 0 for id_pair, _ in positions)
    for before, after in pairwise(whole):  # those that follow each other are one
        assert not follows or (before.ledger_id, before.last_entry_id + 1) != (after.ledger_id, after.first_entry_id)
    assert sum(one.last_entry_id - one.first_entry_id + 1 for one in entry_ranges(ids)) == sum(
        min(id_pair) >= 0 for id_pair, _ in positions
    )


@given(IDS, st.integers(1, 5), st.none() | UINT64)
def test_split_commands_carry_the_same_message_ids(ids: list[MessageIdData], most: int, number: int | None) -> None:
    command = CommandAck(consumer_id=7, ack_type=CommandAck.INDIVIDUAL, message_id=ids, txnid_most_bits=3)
    again = CommandRedeliverUnacknowledgedMessages(consumer_id=7, message_ids=ids)
    if number is not None:
        command.request_id = again.consumer_epoch = number
    acks, redeliveries = list(split_ack(command, most)), list(split_redelivery(again, most))
    assert [one for part in acks for one in part.message_id] == ids
    assert [one for part in redeliveries for one in part.message_ids] == ids
    assert all(0 < len(part.message_id) <= most for part in acks if ids)
    assert all(0 < len(part.message_ids) <= most for part in redeliveries if ids)
    assert [part.HasField("request_id") for part in acks] == [False] * (len(acks) - 1) + [number is not None]
    assert {part.HasField("consumer_epoch") for part in redeliveries} == {number is not None}
    assert {part.consumer_id for part in acks} == {part.consumer_id for part in redeliveries} == {7}
    assert {part.txnid_most_bits for part in acks} == {3}


def test_a_cumulative_acknowledgement_stays_whole() -> None:
    command = CommandAck(consumer_id=1, ack_type=CommandAck.CUMULATIVE, message_id=[message_id(1, 1), message_id(1, 2)])
    assert list(split_ack(command, 1)) == [command]
