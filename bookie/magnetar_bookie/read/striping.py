"""Striping: which bookies of an ensemble store an entry, and how many answers a quorum needs.

Entry e of a ledger with ensemble size E and write quorum Qw is stored in the Qw slots e, e + 1 … modulo E: its write
set. With E = Qw every bookie stores every entry. With E > Qw entries are striped over the ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Fragment", "Striping", "find_fragment"]


@dataclass(frozen=True, slots=True)
class Striping:
    """The quorums of a ledger: E ≥ Qw ≥ Qa ≥ 1."""

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
        """Return the slots that store the entry, in the order in which readers try them."""
        return [(entry_id + offset) % self.ensemble_size for offset in range(self.write_quorum)]

    def holds(self, slot: int, entry_id: int) -> bool:
        """Return whether the slot is in the entry's write set."""
        return (slot - entry_id) % self.ensemble_size < self.write_quorum

    @property
    def fence_coverage(self) -> int:
        """How many bookies of an ensemble must be fenced, so that the others can't form an ack quorum."""
        return self.ensemble_size - self.ack_quorum + 1

    @property
    def read_coverage(self) -> int:
        """How many bookies of a write set must lack an entry, so that no ack quorum can have stored it."""
        return self.write_quorum - self.ack_quorum + 1


@dataclass(frozen=True, slots=True)
class Fragment:
    """The ensemble of the entries from `first_entry_id` up to the next fragment: slot i is `bookies[i]`."""

    first_entry_id: int
    bookies: tuple[str, ...]


def find_fragment(fragments: Sequence[Fragment], entry_id: int) -> Fragment:
    """Return the fragment that contains the entry. `fragments` are in order, and the first begins at entry 0."""
    for fragment in reversed(fragments):
        if fragment.first_entry_id <= entry_id:
            return fragment
    raise ValueError(f"no fragment contains entry {entry_id}")
