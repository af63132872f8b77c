"""What processes said of mistakes in them."""

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
    """One line of each, and how often it was said."""
    counts: Counter[str] = Counter()
    for path in logs:
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if _MISTAKES.search(line):
                # A traceback's last line says more than its first.
                behind = map(str.strip, lines[number + 1 : number + 200])
                error = next((more for more in behind if re.match(r"\w[\w.]*: ", more)), "")
                counts[f"{path.parent.name}/{path.name}: {line[:160]} {error[:160]}"] += 1
    return dict(counts.most_common(_SHOWN))


def is_to_be_expected(mistake: str) -> bool:
    """Of processes that are struck: it follows from a fault, and is no mistake of theirs."""
    return _EXPECTED.search(mistake) is not None
