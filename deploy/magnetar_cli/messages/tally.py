"""What became of what was published: counted where receipts arrive, told when it is over.

A message has a receipt, was refused, or nobody knows: a time-out, or a connection that broke, leaves open whether it
was stored. Every message that was handed to the producer comes to one of the three, so that the three are the sum.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.messages.places import id_text

if TYPE_CHECKING:
    from magnetar import MessageId, Result

__all__ = ["Tally", "may_be_stored"]

# By their names, since the client is imported late.
_MAY_BE_STORED: Final = frozenset(
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
_IDS_AT_ONCE: Final = 256
_WORTH_A_RATE: Final = 1000


def may_be_stored(result: Result) -> bool:
    """Of a message without a receipt: nobody knows."""
    return result.name in _MAY_BE_STORED


class Tally:
    """`received` is called on the client's callback thread; all else on the command's own."""

    def __init__(self, topic: str, *, ids: bool, as_json: bool, wake: threading.Event) -> None:
        self.topic = topic
        self.offered = 0
        self.receipts = 0
        self.unknown = 0
        self.refused: Counter[str] = Counter()
        # Nobody reads the ids.
        self.pipe_closed = False
        self._wake = wake
        self._ids = ids
        self._as_json = as_json
        self._lines: list[str] = []
        self._writing = threading.Lock()

    @property
    def decided(self) -> int:
        return self.receipts + self.unknown + self.refused.total()

    @property
    def failed(self) -> bool:
        """Something has no receipt, and will have none."""
        return bool(self.unknown or self.refused)

    def received(self, result: Result, message_id: MessageId | None) -> None:
        if message_id is not None:
            self.receipts += 1
            if self._ids:
                self._note(id_text(message_id))
            return
        if may_be_stored(result):
            self.unknown += 1
        else:
            self.refused[result.name] += 1
        self._wake.set()

    def _note(self, shown: str) -> None:
        self._lines.append(json.dumps({"message_id": shown}) if self._as_json else shown)
        if len(self._lines) >= _IDS_AT_ONCE or self.decided == self.offered:
            self.write_ids()

    def write_ids(self) -> None:
        with self._writing:
            lines, self._lines = self._lines, []
            if lines and not self.pipe_closed and sys.stdout is not None:
                try:
                    print("\n".join(lines), flush=True)
                except OSError:
                    self.pipe_closed = True
                    self._wake.set()

    def tell(self, seconds: float, *, well: bool) -> None:
        """To a program on standard output; to people, too, if all went well, and the ids are not there."""
        if self._as_json:
            print(json.dumps(self._told(seconds)), flush=True)
            return
        rate = f" ({self.receipts / seconds:,.0f}/s)" if self.receipts >= _WORTH_A_RATE else ""
        line = f"{_count(self.receipts)} persisted in {self.topic}{rate}"
        if self.unknown:
            line += f"; {self.unknown:,} more are in doubt: they may be persisted or not"
        if self.refused:
            reasons = ", ".join(f"{count:,} {name}" for name, count in self.refused.items())
            line += f"; refused: {reasons}"
        print(line, file=sys.stdout if well and not self._ids else sys.stderr, flush=True)

    def _told(self, seconds: float) -> dict[str, object]:
        return {
            "topic": self.topic,
            "receipts": self.receipts,
            "unknown": self.unknown,
            "refused": dict(self.refused),
            "seconds": round(seconds, 3),
        }

    def code(self, otherwise: ExitCode) -> ExitCode:
        """`otherwise`: what it is where all had receipts."""
        if self.unknown:
            return ExitCode.UNKNOWN
        return ExitCode.FAILED if self.refused else otherwise


def _count(messages: int) -> str:
    return "1 message is" if messages == 1 else f"{messages:,} messages are"
