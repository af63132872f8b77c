"""What can be wrong with reading topics from Spark.

SparkConnectorError
├── InvalidOptions     the user's: options that there are not, that can't be read, or that do not fit together
│   └── InvalidColumns columns that there are not, or that are named twice
├── InvalidOffsets     a checkpoint's: they are not what this source writes
├── NoSuchTopic        a topic that does not exist, or not in time, when the query begins
├── NobodyAnswers    none of the brokers that the user named has ever answered
├── BrokersAway        brokers that have answered this query could not for `reconnectSeconds`
├── NothingKept        a stream that could lose messages at any time, since nobody keeps them for it
├── SubscriptionInUse  a progressSubscription of another query, or a consumers' subscription
├── PositionBeyondEnd  a position behind the end of its log: of another log, or of a log that has lost its end
├── PositionOfOtherTopic  a position that the user gave, in a ledger from before the topic was created
├── NoSink            the user wants to write, which is not there yet
├── NotReadNow         entries that no bookie gave, of which one that was not reached may have them
├── DataLost           what should be read is no longer there, and `failOnDataLoss` says that this is to be told
└── UnreadableEntry    a damaged entry (`failOnDataLoss`), or a message that can't be decoded (`unreadable`)
    └── TooManyChunks  a message in chunks that needs more memory than `maxChunkBytes`

Spark's workers pickle what is raised, so each of these is made of its message alone.
"""

from __future__ import annotations

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
]


class SparkConnectorError(Exception):
    """Whatever this package raises about what it was asked, or found."""


class InvalidOptions(SparkConnectorError, ValueError):
    """What the user asked for can't be meant."""


class InvalidColumns(InvalidOptions):
    """Columns that there are not."""


class InvalidOffsets(SparkConnectorError, ValueError):
    """Offsets that this source did not write."""


class NoSink(SparkConnectorError):
    """Topics are read here, and not written."""


class NoSuchTopic(SparkConnectorError):
    """A topic that does not exist when the query begins."""


class NobodyAnswers(SparkConnectorError):
    """Where the brokers should be, nobody is."""


class BrokersAway(SparkConnectorError):
    """Brokers that a running query needs did not answer in time."""


class NothingKept(SparkConnectorError):
    """A stream's topics neither retain messages nor keep them for this query."""


class SubscriptionInUse(SparkConnectorError):
    """A progressSubscription that belongs to another query, or is a consumers' subscription."""


class PositionBeyondEnd(SparkConnectorError):
    """A position of a checkpoint, or of the user's, that its log has not reached."""


class PositionOfOtherTopic(SparkConnectorError):
    """A position in startingOffsets or endingOffsets that is older than its topic."""


class NotReadNow(SparkConnectorError):
    """Entries that no bookie gave; it is not known whether they are lost."""


class DataLost(SparkConnectorError):
    """Messages that were to be read are gone."""


class UnreadableEntry(SparkConnectorError):
    """An entry that is damaged, or has a payload that can't be decoded."""


class TooManyChunks(UnreadableEntry):
    """A message in chunks that was dropped before it was complete, since its task had no memory for it."""
