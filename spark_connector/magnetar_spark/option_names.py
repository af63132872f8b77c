"""The options' names, and what those are told who write another one.

Case does not matter, as it does not to Spark's own sources. A name that there is not is refused, with the one that was
probably meant: by what it is called in Kafka's and Pulsar's connectors, else by how it is spelt. An option that would
have no effect in the mode in which it is given is refused, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar_spark.errors import InvalidOptions

__all__ = ["OPTIONS", "check_names", "refuse_those_of_a_batch", "refuse_those_of_a_stream"]

_OF_BATCHES: Final = ("endingOffsets", "batchLeaseSeconds")
_OF_STREAMS: Final = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "progressSubscription")
OPTIONS: Final = (
    "url",
    "listenerName",
    "topic",
    "topics",
    "topicsPattern",
    "startingOffsets",
    "failOnDataLoss",
    "columns",
    "maxTasks",
    "maxChunkBytes",
    "maxDecompressedBytes",
    "unreadable",
    "timeZone",
    *_OF_BATCHES,
    *_OF_STREAMS,
)
_SPELT: Final = {name.lower(): name for name in OPTIONS}
# What `load(…)` was given.
_PATH: Final = "path"
_ELSEWHERE: Final = {
    "service.url": "url",
    "serviceurl": "url",
    "kafka.bootstrap.servers": "url",
    "subscribe": "topics",
    "subscribepattern": "topicsPattern",
    "topicspatterns": "topicsPattern",
    "startingtimestamp": "startingOffsets",
    "startingtime": "startingOffsets",
    "startingoffsetsbytimestamp": "startingOffsets",
    "endingtimestamp": "endingOffsets",
    "endingtime": "endingOffsets",
    "endingoffsetsbytimestamp": "endingOffsets",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxrowspertrigger": "maxMessagesPerTrigger",
    "predefinedsubscription": "progressSubscription",
    "subscriptionprefix": "progressSubscription",
    "minpartitions": "maxTasks",
}


def check_names(given: Iterable[str]) -> None:
    """Raises InvalidOptions if one of them is no option."""
    for name in given:
        lower = name.lower()
        if lower in _SPELT or lower == _PATH:
            continue
        meant = _ELSEWHERE.get(lower)
        if meant is None:
            near = difflib.get_close_matches(lower, _SPELT, n=1, cutoff=0.5)
            meant = _SPELT[near[0]] if near else None
        nearest = f": did you mean {meant!r}?" if meant else "."
        raise InvalidOptions(f"there is no option {name!r}{nearest} There are {', '.join(OPTIONS)}")


def refuse_those_of_a_batch(given: Mapping[str, str]) -> None:
    for name in _OF_BATCHES:
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.read: a stream has no end, and its driver renews its leases. "
                "Leave it out, or read with spark.read"
            )


def refuse_those_of_a_stream(given: Mapping[str, str]) -> None:
    for name in _OF_STREAMS:
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.readStream, and would do nothing here: leave it out, or bound what "
                "is read by startingOffsets and endingOffsets"
            )
