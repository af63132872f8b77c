"""The process that reads a run's topics through Spark (spark_reading.py), as the rig sees it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["SparkProcess", "WithoutSpark"]

_ROOTS: Final = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy", "")
_REPOSITORY: Final = Path(__file__).resolve().parents[3]
_ANSWER_S: Final = 240.0


class WithoutSpark(Exception):
    """There is none here: why."""


class SparkProcess:
    """It begins to load at once, and dies with the thread that started it."""

    def __init__(self, histories: Path, log: Path) -> None:
        self._log = log
        words = [sys.executable, "-m", "tests.faults.torture.spark_reading", str(histories)]
        paths = os.pathsep.join(str(_REPOSITORY / root) for root in _ROOTS)
        # What Spark leaves behind when it is ended with the run.
        scratch = log.with_suffix(".scratch")
        scratch.mkdir()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(scratch)},
            )

    async def read(self, url: str, partition_names: Sequence[str]) -> None:
        """Returns when all of these are in the history. Raises `WithoutSpark`."""
        line = await self._read_line()
        if line.startswith("without: "):
            raise WithoutSpark(line.partition(": ")[2])
        assert line == "ready", f"Spark's reader answered {line!r}: see {self._log}"
        assert self._process.stdin is not None
        self._process.stdin.write(f"{url} {','.join(partition_names)}\n".encode())
        self._process.stdin.flush()
        line = await self._read_line()
        assert line == "done", f"Spark's reader answered {line!r}: see {self._log}"

    async def _read_line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(_ANSWER_S):
            return (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
