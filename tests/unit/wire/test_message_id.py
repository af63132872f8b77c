"""Message ids: order, bytes, and refusals; compared with the stock client's ids if it is installed."""

from __future__ import annotations

import copy
import inspect
import itertools
import operator
import pickle
from typing import Any

import pytest

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_wire.errors import InvalidMessageId, WireError
from magnetar_wire.message_id import MAX_SERIALIZED_BYTES, MessageId

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MINUS_ONE = b"\xff" * 9 + b"\x01"


def test_the_order_is_ledger_then_entry_then_batch_index() -> None:
    """MSG-3."""
    parts = list(itertools.product((-1, 0, 1, INT64_MAX), (-1, 0, 7, INT64_MAX), (-1, 0, 3, INT32_MAX)))
    ids = [MessageId(4, ledger, entry, batch_index) for ledger, entry, batch_index in parts]
    backwards = ids[::-1]
    assert sorted(backwards) == ids
    for (one, part), (other, other_part) in itertools.product(zip(ids, parts, strict=True), repeat=2):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            assert compare(one, other) is compare(part, other_part)


def test_the_id_of_an_entry_is_before_its_messages_and_after_the_previous_entry() -> None:
    """MSG-3."""
    whole, first = MessageId(0, 5, 7), MessageId(0, 5, 7, 0)
    assert MessageId(0, 5, 6, INT32_MAX) < whole < first < MessageId(0, 5, 7, 1) < MessageId(0, 5, 8)


def test_equality_and_hash_use_the_position_only() -> None:
    """MSG-3."""
    bare = MessageId(1, 2, 3, 4)
    rich = MessageId(1, 2, 3, 4, 10, "persistent://a/b/c", MessageId(1, 2, 1))
    assert bare == rich
    assert hash(bare) == hash(rich)
    assert bare <= rich <= bare
    assert not bare < rich
    assert {bare: "found"}[rich] == "found"
    elsewhere = MessageId(2, 2, 3, 4)
    assert bare != elsewhere
    assert bare < elsewhere


def test_ids_do_not_compare_to_other_objects() -> None:
    others: tuple[Any, ...] = (5, None, "(1,2,3,4)", (2, 3, 4, 1), object())
    for other in others:
        assert MessageId(1, 2, 3, 4) != other
        for compare in (operator.lt, operator.le, operator.gt, operator.ge):
            with pytest.raises(TypeError):
                compare(MessageId(1, 2, 3, 4), other)


def test_earliest_is_first_and_latest_is_last() -> None:
    """MSG-3."""
    for some in (MessageId(0, 0, 0), MessageId(-1, 5, 5, 5), MessageId(7, INT64_MAX - 1, 0)):
        assert MessageId.earliest < some < MessageId.latest
    assert MessageId() == MessageId.earliest
    assert MessageId.deserialize(MessageId.earliest.serialize()) == MessageId.earliest
    assert MessageId.deserialize(MessageId.latest.serialize()) == MessageId.latest


