"""Which topics are to be read, as the user says it: by names, or by a pattern.

A pattern is a regular expression (Python's) that a topic's whole name has to match: `orders-.*` among the topics of
public/default, `tenant/namespace/orders-.*` or `persistent://tenant/namespace/orders-.*` among those of another
namespace. Tenant and namespace are meant literally. A partitioned topic is matched by its own name, and read with all
of its partitions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicName

__all__ = ["TopicChoice", "chosen_by_pattern", "chosen_topics"]

_SCHEME: Final = "persistent://"
# Of the prefix that brokers are told; a shorter one means more topics.
_PREFIX_CHARACTERS: Final = 64
_LITERAL: Final = re.compile(r"[A-Za-z0-9_-]*")
_QUANTIFIERS: Final = ("*", "+", "?", "{")


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """Either names, or a namespace with a pattern for the names in it."""

    names: tuple[TopicName, ...] = ()
    namespace: NamespaceName | None = None
    pattern: str = ""

    def matches(self, topic: TopicName) -> bool:
        return topic.is_persistent and re.fullmatch(self.pattern, topic.local_name) is not None

    def name_prefixes(self) -> dict[str, str]:
        """By namespace, a prefix that the local names of all chosen topics, and so of their partitions, begin with."""
        if self.namespace is not None:
            return {str(self.namespace): _literal_prefix(self.pattern)[:_PREFIX_CHARACTERS]}
        names: dict[str, list[str]] = {}
        for name in self.names:
            names.setdefault(str(name.namespace_name), []).append(name.local_name)
        return {namespace: _common_prefix(local_names)[:_PREFIX_CHARACTERS] for namespace, local_names in names.items()}

    def __str__(self) -> str:
        if self.namespace is None:
            return ", ".join(str(name) for name in self.names[:10])
        return f"{_SCHEME}{self.namespace}/{self.pattern}"


def _common_prefix(texts: Sequence[str]) -> str:
    least, most = min(texts), max(texts)
    length = 0
    while length < min(len(least), len(most)) and least[length] == most[length]:
        length += 1
    return least[:length]


def _literal_prefix(pattern: str) -> str:
    """What each text begins with that the regular expression matches as a whole; shorter than it could be where that is
    not plain to see."""
    if "|" in pattern:
        return ""
    found = _LITERAL.match(pattern)
    prefix = found[0] if found is not None else ""
    return prefix[:-1] if pattern.startswith(_QUANTIFIERS, len(prefix)) else prefix


def chosen_topics(names: Sequence[str]) -> TopicChoice:
    """Raises InvalidOptions."""
    topics: dict[TopicName, None] = {}
    for name in names:
        try:
            topic = TopicName.parse(name)
        except InvalidTopicName as error:
            raise InvalidOptions(str(error)) from None
        if not topic.is_persistent:
            raise InvalidOptions(f"{topic} stores nothing, so there is nothing to read: use a persistent topic")
        if topic in topics:
            raise InvalidOptions(f"{topic} is named twice: name it once")
        topics[topic] = None
    if not topics:
        raise InvalidOptions("the option 'topics' names none")
    for topic in topics:
        if topic.is_partition and topic.base in topics:
            raise InvalidOptions(f"{topic} is a partition of {topic.base}, which is named, too: name one of them")
    return TopicChoice(names=tuple(topics))


def chosen_by_pattern(text: str) -> TopicChoice:
    """Raises InvalidOptions."""
    tenant, namespace, pattern = PUBLIC_TENANT, DEFAULT_NAMESPACE, text.removeprefix(_SCHEME)
    if text.startswith("non-persistent://"):
        raise InvalidOptions(f"topicsPattern {text!r:.200} is of topics that store nothing: use persistent ones")
    if "/" in pattern:
        tenant, _, rest = pattern.partition("/")
        namespace, slash, pattern = rest.partition("/")
        if not slash or "/" in pattern:
            raise InvalidOptions(
                f"topicsPattern {text!r:.200} has another form than [persistent://]tenant/namespace/regular-expression"
            )
    elif text.startswith(_SCHEME):
        raise InvalidOptions(f"topicsPattern {text!r:.200} has no namespace: write persistent://tenant/namespace/…")
    try:
        re.compile(pattern)
        return TopicChoice(namespace=NamespaceName(tenant, namespace), pattern=pattern)
    except re.error as error:
        raise InvalidOptions(f"topicsPattern {text!r:.200} is no regular expression: {error}") from None
    except InvalidTopicName as error:
        raise InvalidOptions(
            f"topicsPattern {text!r:.200} names no namespace (only behind it may be a regular expression): {error}"
        ) from None
