"""Batches of any messages, read field by field: of all messages at a time, and without an object for any.

A cursor stands in each message's metadata. Fields come in the order of their numbers, as every serialiser writes them,
so reading is one pass over the numbers: of the messages whose cursor stands at that field's tag, the field is read, and
their cursors are moved behind it. Eight bytes at the cursor, one word, hold the tag and all of most lengths and
numbers.

In the end every cursor must stand where its message's metadata ends, and every message must have the payload size by
which the records were told apart (`records`). Whatever else is there, fields in another order, twice or unknown,
flags that are rare, numbers of more than eight bytes, ends in None: the batch is read by magnetar_wire then, which also
says what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.cutting import cut
from magnetar_spark.arrow.properties import Properties
from magnetar_spark.arrow.record_bounds import Records, find_records
from magnetar_spark.arrow.unfit import Unfit
from magnetar_spark.arrow.varints import Words, read_delimited, read_varints, words_at

__all__ = ["Fields", "read_fields"]

Places = NDArray[np.int64]

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
class Fields:
    """A batch's columns, each as far as it was asked for; None: no message has any."""

    values: Any
    keys: Any
    properties: Any
    event_times: Words | None
    sequence_ids: Words | None
    # Whether each has a sequence id; None: all, or none has.
    has_sequence_id: NDArray[np.bool_] | None


def read_fields(batch: bytes, count: int, *, values: bool, keys: bool, properties: bool) -> Fields | None:
    records = find_records(batch, count)
    if records is None:
        return None
    try:
        return _Reader(batch, records).read(values, keys, properties)
    except (Unfit, pa.ArrowInvalid):  # the latter: text that is no UTF-8
        return None


class _Reader:
    def __init__(self, batch: bytes, records: Records) -> None:
        padded = batch + bytes(_WORD)
        self._words = words_at(padded, 0, len(batch) + 1, 1)
        self._buffer = pa.py_buffer(batch)
        self._records = records
        # Invariant: starts <= at <= ends, message by message.
        self._at = records.starts.copy()
        self._ends = records.payloads

    def read(self, values: bool, keys: bool, properties: bool) -> Fields:
        records = self._records
        found = Properties(self._buffer, self._words, len(self._at))
        for _ in range(_MAX_PROPERTIES):
            here = self._standing_at(_PROPERTY)
            if here is None:
                break
            start, end = self._delimited(here)
            found.add(here, start, end)
        key = self._bytes_field(_KEY)
        sizes, present = self._number_field(_PAYLOAD_SIZE)
        if sizes is None or present is not None or (sizes.astype(np.int64) != records.ends - records.payloads).any():
            raise Unfit
        times, _ = self._number_field(_EVENT_TIME)
        self._bytes_field(_ORDERING_KEY)
        ids, has_id = self._number_field(_SEQUENCE_ID)
        if (self._at != self._ends).any():
            raise Unfit
        return Fields(
            cut(self._buffer, records.payloads, records.ends) if values else None,
            self._text(*key) if keys and key is not None else None,
            found.array() if properties else None,
            times,
            ids,
            has_id,
        )

    def _text(self, starts: Places, ends: Places, present: NDArray[np.bool_] | None) -> Any:
        """Bytes that are checked to be text."""
        pieces = cut(self._buffer, starts, ends, present)
        pieces.cast(pa.string())
        return pieces

    def _standing_at(self, tag: int) -> Any:
        """The messages whose next field has this tag; None: there are none."""
        at, ends = self._at, self._ends
        here = ((self._words[at] & _BYTE) == np.uint64(tag)) & (at < ends)
        if here.all():
            return slice(None)
        return here.nonzero()[0] if here.any() else None

    def _delimited(self, here: Any) -> tuple[Places, Places]:
        """Where the bytes of these messages' next field start and end; the cursors are moved behind."""
        start, end = read_delimited(self._words, self._at[here])
        if (end > self._ends[here]).any():
            raise Unfit
        self._at[here] = end
        return start, end

    def _bytes_field(self, tag: int) -> tuple[Places, Places, NDArray[np.bool_] | None] | None:
        """Where each message's bytes start and end, and whether it has any at all, None if all have."""
        here = self._standing_at(tag)
        if here is None:
            return None
        if isinstance(here, slice):
            return *self._delimited(here), None
        starts, ends = self._at.copy(), self._at.copy()
        starts[here], ends[here] = self._delimited(here)
        present = np.zeros(len(starts), np.bool_)
        present[here] = True
        return starts, ends, present

    def _number_field(self, tag: int) -> tuple[Words | None, NDArray[np.bool_] | None]:
        """Each message's number, 0 if it has none; and whether it has one, None if all or none have."""
        here = self._standing_at(tag)
        if here is None:
            return None, None
        at = self._at[here] + 1
        read = read_varints(self._words[at])
        if read is None:
            raise Unfit
        numbers, sizes = read
        at += sizes
        if (at > self._ends[here]).any():
            raise Unfit
        self._at[here] = at
        if isinstance(here, slice):
            return numbers, None
        every = np.zeros(len(self._at), np.uint64)
        every[here] = numbers
        present = np.zeros(len(self._at), np.bool_)
        present[here] = True
        return every, present
