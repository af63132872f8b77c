"""A process that sends and receives all the time, and forks again and again.

    python -m tests.integration.forking_client URL FORKS

It prints the failures as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import magnetar
from magnetar.exceptions import AlreadyClosed

LONGEST_S: Final = 60.0


def _nothing(client: magnetar.Client, producer: magnetar.Producer) -> None:
    """The client is not touched."""


def _inherited(client: magnetar.Client, producer: magnetar.Producer) -> None:
    """Its producer is closed; it can be used, and need not be closed."""
    try:
        producer.send_async(b"the parent's producer")
    except AlreadyClosed:
        own = client.create_producer("children")
        own.send(b"from a child")
        own.send_async(b"pending at its end")
    else:
        raise AssertionError("the parent's producer can be used in a child")


def _its_own(client: magnetar.Client, producer: magnetar.Producer) -> None:
    with magnetar.Client(sys.argv[1]) as own:
        own.create_producer("children").send(b"from a child")


def _grandchild(client: magnetar.Client, producer: magnetar.Producer) -> None:
    """A child that has used a client forks, too."""
    _inherited(client, producer)
    pid = os.fork()
    if pid == 0:
        _inherited(client, producer)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


CHILDREN: Final[list[Callable[[magnetar.Client, magnetar.Producer], None]]] = [
    _nothing,
    _nothing,
    _inherited,
    _nothing,
    _its_own,
    _nothing,
    _nothing,
    _inherited,
    _nothing,
    _grandchild,
]


class Child(BaseException):
    """Goes through all frames of the process that it was, as `sys.exit` does."""


def _fork(number: int, client: magnetar.Client, producer: magnetar.Producer, *, ends_at_once: bool) -> str:
    """What was wrong with the child."""
    child = CHILDREN[number % len(CHILDREN)]
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(LONGEST_S))
        try:
            child(client, producer)
        except BaseException:  # noqa: BLE001 (the parent gets the status)
            traceback.print_exc()
            os._exit(1)
        if ends_at_once:
            os._exit(0)
        raise Child
    status = os.waitpid(pid, 0)[1]
    return f"child {number} ({child.__name__}) ended with {status}" if status else ""


class Parent:
    def __init__(self, client: magnetar.Client) -> None:
        self.client = client
        self.producer = client.create_producer("forks", max_pending_messages=2_000, block_if_queue_full=True)
        self.consumer = client.subscribe("forks", "s", initial_position=magnetar.InitialPosition.Earliest)
        self.stop = threading.Event()
        self.all_sent = threading.Event()
        self.sent = 0
        self.results: list[tuple[int, magnetar.Result, Any]] = []
        self.read: dict[int, None] = {}
        self.wrong: list[str] = []

    def keep_sending(self) -> None:
        while not self.stop.is_set():
            for _ in range(20):
                number = self.sent
                self.producer.send_async(b"%d" % number, partial(self._on_sent, number))
                self.sent += 1
            self.producer.send(b"%d" % self.sent)
            self.sent += 1
            time.sleep(0.002)
        self.all_sent.set()  # not before: `send` waits for a message that `sent` does not count yet

    def _on_sent(self, number: int, result: magnetar.Result, message_id: Any) -> None:
        self.results.append((number, result, message_id))

    def keep_receiving(self) -> None:
        while not (self.all_sent.is_set() and len(self.read) == self.sent):
            try:
                message = self.consumer.receive(100)
            except magnetar.Timeout:
                continue
            self.read[int(message.data())] = None
            self.consumer.acknowledge(message)

    def run(self, forks: int) -> None:
        works = (self.keep_sending, self.keep_receiving)
        threads = [threading.Thread(target=self._guarded, args=(work,), name=work.__name__) for work in works]
        for thread in threads:
            thread.start()
        for number in range(forks):
            before = self.sent
            if number % 3:
                self.wrong.append(_fork(number, self.client, self.producer, ends_at_once=False))
            else:
                forking = threading.Thread(target=self._fork_in_thread, args=(number,))
                forking.start()
                forking.join(2 * LONGEST_S)
                if forking.is_alive():
                    self.wrong.append(f"fork {number} hangs")
            deadline = time.monotonic() + LONGEST_S
            while self.sent < before + 10 and time.monotonic() < deadline:
                time.sleep(0.001)
            if self.sent < before + 10:
                self.wrong.append(f"after fork {number} the parent does not send any more")
                break
        self.stop.set()
        for thread in threads:
            thread.join(LONGEST_S)
            if thread.is_alive():
                self.wrong.append(f"{thread.name} hangs")
        self.producer.flush()
        self._judge()

    def _fork_in_thread(self, number: int) -> None:
        self.wrong.append(_fork(number, self.client, self.producer, ends_at_once=True))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (reported at the end)
            self.wrong.append(f"{work.__name__}: {error!r}")

    def _judge(self) -> None:
        if {result for _, result, _ in self.results} != {magnetar.Result.Ok}:
            self.wrong.append("a send failed")
        numbers = [number for number, _, _ in self.results]
        if numbers != sorted(set(numbers)):
            self.wrong.append("callbacks were not called once each, in order")
        message_ids = [message_id for _, _, message_id in self.results]
        if message_ids != sorted(message_ids):
            self.wrong.append("what was sent later is stored before")
        if list(self.read) != list(range(self.sent)):
            self.wrong.append("what is read is not what was sent, in order")


def main(url: str, forks: int) -> None:
    try:
        with magnetar.Client(url) as client:
            parent = Parent(client)
            try:
                with parent.producer, parent.consumer:
                    parent.run(forks)
            except Child:
                sys.exit(0)  # through what the parent would close, which is the parent's
        wrong = [one for one in parent.wrong if one]
        sys.stdout.write(json.dumps({"sent": parent.sent, "read": len(parent.read), "wrong": wrong}))
        sys.exit(1 if wrong else 0)
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
