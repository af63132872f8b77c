"""Numbers and tables as people read them."""

from __future__ import annotations

from rich.console import Console

__all__ = ["bytes_shown", "seconds_shown", "wide_console"]


def wide_console() -> Console:
    """Standard output; where that is no terminal nothing is cut off to fit one."""
    console = Console()
    if not console.is_terminal:
        console.width = 160
    return console


def bytes_shown(count: int | None) -> str:
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_shown(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = max(int(seconds), 0)
    for unit, length, smaller, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {smaller}"
    return f"{whole} s"
