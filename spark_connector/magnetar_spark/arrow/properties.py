"""The properties of a batch's messages, as a map each.

They are gathered in turns: the first property of all messages that have one, then the second … A message that has a
name twice means the last; few do, so a batch in which one may is left to whoever reads message by message.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from magnetar_spark.arrow.cutting import cut
from magnetar_spark.arrow.unfit import Unfit
from magnetar_spark.arrow.varints import Words, masks, read_delimited

__all__ = ["Properties"]

Places = NDArray[np.int64]

_BYTE: Final = np.uint64(0xFF)
_NAME: Final = np.uint64(0x0A)
_VALUE: Final = np.uint64(0x12)
_WORD: Final = 8


class _Turn(NamedTuple):
    """Which messages have such a property, and where its name and its value start and end."""

    messages: Places
    name_starts: Places
    name_ends: Places
    value_starts: Places
    value_ends: Places


class Properties:
    def __init__(self, buffer: Any, words: Words, count: int) -> None:
        self._buffer = buffer
        self._words = words
        self._messages = np.arange(count)
        self._turns: list[_Turn] = []

    def add(self, here: Any, starts: Places, ends: Places) -> None:
        """The next property of the messages that `here` selects; each is name and value, in this order."""
        words = self._words
        if ((words[starts] & _BYTE) != _NAME).any() or (starts >= ends).any():
            raise Unfit
        name_starts, name_ends = read_delimited(words, starts)
        if (name_ends >= ends).any() or ((words[name_ends] & _BYTE) != _VALUE).any():
            raise Unfit
        value_starts, value_ends = read_delimited(words, name_ends)
        if (value_ends != ends).any():
            raise Unfit
        self._turns.append(_Turn(self._messages[here], name_starts, name_ends, value_starts, value_ends))

    def array(self) -> Any:
        """The maps; None if no message has any property. Raises ArrowInvalid for what is no text."""
        turns = self._turns
        if not turns:
            return None
        self._check_names()
        count = len(self._messages)
        if all(len(turn.messages) == count for turn in turns):
            joined = _Turn(*(np.stack(places, axis=1).ravel() for places in zip(*turns, strict=True)))
            offsets = np.arange(0, count * len(turns) + 1, len(turns), dtype=np.int32)
        else:
            joined = _Turn(*map(np.concatenate, zip(*turns, strict=True)))
            order = np.argsort(joined.messages, kind="stable")
            joined = _Turn(*(places[order] for places in joined))
            offsets = np.zeros(count + 1, np.int32)
            np.cumsum(np.bincount(joined.messages, minlength=count), out=offsets[1:])
        names = cut(self._buffer, joined.name_starts, joined.name_ends).cast(pa.string())
        values = cut(self._buffer, joined.value_starts, joined.value_ends).cast(pa.string())
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def _check_names(self) -> None:
        """That no message has two names that could be the same: of one length, and alike in their first bytes."""
        if len(self._turns) < 2:
            return
        seen: list[tuple[Places, Words]] = []
        for turn in self._turns:
            sizes = np.full(len(self._messages), -1)
            heads = np.zeros(len(self._messages), np.uint64)
            mine = turn.name_ends - turn.name_starts
            sizes[turn.messages] = mine
            heads[turn.messages] = self._words[turn.name_starts] & masks[np.minimum(mine, _WORD)]
            for other_sizes, other_heads in seen:
                if ((sizes == other_sizes) & (heads == other_heads) & (sizes >= 0)).any():
                    raise Unfit
            seen.append((sizes, heads))
