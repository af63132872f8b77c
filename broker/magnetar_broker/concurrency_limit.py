"""The maximum number of requests of a kind that are in flight at a broker. Further ones are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

__all__ = ["ConcurrencyLimit"]


class ConcurrencyLimit:
    __slots__ = ("_make_refusal", "_maximum", "in_flight")

    def __init__(self, maximum: int, make_refusal: Callable[[int], Exception]) -> None:
        """`make_refusal` returns the error of a request above the maximum, which it gets."""
        self._maximum = maximum
        self._make_refusal = make_refusal
        self.in_flight = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Count a request while it is in flight. Raises the refusal at the maximum."""
        if self.in_flight >= self._maximum:
            raise self._make_refusal(self._maximum)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
