"""The topics of a query, as the user names them: one, several, or a pattern.

`load("t")` and the option `topic` name one topic; `load(["a", "b"])` and the option `topics` several: `a,b`, or a list
in JSON, for names that have commas in them. Exactly one of these is given, or `topicsPattern`. Spark passes what
`load(…)` was given as the option `path` or, where that is a list, as `paths`, in JSON.

A pattern is a regular expression (Python's) that a topic's whole name has to match: `orders-.*` among the topics of
public/default, `tenant/namespace/orders-.*` or `persistent://tenant/namespace/orders-.*` among those of another
namespace. Tenant and namespace are meant literally. A partitioned topic is matched by its own name, and read with all
of its partitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicName

__all__ = ["TopicChoice", "chosen_by_pattern", "chosen_topics", "topics_of"]

_SHOWN_AS: Final = {
    "topic": "the option 'topic'",
    "topics": "the option 'topics'",
    "topicspattern": "the option 'topicsPattern'",
    "path": "load(…)",
    "paths": "load([…])",
}
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


def topics_of(options: Mapping[str, str]) -> TopicChoice:
    """The choice that the options make; their names are in lower case. Raises InvalidOptions."""
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
        return chosen_by_pattern(text)
    if name in ("topics", "paths"):
        return chosen_topics(_listed(name, text))
    if "," in text:
        raise InvalidOptions(
            f"{_SHOWN_AS[name]} takes one topic, but {text!r:.200} has a comma: for several topics use the "
            "option 'topics', a,b,c, and for one with a comma in its name the option 'topics' as JSON, "
            f"{json.dumps([text])[:200]}"
        )
    return chosen_topics([text])


def _listed(name: str, text: str) -> list[str]:
    """The names in `a,b`, or in a list in JSON."""
    if not text.startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()]
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{_SHOWN_AS[name]} is not a JSON list: {error}") from None
    if not all(isinstance(one, str) for one in names):
        raise InvalidOptions(f"{_SHOWN_AS[name]} lists values that are not names: {text[:200]}")
    return list(names)


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
            raise InvalidOptions(f"{topic} is non-persistent, so there are no messages to read: use a persistent topic")
        if topic in topics:
            raise InvalidOptions(f"{topic} is named twice: name it once")
        topics[topic] = None
    if not topics:
        raise InvalidOptions("the list of topics is empty: name at least one")
    for topic in topics:
        if topic.is_partition and topic.base in topics:
            raise InvalidOptions(f"{topic} is a partition of {topic.base}, which is also named: name one of them")
    return TopicChoice(names=tuple(topics))


def chosen_by_pattern(text: str) -> TopicChoice:
    """Raises InvalidOptions."""
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
        return TopicChoice(namespace=NamespaceName(tenant, namespace), pattern=pattern)
    except re.error as error:
        raise InvalidOptions(f"topicsPattern {text!r:.200} is not a valid regular expression: {error}") from None
    except InvalidTopicName as error:
        raise InvalidOptions(
            f"topicsPattern {text!r:.200} has an invalid namespace (a regular expression is allowed only "
            f"after it): {error}"
        ) from None
