"""Names that Kafka's and Pulsar's connectors for Spark have for options and columns, and what to use here instead.

Somebody who comes from there meets an error for each of these, which says which option or column of ours is meant, or
that there is none, and what to do. Names are in lower case.
"""

from __future__ import annotations

from typing import Final

__all__ = ["column_hint", "option_hint"]

_NO_GROUP: Final = (
    "there are no consumer groups: a query's position is in its checkpoint. A stream whose messages must be "
    "retained until it has read them has a subscription for that: 'progressSubscription'."
)
_NO_POLLING: Final = "leave it out: tasks read entries from the bookies, several requests ahead."
_TIME: Final = "did you mean {0!r}? It takes a time (ISO 8601, or ms since 1970), for all topics or, in JSON, for each."
_MEANT: Final = "did you mean {0!r}?"

_OPTIONS: Final = {
    "admin.url": "the option 'url', magnetar://host:6652, is the only address.",
    "assign": "did you mean 'topics'? It takes names of partitions, too: orders-partition-0,orders-partition-3.",
    "endingoffsetsbytimestamp": _TIME.format("endingOffsets"),
    "endingtime": _TIME.format("endingOffsets"),
    "endingtimestamp": _TIME.format("endingOffsets"),
    "group.id": _NO_GROUP,
    "groupid": _NO_GROUP,
    "groupidprefix": _NO_GROUP,
    "includeheaders": "leave it out: headers are in the column 'properties', which is read unless 'columns' omits it.",
    "kafka.bootstrap.servers": _MEANT.format("url"),
    "kafka.group.id": _NO_GROUP,
    "maxoffsetspertrigger": _MEANT.format("maxMessagesPerTrigger"),
    "maxrowspertrigger": _MEANT.format("maxMessagesPerTrigger"),
    "minoffsetspertrigger": _MEANT.format("minMessagesPerTrigger"),
    "minpartitions": "did you mean 'minTasks'? Several tasks read a partition anyway, as many as 'maxTasks' allows.",
    "predefinedsubscription": _MEANT.format("progressSubscription"),
    "service.url": _MEANT.format("url"),
    "serviceurl": _MEANT.format("url"),
    "startingoffsetsbytimestamp": _TIME.format("startingOffsets"),
    "startingtime": _TIME.format("startingOffsets"),
    "startingtimestamp": _TIME.format("startingOffsets"),
    "subscribe": _MEANT.format("topics"),
    "subscribepattern": _MEANT.format("topicsPattern"),
    "subscriptionprefix": _MEANT.format("progressSubscription"),
    "topicspatterns": _MEANT.format("topicsPattern"),
}
_PREFIXES: Final = {
    "fetchoffset.": _NO_POLLING,
    "kafka.": "leave it out: no Kafka client runs here.",
    "kafkaconsumer.": _NO_POLLING,
    "pulsar.": "leave it out: no Pulsar client runs here.",
}

_TIMES: Final = (
    "did you mean 'publish_time' (the producer's clock), 'event_time' (set by the application) or 'broker_time' (the "
    "broker's clock)?"
)
_COLUMNS: Final = {
    "__eventtime": _MEANT.format("event_time"),
    "__key": _MEANT.format("key"),
    "__messageid": _MEANT.format("message_id"),
    "__messageproperties": _MEANT.format("properties"),
    "__publishtime": _MEANT.format("publish_time"),
    "__topic": _MEANT.format("topic"),
    "headers": "did you mean 'properties', a map of strings?",
    "offset": "did you mean 'index', a message's number in its partition, or 'message_id', its position?",
    "timestamp": _TIMES,
    "timestamptype": _TIMES,
}


def option_hint(name: str) -> str:
    """What to do instead of giving this option of another connector, in sentences; empty: no connector has it."""
    lower = name.lower()
    if lower in _OPTIONS:
        return _OPTIONS[lower]
    return next((hint for prefix, hint in _PREFIXES.items() if lower.startswith(prefix)), "")


def column_hint(name: str) -> str:
    """The columns to use instead of this one of another connector; empty: no connector has it."""
    return _COLUMNS.get(name.lower(), "")
