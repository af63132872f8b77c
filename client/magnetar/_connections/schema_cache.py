"""The definitions of schema versions that brokers have answered: one cache for each client.

A version never changes while its topic exists. A topic that was deleted and recreated begins with new versions, so the
incarnation is a part of the key.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from magnetar._connections.lookup import Lookup
from magnetar.exceptions import (
    DecodeError,
    IncarnationChanged,
    InvalidArgument,
    MagnetarException,
    NotFound,
    SchemaUnavailable,
)
from magnetar.schema._schema import SchemaInfo
from magnetar_wire.schemas import InvalidSchema, decode_schema_version

__all__ = ["SchemaCache", "VersionKey"]

# The cache drops what was not used for longest, when there are more definitions than this, or they are larger.
_MOST_VERSIONS: Final = 1_000
_MOST_BYTES: Final = 16 * 1024 * 1024


class VersionKey(NamedTuple):
    """A version of a topic's schema. A partition is a topic of its own here."""

    topic: str
    incarnation: str
    version: bytes


class SchemaCache:
    """Used on the client's loop."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        # The last one was used last.
        self._known: OrderedDict[VersionKey, SchemaInfo] = OrderedDict()
        self._bytes = 0

    def find(self, key: VersionKey) -> SchemaInfo | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    async def fetch(self, key: VersionKey) -> SchemaInfo:
        """Return the version's definition. Raises DecodeError if it does not exist, or is none that a client knows, and
        SchemaUnavailable if no broker has answered."""
        if (known := self.find(key)) is not None:
            return known
        try:
            shown = decode_schema_version(key.version)
            answer = await self._lookup.schema(key.topic, key.version, key.incarnation)
            fetched = SchemaInfo.from_message(answer.schema)
        except InvalidSchema as error:
            raise DecodeError(f"a message of {key.topic} has an invalid schema version: {error}") from None
        except IncarnationChanged as error:
            raise DecodeError(f"schema version {shown} of {key.topic} is not known any more: {error}") from error
        except NotFound as error:
            raise DecodeError(f"{key.topic} has no schema version {shown}") from error
        except InvalidArgument as error:
            raise DecodeError(f"{key.topic} has no schema version {shown}: {error}") from error
        except MagnetarException as error:
            raise SchemaUnavailable(f"schema version {shown} of {key.topic} can't be read now: {error}") from error
        except ValueError as error:
            raise DecodeError(
                f"schema version {shown} of {key.topic} is of a type that is not known: {error}"
            ) from error
        self._add(key, fetched)
        return fetched

    def _add(self, key: VersionKey, schema: SchemaInfo) -> None:
        if key in self._known:
            self._bytes -= len(self._known.pop(key).definition)
        self._known[key] = schema
        self._bytes += len(schema.definition)
        while len(self._known) > 1 and (len(self._known) > _MOST_VERSIONS or self._bytes > _MOST_BYTES):
            _, dropped = self._known.popitem(last=False)
            self._bytes -= len(dropped.definition)
