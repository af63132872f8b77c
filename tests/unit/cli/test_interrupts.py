"""Signals raise once inside of interruptible blocks, and are deferred outside."""

from __future__ import annotations

import os
import queue
import signal
import threading

import pytest

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.interrupts import Interrupts
from magnetar_cli.messages.message_input import read_pieces
from magnetar_cli.messages.topic_tail import _next_batch


def send_signal(number: signal.Signals = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_interrupt_raises_inside_the_block_and_is_deferred_outside() -> None:
    reached = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            send_signal()
            reached.append("after the first")
        send_signal()
        send_signal()
        reached.append("between")
        with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            reached.append("deferred, and raised at the beginning")
        with interrupts.interruptible():
            reached.append("not twice")
    assert reached == ["between", "not twice"]


def test_second_interrupt_during_cleanup_is_deferred() -> None:
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            try:
                send_signal()
            finally:
                send_signal()
        with pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            pass


def test_the_last_one_decides_the_exit_status_and_all_is_as_it_was() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts() as interrupts:
        codes = []
        for number in (signal.SIGINT, signal.SIGTERM):
            send_signal(number)
            codes.append(interrupts.code)
        assert codes == [ExitCode.INTERRUPTED, ExitCode.TERMINATED]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("waits", ["for input", "for messages"])
def test_interrupt_just_before_a_blocking_wait_ends_the_wait(waits: str) -> None:
    """The signal arrives on another thread here. In both cases it does not interrupt the system call."""
    readable, writable = os.pipe()
    try:
        with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.interruptible():
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()
            while waits == "for messages":
                _next_batch(queue.Queue())
            next(read_pieces(readable, readable))
    finally:
        os.close(readable)
        os.close(writable)
