"""Pieces of a column (`rows`) as one Arrow array."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["LAST_MS", "binary", "fixed", "maps", "numbers", "one_number", "one_text", "repeated", "timestamps"]

# 9999-12-31T23:59:59.999Z: the last millisecond in the range of Spark's TimestampType.
LAST_MS: Final = 253_402_300_799_999


def fixed(kind: Any, values: NDArray[Any], present: NDArray[np.bool_] | None = None) -> Any:
    """Numbers as they are, null where they are not `present`."""
    bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def binary(pieces: Sequence[Any]) -> Any:
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        return _of_tables(pieces)
    return _joined([_binary_array(piece) for piece in _merged(pieces)], pa.binary())


def _of_tables(pieces: Sequence[NDArray[Any]]) -> Any:
    """Columns of tables, each payload copied once: into Arrow's own memory, which is used again and again, while
    numpy's comes fresh from the system each time."""
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


def _binary_array(piece: Any) -> Any:
    if isinstance(piece, int):
        return pa.nulls(piece, pa.binary())
    if isinstance(piece, np.ndarray):
        return _of_tables([piece])
    if isinstance(piece, list):
        return pa.array([each.encode() if isinstance(each, str) else each for each in piece], pa.binary())
    return piece


def maps(pieces: Sequence[Any]) -> Any:
    return _joined([_map_array(piece) for piece in _merged(pieces)], pa.map_(pa.string(), pa.string()))


def _map_array(piece: Any) -> Any:
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


def numbers(pieces: Sequence[Any], kind: Any) -> NDArray[Any]:
    """Numbers of all pieces; where a piece has none they are 0."""
    arrays = [np.zeros(piece, kind) if isinstance(piece, int) else np.asarray(piece, kind) for piece in _merged(pieces)]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def timestamps(ms: NDArray[np.uint64], kind: Any, present: NDArray[np.bool_] | None = None) -> Any:
    """Milliseconds as timestamps in microseconds; null where not `present`."""
    micros = (ms * np.uint64(1000)).view(np.int64)
    return fixed(kind, micros, None if present is None or present.all() else present)


def one_text(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def one_number(number: int, count: int) -> Any:
    """A number that is not negative; a negative one stands for none."""
    if number < 0:
        return pa.nulls(count, pa.int32())
    return fixed(pa.int32(), np.full(count, number, np.int32))


def repeated(values: Sequence[str], counts: Sequence[int]) -> Any:
    """Each text so many times."""
    places = np.repeat(np.arange(len(values), dtype=np.int32), counts)
    return pa.array(values, pa.string()).take(pa.array(places))


def _merged(pieces: Sequence[Any]) -> list[Any]:
    """Neighbours that are lists become one, and so do those that are nothing: an entry may be a single message."""
    if all(type(a) is not type(b) or not isinstance(a, (list, int)) for a, b in pairwise(pieces)):
        return list(pieces)
    merged: list[Any] = []
    own = False  # whether the last is a list made here
    for piece in pieces:
        last = merged[-1] if merged else None
        if isinstance(piece, int) and isinstance(last, int):
            merged[-1] = last + piece
        elif isinstance(piece, list) and isinstance(last, list):
            if not own:
                merged[-1] = last = list(last)
                own = True
            last.extend(piece)
        else:
            merged.append(piece)
            own = False
    return merged


def _joined(arrays: list[Any], kind: Any) -> Any:
    if not arrays:
        return pa.array([], kind)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
