"""Reports deleted messages that the query should have read: by an error, or with failOnDataLoss=false by a warning in
the driver's log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from magnetar.admin import MessagePosition
from magnetar_spark.errors import DataLost
from magnetar_spark.options.offset_option import format_position

__all__ = ["DataLossReporter"]

_SUBSCRIPTION: Final = ". With the option progressSubscription, messages are retained until the stream has read them"

_log = logging.getLogger(__name__)


class DataLossReporter:
    """All methods raise DataLost, unless the query tolerates losses."""

    def __init__(self, fail: bool, *, advise_subscription: bool = False) -> None:
        """`advise_subscription`: the query is a stream without a progressSubscription. One prevents trimming. It does
        not help a batch, a stream that has one, or against the deletion of a topic."""
        self._fail = fail
        self._advice = _SUBSCRIPTION if advise_subscription else ""
        # Losses that are in the driver's log.
        self._logged: dict[str, None] = {}

    def report_deleted(self, log: str, parts: Sequence[tuple[MessagePosition, MessagePosition]], why: str = "") -> None:
        """Report deleted parts of a range. `why` is appended to the message."""
        for start, first in parts:
            self._report(
                f"messages of {log} are lost: from {format_position(start)} on, the next position of this query, "
                f"they were deleted up to {format_position(first)}; their number is unknown{why}",
                f"to continue with the first message after them{self._advice}",
            )

    def report_trimmed(self, log: str, first: MessagePosition) -> None:
        """Report that a topic lost its first messages before a running stream began to read it."""
        self._report(
            f"messages of {log} are lost: it has joined this query, which reads it from its first message "
            f"on, and they were deleted up to {format_position(first)}; their number is unknown",
            "to read it from the first message that is left",
        )

    def report_recreated(
        self, log: str, incarnation: str, position: MessagePosition, *, reads_new_topic: bool = True
    ) -> None:
        """Report that a topic was deleted and recreated. `reads_new_topic`: a stream continues with the new one."""
        self._report(
            f"{log} was deleted, and another topic was created with its name: the messages of incarnation "
            f"{incarnation} from {format_position(position)} on, which this query had not read yet, are lost",
            "to read the new one from its earliest message" if reads_new_topic else "to read nothing of it",
        )

    def report_missing_topic(self, log: str, position: MessagePosition) -> None:
        self._report(
            f"{log} does not exist any more, or is not among the topics to be read any more: its messages "
            f"from {format_position(position)} on, which this query had not read yet, are lost",
            "to continue without it",
        )

    def report_missing_end(self, log: str, end: MessagePosition, stop: MessagePosition) -> None:
        """Report that a log ends before the end of the batch."""
        self._report(
            f"messages of {log} are lost: it ends at {format_position(end)}, before {format_position(stop)}, the end "
            "of this batch",
            "to continue without them",
        )

    def _report(self, loss: str, consequence: str) -> None:
        if self._fail:
            raise DataLost(f"{loss}. Set the option failOnDataLoss to false {consequence}")
        if loss not in self._logged:
            self._logged[loss] = None
            _log.warning("%s; the query continues, since failOnDataLoss is false", loss)
