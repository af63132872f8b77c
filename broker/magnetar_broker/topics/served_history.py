"""Who was served last of a subscription with one active consumer.

What a consumer had before another's turn it may not acknowledge any more, and a client that was away meanwhile learns
so from the number of turns, which the cursor has. One of the same name is the same, connected again: nobody else was
served. The name is kept in memory, also while there are no consumers. Another broker does not know it, and may know
an older number: then an acknowledgement of what a consumer has processed counts though another has had its turn,
which is right, as no turn undoes anything.
"""

from __future__ import annotations

__all__ = ["ServedHistory"]


class ServedHistory:
    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = ""

    def served(self, name: str) -> bool:
        """Whether it was another one before."""
        before, self._last = self._last, name
        return before not in ("", name)

    def __bool__(self) -> bool:
        """Somebody was."""
        return bool(self._last)
