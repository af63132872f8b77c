"""Publish messages from the input until it ends, a message fails, or a signal arrives.

The command's main thread reads and sends. Results are counted on the client's callback thread (send_results.py). After
a failed message nothing more is sent, so that a stream of messages has no gap: the callback thread writes to a pipe
that the main thread polls together with the input. At the end, the command waits for messages in flight and prints the
results. A second Ctrl-C ends the wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from magnetar.exceptions import MagnetarException, MessageTooBig
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.message_input import (
    InputFormat,
    InputMessage,
    InvalidInput,
    Parser,
    read_pieces,
    read_whole_message,
    split_messages,
)
from magnetar_cli.messages.send_results import SendResults
from magnetar_cli.service import print_message

if TYPE_CHECKING:
    import magnetar

__all__ = ["Plan", "publish_messages"]

# Messages that are sent between two updates of the progress.
_GROUP: Final = 500
_MAX_CATCH_UP_S: Final = 0.1
_PROGRESS_INTERVAL_S: Final = 0.2
# Progress is not shown before this time.
_PROGRESS_DELAY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to publish: the messages, or else the content of the files, or else standard input."""

    messages: Sequence[bytes]
    files: Sequence[Path]
    input_format: InputFormat
    parse: Parser
    separator: bytes
    repeat: int
    # Messages per second. 0: no limit.
    rate: float
    # The key of messages without one.
    key: str | None
    # Added to the properties of each message.
    properties: Mapping[str, str]
    event_ms: int
    # Of the first message; None: the client numbers them.
    first_sequence_id: int | None = None
    # A message that is too large for an entry is sent in chunks.
    is_chunked: bool = False

    @property
    def is_typed(self) -> bool:
        """Whether a user types the messages at a terminal."""
        reads = not self.messages and (not self.files or Path("-") in self.files)
        return reads and sys.stdin is not None and sys.stdin.isatty()


class _StopEvent(threading.Event):
    """An event with a pipe that becomes readable when it is set, for `select`."""

    def __init__(self) -> None:
        super().__init__()
        self.readable, self._writable = os.pipe()

    def set(self) -> None:
        if not self.is_set():
            super().set()
            os.write(self._writable, b"x")


