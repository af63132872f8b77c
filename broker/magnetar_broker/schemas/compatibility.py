"""Whether a schema is compatible with earlier versions (SCH-2), by Pulsar's strategies.

    strategy                readers with …     can read what was written with …
    BACKWARD                the new schema     the last version
    FORWARD                 the last version   the new schema
    FULL, UNDEFINED         both
    …_TRANSITIVE            the same, with each version instead of the last one
    ALWAYS_COMPATIBLE       anything goes, also another type
    ALWAYS_INCOMPATIBLE     nothing new

A consumer's schema must be able to read the last version; under the strategies BACKWARD_TRANSITIVE and FULL_TRANSITIVE
it is checked as a new version is; under ALWAYS_INCOMPATIBLE no schema may be used.

What "can read" means depends on the type. AVRO and JSON: Avro's resolution (avro_resolution.py). KEY_VALUE: both parts.
PROTOBUF_NATIVE: it is the same message type. Nothing is compared for other types: they have one form, or, like
PROTOBUF, a format of their own with its own rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.avro_definitions import AvroType
from magnetar_broker.schemas.avro_resolution import ReadProblem, Rule, find_read_problem
from magnetar_broker.schemas.definitions import AVRO_TYPES, fingerprint, parse_avro_schema, read_schema_id
from magnetar_broker.schemas.key_value_definitions import KeyValueSchemas, split_schema
from magnetar_broker.schemas.protobuf_definitions import find_root_message
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema, SchemaType

__all__ = ["TRANSITIVE", "check_compatible", "check_readable"]

_BACKWARD: Final = frozenset(
    (
        SchemaCompatibility.BACKWARD,
        SchemaCompatibility.BACKWARD_TRANSITIVE,
        SchemaCompatibility.FULL,
        SchemaCompatibility.FULL_TRANSITIVE,
    )
)
_FORWARD: Final = frozenset(
    (
        SchemaCompatibility.FORWARD,
        SchemaCompatibility.FORWARD_TRANSITIVE,
        SchemaCompatibility.FULL,
        SchemaCompatibility.FULL_TRANSITIVE,
    )
)
# By these all versions count, by others only the last one does.
TRANSITIVE: Final = frozenset(
    (
        SchemaCompatibility.BACKWARD_TRANSITIVE,
        SchemaCompatibility.FORWARD_TRANSITIVE,
        SchemaCompatibility.FULL_TRANSITIVE,
    )
)


def check_compatible(
    schema: Schema,
    earlier: Sequence[tuple[int, Schema]],
    strategy: SchemaCompatibility,
    budget: WorkBudget | None = None,
) -> None:
    """Raise `BrokerError` INCOMPATIBLE_SCHEMA, with field and rule, unless the schema may become the next version.

    `earlier`: version numbers and schemas that count, oldest first. Strategies that are not transitive compare with the
    last one only. All are valid.
    """
    strategy = _resolve_default(strategy)
    if strategy == SchemaCompatibility.ALWAYS_COMPATIBLE or not earlier:
        return
    backward, forward = strategy in _BACKWARD, strategy in _FORWARD
    comparison = _Comparison(strategy, schema, budget or WorkBudget(), backward=backward, forward=forward)
    if strategy in TRANSITIVE:
        comparison.check_all(earlier)
    else:
        comparison.check_last(*earlier[-1])


def check_readable(
    schema: Schema,
    earlier: Sequence[tuple[int, Schema]],
    strategy: SchemaCompatibility,
    budget: WorkBudget | None = None,
) -> None:
    """Raise `BrokerError` INCOMPATIBLE_SCHEMA unless a consumer with this schema may read the topic.

    `earlier` as for `check_compatible`. With none, the topic's messages have no schema.
    """
    strategy = _resolve_default(strategy)
    if strategy == SchemaCompatibility.ALWAYS_COMPATIBLE:
        return
    if not earlier:
        raise _incompatible("the topic has no schema that its messages could be read with")
    if strategy == SchemaCompatibility.ALWAYS_INCOMPATIBLE:
        raise _incompatible("consumers can't use a schema while the strategy is ALWAYS_INCOMPATIBLE")
    is_transitive = strategy in (SchemaCompatibility.BACKWARD_TRANSITIVE, SchemaCompatibility.FULL_TRANSITIVE)
    forward = is_transitive and strategy in _FORWARD
    comparison = _Comparison(strategy, schema, budget or WorkBudget(), backward=True, forward=forward, is_consumer=True)
    if is_transitive:
        comparison.check_all(earlier)
    else:
        comparison.check_last(*earlier[-1])


def _resolve_default(strategy: SchemaCompatibility) -> SchemaCompatibility:
    return SchemaCompatibility.FULL if strategy == SchemaCompatibility.UNDEFINED else strategy


def _incompatible(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INCOMPATIBLE_SCHEMA, text, "schema")


class _Comparison:
    """Compares one schema with earlier versions."""

    def __init__(
        self,
        strategy: SchemaCompatibility,
        schema: Schema,
        budget: WorkBudget,
        *,
        backward: bool,
        forward: bool,
        is_consumer: bool = False,
    ) -> None:
        self._strategy = strategy
        self._schema = schema
        self._budget = budget
        self._backward = backward
        self._forward = forward
        self._is_consumer = is_consumer
        self._is_transitive = False
        self._version = 0
        # By type and definition: parts of the new schema, and of the only version that it is compared with.
        self._parsed: dict[tuple[int, bytes], AvroType | None] = {}

    def check_all(self, earlier: Sequence[tuple[int, Schema]]) -> None:
        """Begin with the last version."""
        self._is_transitive = True
        for self._version, schema in reversed(earlier):
            self._check(self._schema, schema, "")

    def check_last(self, version: int, schema: Schema) -> None:
        """Compare with one version. The same schema again is compatible by each strategy."""
        self._version = version
        if not self._is_same(schema):
            self._check(self._schema, schema, "")

    def _is_same(self, other: Schema) -> bool:
        if self._schema.type != other.type:
            return False
        if self._schema.type != SchemaType.KEY_VALUE and self._schema.definition == other.definition:
            return True
        return self._fingerprint(self._schema) == self._fingerprint(other)

    def _fingerprint(self, schema: Schema) -> bytes:
        parsed: AvroType | KeyValueSchemas | None = None
        if schema.type == SchemaType.KEY_VALUE:
            parsed = split_schema(schema)
        elif schema.type in AVRO_TYPES:
            parsed = self._parse(schema)
        return fingerprint(schema, parsed, self._budget)

    def _check(self, new: Schema, old: Schema, part: str) -> None:
        if new.type != old.type:
            raise self._refuse(
                part,
                f"the type changed from {_name_type(old)} to {_name_type(new)}, and only ALWAYS_COMPATIBLE allows that",
            )
        if new.type == SchemaType.KEY_VALUE:
            self._check_key_value(new, old)
        elif self._strategy == SchemaCompatibility.ALWAYS_INCOMPATIBLE:
            raise self._refuse(part, "this strategy refuses each new schema")
        elif new.type in (SchemaType.AVRO, SchemaType.JSON):
            self._check_avro(new, old, part)
        elif new.type == SchemaType.PROTOBUF_NATIVE:
            self._check_message(new, old, part)

    def _check_key_value(self, new: Schema, old: Schema) -> None:
        new_parts, old_parts = split_schema(new), split_schema(old)
        self._check(new_parts.key, old_parts.key, "key")
        self._check(new_parts.value, old_parts.value, "value")

    def _check_message(self, new: Schema, old: Schema, part: str) -> None:
        was, is_now = (find_root_message(each.definition, self._budget) for each in (old, new))
        if was != is_now:
            raise self._refuse(part, f"the message type changed from {was!r:.200} to {is_now!r:.200}")

    def _check_avro(self, new: Schema, old: Schema, part: str) -> None:
        new_type, old_type = self._parse(new), self._parse(old, keep=not self._is_transitive)
        if new_type is None or old_type is None:
            self._check_json_schemas(new, old, new_type, old_type, part)
            return
        if self._backward:
            problem = find_read_problem(old_type, new_type, self._budget)
            if problem is not None:
                raise self._refuse(part, _explain(problem, backward=True) + self._name_backward())
        if self._forward:
            problem = find_read_problem(new_type, old_type, self._budget)
            if problem is not None:
                consequence = f", so readers with version {self._version} can't read newer messages"
                raise self._refuse(part, _explain(problem, backward=False) + consequence)

    def _parse(self, schema: Schema, *, keep: bool = True) -> AvroType | None:
        """Parse a definition once, unless there may be many like it."""
        key = (schema.type, schema.definition)
        if key in self._parsed:
            return self._parsed[key]
        parsed = parse_avro_schema(schema, self._budget)
        if keep:
            self._parsed[key] = parsed
        return parsed

    def _check_json_schemas(
        self, new: Schema, old: Schema, new_type: AvroType | None, old_type: AvroType | None, part: str
    ) -> None:
        """Compare definitions of which one is a JSON schema: as in Pulsar, only two of them with different ids are
        incompatible, and transitive strategies can't compare them."""
        if self._is_transitive:
            raise self._refuse(part, "a JSON schema instead of an Avro schema can't be compared with all versions")
        if new_type is None and old_type is None and read_schema_id(new) != read_schema_id(old):
            raise self._refuse(part, "the JSON schemas have different ids")

    def _name_backward(self) -> str:
        if self._is_consumer:
            return ", so consumers with this schema can't read messages of that version"
        return ", so readers with the new schema can't read older messages"

    def _refuse(self, part: str, why: str) -> BrokerError:
        strategy = SchemaCompatibility.Name(self._strategy)
        where = f"{part}: " if part else ""
        return _incompatible(f"the schema is not compatible with version {self._version} ({strategy}): {where}{why}")


def _name_type(schema: Schema) -> str:
    return SchemaType.Name(schema.type)


def _explain(problem: ReadProblem, *, backward: bool) -> str:
    """Describe the problem as a change. The writer's schema is the older one if `backward`."""
    old, new = (problem.writer, problem.reader) if backward else (problem.reader, problem.writer)
    what = f'field "{problem.path}"' if problem.path.strip(".[]{}…") else "the schema"
    if problem.rule is Rule.DEFAULT:
        return f"{what} was {'added' if backward else 'removed, but had been defined'} without a default"
    if problem.rule is Rule.ALIASES:
        return f"{what} is the name or alias of two fields"
    if problem.rule is Rule.NAME:
        return f"{what} changed its type's name from {old} to {new}"
    if problem.rule is Rule.SIZE:
        return f"{what} changed its size from {old} to {new} bytes"
    return f"{what} changed its type from {old} to {new}"
