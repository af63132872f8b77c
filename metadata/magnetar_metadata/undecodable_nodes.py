"""Nodes in the metadata store that hold what nobody of ours has written: told of once each, and passed over.

An operator's slip or a damaged disk may leave such a node anywhere. Whoever goes through many nodes meets it in every
round, and it must keep nobody from the others.
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
# So many are remembered. Were there more, some would be told of again.
_REMEMBERED: Final = 1000

# How many bytes of a node that can't be decoded are logged.
_LOGGED_BYTES: Final = 1_024

M = TypeVar("M", bound=Message)


class UndecodableNodes:
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
        _log.error("%s can't be decoded, and is ignored until it is repaired: %s", path, reason)


def decode_node(kind: type[M], path: str, payload: bytes) -> M:
    """Raises `ForeignValue`."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"{path!r} is not a valid {kind.__name__}: {error}") from None


async def replace_undecodable(
    kind: type[Message], store: MetadataStore, path: str, randomness: Randomness, along: Sequence[Change] = ()
) -> None:
    """Log a node that holds no `kind`, and replace it by an empty one at the version that was read.

    A node that decodes by now, or that another writer changes meanwhile, is left as it is. Raises `MetadataError`:
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
