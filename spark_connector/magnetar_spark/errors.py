"""The errors of reading topics from Spark.

SparkConnectorError
├── InvalidOptions        the user's mistake: unknown or invalid options, or options that exclude each other
│   └── InvalidColumns    unknown columns, or columns that are selected twice
├── InvalidOffsets        a checkpoint with offsets that this source did not write
├── NoSuchTopic           a topic that does not exist when the query begins, or was not created in time
├── NobodyAnswers         no broker at the addresses in the option `url` has ever answered
├── BrokersAway           brokers that have answered this query did not for `reconnectSeconds`
├── NothingKept           a stream whose messages are not retained for it, so it could lose some at any time
├── SubscriptionInUse     a progressSubscription of another query, or of consumers
├── PositionBeyondEnd     a position after the end of its log: of another log, or of a log that has lost its end
├── PositionOfOtherTopic  a position set by the user, in a ledger from before the topic was created
├── NoSink                an attempt to write, which is not supported yet
├── NotReadNow            entries that no bookie returned, while a bookie that may have them was not reached
├── DataLost              messages that were deleted before they were read, while `failOnDataLoss` is true
└── UnreadableEntry       a damaged entry (`failOnDataLoss`), or a message that can't be decoded (`unreadable`)
    └── TooManyChunks     a message in chunks that needs more memory than `maxChunkBytes`

Spark's workers pickle errors, so each of these is constructed from its message alone.

**Tracebacks.** A Python worker of Spark sends an error to the JVM as the text of its traceback, which the user finds
inside the JVM's own. The messages of our errors and of brokers' errors say everything, so `hide_tracebacks` sets
the environment variable by which Spark leaves the traceback out. The worker ends after any error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

from magnetar.exceptions import MagnetarException

__all__ = [
    "BrokersAway",
    "DataLost",
    "InvalidColumns",
    "InvalidOffsets",
    "InvalidOptions",
    "NoSink",
    "NoSuchTopic",
    "NobodyAnswers",
    "NotReadNow",
    "NothingKept",
    "PositionBeyondEnd",
    "PositionOfOtherTopic",
    "SparkConnectorError",
    "SubscriptionInUse",
    "TooManyChunks",
    "UnreadableEntry",
    "hide_tracebacks",
    "is_spark_worker",
]

_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"


class SparkConnectorError(Exception):
    """The base of all errors of the Spark connector."""


class InvalidOptions(SparkConnectorError, ValueError):
    """Unknown or invalid options, or options that exclude each other."""


class InvalidColumns(InvalidOptions):
    """Unknown columns, or columns that are selected twice."""


class InvalidOffsets(SparkConnectorError, ValueError):
    """Offsets that this source did not write."""


class NoSink(SparkConnectorError):
    """An attempt to write to a topic, which is not supported yet."""


class NoSuchTopic(SparkConnectorError):
    """A topic that does not exist when the query begins, or was not created in time."""


class NobodyAnswers(SparkConnectorError):
    """Addresses of brokers at which none has ever answered."""


class BrokersAway(SparkConnectorError):
    """Brokers that a running query needs did not answer in time."""


class NothingKept(SparkConnectorError):
    """A stream whose messages are not retained until it has read them."""


class SubscriptionInUse(SparkConnectorError):
    """A progressSubscription that belongs to another query or to consumers."""


class PositionBeyondEnd(SparkConnectorError):
    """A position of a checkpoint, or set by the user, that its log has not reached."""


class PositionOfOtherTopic(SparkConnectorError):
    """A position in startingOffsets or endingOffsets that is older than its topic."""


class NotReadNow(SparkConnectorError):
    """Entries that no bookie returned; it is unknown whether they are lost."""


class DataLost(SparkConnectorError):
    """Messages that were deleted before they were read."""


class UnreadableEntry(SparkConnectorError):
    """An entry that is damaged, or has a payload that can't be decoded."""


class TooManyChunks(UnreadableEntry):
    """A message in chunks that was dropped before it was complete, since its task had no memory left for it."""


@contextlib.contextmanager
def hide_tracebacks() -> Iterator[None]:
    """Have Spark show errors of the connector and of brokers without their tracebacks."""
    try:
        yield
    except (SparkConnectorError, MagnetarException):
        if is_spark_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def is_spark_worker() -> bool:
    """Whether this process is a Python worker of Spark, and not the user's program."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
