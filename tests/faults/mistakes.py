"""What processes said of mistakes in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["mistakes_in"]

_MISTAKES: Final = re.compile(
    r"Traceback|never retrieved|was destroyed|never awaited|a fault of the loop|a fault of ours|stood still|MemoryError"
)
_SHOWN: Final = 20


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
