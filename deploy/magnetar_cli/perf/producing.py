"""How fast messages are published, and how long their receipts take.

**A message's latency** begins when it was due. At a given rate that is its place in the row, whether it could be sent
then or not: a producer that stood still for a second makes up for it afterwards, and the messages that should have gone
meanwhile have waited all that time (leaving them out is known as coordinated omission). As fast as it goes, a message
is due when the sender turns to it, so that waiting for room in the queue counts.

**Work is done by groups.** Messages that are due within `_SAME_S` of one another share a due time, the earliest, and
are counted when the last of their receipts is there: what is told is never too little, and hardly too much.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.tally import may_be_stored
from magnetar_cli.perf.reporting import Meter, Report
from magnetar_cli.service import tell

if TYPE_CHECKING:
    import magnetar
    from magnetar import MessageId, Result

__all__ = ["Load", "publish"]

_SAME_S: Final = 0.0002
_GROUP: Final = 100


@dataclass(frozen=True, slots=True)
class Load:
    size: int
    # Messages a second, of all producers together; 0: as fast as it goes.
    rate: float
    # Each ends it; 0: it does not.
    messages: int
    seconds: float


class _Failures:
    """What had no receipt."""

    def __init__(self) -> None:
        self.refused = 0
        self.unknown = 0


class _Group:
    """The callback of all its messages."""

    __slots__ = ("_due", "_failures", "_left", "_meter", "_refused", "_size", "_stored")

    def __init__(self, meter: Meter, failures: _Failures, due: float, messages: int, size: int) -> None:
        self._meter = meter
        self._failures = failures
        self._due = due
        self._left = messages
        self._size = size
        self._stored = 0

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        if message_id is not None:
            self._stored += 1
        else:
            self._meter.fail(1)
            if may_be_stored(result):
                self._failures.unknown += 1
            else:
                self._failures.refused += 1
        self._left -= 1
        if not self._left and self._stored:
            self._meter.count(self._stored, self._stored * self._size, time.perf_counter() - self._due)


def publish(client: magnetar.Client, producers: Sequence[magnetar.Producer], load: Load, *, as_json: bool) -> ExitCode:
    failures = _Failures()
    meter = Meter()
    code = ExitCode.DONE
    with Interrupts() as interrupts:
        with Report(meter, as_json=as_json) as report:
            try:
                with interrupts.raised():
                    _send(producers, load, meter, failures, report)
            except KeyboardInterrupt:
                code = interrupts.code
            except MagnetarException as error:
                tell(str(error))
                code = ExitCode.FAILED
            try:
                with interrupts.raised():
                    _flush(producers)
            except KeyboardInterrupt:
                tell("not waiting for messages in flight")
                client.shutdown()
        if report.pipe_closed.is_set():
            raise BrokenPipeError
        report.end(refused=failures.refused, unknown=failures.unknown)
    if failures.unknown:
        return ExitCode.UNKNOWN
    return ExitCode.FAILED if failures.refused else code


def _send(
    producers: Sequence[magnetar.Producer], load: Load, meter: Meter, failures: _Failures, report: Report
) -> None:
    payload = os.urandom(load.size)
    sends = [producer.send_async for producer in producers]
    turn = 0
    for due, count in _due_groups(load, meter.began):
        if failures.refused or report.pipe_closed.is_set():
            return
        send, turn = sends[turn], (turn + 1) % len(sends)
        received = _Group(meter, failures, due, count, load.size)
        for _ in range(count):
            send(payload, received)


def _due_groups(load: Load, began: float) -> Iterator[tuple[float, int]]:
    """When so many messages were due. Waits until they are."""
    clock = time.perf_counter
    size = min(max(int(load.rate * _SAME_S), 1), _GROUP) if load.rate else _GROUP
    end = began + load.seconds if load.seconds else float("inf")
    left = load.messages or float("inf")
    sent = 0
    while left > 0:
        count = int(min(size, left))
        now = clock()
        due = began + sent / load.rate if load.rate else now
        if due >= end or (now >= end and not load.rate):
            return
        # The last of them must be due, too.
        ready = due + (count - 1) / load.rate if load.rate else now
        while (early := ready - clock()) > 0:
            time.sleep(early)
        yield due, count
        sent += count
        left -= count


def _flush(producers: Sequence[magnetar.Producer]) -> None:
    for producer in producers:
        try:
            producer.flush()
        except MagnetarException:  # each message's failure was counted
            continue
