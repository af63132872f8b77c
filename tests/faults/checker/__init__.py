"""The checker: read the history of one torture run (history.md) and report each violation of the guarantees.

It imports nothing of the product. Each rule is a file in `rules/`, which is found by its folder.
"""

from tests.faults.checker.history import BrokenHistory
from tests.faults.checker.judge import LIMIT_S, judge
from tests.faults.checker.verdict import Finding, Verdict

__all__ = ["LIMIT_S", "BrokenHistory", "Finding", "Verdict", "judge"]
