"""The names of the options, and the errors for any other name.

Case does not matter, as it does not to Spark's own sources. An unknown name is refused with a hint. Names of Kafka's
and Pulsar's connectors are looked up (other_connectors.py); for any other name the hint is the option of the most
similar name. Without a hint the error lists all options. An option that would have no effect in the mode in which it is
given is refused, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.other_connectors import option_hint

__all__ = ["OPTIONS", "check_names", "refuse_those_of_a_batch", "refuse_those_of_a_stream"]

# With the reason why a stream does not take them.
_OF_BATCHES: Final = {
    "endingOffsets": "a stream has no end",
    "batchLeaseSeconds": "a stream renews its leases while it runs",
    "pushFilters": "a stream plans micro-batches without filters",
}
_OF_STREAMS: Final = (
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "progressSubscription",
)
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
    "minTasks",
    "waitForTopic",
    "maxChunkBytes",
    "reconnectSeconds",
    "maxDecompressedBytes",
    "unreadable",
    "timeZone",
    *_OF_BATCHES,
    *_OF_STREAMS,
)
_SPELT: Final = {name.lower(): name for name in OPTIONS}
# What `load(…)` was given: a name, or a list.
_PATHS: Final = ("path", "paths")


def check_names(given: Iterable[str]) -> None:
    """Raises InvalidOptions if one of them is no option."""
    for name in given:
        lower = name.lower()
        if lower in _SPELT or lower in _PATHS:
            continue
        hint = option_hint(lower) or _most_similar(lower)
        raise InvalidOptions(
            f"there is no option {name!r}{': ' + hint if hint else '. There are ' + ', '.join(OPTIONS)}"
        )


def _most_similar(name: str) -> str:
    near = difflib.get_close_matches(name, _SPELT, n=1, cutoff=0.5)
    return f"did you mean {_SPELT[near[0]]!r}?" if near else ""


def refuse_those_of_a_batch(given: Mapping[str, str]) -> None:
    for name, reason in _OF_BATCHES.items():
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.read: {reason}. Leave it out, or read with spark.read"
            )


def refuse_those_of_a_stream(given: Mapping[str, str]) -> None:
    for name in _OF_STREAMS:
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.readStream, and has no effect here: leave it out, or "
                "bound what is read by startingOffsets and endingOffsets"
            )
