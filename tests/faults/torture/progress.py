"""Read new receipts, and messages of some subscriptions, from the histories while the run goes on, from where it was
read before.

Only their lines are parsed. An incomplete line is left for the next time.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Progress"]

_RECEIPT, _GOT = b'"what":"receipt"', b'"what":"got"'


class Progress:
    def __init__(self, folder: Path, subscriptions: Sequence[str] = ()) -> None:
        """`subscriptions`: those whose messages are read."""
        self._folder = folder
        self._consumers = tuple(f'"{name}#'.encode() for name in subscriptions)
        # By subscription: when a message came last.
        self._got: dict[str, float] = defaultdict(float)
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
        """Read new lines of the file, and return the number of bytes of whole lines."""
        with path.open("rb") as file:
            file.seek(at)
            new = file.read()
        whole = new.rfind(b"\n") + 1
        for line in new[:whole].splitlines():
            if _RECEIPT in line:
                fields = json.loads(line)
                if fields["what"] == "receipt":
                    self._receipts[fields["place"]].append(fields["at"])
            elif _GOT in line and any(consumer in line for consumer in self._consumers):
                fields = json.loads(line)
                name = fields["consumer"].partition("#")[0]
                self._got[name] = max(self._got[name], fields["since"])
        return whole

    def got_after(self, subscription: str, at: float) -> bool:
        """Whether a message came that was waited for since then or later."""
        return self._got[subscription] >= at

    def first_receipt_after(self, partition: str, at: float) -> float | None:
        times = self._receipts[partition]
        found = bisect_right(times, at)
        return times[found] if found < len(times) else None