def test_an_id_has_its_arguments_and_is_immutable() -> None:
    """MSG-3."""
    first = MessageId(1, 2, 1)
    made = MessageId(
        partition=1, ledger_id=2, entry_id=3, batch_index=4, batch_size=5, topic_name="t", first_chunk_message_id=first
    )
    assert (made.partition(), made.ledger_id(), made.entry_id(), made.batch_index()) == (1, 2, 3, 4)
    assert (made.batch_size(), made.topic_name(), made.first_chunk_message_id) == (5, "t", first)
    assert (first.batch_size(), first.topic_name(), first.first_chunk_message_id) == (0, "", None)
    assert eval(repr(made)).__reduce__() == made.__reduce__()
    for name in ("_place", "_batch_size", "anything"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(made, name, 1)
        with pytest.raises(AttributeError, match="immutable"):
            delattr(made, name)
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_ids_can_be_copied_and_pickled(copied: Any) -> None:
    made = MessageId(1, 2, 3, 4, 5, "t", MessageId(1, 2, 1))
    assert copied(made).__reduce__() == made.__reduce__()


@pytest.mark.parametrize(
    ("message_id", "data"),
    [
        (MessageId(), b"\x08" + MINUS_ONE + b"\x10" + MINUS_ONE),
        (MessageId(-1, 1, 2), b"\x08\x01\x10\x02"),
        (MessageId(0, 1, 2, 3), b"\x08\x01\x10\x02\x18\x00\x20\x03"),
        (MessageId(0, 1, 2, 3, 4), b"\x08\x01\x10\x02\x18\x00\x20\x03\x30\x04"),
        (
            MessageId(5, 300, 2, first_chunk_message_id=MessageId(5, 7, 8)),
            b"\x08\xac\x02\x10\x02\x18\x05\x3a\x06\x08\x07\x10\x08\x18\x05",
        ),
    ],
)
def test_the_bytes_are_those_of_pulsar(message_id: MessageId, data: bytes) -> None:
    """MSG-3."""
    assert message_id.serialize() == data
    assert MessageId.deserialize(data).__reduce__() == message_id.__reduce__()


def test_the_topic_is_not_in_the_bytes_and_can_be_given() -> None:
    """MSG-3."""
    data = MessageId(1, 2, 3, topic_name="a").serialize()
    assert data == MessageId(1, 2, 3).serialize()
    assert MessageId.deserialize(data).topic_name() == ""
    assert MessageId.deserialize(data, topic="persistent://a/b/c").topic_name() == "persistent://a/b/c"


def test_unknown_fields_are_ignored() -> None:
    """MSG-3."""
    data = MessageIdData(ledgerId=1, entryId=2, ack_set=[-1, 5]).SerializeToString()
    later_field = b"\xa2\x06\x03abc"
    packed_ack_set = b"\x2a\x02\x01\x02"
    assert MessageId.deserialize(data + later_field + packed_ack_set).serialize() == b"\x08\x01\x10\x02"
    assert MessageId.deserialize(bytearray(data)) == MessageId(-1, 1, 2)  # type: ignore[arg-type]
    assert MessageId.deserialize(memoryview(data)) == MessageId(-1, 1, 2)  # type: ignore[arg-type]


def _nested(depth: int) -> bytes:
    data = b"\x08\x01\x10\x02"
    for _ in range(depth):
        size = len(data)
        prefix = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
        data = b"\x08\x01\x10\x02\x3a" + prefix + data
    return data


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "no ledger id or no entry id"),
        (b"\x08\x01", "no ledger id or no entry id"),
        (b"\x10\x01", "no ledger id or no entry id"),
        (b"\x08\x01\x10\x02\x3a\x02\x08\x01", "no ledger id or no entry id"),
        (b"\x08\x01\x10", "Error parsing"),
        (b"\x08\x01\x10\x02garbage", "Error parsing"),
        (b"\x08\x01\x10\x02\x00", "Error parsing"),
        (b"\x08\x01\x10\x02\x3a\x7f", "Error parsing"),
        (b"\x08" + b"\xff" * 10 + b"\x01\x10\x02", "Error parsing"),
        (b"\x08" + b"\xfe" + b"\xff" * 8 + b"\x01\x10\x02", "ledger_id=-2"),
        (b"\x08\x01\x10" + b"\xfe" + b"\xff" * 8 + b"\x01", "entry_id=-2"),
        (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x10\x02", "ledger_id=-9223372036854775808"),
        (b"\x08\x01\x10\x02\x18" + b"\xfe" + b"\xff" * 8 + b"\x01", "partition=-2"),
        (b"\x08\x01\x10\x02\x20" + b"\xfe" + b"\xff" * 8 + b"\x01", "batch_index=-2"),
        (b"\x08\x01\x10\x02\x30" + MINUS_ONE, "batch_size=-1"),
        (_nested(2), "a first chunk itself"),
        (_nested(50), "a first chunk itself"),
        (_nested(1_000), "Error parsing"),
        (b"\x08\x01\x10\x02" + b"\x28\x01" * MAX_SERIALIZED_BYTES, "131,076 bytes, above the limit of 65,536"),
    ],
    ids=range(19),
)
def test_invalid_bytes_are_refused(data: bytes, complaint: str) -> None:
    """MSG-3."""
    with pytest.raises(InvalidMessageId, match=complaint) as raised:
        MessageId.deserialize(data)
    assert len(str(raised.value)) < 500
    assert isinstance(raised.value, WireError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ledger_id": -2},
        {"ledger_id": 2**63},
        {"entry_id": -2},
        {"entry_id": 2**63},
        {"partition": -2},
        {"partition": 2**31},
        {"batch_index": -2},
        {"batch_index": 2**31},
        {"batch_size": -1},
        {"batch_size": 2**31},
        {"first_chunk_message_id": MessageId(first_chunk_message_id=MessageId())},
    ],
)
def test_numbers_out_of_range_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageId):
        MessageId(**arguments)


SAME_AS_STOCK: list[Any] = [
    (),
    (0, 1, 2, 3),
    (-1, 1, 2),
    (5, 1, 2, -1),
    (3, 2**32, 7, 0),
    (INT32_MAX, INT64_MAX, INT64_MAX, INT32_MAX),
    (0, 0, 0, 0),
    (-1, 9, -1, -1),
]


@pytest.mark.parametrize("arguments", SAME_AS_STOCK)
def test_the_bytes_equal_those_of_a_stock_client(arguments: Any) -> None:
    """MSG-3."""
    pulsar = pytest.importorskip("pulsar", reason="the stock client is not installed")
    ours, stock = MessageId(*arguments), pulsar.MessageId(*arguments)
    assert ours.serialize() == stock.serialize()
    assert str(ours) == str(stock)
    assert str(pulsar.MessageId.deserialize(ours.serialize())) == str(ours)
    assert MessageId.deserialize(stock.serialize()) == ours


@pytest.mark.parametrize(
    "message_id",
    [
        MessageId(1, 2, 3, 4, 5),
        MessageId(-1, 2, 3, first_chunk_message_id=MessageId(-1, 2, 1)),
        MessageId(6, 2, 3, first_chunk_message_id=MessageId(6, 1, 9)),
    ],
)
def test_a_stock_client_reads_and_writes_batch_sizes_and_chunks_alike(message_id: MessageId) -> None:
    """MSG-3."""
    pulsar = pytest.importorskip("pulsar", reason="the stock client is not installed")
    stock = pulsar.MessageId.deserialize(message_id.serialize())
    assert stock.serialize() == message_id.serialize()
    assert str(stock) == str(message_id)


def test_earliest_latest_and_all_names_are_those_of_the_stock_client() -> None:
    """MSG-3."""
    pulsar = pytest.importorskip("pulsar", reason="the stock client is not installed")
    assert MessageId.earliest.serialize() == pulsar.MessageId.earliest.serialize()
    assert MessageId.latest.serialize() == pulsar.MessageId.latest.serialize()
    public = {name for name in vars(pulsar.MessageId) if not name.startswith("_")}
    # The stock client wraps an object of its extension; there is no such object here.
    assert public - {"wrap"} <= set(vars(MessageId))
    for method in ("__init__", "deserialize"):
        stock = list(inspect.signature(getattr(pulsar.MessageId, method)).parameters)
        assert list(inspect.signature(getattr(MessageId, method)).parameters)[: len(stock)] == stock
