"""Reads batches that are a table (magnetar_wire.batch_codec.uniform_head), column by column.

Only the sequence ids are copied. The payloads are a view: a column of the table, `payload_bytes` wide, with the size of
a record as stride. They are copied once, into the record batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from magnetar_spark.arrow.varints import Words, count_nonzero, decode_equal_varints, masks, view_words
from magnetar_wire.batch_codec.uniform_head import uniform_head

__all__ = ["read_uniform_batch"]

_WORD = 8


def read_uniform_batch(batch: bytes | memoryview, count: int) -> tuple[Any, Words | None] | None:
    """Return the payloads, and the sequence ids or None; None if the batch is not a table. Raises TooLarge."""
    head = uniform_head(batch, count)
    if head is None:
        return None
    head_bytes, payload_bytes, id_bytes = head
    record = head_bytes + payload_bytes
    if not _have_equal_heads(batch, count, record, head_bytes - id_bytes):
        return None
    ids = None
    if id_bytes:
        if id_bytes > _WORD:
            return None
        ids = decode_equal_varints(_view_words(batch, head_bytes - id_bytes, count, record, id_bytes), id_bytes)
        if ids is None:
            return None
    if not payload_bytes:
        return [b""] * count, ids
    return np.ndarray((count,), _bytes_type(payload_bytes), batch, head_bytes, (record,)), ids


def _have_equal_heads(batch: bytes | memoryview, count: int, record: int, width: int) -> bool:
    """Return whether all records begin with the same `width` bytes."""
    if width > _WORD:
        columns = np.ndarray((count, width), np.uint8, batch, 0, (record, 1))
        return bool((columns == columns[0]).all())
    words = _view_words(batch, 0, count, record, width) & masks[width]
    return not count_nonzero(words != words[0])


def _view_words(batch: bytes | memoryview, offset: int, count: int, record: int, width: int) -> Words:
    """Return the words at `offset` of each record. Bytes of a word after its first `width` are undefined."""
    if offset + (count - 1) * record + _WORD <= len(batch):
        return view_words(batch, offset, count, record)
    padded = np.zeros((count, _WORD), np.uint8)
    padded[:, :width] = np.ndarray((count, width), np.uint8, batch, offset, (record, 1))
    return padded.view("<u8").ravel()


@lru_cache(maxsize=256)
def _bytes_type(size: int) -> np.dtype[Any]:
    return np.dtype(("V", size))
