"""The reads that share one lease of a topic's log.

A process that reads a topic again and again, as a driver that polls with batches does, has one lease of it for all of
its reads, so the number of leases is that of such processes. Each read still holds what it needs for as long as it
needs it: it has a ledger from which on it holds, and a time at which it ends, on the topic's owner's clock. The lease
holds from the first of these ledgers on, and until the last of these times.

    read A   from ledger 4 ├───────────────────┤
    read B   from ledger 7         ├───────────────────┤
    lease    from ledger   4 4 4 4 4 4 4 4 4 4 4 7 7 7 7 (ends)

The topic's node has the lease, and not its reads. The owner that took the topic over knows of them only that they hold
from the lease's ledger on: one read without an id stands for them, for the lease's full time. Any of them that is
renewed while that one lasts is a read of its own again, from the same ledger on.

**A read that has finished.** A read is made in parts, by tasks that know nothing of each other. Each says that its part
is finished; when all have said so the read is finished, and lasts for a quarter of its time more (`FINISHED_SHARE`). It
does not end at once, since the reader may read the same range again. A read whose parts are not all reported, because a
task failed or the owner changed, lasts for its full time.

A renewal gives a finished read half of its time (`RENEWED_SHARE`). The owner cannot tell why it is renewed. The reader
may read the range again, and then needs what every renewal promises, which is half of the time. Or the reader still
reads other topics and renews all that it has, and then the full time would undo the end of this read.

**Memory.** Where there are more than `MAX_READS`, the two that end nearest to each other become one without an id,
which holds what both held. Of pairs that are equally near the newest is chosen. Otherwise, with reads at equal
intervals, the oldest would absorb the next one each time and would never end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["FINISHED_SHARE", "MAX_PARTS", "MAX_READS", "RENEWED_SHARE", "LeaseReads"]

FINISHED_SHARE: Final = 0.25
RENEWED_SHARE: Final = 0.5
MAX_READS: Final = 20
MAX_PARTS: Final = 4096
_MS_PER_S: Final = 1000


@dataclass(frozen=True, slots=True)
class _Read:
    from_ledger_id: int
    lease_ms: int
    # On the owner's monotonic clock.
    until: float
    # One bit for each part that is finished.
    parts: int = 0
    # All of its parts were finished at some time; it stays so when the read is renewed.
    is_finished: bool = False


class LeaseReads:
    __slots__ = ("_numbers", "_reads")

    def __init__(self) -> None:
        # By id; those that stand for others have keys that are no ids.
        self._reads: dict[bytes | int, _Read] = {}
        self._numbers = itertools.count()

    # ── what there is ──

    def first_ledger_id(self, now: float) -> int | None:
        """The ledger from which on the reads hold; None: all have ended."""
        return min((read.from_ledger_id for read in self._standing(now)), default=None)

    def lease_ms(self, now: float) -> int:
        return max((read.lease_ms for read in self._standing(now)), default=0)

    @property
    def until(self) -> float:
        return max((read.until for read in self._reads.values()), default=0.0)

    @property
    def all_finished(self) -> bool:
        return all(read.is_finished for read in self._reads.values())

    def from_ledger_id(self, read_id: bytes, now: float) -> int | None:
        """The ledger from which on this read holds; None: it has ended."""
        read = self._reads.get(read_id)
        if read is not None:
            return read.from_ledger_id if now < read.until else None
        others = [one for key, one in self._reads.items() if isinstance(key, int) and now < one.until]
        return min((one.from_ledger_id for one in others), default=None)

    # ── what changes ──

    def add(self, read_id: bytes, from_ledger_id: int, lease_ms: int, now: float) -> None:
        """Add a read that holds for `lease_ms` from now on, or renew it: it holds what it held, too."""
        read = _Read(from_ledger_id, lease_ms, now + lease_ms / _MS_PER_S)
        known = self._reads.get(read_id)
        if known is not None and now < known.until:
            share = RENEWED_SHARE if known.is_finished else 1
            read = replace(
                known,
                from_ledger_id=min(from_ledger_id, known.from_ledger_id),
                lease_ms=max(lease_ms, known.lease_ms),
                until=max(known.until, now + share * lease_ms / _MS_PER_S),
            )
        self._reads[read_id] = read
        self._bound(now)

    def add_unknown(self, from_ledger_id: int, lease_ms: int, until: float) -> None:
        """One that stands for all that a lease was for."""
        self._reads[next(self._numbers)] = _Read(from_ledger_id, lease_ms, until)

    def finish_part(self, read_id: bytes, part: int, parts: int, now: float) -> None:
        read = self._reads.get(read_id)
        if read is None or now >= read.until:
            return
        read = replace(read, parts=read.parts | 1 << part)
        if read.parts.bit_count() >= parts:
            until = min(read.until, now + FINISHED_SHARE * read.lease_ms / _MS_PER_S)
            read = replace(read, parts=0, is_finished=True, until=until)
        self._reads[read_id] = read

    def end(self, read_id: bytes) -> None:
        self._reads.pop(read_id, None)

    def _standing(self, now: float) -> Iterator[_Read]:
        return (read for read in self._reads.values() if now < read.until)

    def _bound(self, now: float) -> None:
        if len(self._reads) <= MAX_READS:
            return
        self._reads = {key: read for key, read in self._reads.items() if now < read.until}
        while len(self._reads) > MAX_READS:
            by_end = sorted(self._reads, key=lambda key: self._reads[key].until)
            # `min` returns the first of several that are equal.
            pairs = reversed(list(itertools.pairwise(by_end)))
            nearest = min(pairs, key=lambda pair: self._reads[pair[1]].until - self._reads[pair[0]].until)
            one, other = (self._reads.pop(key) for key in nearest)
            self._reads[next(self._numbers)] = _Read(
                min(one.from_ledger_id, other.from_ledger_id),
                max(one.lease_ms, other.lease_ms),
                other.until,
                is_finished=one.is_finished and other.is_finished,
            )
