"""Reads batches field by field: a field of all messages at a time, without an object for a message.

There is a cursor in each message's metadata. Serialisers write fields in the order of their numbers, so one pass over
the numbers is enough: a field is read in those messages whose cursor is at its tag, and their cursors are moved after
it. The word at the cursor, eight bytes, has the tag and most lengths and numbers completely.

At the end every cursor must be at the end of its message's metadata, and every message must have the payload size that
was guessed when the bounds of the records were found (record_bounds.py). For anything else the result is None: fields
in another order, repeated or unknown ones, rare flags, numbers of more than eight bytes. Then magnetar_wire decodes the
batch, which also finds the error in a malformed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.array_builders import build_binary_slices
from magnetar_spark.arrow.properties import PropertyColumn
from magnetar_spark.arrow.record_bounds import RecordBounds, find_record_bounds
from magnetar_spark.arrow.varints import UnsupportedBatch, Words, decode_varints, locate_delimited, view_words

__all__ = ["BatchFields", "read_batch_fields"]

Offsets: TypeAlias = NDArray[np.int64]

_WORD: Final = 8
_BYTE: Final = np.uint64(0xFF)
_PROPERTY: Final = 0x0A
_KEY: Final = 0x12
_PAYLOAD_SIZE: Final = 0x18
_EVENT_TIME: Final = 0x28
_ORDERING_KEY: Final = 0x3A
_SEQUENCE_ID: Final = 0x40
_MAX_PROPERTIES: Final = 8


@dataclass(slots=True)
class BatchFields:
    """A batch's columns. None: the column was not requested, or no message has a value."""

    values: Any
    keys: Any
    properties: Any
    event_times: Words | None
    sequence_ids: Words | None
    # Which messages have a sequence id; None: all or none.
    has_sequence_id: NDArray[np.bool_] | None


def read_batch_fields(batch: bytes, count: int, *, values: bool, keys: bool, properties: bool) -> BatchFields | None:
    """Return the requested columns; None if this path does not support the batch."""
    bounds = find_record_bounds(batch, count)
    if bounds is None:
        return None
    try:
        return _FieldReader(batch, bounds).read_fields(values, keys, properties)
    except (UnsupportedBatch, pa.ArrowInvalid):  # the latter: text that is not UTF-8
        return None


class _FieldReader:
    def __init__(self, batch: bytes, bounds: RecordBounds) -> None:
        padded = batch + bytes(_WORD)
        # The word at each byte of the batch.
        self._words = view_words(padded, 0, len(batch) + 1, 1)
        self._buffer = pa.py_buffer(batch)
        self._bounds = bounds
        # The cursors. Invariant: starts <= cursors <= ends, for each message.
        self._cursors = bounds.starts.copy()
        self._ends = bounds.payloads

    def read_fields(self, values: bool, keys: bool, properties: bool) -> BatchFields:
        bounds = self._bounds
        found = PropertyColumn(self._buffer, self._words, len(self._cursors))
        for _ in range(_MAX_PROPERTIES):
            having = self._find_messages_at(_PROPERTY)
            if having is None:
                break
            starts, ends = self._read_delimited(having)
            found.add_property(having, starts, ends)
        key = self._read_bytes_field(_KEY)
        sizes, present = self._read_number_field(_PAYLOAD_SIZE)
        if sizes is None or present is not None or (sizes.astype(np.int64) != bounds.ends - bounds.payloads).any():
            raise UnsupportedBatch
        times, _ = self._read_number_field(_EVENT_TIME)
        self._read_bytes_field(_ORDERING_KEY)
        ids, has_id = self._read_number_field(_SEQUENCE_ID)
        if (self._cursors != self._ends).any():
            raise UnsupportedBatch
        return BatchFields(
            build_binary_slices(self._buffer, bounds.payloads, bounds.ends) if values else None,
            self._build_text(*key) if keys and key is not None else None,
            found.build_maps() if properties else None,
            times,
            ids,
            has_id,
        )

    def _build_text(self, starts: Offsets, ends: Offsets, present: NDArray[np.bool_] | None) -> Any:
        """Return bytes that are valid UTF-8. Raises ArrowInvalid."""
        slices = build_binary_slices(self._buffer, starts, ends, present)
        slices.cast(pa.string())
        return slices

    def _find_messages_at(self, tag: int) -> Any:
        """Return an index of the messages whose cursor is at this tag; None: there are none."""
        cursors, ends = self._cursors, self._ends
        having = ((self._words[cursors] & _BYTE) == np.uint64(tag)) & (cursors < ends)
        if having.all():
            return slice(None)
        return having.nonzero()[0] if having.any() else None

    def _read_delimited(self, having: Any) -> tuple[Offsets, Offsets]:
        """Return where the contents of these messages' next field start and end, and move the cursors after it."""
        starts, ends = locate_delimited(self._words, self._cursors[having])
        if (ends > self._ends[having]).any():
            raise UnsupportedBatch
        self._cursors[having] = ends
        return starts, ends

    def _read_bytes_field(self, tag: int) -> tuple[Offsets, Offsets, NDArray[np.bool_] | None] | None:
        """Return where each message's bytes start and end, and which messages have the field, None if all have it."""
        having = self._find_messages_at(tag)
        if having is None:
            return None
        if isinstance(having, slice):
            return *self._read_delimited(having), None
        starts, ends = self._cursors.copy(), self._cursors.copy()
        starts[having], ends[having] = self._read_delimited(having)
        present = np.zeros(len(starts), np.bool_)
        present[having] = True
        return starts, ends, present

    def _read_number_field(self, tag: int) -> tuple[Words | None, NDArray[np.bool_] | None]:
        """Return each message's number, 0 without the field, and which messages have it, None if all or none have."""
        having = self._find_messages_at(tag)
        if having is None:
            return None, None
        cursors = self._cursors[having] + 1
        decoded = decode_varints(self._words[cursors])
        if decoded is None:
            raise UnsupportedBatch
        numbers, sizes = decoded
        cursors += sizes
        if (cursors > self._ends[having]).any():
            raise UnsupportedBatch
        self._cursors[having] = cursors
        if isinstance(having, slice):
            return numbers, None
        all_numbers = np.zeros(len(self._cursors), np.uint64)
        all_numbers[having] = numbers
        present = np.zeros(len(self._cursors), np.bool_)
        present[having] = True
        return all_numbers, present
