"""What one run of tests/peers/clients.py says, in a process of its own: a client beside whatever it is held against."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["Said", "run_client"]

_CLIENTS: Final = Path(__file__).resolve().parents[1] / "peers" / "clients.py"
_TIMEOUT_S: Final = 900

# By bench and bytes of a message: its figures, or `error`.
Said = dict[tuple[str, int], dict[str, Any]]


def run_client(client: Sequence[str], benches: Sequence[tuple[str, int]], scale: float) -> Said:
    """`client` is what clients.py is told of the server; the last of it is the label."""
    names = ",".join(dict.fromkeys(name for name, _ in benches))
    command = [sys.executable, str(_CLIENTS), *client, "--only", names, "--scale", str(scale)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    said: Said = {}
    for line in ended.stdout.splitlines():
        one = json.loads(line)
        said[one["bench"], one["size"]] = one
    for bench in benches:
        last_words = ended.stderr.strip().splitlines()[-1:] or ["it does not say why"]
        said.setdefault(bench, {"error": f"{client[-1]} told no figure (status {ended.returncode}): {last_words[0]}"})
    return said
