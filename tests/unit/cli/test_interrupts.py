"""Signals raise where they may, once, and wait where they must not."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.reading import pieces_of
from magnetar_cli.messages.tailing import _next_batch


def strike(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_interrupt_raises_inside_the_block_and_is_deferred_outside() -> None:
    reached = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            strike()
            reached.append("behind the first")
        strike()
        strike()
        reached.append("between")
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            reached.append("kept, and raised as it begins")
        with interrupts.raised():
            reached.append("not twice")
    assert reached == ["between", "not twice"]


def test_second_interrupt_during_cleanup_is_deferred() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            try:
                strike()
            finally:
                strike()
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            pass


def test_the_last_one_decides_the_exit_status_and_all_is_as_it_was() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        codes = []
        for number in (signal.SIGINT, signal.SIGTERM):
            strike(number)
            codes.append(interrupts.code)
        assert codes == [ExitCode.INTERRUPTED, ExitCode.TERMINATED]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("waits", ["for input", "for messages"])
def test_interrupt_just_before_a_blocking_wait_ends_the_wait(waits: str) -> None:
    """Here it comes on another thread: either way the wait's system call does not hear of it."""
    readable, writable = os.pipe()
    try:
        with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.raised():
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()
            while waits == "for messages":
                _next_batch(queue.Queue())
            next(pieces_of(readable, readable))
    finally:
        os.close(readable)
        os.close(writable)
