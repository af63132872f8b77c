"""Judges schemas: whether one is valid, and whether it fits the versions of a topic.

Producers and consumers that come again after a break have the same few schemas, so what came of each check is cached:
fingerprints by the schema's digest, comparisons by the digests of the schema and the ledgers of the versions, as the
same ledgers always have the same definitions. Checks that take long are done in a thread (large_work.py). Of equal
checks for clients of one host, one is done, and the others wait for its result.
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
# Reads the definitions of versions that are compared: number and definition. Raises `BrokerError`.
ReadVersions = Callable[[Sequence[SchemaVersion]], Awaitable[list[tuple[int, Schema]]]]

# Of fingerprints, and of verdicts.
CACHE_BYTES: Final = 2 * 1024 * 1024
# What a cached fingerprint takes, or a verdict besides its text.
_CACHED_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class ExaminedSchema:
    """A valid schema."""

    schema: Schema
    # Of the client.
    host: str
    # Of all that it has: it decides, with the versions that it is compared with, how that ends.
    digest: bytes
    # Of what makes it another version.
    fingerprint: bytes


class SchemaJudge:
    """All methods raise `BrokerError`. `host`: of the client whose schema it is, or empty."""

    def __init__(self, cache_bytes: int) -> None:
        # Of valid schemas, by their digest.
        self._fingerprints = BoundedCache[bytes, bytes](cache_bytes)
        # Of comparisons: why a schema was refused; empty: it was not.
        self._verdicts = BoundedCache[bytes, str](cache_bytes)
        self._large = LargeWork()
        # Held while a schema of a client's host is examined or compared.
        self._judging = NameLocks[tuple[str, bytes]]()

    def close(self) -> None:
        self._large.close()

    async def examine(self, schema: Schema, host: str) -> ExaminedSchema:
        """INVALID_ARGUMENT, about "schema": it is not valid."""
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
        """Raise INCOMPATIBLE_SCHEMA unless a schema is compatible with these versions. `read` is called for those that
        were not compared before."""
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
        """Return why a schema is not compatible with these versions; empty: it is."""
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
        """Return the result of a rule on these schemas. One that takes long is applied in a thread."""
        budget = WorkBudget()
        if not definitions.takes_long(*schemas):
            return rule(budget)
        return await self._large.run(host, partial(rule, budget), budget.cancel)
