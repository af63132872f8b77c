"""Publishing what is read, until it ends, something fails, or somebody wants it to end.

The command's own thread reads and sends; receipts are counted where they arrive (tally.py). What fails there ends the
reading at once, by a pipe that is waited for together with the input: of a stream of messages nothing is sent behind a
gap. However it ends, what was sent is waited for, and told; who presses Ctrl-C again does not wait.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.progress import Progress
from magnetar_cli.messages.reading import BadInput, Given, InputFormat, Parse, all_of, cut, pieces_of
from magnetar_cli.messages.tally import Tally
from magnetar_cli.service import tell

if TYPE_CHECKING:
    import magnetar

__all__ = ["Plan", "produce"]

# So many are sent between looks at how far it is.
_GROUP: Final = 500
_CATCH_UP_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be published."""

    # As arguments; else what the files hold; else standard input.
    messages: Sequence[bytes]
    files: Sequence[Path]
    how: InputFormat
    parse: Parse
    separator: bytes
    repeat: int
    # Messages a second; 0: as fast as it goes.
    rate: float
    # For messages that have none of their own.
    key: str | None
    properties: Mapping[str, str]
    event_ms: int

    @property
    def typed(self) -> bool:
        """By somebody at a terminal."""
        reads = not self.messages and (not self.files or Path("-") in self.files)
        return reads and sys.stdin is not None and sys.stdin.isatty()


class _Stopped(threading.Event):
    """Set by the callback thread; can be waited for in `select`."""

    def __init__(self) -> None:
        super().__init__()
        self.readable, self._writable = os.pipe()

    def set(self) -> None:
        if not self.is_set():
            super().set()
            os.write(self._writable, b"x")


def produce(client: magnetar.Client, producer: magnetar.Producer, plan: Plan, *, ids: bool, as_json: bool) -> ExitCode:
    stopped = _Stopped()
    tally = Tally(producer.topic(), ids=ids, as_json=as_json, wake=stopped)
    began = time.monotonic()
    with Progress(typed=plan.typed) as progress, Interrupts() as interrupts:
        code = _publish(producer, plan, tally, stopped, progress, interrupts)
        progress.show("waiting for messages in flight")
        if not _waited_for(producer, tally, interrupts):
            client.shutdown()  # what is pending fails, and is told as unknown
        tally.write_ids()
        seconds = time.monotonic() - began
        if tally.pipe_closed:
            tell(f"output closed: {tally.receipts:,} messages were persisted before")
            return tally.code(ExitCode.PIPE_CLOSED)
        code = tally.code(code)
        tally.tell(seconds, well=code is ExitCode.DONE)
        return code


def _publish(
    producer: magnetar.Producer,
    plan: Plan,
    tally: Tally,
    stopped: _Stopped,
    progress: Progress,
    interrupts: Interrupts,
) -> ExitCode:
    try:
        with interrupts.raised():
            _send_all(producer, plan, tally, stopped, progress)
    except KeyboardInterrupt:
        if tally.decided < tally.offered:
            tell("waiting for messages in flight; press Ctrl-C again to stop waiting")
        return interrupts.code
    except BadInput as wrong:
        tell(f"message {tally.offered + 1:,}: {wrong}. No further message was sent")
        return ExitCode.FAILED
    except MagnetarException as refused:
        if tally.failed:  # the producer ended, and what was pending said why
            return ExitCode.FAILED
        tell(f"message {tally.offered:,} was not sent: {refused}. No further message was sent")
        tally.offered -= 1
        return ExitCode.FAILED
    except OSError as error:
        tell(f"the input can't be read: {error}")
        return ExitCode.FAILED
    return ExitCode.DONE


def _send_all(producer: magnetar.Producer, plan: Plan, tally: Tally, stopped: _Stopped, progress: Progress) -> None:
    send, received = producer.send_async, tally.received
    due = time.monotonic()
    for group in _groups(plan, stopped.readable):
        for given in group:
            if plan.rate:
                if not _wait_due(due, stopped):
                    return
                # Input that paused is not made up for.
                due = max(due, time.monotonic() - _CATCH_UP_S) + 1 / plan.rate
            if stopped.is_set():
                return
            tally.offered += 1
            send(
                given.value,
                received,
                properties={**plan.properties, **given.properties} or None,
                partition_key=plan.key if given.key is None else given.key,
                event_timestamp=given.event_ms or plan.event_ms or None,
            )
        progress.show(f"{tally.offered:,} sent, {tally.receipts:,} persisted")


def _wait_due(due: float, stopped: _Stopped) -> bool:
    """False: it is over."""
    while (left := due - time.monotonic()) > 0:
        if stopped.wait(min(left, 0.5)):
            return False
    return True


def _groups(plan: Plan, stopped: int) -> Iterator[list[Given]]:
    if plan.messages:
        given = [plan.parse(message) for message in plan.messages]
        total, at = len(given) * plan.repeat, 0
        while at < total:
            group = [given[number % len(given)] for number in range(at, min(at + _GROUP, total))]
            at += len(group)
            yield group
    elif plan.files:
        for _ in range(plan.repeat):
            for path in plan.files:
                yield from _of_file(path, plan, stopped)
    else:
        yield from _of_descriptor(_standard_input(), plan, stopped)


def _of_file(path: Path, plan: Plan, stopped: int) -> Iterator[list[Given]]:
    if str(path) == "-":
        yield from _of_descriptor(_standard_input(), plan, stopped)
    else:
        with path.open("rb") as file:
            yield from _of_descriptor(file.fileno(), plan, stopped)


def _of_descriptor(descriptor: int, plan: Plan, stopped: int) -> Iterator[list[Given]]:
    pieces = pieces_of(descriptor, stopped)
    if plan.how is InputFormat.WHOLE:
        yield [plan.parse(all_of(pieces))]
        return
    for lines in cut(pieces, plan.separator):
        # One by one: what stands before a wrong line is sent.
        if plan.how is InputFormat.JSON:
            lines = [line for line in lines if line.strip()]
        for at in range(0, len(lines), _GROUP):
            yield from _parsed(lines[at : at + _GROUP], plan.parse)


def _parsed(lines: Sequence[bytes], parse: Parse) -> Iterator[list[Given]]:
    """All of them, or those before the one that is wrong, and then its error."""
    given: list[Given] = []
    try:
        for line in lines:
            given.append(parse(line))  # noqa: PERF401 (it is looked at when one fails)
    except BadInput:
        yield given
        raise
    yield given


def _standard_input() -> int:
    if sys.stdin is None or sys.stdin.closed:
        raise BadInput("standard input is closed: give messages as arguments, with -f FILE, or through a pipe")
    descriptor = sys.stdin.fileno()
    if os.isatty(descriptor):
        tell("one message per line; Ctrl-D ends")
    return descriptor


def _waited_for(producer: magnetar.Producer, tally: Tally, interrupts: Interrupts) -> bool:
    """Returns when each message is decided; False, if somebody does not want to wait for that."""
    try:
        with interrupts.raised():
            producer.flush()
        return True
    except MagnetarException as error:
        # The tally counts what became of each message. This is why the first of them failed.
        tell(str(error))
        return True
    except KeyboardInterrupt:
        tell(f"not waiting for {tally.offered - tally.decided:,} messages in flight")
        return False
