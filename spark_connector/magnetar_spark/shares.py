"""Dealing out what a micro-batch may read among logs: first an equal part to each, so that none starves behind one that
has much, and then what some of them left to those that have more, in proportion to what they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["equal_parts", "shares_of_rest"]


def equal_parts(names: Sequence[str], amount: int) -> dict[str, int]:
    part, over = divmod(amount, len(names))
    return {name: part + (place < over) for place, name in enumerate(names)}


def shares_of_rest(wanted: Mapping[str, int], rest: int) -> dict[str, int]:
    """Never more than they want, and all of the rest if they want as much."""
    total = sum(wanted.values())
    if total <= rest:
        return dict(wanted)
    shares = {name: want * rest // total for name, want in wanted.items()}
    left = rest - sum(shares.values())
    for name, want in wanted.items():
        if left and shares[name] < want:
            shares[name] += 1
            left -= 1
    return shares
