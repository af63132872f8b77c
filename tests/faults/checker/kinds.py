"""The kinds of lines and the types of their fields: the tables of history.md as code.

A field `a|b` is one of two, of which a line has exactly one. A field `a?` is optional.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final

__all__ = ["KINDS", "mistake"]

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return type(value) is str


def _object(value: Any) -> bool:
    return type(value) is dict


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _flag(value: Any) -> bool:
    return type(value) is bool


def _time(value: Any) -> bool:
    return type(value) in (float, int)


def _one_of(*values: str) -> Check:
    return lambda value: value in values


def _all(check: Check) -> Check:
    return lambda value: type(value) is list and all(map(check, value))


def _items(*types: tuple[type, ...]) -> Check:
    """A list of lists, each with these types. Their types are compared as tuples, since there are millions of items."""
    allowed: set[tuple[type, ...]] = {()}
    for choice in types:
        allowed = {(*before, one) for before in allowed for one in choice}

    def check(value: Any) -> bool:
        return type(value) is list and all(type(item) is list and tuple(map(type, item)) in allowed for item in value)

    return check


def _id(value: Any) -> bool:
    return type(value) is list and [type(part) for part in value] == [int, int, int]


def _fields(value: Any) -> bool:
    return type(value) is dict and all(type(default) is list and len(default) < 2 for default in value.values())


def _owners(value: Any) -> bool:
    return type(value) is dict and all(
        type(owner) is list and [type(part) for part in owner] == [str, int] for owner in value.values()
    )


_TEXT, _NUMBER, _KEY = (str,), (int,), (str, type(None))
_ID = (_NUMBER, _NUMBER, _NUMBER)
_MESSAGE = (_TEXT, _NUMBER, _TEXT, _KEY)

KINDS: Final[dict[str, dict[str, Check]]] = {
    "history": {"format": _whole, "writer": _text},
    "topic": {
        "topic": _text,
        "partitions": _whole,
        "order": _one_of("producer", "key"),
        "deduplicated": _flag,
        "exclusive?": _flag,
        "retention_s?": _whole,
        "ttl_s?": _whole,
        "quota_messages?": _whole,
        "holds_producers?": _flag,
    },
    "subscription": {
        "subscription": _text,
        "topic": _text,
        "type": _one_of("Exclusive", "Failover", "Shared", "Key_Shared", "Reader"),
        "durable": _flag,
    },
    "broker": {"broker": _text, "addresses": _all(_text)},
    "owners": {"since": _time, "owners": _owners},
    "session_over": {"broker": _text, "session": _whole},
    "act": {
        "begun": _time,
        "act": _text,
        "target": _text,
        "result": _one_of("done", "refused", "unknown"),
        "why": _text,
    },
    "fault": {"fault": _whole, "kind": _text, "target": _text},
    "healed": {"fault": _whole},
    "killed": {"writer": _text},
    "drained": {"subscription": _text},
    "scanned": {"reader": _text, "place": _text, "messages": _whole},
    "ended": {},
    "offering": {"topic": _text, "definition": _text, "fields": _fields, "compatible": _flag},
    "offered": {
        "topic": _text,
        "definition": _text,
        "result": _one_of("registered", "refused", "unknown"),
        "why": _text,
        "version?": _whole,
    },
    "registry": {"since": _time, "topic": _text, "versions": _items(_NUMBER, _TEXT)},
    "producer": {"producer": _text, "topic": _text, "library?": _text, "definition?": _text, "access_mode?": _text},
    "producer_opened": {"producer": _text},
    "sending": {"producer": _text, "items": _items(_NUMBER, _TEXT, _KEY), "values?": _all(_object)},
    "receipt": {"producer": _text, "place": _text, "items": _items(_NUMBER, *_ID)},
    "refused": {"producer": _text, "numbers": _all(_whole), "why": _text},
    "unknown": {"producer": _text, "numbers": _all(_whole), "why": _text},
    "error": {"producer|consumer": _text, "why": _text},
    "producer_closed": {"producer": _text},
    "opening": {
        "consumer": _text,
        "subscription": _text,
        "definition?": _text,
        "start?": _id,
        "start_is_chunked?": _flag,
        "library?": _text,
    },
    "opened": {"consumer": _text},
    "looked": {"consumer": _text},
    "connected": {"consumer": _text, "place": _text, "broker": _text, "connection": _whole},
    "got": {"consumer": _text, "since": _time, "place": _text, "items": _items(*_MESSAGE, *_ID, _NUMBER)},
    "decoded": {"consumer": _text, "items": _items(_TEXT, _NUMBER, _NUMBER, (dict,))},
    "undecoded": {"consumer": _text, "items": _items(_TEXT, _NUMBER), "temporary": _flag, "why": _text},
    "unreadable": {"consumer|reader": _text, "place": _text, "id": _id, "why": _text},
    "acking": {"consumer": _text, "place": _text, "ids": _items(*_ID)},
    "acked": {"consumer": _text, "place": _text, "ids": _items(*_ID)},
    "acking_up_to": {"consumer": _text, "place": _text, "id": _id},
    "acked_up_to": {"consumer": _text, "place": _text, "id": _id},
    "nacked": {"consumer": _text, "place": _text, "ids": _items(*_ID)},
    "letters": {"subscription": _text, "retry": _text, "dead": _text, "most": _whole},
    "got_letter": {
        "consumer": _text,
        "since": _time,
        "place": _text,
        "items": _items(*_MESSAGE, *_ID, _NUMBER, _NUMBER),
    },
    "reconsuming": {"consumer": _text, "place": _text, "ids": _items(*_ID)},
    "reconsumed": {"consumer": _text, "place": _text, "ids": _items(*_ID)},
    "letter": {"consumer": _text, "place": _text, "items": _items(*_MESSAGE, _TEXT, _NUMBER, (float,))},
    "ack_unknown": {"consumer": _text, "why": _text},
    "closing": {"consumer": _text},
    "closed": {"consumer": _text},
    "scan": {"reader": _text, "place": _text, "items": _items(*_MESSAGE, *_ID)},
}


def mistake(kind: dict[str, Check], fields: dict[str, Any]) -> str:
    """Return what is wrong with the line's fields; empty: nothing."""
    for name, check in kind.items():
        given = [one for one in name.rstrip("?").split("|") if one in fields]
        if not given and name.endswith("?"):
            continue
        if len(given) != 1:
            return f"has {len(given)} of the field {name!r}, and must have one"
        if not check(fields[given[0]]):
            return f"has a field {given[0]!r} of another type or value than in history.md: {str(fields[given[0]])[:80]}"
    return ""


def field_names(kind: str) -> set[str]:
    return set(chain.from_iterable(name.rstrip("?").split("|") for name in KINDS[kind]))
