"""Read the catalog's nodes as messages, and change them by compare-and-set.

Errors of the store become `BrokerError`: METADATA_ERROR, after which a change may have been made or not, unless the
text excludes that. An error that an update function raises is raised if it was given a fresh value; with an
older one the value is read again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_broker.begun_changes import note_change
from magnetar_broker.errors import BrokerError
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, MetadataError, NotSent, Refused, SessionLost
from magnetar_metadata.store import ABSENT, ANY, Change, MetadataStore, Put
from magnetar_metadata.undecodable_nodes import replace_undecodable
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["CatalogNodes", "Found"]

INCARNATION_BYTES: Final = 16

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Found(Generic[M]):
    node: M
    version: int
    # What is stored, for `build_next`.
    stored: compare_and_set.StoredValue | None = field(default=None, repr=False, compare=False)


class CatalogNodes:
    def __init__(self, store: MetadataStore, clock: Clock, randomness: Randomness, timeout_s: float) -> None:
        self._store = store
        self._clock = clock
        self._randomness = randomness
        self._timeout_s = timeout_s

    def new_incarnation(self) -> bytes:
        return self._randomness.token(INCARNATION_BYTES)

    async def read(self, kind: type[M], path: str, *, fresh: bool = False) -> Found[M] | None:
        """Read a node; None: there is none. Possibly stale, unless `fresh`."""
        with _convert_errors(path):
            return await self._read(kind, path, fresh=fresh)

    async def _read(self, kind: type[M], path: str, *, fresh: bool) -> Found[M] | None:
        stored = await compare_and_set.read(self._store, path, fresh=fresh)
        return Found(_decode(kind, path, stored.payload), stored.version, stored) if stored else None

    async def read_decodable(self, kind: type[M], path: str) -> Found[M] | None:
        """Read afresh a node that counts as absent if it can't be decoded."""
        with _convert_errors(path), contextlib.suppress(ForeignValue):
            return await self._read(kind, path, fresh=True)
        return None

    async def exists(self, path: str) -> bool:
        return await self.get_version(path) is not None

    async def get_version(self, path: str) -> int | None:
        """Return the node's version, None if there is none. Possibly stale."""
        with _convert_errors(path):
            stat = await self._store.exists(path)
            return stat.version if stat is not None else None

    async def sync(self) -> None:
        """Make later reads return everything that was written before this call."""
        with _convert_errors("/"):
            await self._store.sync()

    async def list_children(self, path: str) -> list[str]:
        with _convert_errors(path):
            return await self._store.children(path)

    async def change(
        self, kind: type[M], path: str, update: Callable[[M | None], M | None], along: Sequence[Change] = ()
    ) -> M | None:
        """Change the node to what `update` returns, None to delete it, and return that.

        `update` may alter its argument. If one of `along` is refused, its `Refused` is raised and nothing was changed.
        """
        with _convert_errors(path):
            return await self._change(kind, path, update, along)

    async def _change(
        self, kind: type[M], path: str, update: Callable[[M | None], M | None], along: Sequence[Change]
    ) -> M | None:
        result: M | None = None

        def encode_change(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            nonlocal result
            result = update(None if payload is None else _decode(kind, path, payload))
            if result is None:
                return compare_and_set.DELETE
            encoded = result.SerializeToString(deterministic=True)
            return compare_and_set.LEAVE if encoded == payload else encoded

        note_change()
        await compare_and_set.change(
            self._store,
            path,
            encode_change,
            clock=self._clock,
            randomness=self._randomness,
            along=along,
            timeout_s=self._timeout_s,
        )
        return result

    async def delete_empty(self, path: str) -> None:
        """Delete an empty node. If it can't be deleted now, it stays, which does no harm."""
        with contextlib.suppress(MetadataError):
            await self._store.delete(path, ANY)

    async def create_if_absent(self, kind: type[Message], path: str, along: Sequence[Change] = ()) -> None:
        """Create an empty node unless there is one, decodable or not. If one of `along` is refused, its `Refused` is
        raised."""
        if not await self.exists(path):
            await self.change_or_replace(kind, path, lambda node: node or kind(), along)

    async def change_or_replace(
        self, kind: type[M], path: str, update: Callable[[M | None], M | None], along: Sequence[Change] = ()
    ) -> M | None:
        """Change a node that costs little to lose: one that can't be decoded is logged and replaced by an empty one
        first."""
        with _convert_errors(path):
            try:
                return await self._change(kind, path, update, along)
            except ForeignValue:
                await replace_undecodable(kind, self._store, path, self._randomness, along)
            return await self._change(kind, path, update, along)

    def build_put(self, path: str, node: Message) -> Put:
        """Return the change that creates a node, for the transaction that changes another one."""
        payload = node.SerializeToString(deterministic=True)
        return Put(path, compare_and_set.encode_first_value(payload, self._randomness), ABSENT)

    def build_next(self, path: str, found: Found[M], node: M) -> Put:
        """Return the change that replaces a node, as it was found, in the transaction that changes another one."""
        assert found.stored is not None
        payload = node.SerializeToString(deterministic=True)
        return Put(path, compare_and_set.encode_next_value(found.stored, payload, self._randomness), found.version)


@contextmanager
def _convert_errors(path: str) -> Iterator[None]:
    """Convert errors of the store to `BrokerError`."""
    try:
        yield
    except SessionLost as error:
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker has lost its metadata session: {error}") from error
    except NotSent as error:
        raise BrokerError(
            ErrorCode.METADATA_ERROR, f"the metadata store can't be reached, and nothing was changed: {error}"
        ) from error
    except Refused as error:
        if error.index:
            raise
        raise BrokerError(ErrorCode.METADATA_ERROR, f"the metadata store refuses {path}: {error}") from error
    except MetadataError as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"{path} in the metadata store: {error}") from error


def _decode(kind: type[M], path: str, payload: bytes) -> M:
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"{path!r} holds no {kind.__name__}: {error}") from None
