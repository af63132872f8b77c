"""The client whose admin call is being carried out, for what clients use in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

__all__ = ["calling", "find_calling_client"]

_address: Final = ContextVar("address", default="")


@contextlib.contextmanager
def calling(address: str) -> Iterator[None]:
    """Note the address of the client while its call is carried out, also by tasks that begin in this time."""
    token = _address.set(address)
    try:
        yield
    finally:
        _address.reset(token)


def find_calling_client() -> str:
    """Return the address of the client; empty: the call did not come from a client."""
    return _address.get()
