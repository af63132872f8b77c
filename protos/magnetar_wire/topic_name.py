"""The names of topics and namespaces: `{persistent|non-persistent}://tenant/namespace/local-name`.

Two shorter forms are accepted: `tenant/namespace/name` is persistent, and a bare `name` is
`persistent://public/default/name`. All forms become the full name, and two `TopicName`s are equal if their full names
are. Other forms are refused, with the problem and the right form. Two of them look plausible: `namespace/name`, which
has no tenant, and `persistent://tenant/cluster/namespace/name`, the form of Pulsar before 2.0.

**Characters.** Tenant and namespace: ASCII letters and digits and `_-=:.`. The local name: any Unicode except `/`,
control characters and surrogates. No part is `.` or `..`, because each is a component of paths and URLs, where these
have another meaning (path_component.py).

**Partitions.** Partition `i` of a topic is the topic `<name>-partition-<i>`, with `i` in plain decimal: `x-partition-1`
is a partition of `x`, and `x-partition-01`, `x-partition-+1` and `x-partition-٣` are ordinary topics. The name alone
does not show whether there is a partitioned topic `x`.

**Length.** 128 bytes for tenant and namespace each, and 768 bytes of UTF-8 for the local name without the suffix of a
partition, so that every topic can be partitioned. Escaped, the longest local name has 2,304 bytes, and 21 of suffix.
With the rest of the name, well over 1,000 of the 4,096 bytes of a path in the metadata store are left.

Brokers and clients parse the same few names again and again, so the last `_CACHED` names are cached. Each takes at most
about 2 kB.
"""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass, field
from typing import Final

from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.path_component import decode_path_component, encode_path_component

PUBLIC_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
MAX_TENANT_BYTES: Final = 128
MAX_NAMESPACE_BYTES: Final = 128
MAX_LOCAL_NAME_BYTES: Final = 768
MAX_PARTITION_INDEX: Final = 2**31 - 1

_CACHED: Final = 16_384
# Longer than any valid name. Such a text is refused before it is parsed.
_MAX_TEXT: Final = 2_048

_SEPARATOR: Final = "://"
_PARTITION: Final = "-partition-"
_ALPHABET: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_REFUSED: Final = re.compile(r"[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PARTITION_NAME: Final = re.compile(rf"(.+){_PARTITION}(0|[1-9][0-9]{{0,9}})", re.DOTALL)
_FORMS: Final = "write persistent://tenant/namespace/topic, tenant/namespace/topic, or a bare topic"


class TopicDomain(enum.StrEnum):
    """Whether a topic's messages are stored."""

    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


@dataclass(frozen=True, slots=True)
class NamespaceName:
    """`tenant/namespace`."""

    tenant: str
    namespace: str

    def __post_init__(self) -> None:
        _check_named("tenant", self.tenant, MAX_TENANT_BYTES)
        _check_named("namespace", self.namespace, MAX_NAMESPACE_BYTES)

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Parse `tenant/namespace`. Raises InvalidTopicName."""
        parts = text.split("/") if len(text) <= _MAX_TEXT else []
        if len(parts) != 2:
            raise InvalidTopicName(f"Invalid namespace name {_shown(text)}: write tenant/namespace")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@dataclass(frozen=True, slots=True, eq=False)
class TopicName:
    """A topic's full name, parsed. A partition is a topic, and has a name like any other."""

    domain: TopicDomain
    tenant: str
    namespace: str
    local_name: str
    # The partition's number; -1: the topic is not a partition.
    partition_index: int = field(init=False, repr=False)
    # The result of `str`. Equality and hash use it alone: it contains all other fields, and a str caches its hash.
    _full: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_named("tenant", self.tenant, MAX_TENANT_BYTES)
        _check_named("namespace", self.namespace, MAX_NAMESPACE_BYTES)
        base, index = _split_partition(self.local_name)
        _check_local_name(base)
        set_field = object.__setattr__
        set_field(self, "domain", _domain(self.domain))
        set_field(self, "partition_index", index)
        set_field(self, "_full", f"{self.domain}{_SEPARATOR}{self.tenant}/{self.namespace}/{self.local_name}")

    @staticmethod
    def parse(text: str) -> TopicName:
        """Parse a topic's name in one of the three forms. Raises InvalidTopicName."""
        return _parse(text)

    @classmethod
    def from_path(cls, domain: str, tenant: str, namespace: str, encoded_local_name: str) -> TopicName:
        """Return the topic of a path. `encoded_local_name` is the path's last component, still escaped."""
        try:
            local_name = decode_path_component(encoded_local_name)
        except ValueError as error:
            raise InvalidTopicName(f"Invalid topic name in a path: {error}") from error
        return cls(_domain(domain), tenant, namespace, local_name)

    @property
    def encoded_local_name(self) -> str:
        """The local name as one component of a path: of a node in the metadata store, or of a URL."""
        return encode_path_component(self.local_name)

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)

    @property
    def is_persistent(self) -> bool:
        return self.domain is TopicDomain.PERSISTENT

    @property
    def is_partition(self) -> bool:
        return self.partition_index >= 0

    @property
    def base(self) -> TopicName:
        """The partitioned topic of a partition; the topic itself if it is not a partition."""
        if self.partition_index < 0:
            return self
        return _parse(self._full.rpartition(_PARTITION)[0])

    def partition(self, index: int) -> TopicName:
        """Return partition `index` of this topic. Raises InvalidTopicName if this is a partition itself."""
        if self.is_partition:
            raise InvalidTopicName(
                f"{self._full} is a partition and has no partitions itself: use its partitioned topic, {self.base}"
            )
        if not 0 <= index <= MAX_PARTITION_INDEX:
            raise InvalidTopicName(f"Invalid partition {index} of topic {self._full}: use 0 … {MAX_PARTITION_INDEX:,}")
        return _parse(f"{self._full}{_PARTITION}{index}")

    def __str__(self) -> str:
        return self._full

    def __eq__(self, other: object) -> bool:
        return self._full == other._full if isinstance(other, TopicName) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._full)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return TopicName.parse, (self._full,)


