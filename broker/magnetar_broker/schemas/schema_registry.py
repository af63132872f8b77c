"""The versions of topics' schemas: found, added, read and deleted. __init__.py has the theory.

**What is read when.** The node is read afresh for each call, also for a version that was read before: a topic can be
deleted and created again, and version 0 of the later topic is another schema. With a node that was read before that, a
message of the later topic would be decoded with a schema of the earlier one. Concurrent calls for a topic share a read.
Definitions are cached by ledger, whose ids are never used again.

**Adding a version** is decided by the node and the topic as they are, and stored by a transaction that is refused if
either has changed. Then everything is decided again. A producer whose registration failed or was not answered
registers its schema again, and gets the version that has it. One broker adds versions of a topic one after the other.

**A version whose definition is lost** on all bookies can still be the result of `register`, which finds it by its
fingerprint. A new version that has to be compared with it is refused with CHECKSUM_ERROR: perhaps it is incompatible.
Whether it has to be compared depends on the strategy: ALWAYS_COMPATIBLE needs no earlier one, the strategies that are
not transitive need the last one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from magnetar_bookie.errors import LedgerError, LedgerNotClaimed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError
from magnetar_broker.name_locks import NameLocks
from magnetar_broker.schemas import compatibility
from magnetar_broker.schemas.definition_ledgers import DefinitionDeleted, DefinitionLedgers, definition_lost
from magnetar_broker.schemas.schema_deletion import prepare_schema_deletion
from magnetar_broker.schemas.schema_judge import CACHE_BYTES, ExaminedSchema, SchemaJudge
from magnetar_broker.schemas.schema_node import (
    FoundSchema,
    SchemaChanged,
    SchemaNodes,
    read_incarnation,
    read_topic_checks,
)
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.schemas.shared_reads import SharedReads
from magnetar_metadata.errors import ForeignValue, MetadataError, OutcomeUnknown, SessionLost
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaNode, SchemaVersion, StoredSchema
from magnetar_wire.clock import Clock
from magnetar_wire.process.addresses import get_host
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["RegisteredSchema", "RegistrySettings", "RulesOrReader", "SchemaRegistry"]

T = TypeVar("T")
RulesOrReader = SchemaRules | Callable[[TopicName], Awaitable[SchemaRules]]

_log = logging.getLogger(__name__)
# How often a change is tried. Each other broker that is faster makes one fail, and each change of the topic's node.
_ATTEMPTS: Final = 20
_READ_AT_A_TIME: Final = 16

# The strategies by which all versions count for a consumer. By others only the last one does.
_ALL_COUNT_FOR_CONSUMERS: Final = compatibility.TRANSITIVE - {SchemaCompatibility.FORWARD_TRANSITIVE}
# Those by which a consumer with the last version's schema is admitted as it is (compatibility.py).
_LAST_IS_READABLE: Final = frozenset(
    (
        SchemaCompatibility.UNDEFINED,
        SchemaCompatibility.BACKWARD,
        SchemaCompatibility.FORWARD,
        SchemaCompatibility.FULL,
        SchemaCompatibility.FORWARD_TRANSITIVE,
    )
)


class RegistrySettings(Protocol):
    """The settings of brokers that count here."""

    @property
    def striping(self) -> Striping: ...
    @property
    def max_schema_versions_per_topic(self) -> int: ...
    @property
    def max_schema_bytes_per_topic(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    version: int
    # None: this version marks the deletion of those before it.
    schema: Schema | None
    created_ms: int


class SchemaRegistry:
    """All methods raise `BrokerError`, and take a partition for its topic. What they return must not be altered.

    `client`: the address of the client whose schema it is. Empty: the broker itself, or an unknown client."""

    def __init__(
        self,
        client: LedgerClient,
        clock: Clock,
        randomness: Randomness,
        settings: RegistrySettings,
        find_policies: Callable[[TopicName], Awaitable[Policies]],
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`find_policies` returns the policies of a topic, its own and its namespace's, at most a few seconds old, or
        raises `BrokerError`."""
        self._find_policies = find_policies
        self._client = client
        self._store = client.ledgers.store
        self._clock = clock
        self._randomness = randomness
        self._settings = settings
        self._ledgers = DefinitionLedgers(client)
        self._nodes = SchemaNodes(client, clock, randomness)
        self._reads = SharedReads[TopicName, FoundSchema](self._nodes.read)
        self._judge = SchemaJudge(cache_bytes)
        # Held while this broker changes a topic's schema.
        self._changing = NameLocks[TopicName]()

    async def close(self) -> None:
        self._judge.close()
        await self._reads.close()
        await self._ledgers.close()

    async def has_schema(self, topic: TopicName) -> bool:
        """Return whether the topic has a schema that is not deleted. One read of the metadata store, no bookie."""
        return bool((await self._find(topic.base)).list_live())

    async def find_latest(self, topic: TopicName) -> RegisteredSchema | None:
        """Return the last version; None: there is none, or it is deleted."""
        topic = topic.base

        async def read(found: FoundSchema) -> RegisteredSchema | None:
            live = found.list_live()
            return await self._read_version(topic, live[-1]) if live else None

        return await self._read_until_unchanged(topic, read)

    async def get(self, topic: TopicName, version: int) -> RegisteredSchema:
        """Return a version. NOT_FOUND: the topic does not have it, or it is deleted."""
        topic = topic.base

        async def read(found: FoundSchema) -> RegisteredSchema:
            wanted = found.find_live(version)
            if wanted is None:
                raise BrokerError(ErrorCode.NOT_FOUND, f"{topic} has no version {version} of a schema")
            return await self._read_version(topic, wanted)

        return await self._read_until_unchanged(topic, read)

    async def check_incarnation(self, topic: TopicName, incarnation: str) -> None:
        """Raise INCARNATION_CHANGED unless the topic, or partition, still has this incarnation. Then a schema that was
        read before this call is not that of a later topic of its name: a deletion ends with the topic's node."""
        with _convert_errors(topic):
            found = await read_incarnation(self._store, topic)
        if found != incarnation:
            raise BrokerError(ErrorCode.INCARNATION_CHANGED, f"{topic} was deleted: its schema is not known any more")

    async def list_versions(self, topic: TopicName) -> list[RegisteredSchema]:
        """Return all versions, also those that a deletion marked."""
        topic = topic.base

        async def read(found: FoundSchema) -> list[RegisteredSchema]:
            return await self._read_versions(topic, found.node.versions)

        return await self._read_until_unchanged(topic, read)

    async def find_node(self, topic: TopicName) -> FoundSchema:
        """Return the topic's schema node. One read of the metadata store, no bookie."""
        return await self._find(topic.base)

    async def describe(self, topic: TopicName) -> Sequence[SchemaVersion]:
        """Return what the topic's schema node has of each version, also of those that a deletion marked."""
        return (await self._find(topic.base)).node.versions

    async def find_version(self, topic: TopicName, schema: Schema, *, client: str = "") -> int | None:
        """Return the version that has this schema."""
        examined = await self._judge.examine(schema, get_host(client))
        known = (await self._find(topic.base)).find_fingerprint(examined.fingerprint)
        return None if known is None else known.version

    async def register(
        self, topic: TopicName, schema: Schema, rules: RulesOrReader, *, client: str = "", explicit: bool = False
    ) -> int:
        """Return the version of the schema, after adding it if it is none yet.

        INVALID_ARGUMENT, about "schema": it is not valid. INCOMPATIBLE_SCHEMA: the rules refuse it. `explicit`: an
        administrator adds it, so `allow_auto_update` does not count.

        `rules`: also a function that reads them. A known schema does not need them. A version stays for good, so they
        are read when it is decided.
        """
        topic = topic.base
        examined = await self._judge.examine(schema, get_host(client))
        known = (await self._find(topic)).find_fingerprint(examined.fingerprint)
        if known is not None:
            return known.version
        async with self._changing.hold(topic):
            with _convert_errors(topic, is_change=True):
                return await self._add(topic, examined, rules, explicit)

    async def _add(self, topic: TopicName, examined: ExaminedSchema, find_rules: RulesOrReader, explicit: bool) -> int:
        new_ledger: NewLedger | None = None
        stored = StoredSchema(schema=examined.schema, created_ms=self._clock.time_ms())
        for _ in range(_ATTEMPTS):
            checks = await read_topic_checks(self._store, topic)
            found = await self._nodes.read(topic)
            known = found.find_fingerprint(examined.fingerprint)
            if known is not None:
                return known.version
            rules = find_rules if isinstance(find_rules, SchemaRules) else await find_rules(topic)
            rules.check_known(topic)
            if not (explicit or rules.allow_auto_update):
                raise _no_auto_update(topic)
            found = await self._delete_removed(topic, found)
            self._check_limits(topic, found, stored)
            try:
                await self._check_addable(topic, found, examined, rules)
                if new_ledger is None:
                    striping = await self._find_striping(topic)
                    new_ledger = await self._ledgers.write(stored, striping, f"schema of {topic}")
                version = SchemaVersion(
                    version=found.next_version,
                    ledger_id=new_ledger.ledger_id,
                    type=examined.schema.type,
                    fingerprint=examined.fingerprint,
                    created_ms=stored.created_ms,
                    stored_bytes=stored.ByteSize(),
                )
                node = SchemaNode()
                node.CopyFrom(found.node)
                node.versions.append(version)
                await self._nodes.replace(topic, found, node, checks, new_ledger)
            except LedgerNotClaimed:
                new_ledger = None
                continue
            except SchemaChanged:
                continue
            self._ledgers.remember(new_ledger.ledger_id, stored)
            return version.version
        raise _changed_too_often(topic)

    async def check_compatible(self, topic: TopicName, schema: Schema, rules: SchemaRules, *, client: str = "") -> None:
        """Raise INCOMPATIBLE_SCHEMA unless `register` would accept the schema."""
        topic = topic.base
        examined = await self._judge.examine(schema, get_host(client))

        async def check(found: FoundSchema) -> None:
            if found.find_fingerprint(examined.fingerprint) is None:
                await self._check_addable(topic, found, examined, rules)

        await self._read_until_unchanged(topic, check)

    async def check_readable(self, topic: TopicName, schema: Schema, rules: SchemaRules, *, client: str = "") -> None:
        """Raise INCOMPATIBLE_SCHEMA unless a consumer with this schema may read the topic.

        Consumers with the schema of the last version, which most of them have, need no bookie, and are admitted though
        the policies can't be read now."""
        topic, strategy = topic.base, rules.compatibility
        examined = await self._judge.examine(schema, get_host(client))

        async def check(found: FoundSchema) -> None:
            live = found.list_live()
            if strategy in _LAST_IS_READABLE and live and live[-1].fingerprint == examined.fingerprint:
                return
            rules.check_known(topic)
            counted = _list_counted(live, strategy, strategy in _ALL_COUNT_FOR_CONSUMERS)
            await self._judge.compare(examined, counted, strategy, partial(self._read_counted, topic), is_consumer=True)

        await self._read_until_unchanged(topic, check)

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Mark all versions as deleted, by a new version, whose number is returned. `force`: remove them.

        A version's number is never used again while the topic exists, so messages that were encoded with a removed
        version are never decoded with another one.
        """
        topic = topic.base
        async with self._changing.hold(topic):
            with _convert_errors(topic, is_change=True):
                for _ in range(_ATTEMPTS):
                    try:
                        return await self._delete(topic, force)
                    except SchemaChanged:
                        continue
        raise _changed_too_often(topic)

    async def _delete(self, topic: TopicName, force: bool) -> int:
        checks, now_ms = await read_topic_checks(self._store, topic), self._clock.time_ms()
        try:
            found = await self._nodes.read(topic)
        except ForeignValue:
            if not force:
                raise
            # The versions that it had are not known. The time is above all of them.
            node = SchemaNode(versions=[SchemaVersion(version=now_ms, created_ms=now_ms)])
            await self._nodes.replace_damaged(topic, node, checks)
            return now_ms
        changed = await self._nodes.replace(topic, found, _mark_deleted(found, now_ms, force), checks)
        await self._delete_removed(topic, changed)
        return changed.node.versions[-1].version

    async def prepare_topic_deletion(
        self, topic: TopicName, is_being_deleted: Callable[[], Awaitable[bool]]
    ) -> Sequence[Change]:
        """As `prepare_schema_deletion`, for a partitioned topic."""
        client, clock, randomness = self._client, self._clock, self._randomness
        with _convert_errors(topic):
            return await prepare_schema_deletion(topic, client, clock, randomness, is_being_deleted, create=True)

    async def _delete_removed(self, topic: TopicName, found: FoundSchema) -> FoundSchema:
        """Delete the ledgers of removed versions, and return the node without them. What can't be deleted now is left
        to the next change."""
        if not found.node.deleting:
            return found
        try:
            deleted = frozenset(await self._ledgers.delete(list(found.node.deleting)))
            node = SchemaNode()
            node.CopyFrom(found.node)
            node.deleting[:] = [ledger_id for ledger_id in node.deleting if ledger_id not in deleted]
            return await self._nodes.replace(topic, found, node)
        except (SchemaChanged, LedgerError, MetadataError) as error:
            _log.info("Not all removed versions of the schema of %s can be deleted now: %s", topic, error)
            return found

    async def _find_striping(self, topic: TopicName) -> Striping:
        policies = await self._find_policies(topic)
        if not policies.HasField("persistence"):
            return self._settings.striping
        chosen = policies.persistence
        return Striping(chosen.ensemble_size, chosen.write_quorum, chosen.ack_quorum)

    def _check_limits(self, topic: TopicName, found: FoundSchema, stored: StoredSchema) -> None:
        versions = sum(1 for version in found.node.versions if version.ledger_id) + len(found.node.deleting)
        size = stored.ByteSize() + sum(version.stored_bytes for version in found.node.versions)
        max_versions = self._settings.max_schema_versions_per_topic
        max_bytes = self._settings.max_schema_bytes_per_topic
        if versions >= max_versions:
            problem = f"has {versions:,} versions (max_schema_versions_per_topic is {max_versions:,})"
        elif size > max_bytes:
            problem = f"would have {size:,} bytes (max_schema_bytes_per_topic is {max_bytes:,})"
        else:
            return
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            f"no version is added to the schema of {topic}: it {problem}. Delete the schema by force, or raise the "
            "limit",
        )

    async def _check_addable(
        self, topic: TopicName, found: FoundSchema, examined: ExaminedSchema, rules: SchemaRules
    ) -> None:
        strategy = rules.compatibility
        counted = _list_counted(found.list_live(), strategy, strategy in compatibility.TRANSITIVE)
        await self._judge.compare(examined, counted, strategy, partial(self._read_counted, topic), is_consumer=False)

    async def _find(self, topic: TopicName) -> FoundSchema:
        with _convert_errors(topic):
            return await self._reads.read(topic)

    async def _read_until_unchanged(self, topic: TopicName, read: Callable[[FoundSchema], Awaitable[T]]) -> T:
        """Return what `read` does for the node as it is. If a version is removed while it is read, begin again."""
        for _ in range(_ATTEMPTS):
            found = await self._find(topic)
            try:
                with _convert_errors(topic):
                    return await read(found)
            except SchemaChanged:
                continue
        raise _changed_too_often(topic)

    async def _read_versions(self, topic: TopicName, versions: Sequence[SchemaVersion]) -> list[RegisteredSchema]:
        found: list[RegisteredSchema] = []
        for at in range(0, len(versions), _READ_AT_A_TIME):
            group = versions[at : at + _READ_AT_A_TIME]
            results = await asyncio.gather(
                *(self._read_version(topic, version) for version in group), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                found.append(result)
        return found

    async def _read_counted(self, topic: TopicName, versions: Sequence[SchemaVersion]) -> list[tuple[int, Schema]]:
        read = await self._read_versions(topic, versions)
        return [(one.version, one.schema) for one in read if one.schema is not None]

    async def _read_version(self, topic: TopicName, version: SchemaVersion) -> RegisteredSchema:
        if not version.ledger_id:
            return RegisteredSchema(version.version, None, version.created_ms)
        description = f"version {version.version} of the schema of {topic}"
        try:
            stored = await self._ledgers.read(version.ledger_id, description)
        except DefinitionDeleted as error:
            now = (await self._nodes.read(topic)).node.versions
            if any(one.ledger_id == version.ledger_id for one in now):
                raise definition_lost(str(error), description) from error
            raise SchemaChanged from error
        return RegisteredSchema(version.version, stored.schema, stored.created_ms)


def _list_counted(
    live: Sequence[SchemaVersion], strategy: SchemaCompatibility, all_count: bool
) -> Sequence[SchemaVersion]:
    """Return the versions that a schema is compared with: no more than needed, as a definition may be lost."""
    if strategy == SchemaCompatibility.ALWAYS_COMPATIBLE:
        return []
    return live if all_count else live[-1:]


def _mark_deleted(found: FoundSchema, now_ms: int, force: bool) -> SchemaNode:
    """Return the node with a mark behind all versions; `force`: instead of them."""
    node = SchemaNode()
    node.CopyFrom(found.node)
    if force:
        node.deleting.extend(version.ledger_id for version in node.versions if version.ledger_id)
        del node.versions[:]
    elif node.versions and not node.versions[-1].ledger_id:
        del node.versions[-1]  # so that repeated deletions don't fill the node
    node.versions.add(version=found.next_version, created_ms=now_ms)
    return node


def _no_auto_update(topic: TopicName) -> BrokerError:
    return BrokerError(
        ErrorCode.INCOMPATIBLE_SCHEMA,
        f"{topic} has no such version of a schema, and producers and consumers must not add one "
        "(is_allow_auto_update_schema): an administrator adds it, or allows it",
        "schema",
    )


def _changed_too_often(topic: TopicName) -> BrokerError:
    return BrokerError(
        ErrorCode.METADATA_ERROR,
        f"the schema of {topic} was not changed: it, or the topic's node, was changed {_ATTEMPTS} times at the same "
        "time by other brokers: try again",
    )


@contextmanager
def _convert_errors(topic: TopicName, *, is_change: bool = False) -> Iterator[None]:
    """Convert errors of the metadata store and of ledgers to `BrokerError`."""
    try:
        yield
    except OutcomeUnknown as error:
        outcome = "may be changed or not: try again, it is changed at most once" if is_change else "can't be read now"
        raise BrokerError(ErrorCode.METADATA_ERROR, f"the schema of {topic} {outcome}: {error}") from error
    except SessionLost as error:
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker has lost its metadata session: {error}") from error
    except ForeignValue as error:
        text = f"the schema of {topic} is damaged: {error}. Delete it by force (`magnetar schemas delete --force`)"
        raise BrokerError(ErrorCode.CHECKSUM_ERROR, text) from error
    except MetadataError as error:
        text = f"the schema of {topic} can't be read or changed now, and nothing was changed: {error}"
        raise BrokerError(ErrorCode.METADATA_ERROR, text) from error
    except LedgerError as error:
        text = f"the schema of {topic} can't be stored or read now, and nothing was changed: {error}"
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, text) from error
