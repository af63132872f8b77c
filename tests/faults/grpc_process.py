"""Starts `grpc_child`, and ends it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from tests.child_process import ChildProcess


@dataclass(frozen=True)
class GrpcChild:
    address: str
    process: subprocess.Popen[str]

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextlib.contextmanager
def grpc_child(**options: int) -> Iterator[GrpcChild]:
    """Stop the child, and check that it wrote nothing to standard error: gRPC logs nothing of its own."""
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
    assert (errors, process.returncode) == ("", 0), errors
