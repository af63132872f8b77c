"""What a topic does with the schemas of its producers and consumers (SCH-1, SCH-2), as Pulsar does it.

**A producer's schema** is a version of the topic's schema before the producer opens: it is found, or added if the
topic's rules allow it. A producer without a schema is refused only if validation is enforced and the topic has one.

**A consumer's schema** must be able to read the topic. At a topic that nobody has used without a schema it becomes the
first version. At one that is used without a schema only ALWAYS_COMPATIBLE admits it, and it becomes no version.

**Without a schema** are producers and consumers of bytes, and those that use the schema that the topic has
(AUTO_CONSUME, AUTO_PUBLISH). For them the registry is not read, unless validation is enforced, and the topic's policies
once a second at most, with what its opening has read. If policies can't be read now, they are admitted by those that
were known last.

**Policies.** A version stays for good, so one is added by the policies as they are then, and not while they can't be
read. A schema that is a version already needs no policies. A consumer with the last one's is admitted by those that
were known last.

**Time.** The registry is on bookies and in the metadata store. Each request has a maximum time, after which it fails
with an error that clients retry. A registration may have been done then: the next request finds it. Large
definitions are checked in one thread, which the hosts of clients use in turn (large_work.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.system_topics import is_system_topic
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.schemas import InvalidSchema, decode_schema_version, encode_schema_version
from magnetar_wire.topic_name import TopicName

__all__ = ["SchemaAccess", "TopicSchemas", "run_bounded", "takes_any_schema"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
# Types that stand for no schema, or for the topic's own.
_WITHOUT_SCHEMA: Final = (SchemaType.BYTES, SchemaType.AUTO_CONSUME)
_TIMEOUT_S: Final = 20.0
# For producers without a schema: how long policies count that were read, and how long they wait for newer ones.
_POLICIES_AGE_S: Final = 1.0
_POLICIES_TIMEOUT_S: Final = 2.0


def takes_any_schema(schema: Schema) -> bool:
    """Return whether a consumer with this schema uses the one of each message."""
    return schema.type == SchemaType.AUTO_CONSUME


async def run_bounded(name: TopicName, work: Callable[[], Awaitable[T]], timeout_s: float = _TIMEOUT_S) -> T:
    """Run `work` on the schema of a topic, and cancel it after a time. Raises `BrokerError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work()
    except TimeoutError:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY,
            f"the schema of {name} can't be read or stored now, without an answer for {timeout_s:g} s: retry",
        ) from None


class SchemaAccess:
    """The registry of a broker's session, for its topics and listeners."""

    def __init__(
        self,
        registry: SchemaRegistry,
        find_rules: Callable[[TopicName], Awaitable[SchemaRules]],
        read_rules: Callable[[TopicName], Awaitable[SchemaRules]],
        timeout_s: float = _TIMEOUT_S,
        policies_age_s: float = _POLICIES_AGE_S,
        policies_timeout_s: float = _POLICIES_TIMEOUT_S,
    ) -> None:
        """`find_rules` returns the rules by policies that are at most a few seconds old, `read_rules` by those that
        apply now. Both raise `BrokerError`."""
        self.policies_age_s = policies_age_s
        self.policies_timeout_s = policies_timeout_s
        self.registry = registry
        self.find_rules = find_rules
        self.read_rules = read_rules
        self._timeout_s = timeout_s

    async def run_bounded(self, name: TopicName, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work`, and cancel it after a time. Raises `BrokerError`."""
        return await run_bounded(name, work, self._timeout_s)

    async def read(self, name: TopicName, version: bytes, incarnation: str = "") -> tuple[bytes, Schema]:
        """Return a version of a topic's schema and its number, encoded. Empty: the latest. Raises `BrokerError`:
        NOT_FOUND if there is none, INCARNATION_CHANGED if the topic has another incarnation than the given one."""
        return await self.run_bounded(name, lambda: self._read(name, version, incarnation))

    async def _read(self, name: TopicName, version: bytes, incarnation: str) -> tuple[bytes, Schema]:
        found = await self._read_version(name, version)
        if incarnation:
            await self.registry.check_incarnation(name, incarnation)
        return found

    async def _read_version(self, name: TopicName, version: bytes) -> tuple[bytes, Schema]:
        if version:
            try:
                number = decode_schema_version(version)
            except InvalidSchema as error:
                raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error), "schema_version") from None
            found = await self.registry.get(name, number)
        else:
            latest = await self.registry.find_latest(name)
            if latest is None:
                raise _no_schema(name)
            found = latest
        if found.schema is None:
            raise _no_schema(name)
        return encode_schema_version(found.version), found.schema


class TopicSchemas:
    """The schemas of one topic."""

    __slots__ = ("_access", "_known_rules", "_logged_reason", "_name", "_read_at")

    def __init__(self, name: TopicName, access: SchemaAccess, rules: SchemaRules | None = None) -> None:
        """`rules`: those that were read a moment ago."""
        self._name = name
        self._access = access
        # As they were read last, and when that was.
        self._known_rules = rules
        self._read_at = asyncio.get_running_loop().time()
        # Why policies can't be read, as it was logged last.
        self._logged_reason = ""

    async def admit_producer(self, schema: Schema, client: str) -> bytes:
        """Return the encoded version of a producer's schema; empty: it has none. `client`: its address. Raises
        `BrokerError`."""
        if schema.type not in _WITHOUT_SCHEMA:
            version = await self._access.run_bounded(self._name, lambda: self._register(schema, client))
            return encode_schema_version(version)
        if (await self._find_recent_rules(self._access.policies_age_s)).validation_enforced:
            await self._access.run_bounded(self._name, self._check_without_schema)
        return b""

    async def _register(self, schema: Schema, client: str) -> int:
        return await self._access.registry.register(self._name, schema, self._access.read_rules, client=client)

    async def _check_without_schema(self) -> None:
        if await self._access.registry.has_schema(self._name):
            raise BrokerError(
                ErrorCode.INCOMPATIBLE_SCHEMA,
                f"topic {self._name} has a schema, and producers without one are refused (schema_validation_enforced): "
                "open the producer with a schema",
            )

    async def admit_consumer(self, schema: Schema, client: str, is_unused: Callable[[], bool]) -> None:
        """Raise `BrokerError` unless a consumer with this schema may read the topic.

        `is_unused`: whether nothing is stored, and no producer or consumer is connected that would be in the way of a
        first version.
        """
        if schema.type not in _WITHOUT_SCHEMA:
            await self._access.run_bounded(self._name, lambda: self._admit_consumer(schema, client, is_unused))

    async def _admit_consumer(self, schema: Schema, client: str, is_unused: Callable[[], bool]) -> None:
        registry, name = self._access.registry, self._name
        if await registry.has_schema(name):
            await registry.check_readable(name, schema, await self._find_recent_rules(0.0), client=client)
        elif is_unused() and not is_system_topic(name):
            await registry.register(name, schema, self._access.read_rules, client=client)
        else:
            rules = await self._find_rules()
            rules.check_known(name)
            if rules.compatibility != SchemaCompatibility.ALWAYS_COMPATIBLE:
                raise _not_added(name, schema)

    async def _find_rules(self) -> SchemaRules:
        rules = await self._access.find_rules(self._name)
        if not rules.is_known and self._known_rules is not None:
            return replace(self._known_rules, is_known=False)
        self._known_rules = rules
        self._read_at = asyncio.get_running_loop().time()
        return rules

    async def _find_recent_rules(self, max_age_s: float) -> SchemaRules:
        """Return the rules, or those known last if they can't be read now."""
        age_s = asyncio.get_running_loop().time() - self._read_at
        if self._known_rules is not None and age_s < max_age_s:
            return self._known_rules
        try:
            async with asyncio.timeout(None if self._known_rules is None else self._access.policies_timeout_s):
                return await self._find_rules()
        except (TimeoutError, BrokerError) as error:
            if self._known_rules is None:
                raise
            self._log_unread(str(error) or f"no answer for {self._access.policies_timeout_s:g} s")
            return replace(self._known_rules, is_known=False)

    def _log_unread(self, reason: str) -> None:
        """Log once per reason: each producer that is opened in the meantime comes here."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            text = "The policies on the schema of %s can't be read now, the known ones apply: %s"
            _log.info(text, self._name, reason)


def _no_schema(name: TopicName) -> BrokerError:
    return BrokerError(ErrorCode.NOT_FOUND, f"topic {name.base} has no schema: its messages are bytes")


def _not_added(name: TopicName, schema: Schema) -> BrokerError:
    return BrokerError(
        ErrorCode.INCOMPATIBLE_SCHEMA,
        f"topic {name} has no schema, but messages, producers or consumers: a consumer with a schema of type "
        f"{SchemaType.Name(schema.type)} can't add it; open a producer with this schema first, or consume bytes",
    )
