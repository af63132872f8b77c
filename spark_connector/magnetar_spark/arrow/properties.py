"""Builds the column `properties` of a batch, a map for each message.

Properties are added in turns: the first property of all messages that have one, then the second … If a message has a
name twice, the last one counts. That is rare, so a batch in which a message may have one is decoded message by message.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.array_builders import build_binary_slices
from magnetar_spark.arrow.varints import UnsupportedBatch, Words, locate_delimited, masks

__all__ = ["PropertyColumn"]

Offsets: TypeAlias = NDArray[np.int64]

_BYTE: Final = np.uint64(0xFF)
_NAME: Final = np.uint64(0x0A)
_VALUE: Final = np.uint64(0x12)
_WORD: Final = 8


class _Turn(NamedTuple):
    """Which messages have a property in this turn, and where its name and its value start and end."""

    messages: Offsets
    name_starts: Offsets
    name_ends: Offsets
    value_starts: Offsets
    value_ends: Offsets


class PropertyColumn:
    def __init__(self, buffer: Any, words: Words, count: int) -> None:
        self._buffer = buffer
        self._words = words
        self._messages = np.arange(count)
        self._turns: list[_Turn] = []

    def add_property(self, having: Any, starts: Offsets, ends: Offsets) -> None:
        """Add the next property of the messages that the index `having` selects. Its name is before its value. Raises
        UnsupportedBatch."""
        words = self._words
        if ((words[starts] & _BYTE) != _NAME).any() or (starts >= ends).any():
            raise UnsupportedBatch
        name_starts, name_ends = locate_delimited(words, starts)
        if (name_ends >= ends).any() or ((words[name_ends] & _BYTE) != _VALUE).any():
            raise UnsupportedBatch
        value_starts, value_ends = locate_delimited(words, name_ends)
        if (value_ends != ends).any():
            raise UnsupportedBatch
        self._turns.append(_Turn(self._messages[having], name_starts, name_ends, value_starts, value_ends))

    def build_maps(self) -> Any:
        """Return the maps; None if no message has a property. Raises ArrowInvalid if text is not UTF-8."""
        turns = self._turns
        if not turns:
            return None
        self._check_names()
        count = len(self._messages)
        if all(len(turn.messages) == count for turn in turns):
            joined = _Turn(*(np.stack(columns, axis=1).ravel() for columns in zip(*turns, strict=True)))
            offsets = np.arange(0, count * len(turns) + 1, len(turns), dtype=np.int32)
        else:
            joined = _Turn(*map(np.concatenate, zip(*turns, strict=True)))
            order = np.argsort(joined.messages, kind="stable")
            joined = _Turn(*(column[order] for column in joined))
            offsets = np.zeros(count + 1, np.int32)
            np.cumsum(np.bincount(joined.messages, minlength=count), out=offsets[1:])
        names = build_binary_slices(self._buffer, joined.name_starts, joined.name_ends).cast(pa.string())
        values = build_binary_slices(self._buffer, joined.value_starts, joined.value_ends).cast(pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def _check_names(self) -> None:
        """Raise UnsupportedBatch if two names of a message may be equal: same length, and same first bytes."""
        if len(self._turns) < 2:
            return
        seen: list[tuple[Offsets, Words]] = []
        for turn in self._turns:
            sizes = np.full(len(self._messages), -1)
            heads = np.zeros(len(self._messages), np.uint64)
            name_sizes = turn.name_ends - turn.name_starts
            sizes[turn.messages] = name_sizes
            heads[turn.messages] = self._words[turn.name_starts] & masks[np.minimum(name_sizes, _WORD)]
            for other_sizes, other_heads in seen:
                if ((sizes == other_sizes) & (heads == other_heads) & (sizes >= 0)).any():
                    raise UnsupportedBatch
            seen.append((sizes, heads))
