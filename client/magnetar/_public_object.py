"""What clients, producers, consumers and readers do when they are shown, pickled or copied."""

from __future__ import annotations

from typing import Final, NoReturn, SupportsIndex

__all__ = ["Unpicklable", "repr_of", "shorten"]

# A consumer may have thousands of topics.
_MAX_LENGTH: Final = 200


class Unpicklable:
    """A base class that refuses to be pickled, with an error that names the alternative."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} objects can't be pickled or copied, since they hold connections: pass on the "
            "service URL and the options, and create one in each process"
        )


def repr_of(shown: object, *methods: str) -> str:
    """Return the object's class and what these methods return. They must not block, and must work when it is closed."""
    results = ", ".join(f"{name}={shorten(repr(getattr(shown, name)()))}" for name in methods)
    return f"{type(shown).__name__}({results})"


def shorten(text: str, limit: int = _MAX_LENGTH) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
