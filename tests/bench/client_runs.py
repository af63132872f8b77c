"""Runs a client program, such as tests/peers/clients.py, in a process of its own, and reads the figures that it prints.

Client libraries log to standard output too (pulsar-client's C++ core does): a line that is no figure is repeated on
standard error and has no effect on the figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["Figures", "run_client", "run_program"]

_CLIENTS: Final = Path(__file__).resolve().parents[1] / "peers" / "clients.py"
_TIMEOUT_S: Final = 900

# By bench and bytes of a message: its figures, or `error`.
Figures = dict[tuple[str, int], dict[str, Any]]


def run_client(client: Sequence[str], benches: Sequence[tuple[str, int]], scale: float) -> Figures:
    """Run clients.py with `client`, its arguments for the server; the last of them is the label."""
    names = ",".join(dict.fromkeys(name for name, _ in benches))
    command = [sys.executable, str(_CLIENTS), *client, "--only", names, "--scale", str(scale)]
    figures, failure = run_program(command, client[-1])
    results: Figures = {(one["bench"], one["size"]): one for one in figures if "size" in one}
    for bench in benches:
        results.setdefault(bench, {"error": failure})
    return results


def run_program(command: Sequence[str], label: str) -> tuple[list[dict[str, Any]], str]:
    """Run a client program. Return the figures that it printed, and an error text for those that it did not print."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    results = []
    for line in ended.stdout.splitlines():
        figures = _parse_figures(line)
        if figures is None:
            print(f"{label} logged: {line}", file=sys.stderr, flush=True)
        else:
            results.append(figures)
    last_words = ended.stderr.strip().splitlines()[-1:] or ["without a reason"]
    return results, f"{label} printed no figure (status {ended.returncode}): {last_words[0]}"


def _parse_figures(line: str) -> dict[str, Any] | None:
    """Parse one line of output. Return None for a line that the client library logged."""
    try:
        figures = json.loads(line)
    except ValueError:
        return None
    if not isinstance(figures, dict) or "bench" not in figures:
        return None
    return figures
