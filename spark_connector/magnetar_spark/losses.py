"""Telling of messages that should have been read and are gone: by an error, or where the user asked for that, by a line
in the driver's log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.admin import NextMessage
from magnetar_spark.errors import DataLost
from magnetar_spark.places import shown_position as _shown

__all__ = ["Losses"]

_SUBSCRIPTION: Final = (
    ". The option progressSubscription keeps, from when it is first given, what the stream has not read"
)

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
                f"messages of {log} are lost: from {_shown(start)} on, where this query would read next, all was "
                f"deleted up to {_shown(first)}; how many messages that were is not known{why}",
                f"to continue with the first message after them{self._advice}",
            )

    def begins_later(self, log: str, first: NextMessage) -> None:
        """A log that has joined the query, and whose first messages are deleted."""
        self._tell(
            f"messages of {log} are lost: it has joined this query, which is to read it from its first message on, and "
            f"all was deleted up to {_shown(first)}; how many messages that were is not known",
            "to read it from its first message that is left",
        )

    def made_again(self, log: str, incarnation: str, place: NextMessage, *, reads_on: bool = True) -> None:
        """`reads_on`: the other one is read from then on, as a stream does it."""
        self._tell(
            f"{log} was deleted, and another topic was made under its name: what this query had not read yet of "
            f"incarnation {incarnation}, from {_shown(place)} on, is lost",
            "to read the new one from its earliest message" if reads_on else "to read nothing of it",
        )

    def gone(self, log: str, place: NextMessage) -> None:
        self._tell(
            f"{log} is no longer there, or no longer among the topics that are to be read: what this query had not "
            f"read yet of it, from {_shown(place)} on, is lost",
            "to go on without it",
        )

    def ends_before(self, log: str, end: NextMessage, stop: NextMessage) -> None:
        self._tell(
            f"messages of {log} are lost: it ends before {_shown(end)}, and this batch was to go up to {_shown(stop)}",
            "to go on without them",
        )

    def _tell(self, what: str, otherwise: str) -> None:
        if self._fail:
            raise DataLost(f"{what}. Set the option failOnDataLoss to false {otherwise}")
        if what not in self._told:
            self._told[what] = None
            _log.warning("%s; failOnDataLoss is false, so the query goes on", what)
