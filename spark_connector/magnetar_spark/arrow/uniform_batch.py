"""Batches that are tables (magnetar_wire.batch_codec.uniform_head): read column by column, where they stand.

Nothing is copied but the sequence ids. The payloads are a column of the table, `payload_bytes` wide and a record apart,
and are copied once: into the record batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from magnetar_spark.arrow.varints import Words, count_nonzero, masks, varints_of_length, words_at
from magnetar_wire.batch_codec.uniform_head import uniform_head

__all__ = ["read_uniform"]

_WORD = 8


def read_uniform(batch: bytes | memoryview, count: int) -> tuple[Any, Words | None] | None:
    """The payloads and the sequence ids, None where they have none; None if the batch is no table. Raises TooLarge."""
    head = uniform_head(batch, count)
    if head is None:
        return None
    head_bytes, payload_bytes, id_bytes = head
    record = head_bytes + payload_bytes
    if not _all_alike(batch, count, record, head_bytes - id_bytes):
        return None
    ids = None
    if id_bytes:
        if id_bytes > _WORD:
            return None
        ids = varints_of_length(_words(batch, head_bytes - id_bytes, count, record, id_bytes), id_bytes)
        if ids is None:
            return None
    if not payload_bytes:
        return [b""] * count, ids
    return np.ndarray((count,), _bytes_type(payload_bytes), batch, head_bytes, (record,)), ids


def _all_alike(batch: bytes | memoryview, count: int, record: int, width: int) -> bool:
    """Whether all records begin with the same `width` bytes."""
    if width > _WORD:
        columns = np.ndarray((count, width), np.uint8, batch, 0, (record, 1))
        return bool((columns == columns[0]).all())
    words = _words(batch, 0, count, record, width) & masks[width]
    return not count_nonzero(words != words[0])


def _words(batch: bytes | memoryview, offset: int, count: int, record: int, width: int) -> Words:
    """`width` bytes from `offset` on of each record, and whatever follows."""
    if offset + (count - 1) * record + _WORD <= len(batch):
        return words_at(batch, offset, count, record)
    padded = np.zeros((count, _WORD), np.uint8)
    padded[:, :width] = np.ndarray((count, width), np.uint8, batch, offset, (record, 1))
    return padded.view("<u8").ravel()


@lru_cache(maxsize=256)
def _bytes_type(size: int) -> np.dtype[Any]:
    return np.dtype(("V", size))
