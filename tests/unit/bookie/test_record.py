"""The record: each deviation from what the writer encoded is detected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from magnetar_bookie.read.record import (
    MAX_RECORD_BYTES,
    NO_ENTRY,
    RECORD_HEADER_BYTES,
    BadRecord,
    RecordHeader,
    are_valid_records,
    check_record,
    encode_record,
    extract_entry,
    find_highest_lac,
)
from magnetar_wire.limits import MAX_ENTRY_BYTES

numbers = some.integers(0, 2**63 - 2)


@settings(max_examples=100)
@given(numbers, numbers, some.integers(0, 2**64 - 1), some.binary(max_size=200))
def test_encoded_record_round_trips(ledger_id: int, entry_id: int, ledger_bytes: int, entry: bytes) -> None:
    confirmed = entry_id - 1
    record = encode_record(ledger_id, entry_id, confirmed, ledger_bytes, entry)
    assert check_record(record, ledger_id, entry_id) == RecordHeader(ledger_id, entry_id, confirmed, ledger_bytes)
    assert extract_entry(record) == entry


def test_the_layout_is_as_documented() -> None:
    record = encode_record(1, 2, NO_ENTRY, 3, b"entry")
    assert record[:32].hex() == "00000000000000010000000000000002ffffffffffffffff0000000000000003"
    assert record[36:] == b"entry"


@settings(max_examples=100)
@given(some.binary(max_size=50), some.data())
def test_any_flipped_bit_is_detected(entry: bytes, data: some.DataObject) -> None:
    record = bytearray(encode_record(7, 5, 4, 100, entry))
    index = data.draw(some.integers(0, len(record) * 8 - 1))
    record[index // 8] ^= 1 << index % 8
    with pytest.raises(BadRecord):
        check_record(bytes(record), 7, 5)


@settings(max_examples=100)
@given(some.integers(0, 60))
def test_a_record_cut_off_is_found(length: int) -> None:
    record = encode_record(7, 5, 4, 100, b"x" * 60)
    with pytest.raises(BadRecord):
        check_record(record[:length], 7, 5)
    with pytest.raises(BadRecord):
        check_record(record + b"x", 7, 5)


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(7, 6), (8, 5)])
def test_record_of_another_entry_is_rejected(ledger_id: int, entry_id: int) -> None:
    with pytest.raises(BadRecord, match="belongs to entry 5 of ledger 7"):
        check_record(encode_record(7, 5, 4, 100, b"x"), ledger_id, entry_id)


@pytest.mark.parametrize("confirmed", [5, 6, -2])
def test_a_record_can_t_confirm_itself(confirmed: int) -> None:
    with pytest.raises(BadRecord, match="the LAC"):
        check_record(encode_record(7, 5, confirmed, 100, b"x"), 7, 5)


def test_the_largest_entry_fits_and_no_larger() -> None:
    record = encode_record(1, 0, NO_ENTRY, MAX_ENTRY_BYTES, bytes(MAX_ENTRY_BYTES))
    assert len(record) == MAX_RECORD_BYTES == MAX_ENTRY_BYTES + RECORD_HEADER_BYTES
    check_record(record, 1, 0)
    with pytest.raises(BadRecord, match="bytes"):
        check_record(encode_record(1, 0, NO_ENTRY, MAX_ENTRY_BYTES + 1, bytes(MAX_ENTRY_BYTES + 1)), 1, 0)


def _taken(record: bytes, entry_id: int) -> bool:
    try:
        check_record(record, 7, entry_id)
    except BadRecord:
        return False
    return True


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
@pytest.mark.parametrize("index", range(4))
def test_all_are_whole_where_each_is(size: int, index: int) -> None:
    ids = range(3, 11, 2)
    records = [encode_record(7, entry_id, entry_id - 1, 10, bytes(size)) for entry_id in ids]
    assert are_valid_records(records, 7, ids)
    good = records[index]
    others = [
        good[:-1],
        good[:20],
        b"",
        good + b"x",
        encode_record(8, ids[index], 0, 10, bytes(size)),
        encode_record(7, ids[index] + 1, 0, 10, bytes(size)),
        encode_record(7, ids[index], ids[index], 10, bytes(size)),
        encode_record(7, ids[index], -2, 10, bytes(size)),
        *(bytes((*good[:at], good[at] ^ 1, *good[at + 1 :])) for at in range(min(len(good), 60))),
    ]
    for other in others:
        assert not _taken(other, ids[index])
        records[index] = other
        assert not are_valid_records(records, 7, ids), other
    records[index] = encode_record(7, ids[index], -1, 10, bytes(size + 1))
    assert are_valid_records(records, 7, ids)
    assert are_valid_records([], 7, [])


@pytest.mark.parametrize("index", range(3))
def test_highest_confirmed_is_that_of_any_of_the_records(index: int) -> None:
    """A writer's LACs do not fall from one to the next; who does not keep to it is taken at its word all the same."""
    confirmed = [-1, 0, 1]
    confirmed[index] = 90
    records = [encode_record(7, entry_id, lac, 10, b"entry") for entry_id, lac in enumerate(confirmed, 100)]
    assert find_highest_lac(records, 7, range(100, 103)) == 90
    assert find_highest_lac(records, 7, range(101, 104)) is None