@functools.lru_cache(maxsize=_CACHED)
def _parse(text: str) -> TopicName:
    """Parse a name, and cache it. Errors are not cached: an invalid name must not evict a valid one."""
    if len(text) > _MAX_TEXT:
        raise InvalidTopicName(
            f"Invalid topic name {_shown(text)}: it has {len(text):,} characters, above the limit of {_MAX_TEXT:,}"
        )
    domain, separator, rest = text.partition(_SEPARATOR)
    parts = (rest if separator else text).split("/")
    if not separator:
        domain = TopicDomain.PERSISTENT
        if len(parts) == 1:
            parts = [PUBLIC_TENANT, DEFAULT_NAMESPACE, *parts]
    try:
        if len(parts) != 3:
            raise InvalidTopicName(_wrong_number(len(parts), full=bool(separator)))
        return TopicName(_domain(domain), *parts)
    except InvalidTopicName as error:
        raise InvalidTopicName(f"Invalid topic name {_shown(text)}: {error}; {_FORMS}") from None


def _wrong_number(parts: int, *, full: bool) -> str:
    if parts == 2 and not full:
        return "it has two parts, and lacks the tenant or the namespace"
    if parts == 4 and full:
        return "it has four parts: the old form with a cluster is not supported"
    return f"it has {parts} part(s) instead of {'three' if full else 'one or three'}"


def _split_partition(local_name: str) -> tuple[str, int]:
    """Split the suffix of a partition off, and return its number: `("x", 1)`, `("x-partition-01", -1)`."""
    match = _PARTITION_NAME.fullmatch(local_name)
    if match is None or int(match[2]) > MAX_PARTITION_INDEX:
        return local_name, -1
    return match[1], int(match[2])


def _domain(text: str) -> TopicDomain:
    try:
        return TopicDomain(text)
    except ValueError:
        raise InvalidTopicName(f"unknown domain {_shown(text)}: use persistent or non-persistent") from None


def _check_named(what: str, name: str, limit: int) -> None:
    if not name:
        raise InvalidTopicName(f"the {what} is empty")
    if not _ALPHABET.fullmatch(name) or name in (".", ".."):
        raise InvalidTopicName(
            f"the {what} {_shown(name)} has other characters than ASCII letters, digits and _ - = : ., or is . or .."
        )
    if len(name) > limit:
        raise InvalidTopicName(f"the {what} {_shown(name)} has {len(name):,} bytes, above the limit of {limit}")


def _check_local_name(name: str) -> None:
    if not name:
        raise InvalidTopicName("the topic's local name is empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic can't be named {name!r}")
    if refused := _REFUSED.search(name):
        kind = "a slash" if refused[0] == "a slash" else f"U+{ord(refused[0]):04X}, a control character or surrogate"
        raise InvalidTopicName(f"the topic's local name {_shown(name)} has {kind} at index {refused.start()}")
    size = len(name.encode())
    if size > MAX_LOCAL_NAME_BYTES:
        raise InvalidTopicName(
            f"the topic's local name {_shown(name)} has {size:,} UTF-8 bytes, above the limit of {MAX_LOCAL_NAME_BYTES}"
        )


def _shown(text: str) -> str:
    """Quote a text for an error message, in one line and shortened."""
    return repr(text if len(text) <= 100 else text[:100] + "…")
