"""The messages of one entry, on their way into a record batch: a piece of each column.

A piece is whatever its column is quickest made of later, when several entries' become one array:

    int             so many rows that have nothing there: null, or for properties an empty map
    list            a Python object each
    numpy array     numbers; or, of payloads, a table's column where it stands in the entry: nothing was copied yet
    pyarrow array   cut out by Arrow

Pieces of all kinds can be parted; all else is the matter of whoever joins them (`row_arrays`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Rows", "part"]


@dataclass(slots=True, eq=False)
class Rows:
    count: int
    values: Any
    # A key is bytes, or text of which the bytes are meant.
    keys: Any
    properties: Any
    # In ms since 1970; 0: none.
    event_times: Any
    # An int: null, since the payload that has them was not decoded.
    sequence_ids: Any
    # The messages' places in their batch; -1: it is none.
    places: Any
    # About as many as the messages take, by which record batches are kept small.
    bytes: int

    def part(self, start: int, stop: int) -> Rows:
        if start == 0 and stop == self.count:
            return self
        return Rows(
            stop - start,
            part(self.values, start, stop),
            part(self.keys, start, stop),
            part(self.properties, start, stop),
            part(self.event_times, start, stop),
            part(self.sequence_ids, start, stop),
            part(self.places, start, stop),
            self.bytes * (stop - start) // self.count,
        )


def part(piece: Any, start: int, stop: int) -> Any:
    return stop - start if isinstance(piece, int) else piece[start:stop]
