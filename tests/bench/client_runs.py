"""Runs tests/peers/clients.py in a process of its own, and reads the figures that it prints.

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

__all__ = ["Figures", "run_client"]

_CLIENTS: Final = Path(__file__).resolve().parents[1] / "peers" / "clients.py"
_TIMEOUT_S: Final = 900

# By bench and bytes of a message: its figures, or `error`.
Figures = dict[tuple[str, int], dict[str, Any]]


def run_client(client: Sequence[str], benches: Sequence[tuple[str, int]], scale: float) -> Figures:
    """Run clients.py with `client`, its arguments for the server; the last of them is the label."""
    names = ",".join(dict.fromkeys(name for name, _ in benches))
    command = [sys.executable, str(_CLIENTS), *client, "--only", names, "--scale", str(scale)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    results: Figures = {}
    for line in ended.stdout.splitlines():
        figures = _parse_figures(line)
        if figures is None:
            print(f"{client[-1]} logged: {line}", file=sys.stderr, flush=True)
        else:
            results[figures["bench"], figures["size"]] = figures
    for bench in benches:
        last_words = ended.stderr.strip().splitlines()[-1:] or ["without a reason"]
        results.setdefault(
            bench, {"error": f"{client[-1]} printed no figure (status {ended.returncode}): {last_words[0]}"}
        )
    return results


def _parse_figures(line: str) -> dict[str, Any] | None:
    """Parse one line of clients.py. Return None for a line that the client library logged."""
    try:
        figures = json.loads(line)
    except ValueError:
        return None
    if not isinstance(figures, dict) or not {"bench", "size"} <= figures.keys():
        return None
    return figures
