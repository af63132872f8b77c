"""Which bookies a ledger is written to.

A placement decides and nothing else: who may be chosen at all (alive, writable, not failed lately) is its caller's
affair, and chance is handed in. Whatever knows more of the bookies, their racks say, is another `Placement`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar_wire.randomness import Randomness

__all__ = ["Placement", "SpreadPlacement"]


class Placement(Protocol):
    def new_ensemble(self, size: int, candidates: Sequence[str], randomness: Randomness) -> list[str]:
        """`size` of the candidates, slot by slot; all of them where there are fewer."""

    def replacement(self, ensemble: Sequence[str], candidates: Sequence[str], randomness: Randomness) -> str | None:
        """One of the candidates for a slot whose ensemble has these members in its other slots; None: there is none."""


class SpreadPlacement:
    """Any bookie is as good as any other: load spreads by chance."""

    def new_ensemble(self, size: int, candidates: Sequence[str], randomness: Randomness) -> list[str]:
        chosen = list(candidates)
        randomness.shuffle(chosen)
        return chosen[:size]

    def replacement(self, ensemble: Sequence[str], candidates: Sequence[str], randomness: Randomness) -> str | None:
        left = [candidate for candidate in candidates if candidate not in ensemble]
        return randomness.choice(left) if left else None
