"""Find the mistakes in processes' output: tracebacks, tasks that died, blocked loops."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["is_to_be_expected", "mistakes_in"]

_MISTAKES: Final = re.compile(
    r"Traceback|never retrieved|was destroyed|never awaited|a fault of the loop|a fault of ours|"
    r"an internal error: |stood still|MemoryError"
)
# Of who was paused, or shares a busy machine.
_EXPECTED: Final = re.compile(r"stood still")
_SHOWN: Final = 100


def mistakes_in(logs: Iterable[Path]) -> dict[str, int]:
    """One line of each mistake, and how often it occurred."""
    counts: Counter[str] = Counter()
    for path in logs:
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if _MISTAKES.search(line):
                # A traceback's last line is more useful than its first.
                behind = map(str.strip, lines[number + 1 : number + 200])
                error = next((more for more in behind if re.match(r"\w[\w.]*: ", more)), "")
                counts[f"{path.parent.name}/{path.name}: {line[:160]} {error[:160]}"] += 1
    return dict(counts.most_common(_SHOWN))


def is_to_be_expected(mistake: str) -> bool:
    """Whether a process with injected faults may log it: it follows from a fault, and is no mistake."""
    return _EXPECTED.search(mistake) is not None
