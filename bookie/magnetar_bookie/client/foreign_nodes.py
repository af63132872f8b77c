"""Nodes in the metadata store that hold what nobody of ours has written: told of once each, and passed over.

An operator's slip or a damaged disk may leave such a node anywhere. Whoever goes through many nodes meets it in every
round, and it must keep nobody from the others.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_metadata.errors import ForeignValue

__all__ = ["ForeignNodes", "decode_node"]

_log = logging.getLogger(__name__)
# So many are remembered. Were there more, some would be told of again.
_REMEMBERED: Final = 1000

M = TypeVar("M", bound=Message)


class ForeignNodes:
    """Those that one process has met."""

    def __init__(self) -> None:
        # By path, what is wrong with it. Oldest first.
        self._told: dict[str, str] = {}

    def pass_over(self, path: str, error: object) -> None:
        """Says so, unless it was said before."""
        reason = str(error)
        if self._told.get(path) == reason:
            return
        if len(self._told) >= _REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[path] = reason
        _log.error("%s can't be read, and is passed over until it is mended: %s", path, reason)


def decode_node(kind: type[M], path: str, payload: bytes) -> M:
    """Raises `ForeignValue`."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"{path!r} holds no {kind.__name__}: {error}") from None
