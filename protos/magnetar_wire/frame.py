"""Frames: many entries in one message of a stream. `magnetar_protos/frame.proto` is the format.

`FrameBuilder` is the sender's rule. It accepts entries until the frame is full; then the sender waits for the stream.
`decode_frame` is the receiver's. It compares a frame with the limits and with its own counts before an entry is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_wire.errors import InvalidMessage, MalformedFrame, TooLarge
from magnetar_wire.limits import FRAME_FILL_BYTES, MAX_ENTRY_BYTES, MAX_FRAME_BYTES, MAX_FRAME_ENTRIES
from magnetar_wire.protobuf_fields import encode_bytes_fields

__all__ = ["DecodedRun", "FrameBuilder", "decode_frame", "find_entry_ids"]

_MAX_NUMBER: Final = 2**64 - 1
_ENTRIES: Final = Frame.ENTRIES_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class DecodedRun:
    """Entries of one channel, numbered `first`, `first + 1` …"""

    channel: int
    first: int
    entries: list[bytes]


class FrameBuilder:
    """Collects the entries of the next frame.

    Every receiver accepts the frames that it builds. The entries have at most MAX_ENTRY_BYTES, or `fill_bytes`. Each
    entry adds at most 40 bytes to that: a run of its own and two tags. 10,000 times that is below MAX_FRAME_BYTES.
    """

    def __init__(
        self,
        fill_bytes: int = FRAME_FILL_BYTES,
        max_entries: int = MAX_FRAME_ENTRIES,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
    ) -> None:
        if not 0 < fill_bytes <= MAX_ENTRY_BYTES:
            raise ValueError(f"a frame can't be filled up to {fill_bytes} bytes: use 1 … {MAX_ENTRY_BYTES}")
        if not 0 < max_entries <= MAX_FRAME_ENTRIES:
            raise ValueError(f"a frame can't have at most {max_entries} entries: use 1 … {MAX_FRAME_ENTRIES}")
        self._fill_bytes = fill_bytes
        self._max_entries = max_entries
        # Ledger records are entries with a header, and so a little larger.
        self._max_entry_bytes = max_entry_bytes
        self._runs: list[Run] = []
        self._entries: list[bytes] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        return self._bytes >= self._fill_bytes or len(self._entries) >= self._max_entries

    @property
    def run_count(self) -> int:
        """The number of runs. What a service sends beside the frame has one element for each."""
        return len(self._runs)

    def try_add_entry(self, channel: int, number: int, entry: bytes, *, new_run: bool = False) -> bool:
        """Append an entry. Return False, and change nothing, if it does not fit.

        An empty frame accepts any entry up to the maximum size. The entry joins the last run if it has that channel's
        next number, unless `new_run` is set: then the sender describes it separately, beside the frame.
        """
        if len(entry) > self._max_entry_bytes:
            raise TooLarge(f"the entry has {len(entry)} bytes, above the limit of {self._max_entry_bytes}")
        if not (0 <= channel <= _MAX_NUMBER and 0 <= number <= _MAX_NUMBER):
            raise InvalidMessage(f"channel {channel} or number {number} is out of range: use 0 … 2^64 - 1")
        if self._entries and (self.is_full or self._bytes + len(entry) > max(self._fill_bytes, self._max_entry_bytes)):
            return False
        last = self._runs[-1] if self._runs else None
        if not new_run and last is not None and last.channel == channel and last.first + last.count == number:
            last.count += 1
        else:
            self._runs.append(Run(channel=channel, first=number, count=1))
        self._entries.append(entry)
        self._bytes += len(entry)
        return True

    def build_parts(self) -> list[bytes]:
        """Return the encoded frame in parts, to be joined with the rest of a message, and clear the builder."""
        parts = [Frame(runs=self._runs).SerializeToString(), *encode_bytes_fields(_ENTRIES, self._entries)]
        self._runs, self._entries, self._bytes = [], [], 0
        return parts


def decode_frame(
    data: bytes | Frame, max_entries: int = MAX_FRAME_ENTRIES, max_entry_bytes: int = MAX_ENTRY_BYTES
) -> list[DecodedRun]:
    """Return the runs of a frame, which is encoded or a field of a larger message."""
    frame = _parse(data) if isinstance(data, bytes) else data
    if len(frame.entries) > max_entries:
        raise TooLarge(f"the frame has {len(frame.entries)} entries, above the limit of {max_entries}")
    entries = list(frame.entries)
    largest = max(map(len, entries), default=0)
    if largest > max_entry_bytes:
        raise TooLarge(f"the frame has an entry of {largest} bytes, above the limit of {max_entry_bytes}")
    return list(_split_runs(frame, entries))


def find_entry_ids(first: int, gaps: Sequence[int], count: int) -> Sequence[int]:
    """Return the ids of a run's entries: the first one, and for each other one how many ids it skips. No gaps: the ids
    are consecutive. Raises MalformedFrame."""
    if gaps and len(gaps) != count - 1:
        raise MalformedFrame(f"a run of {count} entries has {len(gaps)} gaps")
    if first + sum(gaps) + count - 1 > _MAX_NUMBER:
        raise MalformedFrame(f"the entries of a run begin at {first}, and would exceed 2^64 - 1")
    if not gaps:
        return range(first, first + count)
    return list(accumulate(gaps, lambda entry_id, gap: entry_id + gap + 1, initial=first))


def _parse(data: bytes) -> Frame:
    if len(data) > MAX_FRAME_BYTES:
        raise TooLarge(f"the frame has {len(data)} bytes, above the limit of {MAX_FRAME_BYTES}")
    try:
        return Frame.FromString(data)
    except DecodeError as error:
        raise MalformedFrame(f"the frame can't be decoded: {error}") from None


def _split_runs(frame: Frame, entries: list[bytes]) -> Iterator[DecodedRun]:
    if len(frame.runs) > len(entries) or sum(run.count for run in frame.runs) != len(entries):
        raise MalformedFrame(f"the frame's runs do not add up to its {len(entries)} entries")
    at = 0
    for run in frame.runs:
        if not run.count:
            raise MalformedFrame("the frame has a run without entries")
        if run.first > _MAX_NUMBER - run.count + 1:
            raise MalformedFrame(f"a run of {run.count} entries starts at {run.first}, and would exceed 2^64 - 1")
        yield DecodedRun(run.channel, run.first, entries[at : at + run.count])
        at += run.count
