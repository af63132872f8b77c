"""Measure publishing: throughput, and the time until messages are persisted.

A latency begins when the message was due (load.py). Messages of a group are counted together, when all of them have
results: latencies are never too low.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.exceptions import MagnetarException
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.send_results import is_outcome_unknown
from magnetar_cli.perf.load import Load, publish_load
from magnetar_cli.perf.report import Meter, Report
from magnetar_cli.service import print_message

if TYPE_CHECKING:
    import magnetar
    from magnetar import MessageId, Result

__all__ = ["measure_publishing"]


class _Failures:
    """Numbers of messages that were not persisted."""

    def __init__(self) -> None:
        self.refused = 0
        self.unknown = 0


class _GroupCallback:
    """The callback of all messages of a group."""

    __slots__ = ("_due", "_failures", "_left", "_meter", "_persisted", "_size")

    def __init__(self, meter: Meter, failures: _Failures, due: float, messages: int, size: int) -> None:
        self._meter = meter
        self._failures = failures
        self._due = due
        self._left = messages
        self._size = size
        self._persisted = 0

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        if message_id is not None:
            self._persisted += 1
        else:
            self._meter.fail(1)
            if is_outcome_unknown(result):
                self._failures.unknown += 1
            else:
                self._failures.refused += 1
        self._left -= 1
        if not self._left and self._persisted:
            self._meter.count(self._persisted, self._persisted * self._size, time.perf_counter() - self._due)


def measure_publishing(
    client: magnetar.Client, producers: Sequence[magnetar.Producer], load: Load, *, as_json: bool
) -> ExitCode:
    """Publish the load, print the report, and return the exit status."""
    failures = _Failures()
    meter = Meter()
    code = ExitCode.DONE
    with Interrupts() as interrupts:
        with Report(meter, as_json=as_json) as report:
            try:
                with interrupts.interruptible():
                    publish_load(
                        producers,
                        load,
                        lambda due, count: _GroupCallback(meter, failures, due, count, load.size),
                        lambda: failures.refused > 0 or report.pipe_closed.is_set(),
                        meter.began,
                    )
            except KeyboardInterrupt:
                code = interrupts.code
            except MagnetarException as error:
                print_message(str(error))
                code = ExitCode.FAILED
            try:
                with interrupts.interruptible():
                    _flush(producers)
            except KeyboardInterrupt:
                print_message("not waiting for messages in flight")
                client.shutdown()
        if report.pipe_closed.is_set():
            raise BrokenPipeError
        report.print_total(refused=failures.refused, unknown=failures.unknown)
    if failures.unknown:
        return ExitCode.UNKNOWN
    return ExitCode.FAILED if failures.refused else code


def _flush(producers: Sequence[magnetar.Producer]) -> None:
    for producer in producers:
        try:
            producer.flush()
        except MagnetarException:  # the callbacks have counted the failures
            continue
