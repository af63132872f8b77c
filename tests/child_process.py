"""A process that a test starts in a `with` block."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr

__all__ = ["ChildProcess"]


class ChildProcess(subprocess.Popen[AnyStr]):
    """Leaving the block waits for the process to end. Where the block raises, the process is killed first: it may wait
    for input or a server that the failed test no longer provides, and the test run would wait for ever."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)