class _Progress:
    """Shows the progress in the last line of standard error while its block runs, if that is a terminal.

    It shows nothing while a user types messages there.
    """

    def __init__(self, *, is_typed: bool) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty() and not is_typed
        self._status: Any = None
        self._next_at = time.monotonic() + _PROGRESS_DELAY_S

    def __enter__(self) -> Self:
        return self

    def show(self, text: str) -> None:
        now = time.monotonic()
        if not self._is_shown or now < self._next_at:
            return
        self._next_at = now + _PROGRESS_INTERVAL_S
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.start()
        self._status.update(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()


def publish_messages(
    client: magnetar.Client, producer: magnetar.Producer, plan: Plan, *, ids: bool, as_json: bool
) -> ExitCode:
    """Publish all messages, print the results, and return the exit status."""
    stop = _StopEvent()
    results = SendResults(producer.topic(), ids=ids, as_json=as_json, failed=stop)
    began = time.monotonic()
    with _Progress(is_typed=plan.is_typed) as progress, Interrupts() as interrupts:
        code = _send_until_interrupted(producer, plan, results, stop, progress, interrupts)
        progress.show("waiting for messages in flight")
        if not _wait_in_flight(producer, results, interrupts):
            client.shutdown()  # messages in flight fail, and their outcome is unknown
        results.write_ids()
        seconds = time.monotonic() - began
        if results.pipe_closed:
            print_message(f"output closed: {results.persisted:,} messages were persisted before")
            return results.choose_exit_code(ExitCode.PIPE_CLOSED)
        code = results.choose_exit_code(code)
        results.print_summary(seconds, is_success=code is ExitCode.DONE)
        return code


def _send_until_interrupted(
    producer: magnetar.Producer,
    plan: Plan,
    results: SendResults,
    stop: _StopEvent,
    progress: _Progress,
    interrupts: Interrupts,
) -> ExitCode:
    try:
        with interrupts.interruptible():
            _send_all(producer, plan, results, stop, progress)
    except KeyboardInterrupt:
        if results.decided < results.sent:
            print_message("waiting for messages in flight; press Ctrl-C again to stop waiting")
        return interrupts.code
    except InvalidInput as error:
        number = results.sent + error.unsent_before + 1
        print_message(f"message {number:,}: {error}. No further message was sent")
        return ExitCode.FAILED
    except MagnetarException as error:
        if results.has_failures:  # the producer was closed; the error is in the results of earlier messages
            return ExitCode.FAILED
        text = str(error)
        if isinstance(error, MessageTooBig) and not plan.is_chunked:
            text = f"{text.partition(': ')[0]}: send less at a time, or use --chunking or --compression"
        print_message(f"message {results.sent:,} was not sent: {text}. No further message was sent")
        results.sent -= 1
        return ExitCode.FAILED
    except OSError as error:
        print_message(f"the input can't be read: {error}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _send_all(
    producer: magnetar.Producer, plan: Plan, results: SendResults, stop: _StopEvent, progress: _Progress
) -> None:
    send, add_result = producer.send_async, results.add
    due, first = time.monotonic(), plan.first_sequence_id
    for group in _read_groups(plan, stop.readable):
        for message in group:
            if plan.rate:
                if not _wait_due(due, stop):
                    return
                # After a pause of the input, the rate is not exceeded for long to catch up.
                due = max(due, time.monotonic() - _MAX_CATCH_UP_S) + 1 / plan.rate
            if stop.is_set():
                return
            results.sent += 1
            send(
                message.value,
                add_result,
                properties={**plan.properties, **message.properties} or None,
                partition_key=plan.key if message.key is None else message.key,
                event_timestamp=message.event_ms or plan.event_ms or None,
                sequence_id=None if first is None else first + results.sent - 1,
            )
        progress.show(f"{results.sent:,} sent, {results.persisted:,} persisted")


def _wait_due(due: float, stop: _StopEvent) -> bool:
    """Return False if `stop` was set."""
    while (left := due - time.monotonic()) > 0:
        if stop.wait(min(left, 0.5)):
            return False
    return True


def _read_groups(plan: Plan, stop: int) -> Iterator[list[InputMessage]]:
    if plan.messages:
        messages = _parse_arguments(plan)
        total, at = len(messages) * plan.repeat, 0
        while at < total:
            group = [messages[number % len(messages)] for number in range(at, min(at + _GROUP, total))]
            at += len(group)
            yield group
    elif plan.files:
        for _ in range(plan.repeat):
            for path in plan.files:
                yield from _read_file(path, plan, stop)
    else:
        yield from _read_descriptor(_open_standard_input(), plan, stop)


def _parse_arguments(plan: Plan) -> list[InputMessage]:
    """Parse all before the first is sent."""
    messages: list[InputMessage] = []
    for argument in plan.messages:
        try:
            messages.append(plan.parse(argument))
        except InvalidInput as error:
            error.unsent_before = len(messages)
            raise
    return messages


def _read_file(path: Path, plan: Plan, stop: int) -> Iterator[list[InputMessage]]:
    if str(path) == "-":
        yield from _read_descriptor(_open_standard_input(), plan, stop)
    else:
        with path.open("rb") as file:
            yield from _read_descriptor(file.fileno(), plan, stop)


def _read_descriptor(descriptor: int, plan: Plan, stop: int) -> Iterator[list[InputMessage]]:
    pieces = read_pieces(descriptor, stop)
    if plan.input_format is InputFormat.WHOLE:
        yield [plan.parse(read_whole_message(pieces))]
        return
    for lines in split_messages(pieces, plan.separator):
        if plan.input_format is InputFormat.JSON:
            lines = [line for line in lines if line.strip()]
        for at in range(0, len(lines), _GROUP):
            yield from _parse_lines(lines[at : at + _GROUP], plan.parse)


def _parse_lines(lines: Sequence[bytes], parse: Parser) -> Iterator[list[InputMessage]]:
    """Yield all messages. If a line is invalid, yield the messages before it, and raise its error."""
    messages: list[InputMessage] = []
    try:
        for line in lines:
            messages.append(parse(line))  # noqa: PERF401 (the list is used after an error)
    except InvalidInput:
        yield messages
        raise
    yield messages


def _open_standard_input() -> int:
    if sys.stdin is None or sys.stdin.closed:
        raise InvalidInput("standard input is closed: give messages as arguments, with -f FILE, or through a pipe")
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        print_message("one message per line; Ctrl-D ends")
    return descriptor


def _wait_in_flight(producer: magnetar.Producer, results: SendResults, interrupts: Interrupts) -> bool:
    """Wait until each message has a result. Return False if the user has ended the wait."""
    try:
        with interrupts.interruptible():
            producer.flush()
        return True
    except MagnetarException as error:
        # The results count each message. This is the error of the first one that failed.
        print_message(str(error))
        return True
    except KeyboardInterrupt:
        print_message(f"not waiting for {results.sent - results.decided:,} messages in flight")
        return False
