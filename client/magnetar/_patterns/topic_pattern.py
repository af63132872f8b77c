"""The pattern of topics that a consumer subscribes to: a regular expression within one namespace.

The broker matches it, by RE2, against whole names without their domain and partition suffix, as Pulsar does. A pattern
that RE2 does not support, such as one with a lookahead, is matched by the client, by Python's `re`.
"""

from __future__ import annotations

import re
from typing import Final

from magnetar._enums import RegexSubscriptionMode
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName
from magnetar_protos.broker_pb2 import TopicsMode, WatchTopics
from magnetar_wire.errors import InvalidTopicName as InvalidName
from magnetar_wire.topic_name import DEFAULT_NAMESPACE, PUBLIC_TENANT, NamespaceName, TopicDomain, TopicName

__all__ = ["TopicPattern"]

_SEPARATOR: Final = "://"
_MODES: Final = {
    RegexSubscriptionMode.PersistentOnly: (TopicsMode.TOPICS_PERSISTENT, (TopicDomain.PERSISTENT,)),
    RegexSubscriptionMode.NonPersistentOnly: (TopicsMode.TOPICS_NON_PERSISTENT, (TopicDomain.NON_PERSISTENT,)),
    RegexSubscriptionMode.AllTopics: (TopicsMode.TOPICS_ALL, tuple(TopicDomain)),
}
# Python's flags that RE2 has, too.
_FLAGS: Final = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
_OTHER_FLAGS: Final = re.VERBOSE | re.LOCALE
_INLINE_FLAGS: Final = re.compile(r"^\(\?[aiLmsux]+\)")


# In characters. Brokers match shorter ones only (`subscription_pattern_max_length`).
_MAX_LENGTH: Final = 10_000


class TopicPattern:
    """The namespace, the expression that a broker gets, and what the client matches if the broker can't."""

    def __init__(self, pattern: str | re.Pattern[str], mode: RegexSubscriptionMode) -> None:
        """Raises InvalidTopicName and InvalidConfiguration."""
        compiled = _compile(pattern)
        self.text = compiled.pattern
        self._mode, domains = _MODES[mode]
        domain, rest = _split_domain(self.text)
        if domain is not None and domain not in domains:
            raise InvalidConfiguration(
                f"the pattern {self.text!r} is of {domain} topics, and regex_subscription_mode = {mode.name} excludes "
                "them: use RegexSubscriptionMode."
                + ("PersistentOnly" if domain is TopicDomain.PERSISTENT else "NonPersistentOnly")
            )
        self._domains = domains
        self.namespace, local = _split_namespace(self.text, rest)
        if not local:
            raise InvalidTopicName(f"the topic pattern {self.text!r} has no expression for the topics' own names")
        self._local = re.compile(local, compiled.flags)
        flags = "".join(letter for flag, letter in _FLAGS.items() if compiled.flags & flag)
        expression = f"{re.escape(str(self.namespace))}/(?:{local})"
        if flags:
            expression = f"(?{flags}){expression}"
        # None: RE2 does not have its flags.
        self._for_broker = None if compiled.flags & _OTHER_FLAGS else expression

    def make_request(self, *, by_broker: bool) -> WatchTopics:
        """Return the request for the matching topics; not `by_broker`: for all topics of the namespace."""
        pattern = self._for_broker or "" if by_broker else ""
        return WatchTopics(namespace=str(self.namespace), pattern=pattern, mode=self._mode)

    @property
    def suits_broker(self) -> bool:
        return self._for_broker is not None

    def matches(self, name: TopicName) -> bool:
        """Return whether the client's own match includes the topic."""
        return (
            name.domain in self._domains
            and name.namespace_name == self.namespace
            and self._local.fullmatch(name.base.local_name) is not None
        )


def _compile(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise InvalidTopicName(f"the topic pattern {text!r:.200} is of bytes: use a str")
    if len(text) > _MAX_LENGTH:
        raise InvalidTopicName(
            f"the topic pattern {text[:50]!r}… has {len(text):,} characters, and the maximum is {_MAX_LENGTH:,}: use a "
            "shorter one, or a list of topics"
        )
    if isinstance(pattern, re.Pattern):
        return pattern
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidTopicName(f"the topic pattern {pattern!r} is no regular expression: {error}") from None
    except (RecursionError, OverflowError) as error:
        raise InvalidTopicName(f"the topic pattern {pattern!r:.200} is too complex: {error}") from None


def _split_domain(text: str) -> tuple[TopicDomain | None, str]:
    """Return the domain, and the rest without flags and a leading `^`."""
    text = _INLINE_FLAGS.sub("", text, count=1).removeprefix("^")
    before, separator, rest = text.partition(_SEPARATOR)
    if not separator:
        return None, text
    try:
        return TopicDomain(before), rest.removeprefix("^")
    except ValueError:
        raise InvalidTopicName(
            f"the topic pattern {text!r} begins with {before!r}: use persistent://tenant/namespace/…, or "
            "non-persistent://tenant/namespace/…"
        ) from None


def _split_namespace(text: str, rest: str) -> tuple[NamespaceName, str]:
    parts = rest.split("/", 2)
    if len(parts) == 1:
        return NamespaceName(PUBLIC_TENANT, DEFAULT_NAMESPACE), rest
    try:
        if len(parts) == 3:
            return NamespaceName(parts[0], parts[1]), parts[2]
    except InvalidName:
        pass
    raise InvalidTopicName(
        f"the topic pattern {text!r} is not within one namespace: use tenant/namespace/…, with an expression for the "
        "topics' own names only"
    )
