"""Which of an ensemble's bookies hold an entry, and how many of them must answer.

Entry e of a ledger with ensemble size E and write quorum Qw lies in the Qw slots e, e + 1 … modulo E: its write set.
With E = Qw every bookie holds every entry; with E > Qw entries are striped over more bookies than hold each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Fragment", "Striping", "fragment_of"]


@dataclass(frozen=True, slots=True)
class Striping:
    """E ≥ Qw ≥ Qa ≥ 1."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise ValueError(
                f"invalid quorums: ensemble {self.ensemble_size}, write quorum {self.write_quorum}, ack "
                f"quorum {self.ack_quorum}: use ensemble >= write quorum >= ack quorum >= 1"
            )

    def write_set(self, entry_id: int) -> list[int]:
        """The slots that hold the entry, the first to be read from first."""
        return [(entry_id + place) % self.ensemble_size for place in range(self.write_quorum)]

    def holds(self, slot: int, entry_id: int) -> bool:
        return (slot - entry_id) % self.ensemble_size < self.write_quorum

    @property
    def fence_coverage(self) -> int:
        """So many of an ensemble's bookies fenced, and no ack quorum is left among the others."""
        return self.ensemble_size - self.ack_quorum + 1

    @property
    def read_coverage(self) -> int:
        """So many of a write set's bookies without the entry, and no ack quorum can ever have held it."""
        return self.write_quorum - self.ack_quorum + 1


@dataclass(frozen=True, slots=True)
class Fragment:
    """From this entry on, up to the next fragment, slot i is `bookies[i]`."""

    first_entry_id: int
    bookies: tuple[str, ...]


def fragment_of(fragments: Sequence[Fragment], entry_id: int) -> Fragment:
    """The fragment that holds the entry. `fragments` are in order, the first from entry 0."""
    for fragment in reversed(fragments):
        if fragment.first_entry_id <= entry_id:
            return fragment
    raise ValueError(f"no fragment contains entry {entry_id}")
