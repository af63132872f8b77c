"""The maximum number of requests of a kind that are in flight at a broker. Further ones are refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

__all__ = ["ConcurrencyLimit"]


class ConcurrencyLimit:
    __slots__ = ("_find_maximum", "_make_refusal", "in_flight")

    def __init__(self, maximum: int | Callable[[], int], make_refusal: Callable[[int], Exception]) -> None:
        """`maximum`: a function if it changes. `make_refusal` gets it, and returns the error of a request above it."""
        self._find_maximum = maximum if callable(maximum) else lambda: maximum
        self._make_refusal = make_refusal
        self.in_flight = 0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Count a request while it is in flight. Raises the refusal at the maximum."""
        maximum = self._find_maximum()
        if self.in_flight >= maximum:
            raise self._make_refusal(maximum)
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
