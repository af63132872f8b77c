"""Adds of a client in the bookie's process: by function calls, beside an open stream of adds.

The bookie offers this at its end of the stream (`Stream.in_process_api`), and a client in the same process may call it
instead of sending frames. There is still only one stream: adds are decided in the order in which they were sent, in
either way. So calls are not accepted while frames are in flight, or while the bookie does not read the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

__all__ = ["Answered", "InProcessAdds"]

# Called with the ledger id, the first entry id, the number of entries, and the status of all of them.
Answered = Callable[[int, int, int, int], object]


@runtime_checkable
class InProcessAdds(Protocol):
    """The end of an `add` stream in the bookie."""

    def set_answer_callback(self, on_answer: Answered) -> None:
        """Answer by this callback from now on, also to frames, and possibly within `add_run`."""

    def can_add(self, frames: int) -> bool:
        """Return whether `add_run` accepts entries now. `frames`: how many were sent."""

    def add_run(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> Sequence[int]:
        """Decide on these entries. Return those that were not accepted: they have to be sent in a frame."""

    def commit_adds(self) -> None:
        """Write the entries that were accepted."""
