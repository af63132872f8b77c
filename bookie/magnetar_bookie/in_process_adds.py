"""Adds of a client in the bookie's process: by calls, beside a stream of adds that stays open meanwhile.

The bookie puts this at its end of the stream (`Stream.in_process_api`). A client that finds it there may call it
instead of sending frames. It is still the one stream: adds are decided in the order in which they were sent, by either
way. So no call is accepted while frames are in flight, or while the bookie doesn't read the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Answered", "InProcessAdds"]

# Ledger id, the first of the entries, how many there are, and the answer to each.
Answered = Callable[[int, int, int, int], object]


@runtime_checkable
class InProcessAdds(Protocol):
    def begin(self, answered: Answered) -> None:
        """Answers leave by this call from now on, those to frames, too; some from within `take`."""

    def ready(self, frames: int) -> bool:
        """Whether it takes something now. `frames`: that were sent."""

    def take(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> Sequence[int]:
        """Decides on these entries. Returns those that it did not take: they have to come in a frame."""

    def taken(self) -> None:
        """That was all for the moment."""
