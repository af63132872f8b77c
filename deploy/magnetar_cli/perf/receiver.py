"""Measure receiving: throughput, and the time from publishing a message until it is received.

Publish times come from the producer's clock, in milliseconds, and are compared with this machine's. So latencies are
meaningful if both are on the same machine, and the messages are not a backlog.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from magnetar import Message
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.perf.report import Meter, Report
from magnetar_cli.service import print_message

if TYPE_CHECKING:
    import magnetar

__all__ = ["measure_receiving"]


def measure_receiving(
    consumer: magnetar.Consumer, *, messages: int, seconds: float, cumulative: bool, as_json: bool
) -> ExitCode:
    """Receive messages, print the report, and return the exit status. The measured time begins with the first one."""
    meter = Meter()
    code = ExitCode.DONE
    with Interrupts() as interrupts:
        with Report(meter, as_json=as_json) as report:
            try:
                with interrupts.interruptible():
                    _receive(consumer, meter, report, messages, seconds, cumulative)
            except KeyboardInterrupt:
                code = interrupts.code
        if report.pipe_closed.is_set():
            raise BrokenPipeError
        report.print_total()
    if code is ExitCode.DONE and messages and meter.total().messages < messages:
        print_message(f"fewer than {messages:,} messages received in {seconds:g} s")
        return ExitCode.TOO_FEW
    return code


def _receive(
    consumer: magnetar.Consumer, meter: Meter, report: Report, messages: int, seconds: float, cumulative: bool
) -> None:
    end = time.perf_counter() + seconds if seconds else float("inf")
    received = 0
    while not (messages and received >= messages) and time.perf_counter() < end and not report.pipe_closed.is_set():
        batch = consumer.batch_receive()
        if not batch:
            continue
        if not received:
            meter.begin()
        received += len(batch)
        now_ms = time.time() * 1000
        meter.count(len(batch), sum(map(len, map(Message.data, batch))), None)
        for published_ms, count in Counter(map(Message.publish_timestamp, batch)).items():
            meter.observe((now_ms - published_ms) / 1000, count)
        if cumulative:
            for last in {message.topic_name(): message for message in batch}.values():
                consumer.acknowledge_cumulative(last)
        else:
            consumer.acknowledge(batch)
