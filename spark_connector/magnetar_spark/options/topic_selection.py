"""The topics of a query as the user selects them: one, several, or a pattern.

`load("t")` and the option `topic` name one topic; `load(["a", "b"])` and the option `topics` name several: `a,b`, or a
JSON list, for names that contain commas. Exactly one of these or `topicsPattern` is given. Spark passes the argument of
`load(…)` as the option `path`, or a list as the option `paths`, in JSON.

A pattern is a regular expression of Python that matches a topic's whole name: `orders-.*` selects topics of
public/default, `tenant/namespace/orders-.*` and `persistent://tenant/namespace/orders-.*` those of another namespace.
Tenant and namespace are taken literally. A pattern is compared with the name of a partitioned topic, and selects all of
its partitions.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicName

__all__ = ["TopicSelection", "parse_topic_options", "select_by_pattern", "select_topics"]

# The options that select topics, as errors show them.
_SHOWN_AS: Final = {
    "topic": "the option 'topic'",
    "topics": "the option 'topics'",
    "topicspattern": "the option 'topicsPattern'",
    "path": "load(…)",
    "paths": "load([…])",
}
_SCHEME: Final = "persistent://"
# Maximum length of the prefix in a lease on a namespace; a shorter prefix covers more topics.
_MAX_PREFIX_LENGTH: Final = 64
_LITERAL: Final = re.compile(r"[A-Za-z0-9_-]*")
_QUANTIFIERS: Final = ("*", "+", "?", "{")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Either the names of topics, or a namespace and a pattern of local names."""

    names: tuple[TopicName, ...] = ()
    namespace: NamespaceName | None = None
    pattern: str = ""

    def matches(self, topic: TopicName) -> bool:
        return topic.is_persistent and re.fullmatch(self.pattern, topic.local_name) is not None

    def find_name_prefixes(self) -> dict[str, str]:
        """Return, by namespace, a prefix of the local names of all selected topics, and so of their partitions."""
        if self.namespace is not None:
            return {str(self.namespace): _find_literal_prefix(self.pattern)[:_MAX_PREFIX_LENGTH]}
        names: dict[str, list[str]] = {}
        for name in self.names:
            names.setdefault(str(name.namespace_name), []).append(name.local_name)
        return {namespace: _find_common_prefix(local_names) for namespace, local_names in names.items()}

    def __str__(self) -> str:
        if self.namespace is None:
            return ", ".join(str(name) for name in self.names[:10])
        return f"{_SCHEME}{self.namespace}/{self.pattern}"


def parse_topic_options(options: Mapping[str, str]) -> TopicSelection:
    """Parse the options that select topics. Their names are in lower case. Raises InvalidOptions."""
    given = {name: options[name].strip() for name in _SHOWN_AS if options.get(name, "").strip()}
    if not given:
        raise InvalidOptions(
            "no topic is given: set exactly one of the options 'topic', 'topics' (a,b,c) and "
            "'topicsPattern', or call load('topic')"
        )
    if len(given) > 1:
        ways = " and by ".join(f"{_SHOWN_AS[name]}, {text!r:.100}" for name, text in given.items())
        raise InvalidOptions(f"the topics to read are given {len(given)} times: by {ways}. Keep exactly one of these")
    ((name, text),) = given.items()
    if name == "topicspattern":
        return select_by_pattern(text)
    if name in ("topics", "paths"):
        return select_topics(_parse_list(name, text))
    if "," in text:
        raise InvalidOptions(
            f"{_SHOWN_AS[name]} takes one topic, but {text!r:.200} has a comma: for several topics use the "
            "option 'topics', a,b,c, and for one with a comma in its name the option 'topics' as JSON, "
            f"{json.dumps([text])[:200]}"
        )
    return select_topics([text])


def _parse_list(name: str, text: str) -> list[str]:
    """Return the names in `a,b`, or in a JSON list."""
    if not text.startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()]
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{_SHOWN_AS[name]} is not a JSON list: {error}") from None
    if not all(isinstance(one, str) for one in names):
        raise InvalidOptions(f"{_SHOWN_AS[name]} lists values that are not names: {text[:200]}")
    return list(names)


def _find_common_prefix(names: list[str]) -> str:
    return os.path.commonprefix(names)[:_MAX_PREFIX_LENGTH]  # noqa: RUF071 (names, not paths)


def _find_literal_prefix(pattern: str) -> str:
    """Return a prefix of all texts that the regular expression matches; not always the longest one."""
    if "|" in pattern:
        return ""
    found = _LITERAL.match(pattern)
    prefix = found[0] if found is not None else ""
    return prefix[:-1] if pattern.startswith(_QUANTIFIERS, len(prefix)) else prefix


def select_topics(names: Sequence[str]) -> TopicSelection:
    """Select topics by their names. Raises InvalidOptions."""
    topics: dict[TopicName, None] = {}
    for name in names:
        try:
            topic = TopicName.parse(name)
        except InvalidTopicName as error:
            raise InvalidOptions(str(error)) from None
        if not topic.is_persistent:
            raise InvalidOptions(f"{topic} is non-persistent, so there are no messages to read: use a persistent topic")
        if topic in topics:
            raise InvalidOptions(f"{topic} is named twice: name it once")
        topics[topic] = None
    if not topics:
        raise InvalidOptions("the list of topics is empty: name at least one")
    for topic in topics:
        if topic.is_partition and topic.base in topics:
            raise InvalidOptions(f"{topic} is a partition of {topic.base}, which is also named: name one of them")
    return TopicSelection(names=tuple(topics))


def select_by_pattern(text: str) -> TopicSelection:
    """Select the topics of a namespace that match a pattern. Raises InvalidOptions."""
    tenant, namespace, pattern = PUBLIC_TENANT, DEFAULT_NAMESPACE, text.removeprefix(_SCHEME)
    if text.startswith("non-persistent://"):
        raise InvalidOptions(
            f"topicsPattern {text!r:.200} matches non-persistent topics, which have no messages to read: use "
            "persistent ones"
        )
    if "/" in pattern:
        tenant, _, rest = pattern.partition("/")
        namespace, slash, pattern = rest.partition("/")
        if not slash or "/" in pattern:
            raise InvalidOptions(
                f"topicsPattern {text!r:.200} is invalid: use [persistent://]tenant/namespace/regular-expression"
            )
    elif text.startswith(_SCHEME):
        raise InvalidOptions(f"topicsPattern {text!r:.200} has no namespace: write persistent://tenant/namespace/…")
    try:
        re.compile(pattern)
        return TopicSelection(namespace=NamespaceName(tenant, namespace), pattern=pattern)
    except re.error as error:
        raise InvalidOptions(f"topicsPattern {text!r:.200} is not a valid regular expression: {error}") from None
    except InvalidTopicName as error:
        raise InvalidOptions(
            f"topicsPattern {text!r:.200} has an invalid namespace (a regular expression is allowed only "
            f"after it): {error}"
        ) from None
