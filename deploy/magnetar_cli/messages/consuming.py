"""Receiving from a subscription, showing, and only then acknowledging.

A message is acknowledged once it was shown: written, and read by the process behind the pipe if standard output is one
(showing.py). So a pipe that closes, or Ctrl-C, never loses a message: those that were not shown are redelivered. The
command waits for the last acknowledgements, so that the exit status can say that they are durable.
"""

from __future__ import annotations

import contextlib
import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException, Timeout
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.showing import MessageWriter
from magnetar_cli.service import tell

if TYPE_CHECKING:
    import magnetar

__all__ = ["After", "Until", "consume"]

_AT_ONCE: Final = 500
_FOR_EVER_S: Final = 3600.0


class After(enum.StrEnum):
    """What a message gets when it was shown."""

    ACK = "ack"
    NOTHING = "nothing"
    NACK = "nack"


@dataclass(frozen=True, slots=True)
class Until:
    # 0: for ever.
    count: int
    # Without a message for so long it is over; None: it waits.
    quiet_s: float | None


def consume(consumer: magnetar.Consumer, writer: MessageWriter, after: After, until: Until) -> ExitCode:
    with Interrupts() as interrupts:
        return _consume(consumer, writer, after, until, interrupts)


def _consume(
    consumer: magnetar.Consumer, writer: MessageWriter, after: After, until: Until, interrupts: Interrupts
) -> ExitCode:
    shown = 0
    # Shown, and not acknowledged yet.
    last: list[magnetar.Message] = []
    code = ExitCode.DONE
    try:
        with interrupts.raised():
            while not until.count or shown < until.count:
                room = min(_AT_ONCE, until.count - shown) if until.count else _AT_ONCE
                messages = _received(consumer, room, until.quiet_s)
                if not messages:
                    code = ExitCode.TOO_FEW if until.count else ExitCode.DONE
                    break
                if last:
                    consumer.acknowledge(last)
                    last = []
                for part in writer.write_each(messages):
                    shown += len(part)
                    if after is After.NACK:
                        for message in part:
                            consumer.negative_acknowledge(message)
                    elif after is After.ACK:
                        last += part
    except BrokenPipeError:
        code = ExitCode.PIPE_CLOSED
    except MagnetarException as error:
        tell(str(error))
        code = ExitCode.FAILED
    except KeyboardInterrupt:
        code = interrupts.code
    try:
        with interrupts.raised():
            return _last_acknowledged(consumer, last, code, shown, until)
    except KeyboardInterrupt:
        tell(f"not waiting for the result of {len(last):,} acknowledgements")
        return ExitCode.UNKNOWN


def _last_acknowledged(
    consumer: magnetar.Consumer, last: list[magnetar.Message], code: ExitCode, shown: int, until: Until
) -> ExitCode:
    if last:
        try:
            consumer.acknowledge(last, receipt=True)
        except MagnetarException as error:
            tell(f"unknown whether the last {len(last):,} messages are acknowledged; they may be redelivered: {error}")
            return ExitCode.UNKNOWN
    if code is ExitCode.TOO_FEW:
        tell(f"{shown:,} of {until.count:,} messages received, and none for {until.quiet_s:g} s")
    return code


def _received(consumer: magnetar.Consumer, most: int, quiet_s: float | None) -> list[magnetar.Message]:
    """At least one, and what is there besides; none, if none came in time."""
    messages: list[magnetar.Message] = []
    deadline = None if quiet_s is None else time.monotonic() + quiet_s
    while not messages:
        left_s = _FOR_EVER_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0 and quiet_s:
            return messages
        with contextlib.suppress(Timeout):
            messages.append(consumer.receive(max(0, int(left_s * 1000))))
        if quiet_s == 0:
            break
    with contextlib.suppress(Timeout):
        while messages and len(messages) < most:
            messages.append(consumer.receive(0))
    return messages
