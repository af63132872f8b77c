"""The ledgers that versions are stored in, each with a single entry, and a cache of what was read from them.

A closed ledger never changes, and its id is never used again. So what the cache has by a ledger's id is always right,
also when the topic was deleted and created again; whether a version still has this ledger is decided by the node.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_broker.schemas.bounded_cache import BoundedCache
from magnetar_broker.single_flight import SingleFlight
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import StoredSchema

__all__ = ["DefinitionDeleted", "DefinitionLedgers", "definition_lost"]

_CACHE_BYTES: Final = 32 * 1024 * 1024
# What a cached definition takes besides its stored size.
_OVERHEAD_BYTES: Final = 1024


class DefinitionDeleted(Exception):
    """A ledger that was deleted."""


class DefinitionLedgers:
    def __init__(self, client: LedgerClient, cache_bytes: int = _CACHE_BYTES) -> None:
        self._client = client
        # By ledger.
        self._cache = BoundedCache[int, StoredSchema](cache_bytes)
        self._reads = SingleFlight[int, StoredSchema]()

    async def write(self, stored: StoredSchema, striping: Striping, purpose: str) -> NewLedger:
        """Write a ledger and close it. It is deleted unless it is claimed in time. Raises `LedgerError`."""
        new_ledger, writer = await self._client.create(striping, purpose, explicit_lac=False)
        try:
            await writer.add(stored.SerializeToString(deterministic=True))
            await writer.close()
        except BaseException:
            writer.abandon()
            raise
        return new_ledger

    async def read(self, ledger_id: int, description: str) -> StoredSchema:
        """Return what the ledger has; it must not be altered. `description` names the version, for errors.

        Concurrent callers share a read. Raises `DefinitionDeleted`, and `BrokerError`: PERSISTENCE_ERROR if bookies
        can't be reached now, CHECKSUM_ERROR if the definition is lost for good.
        """
        cached = self._cache.get(ledger_id)
        if cached is not None:
            return cached
        return await self._reads.run(ledger_id, lambda: self._read(ledger_id, description))

    async def _read(self, ledger_id: int, description: str) -> StoredSchema:
        try:
            reader = await self._client.open(ledger_id)
            (entry,) = await reader.read(0, 0)
            stored = StoredSchema.FromString(entry)
        except (NoSuchLedger, LedgerDeleted) as error:
            raise DefinitionDeleted(f"ledger {ledger_id} of {description} was deleted") from error
        except DecodeError as error:
            raise definition_lost(f"its ledger {ledger_id} has no valid definition: {error}", description) from error
        except LedgerError as error:
            if isinstance(error, Unreadable) and error.is_lost:
                raise definition_lost(str(error), description) from error
            text = f"{description} can't be read now: {error}"
            raise BrokerError(ErrorCode.PERSISTENCE_ERROR, text) from error
        self.remember(ledger_id, stored)
        return stored

    def remember(self, ledger_id: int, stored: StoredSchema) -> None:
        """Cache what a ledger has."""
        self._cache.put(ledger_id, stored, stored.ByteSize() + _OVERHEAD_BYTES)

    async def delete(self, ledger_ids: list[int]) -> list[int]:
        """Delete ledgers. Return those that are deleted now, or were before. Raises `MetadataError`."""
        return await delete_ledgers(self._client, ledger_ids)

    async def close(self) -> None:
        await self._reads.close()


def definition_lost(reason: str, description: str) -> BrokerError:
    return BrokerError(
        ErrorCode.CHECKSUM_ERROR,
        f"{description} is lost: {reason}. Other versions can be used. A new version can be added if the compatibility "
        "is ALWAYS_COMPATIBLE, or after the topic's schema was deleted (`magnetar schemas delete`)",
    )
