"""Which code of the product one message runs through: `make path`.

    python -m tests.message_path [--client magnetar|pulsar] [--list]

A message is sent, received and acknowledged on a broker in this process that has served others before. The SDK waits
for a receipt of the acknowledgement; Pulsar's client does not. Each call of a function of the product is
recorded, in all threads. Several messages are traced. The one with the fewest calls is reported, since timers and other
work in the background only add to a path.

- files: modules of which at least one function was called
- functions: different functions
- calls: calls of them; a coroutine that goes on after it has waited counts once
- changes of file: how often a call in a thread is in another file than the call before it in the same thread

Of Pulsar's own client only the broker's side is Python code of the product.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from magnetar_cli.child_environment import source_roots
from magnetar_testing.in_process_broker import InProcessBroker

__all__ = ["MessagePath", "Recorder", "main", "trace_magnetar", "trace_pulsar"]

_WARM_MESSAGES: Final = 100
_TRACED_MESSAGES: Final = 15
# What one message has caused in the background is over by then.
_QUIET_S: Final = 0.2
_TIMEOUT_MS: Final = 10_000
_TESTING: Final = "magnetar_testing"


@dataclass
class MessagePath:
    """The calls of one message, in the order in which they began."""

    # Module and qualified name of each call, and the thread that it was in.
    calls: list[tuple[str, str, int]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _, _ in self.calls))

    @property
    def functions(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((file, name) for file, name, _ in self.calls))

    @property
    def changes_of_file(self) -> int:
        last: dict[int, str] = {}
        changes = 0
        for file, _, thread in self.calls:
            changes += thread in last and last[thread] != file
            last[thread] = file
        return changes

    def __str__(self) -> str:
        return (
            f"{len(self.files)} files, {len(self.functions)} functions, {len(self.calls)} calls, "
            f"{self.changes_of_file} changes of file"
        )

    def listed(self) -> str:
        """Each file with its functions, in the order in which they are called first."""
        times = Counter((file, name) for file, name, _ in self.calls)
        lines = []
        for file in self.files:
            lines.append(file)
            lines += [f"    {name} ({times[of, name]})" for of, name in self.functions if of == file]
        return "\n".join(lines)


class Recorder:
    """Records the product's calls in all threads that begin after `install`."""

    def __init__(self) -> None:
        self._roots = tuple(sorted((str(Path(root).resolve()) + "/" for root in source_roots()), key=len, reverse=True))
        self._files: dict[CodeType, str] = {}
        self._path: MessagePath | None = None
        # Frames that were called before: a coroutine that goes on is no new call.
        self._seen: set[FrameType] = set()

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def record(self, act: Callable[[], object]) -> MessagePath:
        path = MessagePath()
        self._path = path
        try:
            act()
        finally:
            self._path = None
            self._seen.clear()
        return path

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        path = self._path
        if path is None or event != "call" or frame in self._seen:
            return
        code = frame.f_code
        file = self._files.get(code)
        if file is None:
            file = self._files[code] = self._file_of(code)
        if file:
            self._seen.add(frame)
            path.calls.append((file, code.co_qualname, threading.get_ident()))

    def _file_of(self, code: CodeType) -> str:
        """Empty for what is not the product's, and for comprehensions."""
        if code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"):
            return ""
        for root in self._roots:
            if code.co_filename.startswith(root):
                file = code.co_filename[len(root) :]
                return "" if file.startswith(_TESTING) else file
        return ""


def trace_magnetar(recorder: Recorder) -> MessagePath:
    """The path of a message of the SDK, with client and broker in this process."""
    with InProcessBroker() as broker, broker.client() as client:
        producer = client.create_producer("path")
        consumer = client.subscribe("path", "s", ack_receipt_enabled=True)
        return _trace(recorder, producer, consumer)


def trace_pulsar(recorder: Recorder) -> MessagePath:
    """The path of a message of Pulsar's own client: the broker's side."""
    import pulsar

    with InProcessBroker() as broker:
        client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            return _trace(recorder, client.create_producer("path"), client.subscribe("path", "s"))
        finally:
            client.close()


def _trace(recorder: Recorder, producer: Any, consumer: Any) -> MessagePath:
    def pass_one() -> None:
        producer.send(b"a message")
        consumer.acknowledge(consumer.receive(_TIMEOUT_MS))

    for _ in range(_WARM_MESSAGES):
        pass_one()
    paths = []
    for _ in range(_TRACED_MESSAGES):
        time.sleep(_QUIET_S)
        paths.append(recorder.record(pass_one))
    return min(paths, key=lambda path: len(path.calls))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.message_path", description="The path of one message.")
    parser.add_argument("--client", choices=["magnetar", "pulsar"], help="default: both")
    parser.add_argument("--list", action="store_true", help="print the files with their functions, too")
    chosen = parser.parse_args(arguments)
    recorder = Recorder()
    recorder.install()
    for name, trace in (("magnetar", trace_magnetar), ("pulsar", trace_pulsar)):
        if chosen.client in (None, name):
            path = trace(recorder)
            if chosen.list:
                sys.stdout.write(path.listed() + "\n")
            sys.stdout.write(f"{name}: {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
