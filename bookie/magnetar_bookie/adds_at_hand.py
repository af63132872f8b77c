"""How adds reach a bookie in the same process: by calls, beside a stream of adds that stands for both ends' lives.

The bookie puts this at its end of the stream (`Stream.at_hand`); a client that finds it there may hand records over
instead of sending frames. It is still the one stream: what comes by either way is decided in the order in which it was
sent, so nothing is taken by hand while frames are on their way, and nothing while the bookie would not read on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["AddsAtHand", "Answered"]

# Ledger id, the first of the entries, how many there are, and the answer to each.
Answered = Callable[[int, int, int, int], object]


@runtime_checkable
class AddsAtHand(Protocol):
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
