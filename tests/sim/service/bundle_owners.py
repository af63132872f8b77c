"""Check the owners of a namespace's bundles: at no time have two ranges a hash in common (OWN-1). A broker takes over
the bundle of a live broker only after that one's address has refused it (OWN-2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tests.sim.invariants.history import Violation
from tests.sim.process import Process

__all__ = ["check_bundles", "check_taken"]


def check_bundles(names: Sequence[str], look: Callable[[str], None]) -> None:
    """Names of owners' nodes, `0x00000000_0x40000000`: the upper end is out of the range, but for the last hash."""
    look("OWN-1")
    ranges = sorted((int(name[2:10], 16), int(name[13:], 16)) for name in names)
    for (lower, upper), (next_lower, next_upper) in itertools.pairwise(ranges):
        if next_lower < upper:
            raise Violation(
                "OWN-1",
                f"bundles {lower:#010x} … {upper:#010x} and {next_lower:#010x} … {next_upper:#010x} have owners both",
            )


def check_taken(path: str, owner: Process, by: Process, refused: bool, look: Callable[[str], None]) -> None:
    """`by` has deleted or replaced an ephemeral node of `owner`; `refused`: that one's address has refused it."""
    look("OWN-2")
    # A broker may do so to its own stale session.
    if not (refused or owner.dead or owner.name == by.name):
        raise Violation("OWN-2", f"{by.name} took {path} from {owner.name}, which is alive and has not refused it")
