"""Telling of messages that should have been read and are gone: by an error, or where the user asked for that, by a line
in the driver's log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.admin import NextMessage
from magnetar_spark.errors import DataLost
from magnetar_spark.planning.offset_resolution import shown_position as _shown

__all__ = ["Losses"]

_SUBSCRIPTION: Final = ". With the option progressSubscription, messages are retained until the stream has read them"

_log = logging.getLogger(__name__)


class Losses:
    def __init__(self, fail: bool, *, advise_subscription: bool = False) -> None:
        """`advise_subscription`: the query is a stream that has no progressSubscription. One keeps messages from being
        trimmed; it can't help a batch, nor a stream that has one, nor against the deletion of a topic."""
        self._fail = fail
        self._advice = _SUBSCRIPTION if advise_subscription else ""
        self._told: dict[str, None] = {}

    def deleted(self, log: str, parts: Sequence[tuple[NextMessage, NextMessage]], why: str = "") -> None:
        """Raises DataLost unless losses are to be lived with, as all of these do. `why` is added to the message."""
        for start, first in parts:
            self._tell(
                f"messages of {log} are lost: from {_shown(start)} on, the next position of this query, "
                f"they were deleted up to {_shown(first)}; their number is unknown{why}",
                f"to continue with the first message after them{self._advice}",
            )

    def begins_later(self, log: str, first: NextMessage) -> None:
        """A log that has joined the query, and whose first messages are deleted."""
        self._tell(
            f"messages of {log} are lost: it has joined this query, which reads it from its first message "
            f"on, and they were deleted up to {_shown(first)}; their number is unknown",
            "to read it from the first message that is left",
        )

    def made_again(self, log: str, incarnation: str, place: NextMessage, *, reads_on: bool = True) -> None:
        """`reads_on`: the other one is read from then on, as a stream does it."""
        self._tell(
            f"{log} was deleted, and another topic was created with its name: the messages of incarnation "
            f"{incarnation} from {_shown(place)} on, which this query had not read yet, are lost",
            "to read the new one from its earliest message" if reads_on else "to read nothing of it",
        )

    def gone(self, log: str, place: NextMessage) -> None:
        self._tell(
            f"{log} does not exist any more, or is not among the topics to be read any more: its messages "
            f"from {_shown(place)} on, which this query had not read yet, are lost",
            "to continue without it",
        )

    def ends_before(self, log: str, end: NextMessage, stop: NextMessage) -> None:
        self._tell(
            f"messages of {log} are lost: it ends at {_shown(end)}, before {_shown(stop)}, the end of this batch",
            "to continue without them",
        )

    def _tell(self, what: str, otherwise: str) -> None:
        if self._fail:
            raise DataLost(f"{what}. Set the option failOnDataLoss to false {otherwise}")
        if what not in self._told:
            self._told[what] = None
            _log.warning("%s; the query continues, since failOnDataLoss is false", what)
