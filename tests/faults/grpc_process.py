"""Starts `grpc_child`, and ends it."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psutil

from tests.child_process import ChildProcess

# The library prints this if a client leaves before the task of its call has run for the first time.
_LEFT_BEFORE_IT_BEGAN: Final = re.compile(
    r"Traceback \(most recent call last\):\n"
    r'  File "[^"\n]*/_cygrpc/aio/server\.pyx\.pxi", line \d+, in grpc\._cython\.cygrpc\._schedule_rpc_coro\n'
    r"asyncio\.exceptions\.CancelledError\n"
)


@dataclass(frozen=True)
class GrpcChild:
    address: str
    process: subprocess.Popen[str]

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextlib.contextmanager
def grpc_child(**options: int) -> Iterator[GrpcChild]:
    """Stop the child, and check that it wrote nothing to standard error: gRPC logs nothing else of its own."""
    flags = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.faults.grpc_child", *flags]
    with ChildProcess(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield GrpcChild(process.stdout.readline().strip(), process)
            _, errors = process.communicate("", timeout=60)
        finally:
            process.kill()
    assert (_LEFT_BEFORE_IT_BEGAN.sub("", errors), process.returncode) == ("", 0), errors
