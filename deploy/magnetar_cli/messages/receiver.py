"""Receive messages from a subscription, print them, and then acknowledge them.

A message is acknowledged after it was shown: it was written, and, if standard output is a pipe, read by the process at
its other end (message_output.py). So no message is lost when a pipe closes or after Ctrl-C: messages that were not
shown are redelivered. The command waits for the last acknowledgements, so that its exit status tells whether they are
durable.
"""

from __future__ import annotations

import contextlib
import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar.exceptions import MagnetarException, Timeout
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.message_output import MessageWriter
from magnetar_cli.service import print_message

if TYPE_CHECKING:
    import magnetar

__all__ = ["Acknowledgement", "StopCondition", "receive_messages"]

_MAX_MESSAGES_PER_WRITE: Final = 500
_NO_TIMEOUT_S: Final = 3600.0


class Acknowledgement(enum.StrEnum):
    """What the command does with a message that was shown."""

    ACK = "ack"
    NOTHING = "nothing"
    NACK = "nack"


@dataclass(frozen=True, slots=True)
class StopCondition:
    # Maximum number of messages. 0: no limit.
    count: int
    # Stop after this time without a message. None: wait for ever.
    quiet_s: float | None


def receive_messages(
    consumer: magnetar.Consumer[Any], writer: MessageWriter, acknowledgement: Acknowledgement, stop: StopCondition
) -> ExitCode:
    """Receive until the stop condition is met or a signal arrives, and return the exit status."""
    with Interrupts() as interrupts:
        return _receive(consumer, writer, acknowledgement, stop, interrupts)


def _receive(
    consumer: magnetar.Consumer[Any],
    writer: MessageWriter,
    acknowledgement: Acknowledgement,
    stop: StopCondition,
    interrupts: Interrupts,
) -> ExitCode:
    shown = 0
    unacknowledged: list[magnetar.Message[Any]] = []
    code = ExitCode.DONE
    try:
        with interrupts.interruptible():
            while not stop.count or shown < stop.count:
                limit = min(_MAX_MESSAGES_PER_WRITE, stop.count - shown) if stop.count else _MAX_MESSAGES_PER_WRITE
                messages = _receive_available(consumer, limit, stop.quiet_s)
                if not messages:
                    code = ExitCode.TOO_FEW if stop.count else ExitCode.DONE
                    break
                if unacknowledged:
                    consumer.acknowledge(unacknowledged)
                    unacknowledged = []
                for part in writer.write_each(messages):
                    shown += len(part)
                    if acknowledgement is Acknowledgement.NACK:
                        for message in part:
                            consumer.negative_acknowledge(message)
                    elif acknowledgement is Acknowledgement.ACK:
                        unacknowledged += part
    except BrokenPipeError:
        code = ExitCode.PIPE_CLOSED
    except MagnetarException as error:
        print_message(str(error))
        code = ExitCode.FAILED
    except KeyboardInterrupt:
        code = interrupts.code
    try:
        with interrupts.interruptible():
            code = _acknowledge_last(consumer, unacknowledged, code, shown, stop)
            return ExitCode.FAILED if code is ExitCode.DONE and writer.undecodable else code
    except KeyboardInterrupt:
        print_message(f"not waiting for the result of {len(unacknowledged):,} acknowledgements")
        return ExitCode.UNKNOWN


def _acknowledge_last(
    consumer: magnetar.Consumer[Any],
    messages: list[magnetar.Message[Any]],
    code: ExitCode,
    shown: int,
    stop: StopCondition,
) -> ExitCode:
    """Acknowledge the last messages, wait until that is durable, and return the exit status."""
    if messages:
        try:
            consumer.acknowledge(messages, receipt=True)
        except MagnetarException as error:
            count = f"{len(messages):,}"
            print_message(
                f"unknown whether the last {count} messages are acknowledged; they may be redelivered: {error}"
            )
            return ExitCode.UNKNOWN
    if code is ExitCode.TOO_FEW:
        print_message(f"{shown:,} of {stop.count:,} messages received, and none for {stop.quiet_s:g} s")
    return code


def _receive_available(
    consumer: magnetar.Consumer[Any], limit: int, quiet_s: float | None
) -> list[magnetar.Message[Any]]:
    """Wait for a message, and return it with those that are available then. Return none after the timeout."""
    messages: list[magnetar.Message[Any]] = []
    deadline = None if quiet_s is None else time.monotonic() + quiet_s
    while not messages:
        left_s = _NO_TIMEOUT_S if deadline is None else deadline - time.monotonic()
        if left_s <= 0 and quiet_s:
            return messages
        with contextlib.suppress(Timeout):
            messages.append(consumer.receive(max(0, int(left_s * 1000))))
        if quiet_s == 0:
            break
    with contextlib.suppress(Timeout):
        while messages and len(messages) < limit:
            messages.append(consumer.receive(0))
    return messages
