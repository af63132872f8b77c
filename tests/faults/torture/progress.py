"""Read new receipts from the histories while the run goes on, from where it was read before.

Only lines of receipts are parsed. An incomplete line is left for the next time.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

__all__ = ["Progress"]

_RECEIPT = b'"what":"receipt"'


class Progress:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By partition: when receipts came, in order.
        self._receipts: dict[str, list[float]] = defaultdict(list)
        self._read: dict[Path, int] = {}

    def read_on(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")):
            at = self._read.get(path, 0)
            if path.stat().st_size > at:
                self._read[path] = at + self._take_from(path, at)
        for times in self._receipts.values():
            times.sort()  # almost in order already

    def _take_from(self, path: Path, at: int) -> int:
        """How many bytes of whole lines there were."""
        with path.open("rb") as file:
            file.seek(at)
            new = file.read()
        whole = new.rfind(b"\n") + 1
        for line in new[:whole].splitlines():
            if _RECEIPT in line:
                fields = json.loads(line)
                if fields["what"] == "receipt":
                    self._receipts[fields["place"]].append(fields["at"])
        return whole

    def first_receipt_after(self, partition: str, at: float) -> float | None:
        times = self._receipts[partition]
        found = bisect_right(times, at)
        return times[found] if found < len(times) else None
