"""The messages of one entry, before they are part of a record batch: a piece of each column.

A piece has the form from which its Arrow array is built fastest, when the pieces of several entries are joined
(array_builders.py):

    int             that many rows without a value: null, or for properties an empty map
    list            a Python object for each row
    numpy array     numbers; or the payloads of a table, as a view of the stored entry
    pyarrow array   values that Arrow copied from the entry
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["EntryFields", "Rows"]


class EntryFields:
    """The values that are the same for all messages of an entry."""

    __slots__ = ("broker_time_ms", "entry_id", "first_index", "ledger_id", "producer_name", "publish_time_ms")

    def __init__(
        self,
        ledger_id: int,
        entry_id: int,
        publish_time_ms: int,
        producer_name: str,
        broker_time_ms: int | None,
        first_index: int | None,
    ) -> None:
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.publish_time_ms = publish_time_ms
        self.producer_name = producer_name
        # None: the entry has no broker metadata. The index is that of the message with batch index 0.
        self.broker_time_ms = broker_time_ms
        self.first_index = first_index


@dataclass(slots=True, eq=False)
class Rows:
    count: int
    values: Any
    # A key is bytes, or text, which stands for its bytes in UTF-8.
    keys: Any
    properties: Any
    # In ms since 1970; 0: none.
    event_times: Any
    # An int: null, since the payload that has them was not decoded.
    sequence_ids: Any
    # -1: a message outside of a batch.
    batch_indexes: Any
    # The approximate size of the messages, by which the size of record batches is limited.
    bytes: int

    def slice(self, start: int, stop: int) -> Rows:
        if start == 0 and stop == self.count:
            return self
        return Rows(
            stop - start,
            _slice_piece(self.values, start, stop),
            _slice_piece(self.keys, start, stop),
            _slice_piece(self.properties, start, stop),
            _slice_piece(self.event_times, start, stop),
            _slice_piece(self.sequence_ids, start, stop),
            _slice_piece(self.batch_indexes, start, stop),
            self.bytes * (stop - start) // self.count,
        )


def _slice_piece(piece: Any, start: int, stop: int) -> Any:
    return stop - start if isinstance(piece, int) else piece[start:stop]
