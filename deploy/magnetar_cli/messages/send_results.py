"""Count the results of published messages, and print them at the end.

A message is persisted or refused, or its outcome is unknown, after a timeout or a broken connection. Every message that
was passed to the producer gets one of these results, so the three counts add up.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.messages.positions import format_message_id

if TYPE_CHECKING:
    from magnetar import MessageId, Result

__all__ = ["SendResults", "is_outcome_unknown"]

# Names of results, since the client is imported late.
_UNKNOWN_RESULTS: Final = frozenset(
    {
        "Timeout",
        "ConnectError",
        "NotConnected",
        "AlreadyClosed",
        "Interrupted",
        "UnknownError",
        "BrokerMetadataError",
        "BrokerPersistenceError",
    }
)
_IDS_PER_WRITE: Final = 256
# The rate of fewer messages is not printed.
_MIN_MESSAGES_FOR_RATE: Final = 1000


def is_outcome_unknown(result: Result) -> bool:
    """Return whether a message with this error may be persisted nevertheless."""
    return result.name in _UNKNOWN_RESULTS


class SendResults:
    """`add` is called on the client's callback thread, and all other methods on the command's."""

    def __init__(self, topic: str, *, ids: bool, as_json: bool, failed: threading.Event) -> None:
        self.topic = topic
        # Messages that were passed to the producer.
        self.sent = 0
        self.persisted = 0
        self.unknown = 0
        self.refused: Counter[str] = Counter()
        # The reader of the ids has closed the pipe.
        self.pipe_closed = False
        # Set when a message has failed, or the pipe is closed.
        self._failed = failed
        self._prints_ids = ids
        self._as_json = as_json
        self._lines: list[str] = []
        self._write_lock = threading.Lock()

    @property
    def decided(self) -> int:
        """The number of messages that have a result."""
        return self.persisted + self.unknown + self.refused.total()

    @property
    def has_failures(self) -> bool:
        return bool(self.unknown or self.refused)

    def add(self, result: Result, message_id: MessageId | None) -> None:
        if message_id is not None:
            self.persisted += 1
            if self._prints_ids:
                self._add_id(format_message_id(message_id))
            return
        if is_outcome_unknown(result):
            self.unknown += 1
        else:
            self.refused[result.name] += 1
        self._failed.set()

    def _add_id(self, message_id: str) -> None:
        self._lines.append(json.dumps({"message_id": message_id}) if self._as_json else message_id)
        if len(self._lines) >= _IDS_PER_WRITE or self.decided == self.sent:
            self.write_ids()

    def write_ids(self) -> None:
        with self._write_lock:
            lines, self._lines = self._lines, []
            if lines and not self.pipe_closed and sys.stdout is not None:
                try:
                    print("\n".join(lines), flush=True)
                except OSError:
                    self.pipe_closed = True
                    self._failed.set()

    def print_summary(self, seconds: float, *, is_success: bool) -> None:
        """Print the counts: to standard output as JSON, or after a success without ids; else to standard error."""
        if self._as_json:
            print(json.dumps(self._to_json(seconds)), flush=True)
            return
        rate = f" ({self.persisted / seconds:,.0f}/s)" if self.persisted >= _MIN_MESSAGES_FOR_RATE else ""
        done = "published to" if self.topic.startswith("non-persistent://") else "persisted in"
        line = f"{_count_messages(self.persisted)} {done} {self.topic}{rate}"
        if self.unknown:
            line += f"; {self.unknown:,} more are in doubt: they may be persisted or not"
        if self.refused:
            reasons = ", ".join(f"{count:,} {name}" for name, count in self.refused.items())
            line += f"; refused: {reasons}"
        print(line, file=sys.stdout if is_success and not self._prints_ids else sys.stderr, flush=True)

    def _to_json(self, seconds: float) -> dict[str, object]:
        return {
            "topic": self.topic,
            "receipts": self.persisted,
            "unknown": self.unknown,
            "refused": dict(self.refused),
            "seconds": round(seconds, 3),
        }

    def choose_exit_code(self, if_all_persisted: ExitCode) -> ExitCode:
        if self.unknown:
            return ExitCode.UNKNOWN
        return ExitCode.FAILED if self.refused else if_all_persisted


def _count_messages(messages: int) -> str:
    return "1 message is" if messages == 1 else f"{messages:,} messages are"
