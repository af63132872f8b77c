"""Builds Arrow arrays: from the pieces of a column (rows.py), and from numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "MAX_TIMESTAMP_MS",
    "build_binary",
    "build_binary_slices",
    "build_fixed",
    "build_maps",
    "build_timestamps",
    "join_numbers",
    "repeat_each_text",
    "repeat_number",
    "repeat_text",
]

# 9999-12-31T23:59:59.999Z: the last millisecond in the range of Spark's TimestampType.
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999


def build_fixed(kind: Any, values: NDArray[Any], present: NDArray[np.bool_] | None = None) -> Any:
    """Return numbers without copying them, null where they are not `present`."""
    bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def build_timestamps(ms: NDArray[np.uint64], kind: Any, present: NDArray[np.bool_] | None = None) -> Any:
    """Convert milliseconds to timestamps in microseconds, null where they are not `present`."""
    micros = (ms * np.uint64(1000)).view(np.int64)
    return build_fixed(kind, micros, None if present is None or present.all() else present)


def build_binary(pieces: Sequence[Any]) -> Any:
    """Join the pieces of a binary column."""
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        return _copy_tables(pieces)
    return _concatenate([_build_binary_piece(piece) for piece in _merge_neighbours(pieces)], pa.binary())


def build_binary_slices(
    buffer: Any, starts: NDArray[np.int64], ends: NDArray[np.int64], present: NDArray[np.bool_] | None = None
) -> Any:
    """Return the bytes of a buffer from each start to its end, null where they are not `present`. Starts and ends
    increase, and slices do not overlap.

    Arrow copies each slice once: the buffer with all starts and ends as offsets is an array of slices and gaps by
    turns, of which every other element is taken.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = starts
    offsets[2::2] = ends
    gaps_and_slices = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    slices = gaps_and_slices.take(_odd_numbers(max(count - 1, 1).bit_length())[:count])
    if present is None:
        return slices
    bits = np.packbits(present, bitorder="little")
    return pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(bits), *slices.buffers()[1:]])


def build_maps(pieces: Sequence[Any]) -> Any:
    """Join the pieces of a column of maps."""
    kind = pa.map_(pa.string(), pa.string())
    return _concatenate([_build_map_piece(piece) for piece in _merge_neighbours(pieces)], kind)


def join_numbers(pieces: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Join the pieces of a column of numbers; 0 for rows without a value."""
    merged = _merge_neighbours(pieces)
    arrays = [np.zeros(piece, kind) if isinstance(piece, int) else np.asarray(piece, kind) for piece in merged]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def repeat_text(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def repeat_each_text(texts: Sequence[str], counts: Sequence[int]) -> Any:
    """Repeat each text `counts` times."""
    indexes = np.repeat(np.arange(len(texts), dtype=np.int32), counts)
    return pa.array(texts, pa.string()).take(pa.array(indexes))


def repeat_number(number: int, count: int) -> Any:
    """Repeat the number. A negative one stands for null."""
    if number < 0:
        return pa.nulls(count, pa.int32())
    return build_fixed(pa.int32(), np.full(count, number, np.int32))


def _copy_tables(pieces: Sequence[NDArray[Any]]) -> Any:
    """Join the payloads of tables, copying each once: into memory of Arrow, which reuses it, while numpy allocates it
    from the system each time."""
    sizes = [piece.dtype.itemsize for piece in pieces]
    counts = [len(piece) for piece in pieces]
    total = sum(size * count for size, count in zip(sizes, counts, strict=True))
    buffer = pa.allocate_buffer(total)
    out = np.frombuffer(buffer, np.uint8)
    at = 0
    for piece, size, count in zip(pieces, sizes, counts, strict=True):
        end = at + size * count
        out[at:end].view(piece.dtype)[:] = piece
        at = end
    rows = sum(counts)
    if sizes.count(sizes[0]) == len(sizes):
        offsets = np.arange(0, (rows + 1) * sizes[0], sizes[0], dtype=np.int32)
    else:
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.repeat(sizes, counts), out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), buffer])


def _build_binary_piece(piece: Any) -> Any:
    if isinstance(piece, int):
        return pa.nulls(piece, pa.binary())
    if isinstance(piece, np.ndarray):
        return _copy_tables([piece])
    if isinstance(piece, list):
        return pa.array([each.encode() if isinstance(each, str) else each for each in piece], pa.binary())
    return piece


def _build_map_piece(piece: Any) -> Any:
    if isinstance(piece, int):
        empty = pa.array([], pa.string())
        return pa.MapArray.from_arrays(pa.array(np.zeros(piece + 1, np.int32)), empty, empty)
    if not isinstance(piece, list):
        return piece
    offsets = np.zeros(len(piece) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, piece), np.int32, len(piece)), out=offsets[1:])
    names = pa.array(list(chain.from_iterable(piece)), pa.string())
    values = pa.array([value for each in piece for value in each.values()], pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)


def _merge_neighbours(pieces: Sequence[Any]) -> list[Any]:
    """Merge neighbours that are both lists, or both without values: an entry may be a single message."""
    if all(type(a) is not type(b) or not isinstance(a, (list, int)) for a, b in pairwise(pieces)):
        return list(pieces)
    merged: list[Any] = []
    is_own = False  # whether the last one is a list that was created here
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, int) and isinstance(last, int):
            merged[-1] = last + piece
        elif isinstance(piece, list) and isinstance(last, list):
            if not is_own:
                merged[-1] = last = list(last)
                is_own = True
            last.extend(piece)
        else:
            merged.append(piece)
            is_own = False
    return merged


def _concatenate(arrays: list[Any], kind: Any) -> Any:
    if not arrays:
        return pa.array([], kind)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


@lru_cache(maxsize=24)
def _odd_numbers(bits: int) -> Any:
    return pa.array(np.arange(1, 2 << bits, 2, dtype=np.int32))
