"""Recorded files of the admin calls: names on the wire and signatures that other versions and applications rely on.

Theory of operation: the tests compare what the code has with the recorded lines, and fail at any difference.
`python client/generate_admin.py` runs `python -m tests.unit.admin_records`, which writes lines that were added. If a
recorded line was changed or removed, it writes nothing, shows the difference and fails, unless it gets `--accept`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from magnetar_wire.admin.calls import ADMIN_CALLS
from tests.unit.client.admin_surface import describe_surface

__all__ = ["SURFACE", "WIRE", "describe_wire", "find_difference", "update_records"]

_UNIT: Final = Path(__file__).parent
WIRE: Final = _UNIT / "admin_wire.txt"
SURFACE: Final = _UNIT / "client" / "admin_surface.txt"


def describe_wire() -> str:
    """Return one line for each call that a broker serves: its name on the wire and its messages."""
    served = [
        f"{prefix}.{row.name} {row.request.__name__} {row.response.__name__}\n"
        for row in ADMIN_CALLS.values()
        for prefix, is_served in (("admin", not row.is_between_brokers), ("here", row.has_owner))
        if is_served
    ]
    return "".join(sorted(served))


_RECORDS: Final[Mapping[Path, Callable[[], str]]] = {WIRE: describe_wire, SURFACE: describe_surface}


def find_difference(path: Path, now: str) -> str:
    """Return how the text differs from the recorded file, and the command that records it. Empty: they are equal."""
    recorded = path.read_text()
    if now == recorded:
        return ""
    lines = difflib.unified_diff(recorded.splitlines(), now.splitlines(), path.name, "the code", n=0, lineterm="")
    command = "python client/generate_admin.py"
    advice = (
        f"Run `{command}` to record the added lines."
        if _has_only_additions(recorded, now)
        else f"Other versions and applications rely on the lines with `-`: restore them. Run `{command} --accept` only "
        "if they were never released."
    )
    return "\n".join([*lines, advice])


def update_records(records: Mapping[Path, Callable[[], str]], *, accept: bool) -> list[str]:
    """Write the files that only get additional lines, with `accept` all of them. Return the differences that remain."""
    remaining = []
    for path, describe in records.items():
        now = describe()
        if accept or _has_only_additions(path.read_text(), now):
            path.write_text(now)
        else:
            remaining.append(find_difference(path, now))
    return remaining


def _has_only_additions(recorded: str, now: str) -> bool:
    """Whether the recorded lines are a subsequence of the lines now."""
    left = iter(now.splitlines())
    return all(line in left for line in recorded.splitlines())


if __name__ == "__main__":
    if differences := update_records(_RECORDS, accept="--accept" in sys.argv[1:]):
        raise SystemExit("\n\n".join(differences))
