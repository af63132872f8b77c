"""Checks whether a schema is valid, and whether it is compatible with the versions of a topic.

Producers and consumers that reconnect use the same few schemas, so results are cached: fingerprints by the schema's
digest, comparisons by the schema's digest and the ledgers of the versions. A ledger's definition never changes. Slow
checks run in a thread (large_work.py). Concurrent equal checks for clients of one host are done once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_broker.name_locks import NameLocks
from magnetar_broker.schemas import compatibility, definitions
from magnetar_broker.schemas.bounded_cache import BoundedCache
from magnetar_broker.schemas.large_work import LargeWork
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaVersion
from magnetar_wire.schemas import MAX_DEFINITION_BYTES

__all__ = ["CACHE_BYTES", "ExaminedSchema", "ReadVersions", "SchemaJudge"]

T = TypeVar("T")
# Reads the definitions of versions, and returns their numbers and definitions. Raises `BrokerError`.
ReadVersions = Callable[[Sequence[SchemaVersion]], Awaitable[list[tuple[int, Schema]]]]

# The size of each of the two caches.
CACHE_BYTES: Final = 2 * 1024 * 1024
# The memory of a cached fingerprint, and of a cached refusal without its text.
_CACHED_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class ExaminedSchema:
    """A valid schema."""

    schema: Schema
    # The client's host.
    host: str
    # The hash of the whole schema: equal digests give equal results of comparisons.
    digest: bytes
    # The hash of the parts that make a schema another version.
    fingerprint: bytes


class SchemaJudge:
    """Checks schemas, and caches the results. All methods raise `BrokerError`. `host`: the client's, or empty."""

    def __init__(self, cache_bytes: int) -> None:
        # Fingerprints of valid schemas, by digest.
        self._fingerprints = BoundedCache[bytes, bytes](cache_bytes)
        # Results of comparisons: the reason of a refusal, or empty if the schema is compatible.
        self._verdicts = BoundedCache[bytes, str](cache_bytes)
        self._large = LargeWork()
        # Held while a schema of a client's host is examined or compared.
        self._judging = NameLocks[tuple[str, bytes]]()

    def close(self) -> None:
        self._large.close()

    async def examine(self, schema: Schema, host: str) -> ExaminedSchema:
        """Return a valid schema with its digest and fingerprint. Raises INVALID_ARGUMENT if it is not valid."""
        definitions.check_number_of_properties(len(schema.properties))
        size = schema.ByteSize()
        if size > MAX_DEFINITION_BYTES:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"the schema has {size:,} bytes with its name and properties: at most {MAX_DEFINITION_BYTES:,} are "
                "stored",
                "schema",
            )
        digest = hashlib.sha256(schema.SerializeToString(deterministic=True)).digest()
        fingerprint = self._fingerprints.get(digest)
        if fingerprint is None:
            async with self._judging.hold((host, digest)):
                fingerprint = self._fingerprints.get(digest)
                if fingerprint is None:
                    fingerprint = await self._apply(partial(definitions.examine, schema), host, schema)
                    self._fingerprints.put(digest, fingerprint, _CACHED_BYTES)
        return ExaminedSchema(schema, host, digest, fingerprint)

    async def compare(
        self,
        examined: ExaminedSchema,
        versions: Sequence[SchemaVersion],
        strategy: SchemaCompatibility,
        read: ReadVersions,
        *,
        is_consumer: bool,
    ) -> None:
        """Raise INCOMPATIBLE_SCHEMA unless the schema is compatible with these versions. `read` is not called if the
        result is cached."""
        ledgers = b"".join(version.ledger_id.to_bytes(8, "big") for version in versions)
        key = hashlib.sha256(b"%b %d %d " % (examined.digest, is_consumer, strategy) + ledgers).digest()
        refusal = self._verdicts.get(key)
        if refusal is None:
            async with self._judging.hold((examined.host, key)):
                refusal = self._verdicts.get(key)
                if refusal is None:
                    refusal = await self._judge(examined, versions, strategy, read, is_consumer=is_consumer)
                    self._verdicts.put(key, refusal, len(refusal.encode()) + _CACHED_BYTES)
        if refusal:
            raise BrokerError(ErrorCode.INCOMPATIBLE_SCHEMA, refusal, "schema")

    async def _judge(
        self,
        examined: ExaminedSchema,
        versions: Sequence[SchemaVersion],
        strategy: SchemaCompatibility,
        read: ReadVersions,
        *,
        is_consumer: bool,
    ) -> str:
        """Return why the schema is not compatible with these versions, or an empty string if it is."""
        rule = compatibility.check_readable if is_consumer else compatibility.check_compatible
        earlier = await read(versions)
        try:
            compare = partial(rule, examined.schema, earlier, strategy)
            involved = [examined.schema, *(old for _, old in earlier)] if earlier else []
            await self._apply(compare, examined.host, *involved)
        except BrokerError as error:
            if error.code != ErrorCode.INCOMPATIBLE_SCHEMA:
                raise
            return str(error)
        return ""

    async def _apply(self, rule: Callable[[WorkBudget], T], host: str, *schemas: Schema) -> T:
        """Return the result of a rule on these schemas. Slow rules run in a thread."""
        budget = WorkBudget()
        if not definitions.takes_long(*schemas):
            return rule(budget)
        return await self._large.run(host, partial(rule, budget), budget.cancel)
