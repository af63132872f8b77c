"""Print a measurement: a line each second, and a total at the end.

One thread counts messages in a `Meter`. The report's own thread takes the counts of each second out of it, so that none
is printed twice or lost.

A terminal too narrow for all percentiles gets fewer of them, since wrapped lines are hard to compare.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Any, Final, Self

from magnetar_cli.perf.latencies import PERCENTILES, Latencies

__all__ = ["Meter", "Report"]

_LABELS: Final = tuple(f"p{percent:g}" for percent in PERCENTILES)
# The length of a line with all percentiles, and those that fit into 80 columns.
_WIDE: Final = 125
_NARROW_LABELS: Final = ("p50", "p99")


class _Figures:
    """The counts of some time."""

    __slots__ = ("bytes", "failed", "latencies", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.failed = 0
        self.latencies = Latencies()

    def add(self, other: _Figures) -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.failed += other.failed
        self.latencies.add(other.latencies)


class Meter:
    """Counts messages and their latencies on one thread, while another one takes the figures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current = _Figures()
        self._taken = _Figures()
        self.began = time.perf_counter()
        self.last_at = self.began

    def begin(self) -> None:
        """Begin the measured time now."""
        self.began = self.last_at = time.perf_counter()

    def count(self, messages: int, payload_bytes: int, latency_s: float | None) -> None:
        with self._lock:
            figures = self._current
            figures.messages += messages
            figures.bytes += payload_bytes
            self.last_at = time.perf_counter()
            if latency_s is not None:
                figures.latencies.observe(max(latency_s, 0.0), messages)

    def observe(self, latency_s: float, messages: int) -> None:
        """Add a latency, if the messages of one `count` have several."""
        with self._lock:
            self._current.latencies.observe(max(latency_s, 0.0), messages)

    def fail(self, messages: int) -> None:
        with self._lock:
            self._current.failed += messages

    def take_figures(self) -> _Figures:
        """Return the figures since the last call."""
        with self._lock:
            taken, self._current = self._current, _Figures()
            self._taken.add(taken)
            return taken

    def total(self) -> _Figures:
        self.take_figures()
        return self._taken


class Report:
    """Prints a line per second while its block runs. `print_total` prints the total after it."""

    def __init__(self, meter: Meter, *, as_json: bool, interval_s: float = 1.0) -> None:
        self._meter = meter
        self._as_json = as_json
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perf report", daemon=True)
        self.pipe_closed = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        last = self._meter.began
        while not self._ended.wait(max(0.0, last + self._interval_s - time.perf_counter())):
            now = time.perf_counter()
            figures = self._meter.take_figures()
            try:
                self._print({"second": round(now - self._meter.began, 1)}, figures, now - last)
            except OSError:
                self.pipe_closed.set()
                return
            last = now

    def print_total(self, **more: Any) -> None:
        """Print the total with further counts. Raise BrokenPipeError."""
        figures = self._meter.total()
        seconds = max(self._meter.last_at - self._meter.began, 1e-9)
        if self._as_json:
            first = {"total": True, "seconds": round(seconds, 3), "messages": figures.messages}
            self._print({**first, **more}, figures, seconds)
            return
        print(f"{figures.messages:,} messages in {seconds:.2f} s" + "".join(f", {n} {v}" for n, v in more.items() if v))
        self._print({}, figures, seconds)

    def _print(self, first: dict[str, Any], figures: _Figures, seconds: float) -> None:
        rate, megabytes = figures.messages / seconds, figures.bytes / seconds / 1e6
        spread = [figures.latencies.percentile(percent) for percent in PERCENTILES]
        known = spread[0] is not None
        if self._as_json:
            fields: dict[str, Any] = {**first, "messages_per_s": round(rate, 1), "mb_per_s": round(megabytes, 3)}
            if known:
                fields["latency_ms"] = {
                    name: round((value or 0.0) * 1000, 3)
                    for name, value in zip((*_LABELS, "max"), (*spread, figures.latencies.max_s), strict=True)
                }
            fields["failed"] = figures.failed
            print(json.dumps(fields), flush=True)
            return
        if sys.stdout is None:
            return
        narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE
        line = f"{first['second']:>7.1f} s" if first else "  total  "
        rate_width, megabytes_width, digits = (9, 6, 1) if narrow else (12, 9, 2)
        line += f" {rate:>{rate_width},.0f} messages/s {megabytes:>{megabytes_width}.1f} MB/s"
        if known:
            named = [*zip(_LABELS, spread, strict=True), ("max", figures.latencies.max_s)]
            shown = [
                f"{name} {(value or 0.0) * 1000:.{digits}f}"
                for name, value in named
                if not narrow or name in (*_NARROW_LABELS, "max")
            ]
            line += f"  ms: {', '.join(shown)}"
        if figures.failed:
            line += f"   {figures.failed:,} failed"
        print(line, flush=True)
