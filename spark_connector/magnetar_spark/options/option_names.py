"""The names of the options, and the errors for any other name.

Names are not case-sensitive, as in Spark's own sources. The error for an unknown name has a hint: for a name of Kafka's
or Pulsar's connector the one in other_connectors.py, otherwise the option with the most similar name. Without a hint
the error lists all options. An option that has no effect in the mode in which it is given is refused, too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.other_connectors import find_option_hint

__all__ = ["OPTIONS", "check_option_names", "refuse_batch_options", "refuse_stream_options"]

# Options of batches alone, each with the reason why a stream has no such option.
_BATCH_OPTIONS: Final = {
    "endingOffsets": "a stream has no end",
    "batchLeaseSeconds": "a stream renews its leases while it runs",
    "pushFilters": "a stream plans micro-batches without filters",
}
_STREAM_OPTIONS: Final = (
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
    *_BATCH_OPTIONS,
    *_STREAM_OPTIONS,
)
_NAMES: Final = {name.lower(): name for name in OPTIONS}
# As which Spark passes the argument of `load(…)`: a name, or a list.
_PATHS: Final = ("path", "paths")


def check_option_names(given: Iterable[str]) -> None:
    """Raise InvalidOptions if one of the names is not an option."""
    for name in given:
        lower = name.lower()
        if lower in _NAMES or lower in _PATHS:
            continue
        hint = find_option_hint(lower) or _find_similar_name(lower)
        raise InvalidOptions(
            f"there is no option {name!r}{': ' + hint if hint else '. There are ' + ', '.join(OPTIONS)}"
        )


def refuse_batch_options(given: Mapping[str, str]) -> None:
    """Raise InvalidOptions if a stream has an option of batches."""
    for name, reason in _BATCH_OPTIONS.items():
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.read: {reason}. Leave it out, or read with spark.read"
            )


def refuse_stream_options(given: Mapping[str, str]) -> None:
    """Raise InvalidOptions if a batch has an option of streams."""
    for name in _STREAM_OPTIONS:
        if name.lower() in given:
            raise InvalidOptions(
                f"the option {name!r} is for spark.readStream, and has no effect here: leave it out, or "
                "bound what is read by startingOffsets and endingOffsets"
            )


def _find_similar_name(name: str) -> str:
    near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.5)
    return f"did you mean {_NAMES[near[0]]!r}?" if near else ""
