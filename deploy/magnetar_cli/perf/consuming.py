"""How fast messages are received, and how long after they were published.

That is the receiver's clock less the producer's, which says something where they are one machine's, and the messages
are not a backlog. It is known to a millisecond, as producers note it.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from magnetar import Message
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.perf.reporting import Meter, Report
from magnetar_cli.service import tell

if TYPE_CHECKING:
    import magnetar

__all__ = ["receive"]

_FIRST_MS: Final = 500


def receive(consumer: magnetar.Consumer, *, messages: int, seconds: float, cumulative: bool, as_json: bool) -> ExitCode:
    """The time runs from the first message on."""
    meter = Meter()
    code = ExitCode.DONE
    with Interrupts() as interrupts:
        with Report(meter, as_json=as_json) as report:
            try:
                with interrupts.raised():
                    _receive(consumer, meter, report, messages, seconds, cumulative)
            except KeyboardInterrupt:
                code = interrupts.code
        if report.pipe_closed.is_set():
            raise BrokenPipeError
        report.end()
    if code is ExitCode.DONE and messages and meter.total().messages < messages:
        tell(f"fewer than {messages:,} messages received in {seconds:g} s")
        return ExitCode.TOO_FEW
    return code


def _receive(
    consumer: magnetar.Consumer, meter: Meter, report: Report, messages: int, seconds: float, cumulative: bool
) -> None:
    end = time.perf_counter() + seconds if seconds else float("inf")
    got = 0
    while not (messages and got >= messages) and time.perf_counter() < end and not report.pipe_closed.is_set():
        batch = consumer.batch_receive()
        if not batch:
            continue
        if not got:
            meter.begin()
        got += len(batch)
        now_ms = time.time() * 1000
        meter.count(len(batch), sum(map(len, map(Message.data, batch))), None)
        for published_ms, count in Counter(map(Message.publish_timestamp, batch)).items():
            meter.observe((now_ms - published_ms) / 1000, count)
        if cumulative:
            for last in {message.topic_name(): message for message in batch}.values():
                consumer.acknowledge_cumulative(last)
        else:
            consumer.acknowledge(batch)
