"""Nodes whose values can't be decoded: each is logged once and ignored, or replaced by an empty one.

An operator's mistake or a damaged disk may leave such a node anywhere. Code that reads many nodes finds it again and
again, and must process the other nodes nevertheless.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode
from magnetar_metadata.store import Change, MetadataStore, Put
from magnetar_wire.randomness import Randomness

__all__ = ["UndecodableNodes", "decode_node", "replace_undecodable"]

_log = logging.getLogger(__name__)
# Maximum number of nodes that are remembered. If there are more, some are logged again.
_MAX_REMEMBERED: Final = 1000

# Maximum number of bytes of a value that are logged.
_LOGGED_BYTES: Final = 1_024

M = TypeVar("M", bound=Message)


class UndecodableNodes:
    """The undecodable nodes that one process has found."""

    def __init__(self) -> None:
        # By path: the logged error. Oldest first.
        self._logged: dict[str, str] = {}

    def log_once(self, path: str, error: object) -> None:
        """Log that a node is ignored, unless the same was logged before."""
        reason = str(error)
        if self._logged.get(path) == reason:
            return
        if len(self._logged) >= _MAX_REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[path] = reason
        _log.error("%s can't be decoded, and is ignored until it is repaired: %s", path, reason)


def decode_node(kind: type[M], path: str, payload: bytes) -> M:
    """Return the message in a node. Raises `ForeignValue`."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"{path!r} is not a valid {kind.__name__}: {error}") from None


async def replace_undecodable(
    kind: type[Message], store: MetadataStore, path: str, randomness: Randomness, along: Sequence[Change] = ()
) -> None:
    """Log a node that contains no `kind`, and replace it by an empty one at the version that was read.

    A node that can be decoded by now, or is changed at the same time, is left as it is. Raises `MetadataError`:
    `Refused` if one of `along` is refused.
    """
    node = await store.get_after_sync(path)
    if node is None:
        return
    try:
        decode_node(kind, path, compare_and_set.decode_stored(node.value).payload)
    except ForeignValue as error:
        value = compare_and_set.encode_first_value(kind().SerializeToString(), randomness)
        try:
            await store.transaction([Put(path, value, node.version), *along])
        except (BadVersion, NoNode) as refused:
            if refused.index:
                raise
            return
        _log.error(
            "Replaced node %s by an empty one, since it can't be decoded: %s; its %d bytes began with %s",
            path, error, len(node.value), node.value[:_LOGGED_BYTES].hex(),
        )  # fmt: skip
