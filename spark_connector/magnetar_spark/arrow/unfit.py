"""What the fast ways to read a batch raise for one that they can't."""

from __future__ import annotations

__all__ = ["Unfit"]


class Unfit(Exception):
    """The batch can't be read this way: another, slower one takes it, or says what is wrong with it."""
