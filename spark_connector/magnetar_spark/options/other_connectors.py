"""Hints for users of Kafka's and Pulsar's connectors for Spark: which option or column to use instead of theirs.

The error for an unknown option or column shows the hint. The keys of the tables are in lower case.
"""

from __future__ import annotations

from typing import Final

__all__ = ["find_column_hint", "find_option_hint"]

_NO_GROUP: Final = (
    "there are no consumer groups: a query's position is in its checkpoint. A stream whose messages must be "
    "retained until it has read them has a subscription for that: 'progressSubscription'."
)
_NO_POLLING: Final = "leave it out: tasks read entries from the bookies, several requests ahead."
_TIME: Final = "did you mean {0!r}? It takes a time (ISO 8601, or ms since 1970), for all topics or, in JSON, for each."
_DID_YOU_MEAN: Final = "did you mean {0!r}?"

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
    "kafka.bootstrap.servers": _DID_YOU_MEAN.format("url"),
    "kafka.group.id": _NO_GROUP,
    "maxoffsetspertrigger": _DID_YOU_MEAN.format("maxMessagesPerTrigger"),
    "maxrowspertrigger": _DID_YOU_MEAN.format("maxMessagesPerTrigger"),
    "minoffsetspertrigger": _DID_YOU_MEAN.format("minMessagesPerTrigger"),
    "minpartitions": "did you mean 'minTasks'? Several tasks read a partition anyway, as many as 'maxTasks' allows.",
    "predefinedsubscription": _DID_YOU_MEAN.format("progressSubscription"),
    "service.url": _DID_YOU_MEAN.format("url"),
    "serviceurl": _DID_YOU_MEAN.format("url"),
    "startingoffsetsbytimestamp": _TIME.format("startingOffsets"),
    "startingtime": _TIME.format("startingOffsets"),
    "startingtimestamp": _TIME.format("startingOffsets"),
    "subscribe": _DID_YOU_MEAN.format("topics"),
    "subscribepattern": _DID_YOU_MEAN.format("topicsPattern"),
    "subscriptionprefix": _DID_YOU_MEAN.format("progressSubscription"),
    "topicspatterns": _DID_YOU_MEAN.format("topicsPattern"),
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
    "__eventtime": _DID_YOU_MEAN.format("event_time"),
    "__key": _DID_YOU_MEAN.format("key"),
    "__messageid": _DID_YOU_MEAN.format("message_id"),
    "__messageproperties": _DID_YOU_MEAN.format("properties"),
    "__publishtime": _DID_YOU_MEAN.format("publish_time"),
    "__topic": _DID_YOU_MEAN.format("topic"),
    "headers": "did you mean 'properties', a map of strings?",
    "offset": "did you mean 'index', a message's number in its partition, or 'message_id', its position?",
    "timestamp": _TIMES,
    "timestamptype": _TIMES,
}


def find_option_hint(name: str) -> str:
    """Return what to use instead of this option of another connector; empty: it is not in the tables."""
    lower = name.lower()
    if lower in _OPTIONS:
        return _OPTIONS[lower]
    return next((hint for prefix, hint in _PREFIXES.items() if lower.startswith(prefix)), "")


def find_column_hint(name: str) -> str:
    """Return what to use instead of this column of another connector; empty: it is not in the table."""
    return _COLUMNS.get(name.lower(), "")
