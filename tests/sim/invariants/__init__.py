"""What must never happen, held against each step of a simulated run. The numbers are those of the checklist.

The checker shares no rules with the code that it watches: it has its own striping, its own reading of records, and what
it knows of acknowledged entries it hears from the writers' callbacks. `checker.py` is where the run reports to.

Each check counts how often it looked (`History.look`), under the items whose violation it would raise. Two items have
no check of their own, as what they forbid can't be seen from outside but by what comes of it: `SEEN_THROUGH`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.sim.invariants.checker import Checker
from tests.sim.invariants.history import Violation

__all__ = ["CLAIMED", "SEEN_THROUGH", "Checker", "Violation", "never_looked_at"]

# The items of which a check raises violations.
CLAIMED: Final = [str(item) for item in (*range(1, 14), *range(15, 19), *range(20, 24), *range(26, 30), 58, 62, 66)]
SEEN_THROUGH: Final = {
    "14": "1, 2 and 3: keeping an entry on one positive answer is a choice, which must lose and bring back nothing",
    "19": "18, 2 and 3: a writer that completes too early begins a fragment at the wrong entry, or too few copies",
}


def never_looked_at(looked: Iterable[str]) -> list[str]:
    """The claimed items which no look in a run, or in many, was at."""
    seen = {item for items in looked for item in items.split(", ")}
    return [item for item in CLAIMED if item not in seen]
