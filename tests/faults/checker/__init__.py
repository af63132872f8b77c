"""The judge: reads the history of one run (history.md), and says what of it must not be.

It is written apart from what it judges, and imports nothing of it. Each of its rules is one file in `rules/`, and is
found by being there.

    python -m tests.faults.checker FOLDER
"""

from tests.faults.checker.history import BrokenHistory
from tests.faults.checker.judge import LIMIT_S, judge
from tests.faults.checker.verdict import Finding, Verdict

__all__ = ["LIMIT_S", "BrokenHistory", "Finding", "Verdict", "judge"]
