"""The end of a log, and what is written to it from then on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["tail"]

_LOOK_S: Final = 0.2


def tail(log: Path, lines: int, *, follow: bool) -> Iterator[str]:
    if not log.exists() and not follow:
        return
    while not log.exists():
        time.sleep(_LOOK_S)
    with log.open(errors="replace") as file:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=lines))
        started = ""
        while follow:
            started += file.readline()
            if started.endswith("\n"):
                yield started.rstrip("\n")
                started = ""
            else:
                time.sleep(_LOOK_S)
