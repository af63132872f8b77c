"""What must never happen, held against each step of a simulated run. The numbers are those of the checklist.

The checker shares no rules with the code that it watches: it has its own striping, its own reading of records, and what
it knows of acknowledged entries it hears from the writers' callbacks. `checker.py` is where the run reports to.
"""

from __future__ import annotations

from tests.sim.invariants.checker import Checker
from tests.sim.invariants.history import Violation

__all__ = ["Checker", "Violation"]
