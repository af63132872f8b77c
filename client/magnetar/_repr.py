"""`repr` of what an application holds: its class, and what a few of its methods return."""

from __future__ import annotations

from typing import Final

__all__ = ["repr_of", "shorten"]

# A consumer may have thousands of topics.
_MAX_LENGTH: Final = 200


def repr_of(front: object, *methods: str) -> str:
    """`methods` neither wait nor ask a broker, and work on a closed object, too."""
    shown = ", ".join(f"{name}={shorten(repr(getattr(front, name)()))}" for name in methods)
    return f"{type(front).__name__}({shown})"


def shorten(text: str, limit: int = _MAX_LENGTH) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
