"""The documents' code blocks, extracted so that they can be run.

Each fenced block says what it is:

    python          a step of the document's program: all of its blocks run in order, in one namespace
    sh              command lines, run one after the other where a standalone serves
    sh cluster      those that need, make or end a cluster on this machine
    sh docker       those that need Docker: tests/compose runs them
    sh noexec       shown only: they are taken apart as if they were to be run
    python test     a file of tests, which pytest runs in a project of its own
    toml test       that project's pyproject.toml
    json, toml      what something looks like
    (nothing)       a picture

README.md is read by who has nothing yet: there each python block stands for itself.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = [
    "DOCUMENTS",
    "PROJECT",
    "SHOWN_PULSAR_URL",
    "SHOWN_URL",
    "Block",
    "Interpreter",
    "blocks",
    "command_lines",
    "words_of",
]

PROJECT: Final = Path(__file__).resolve().parents[1]
DOCUMENTS: Final = (
    "README.md",
    "client/README.md",
    "client/pulsar_clients.md",
    "client/administration.md",
    "client/policies.md",
    "client/delivery_reasons.md",
    "client/schemas.md",
    "spark_connector/README.md",
    "deploy/README.md",
    "deploy/operating.md",
    "deploy/settings.md",
    "deploy/command_line.md",
    "deploy/compose.md",
    "deploy/testing.md",
    "bookie/README.md",
    "metadata/README.md",
    "protos/README.md",
)
# Where the documents' standalone is; tests have theirs elsewhere.
SHOWN_URL: Final = "magnetar://localhost:6652"
SHOWN_PULSAR_URL: Final = "pulsar://localhost:6650"
_FENCED: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    document: str
    # Of its first line, from 1 on.
    line: int
    # "python", "sh cluster" and so on.
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(document: str) -> list[Block]:
    text = (PROJECT / document).read_text()
    return [
        Block(document, text.count("\n", 0, found.start(2)) + 1, found[1].strip(), found[2])
        for found in _FENCED.finditer(text)
    ]


def command_lines(block: Block) -> list[str]:
    """As a shell takes them; one that goes on behind a backslash is one line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def words_of(line: str, program: str) -> list[str] | None:
    """The arguments that the line gives to this program; None: it does not call it."""
    for part in re.split(r"[|;&<>]", line):
        words = shlex.split(part, comments=True)
        if words and words[0] == program:
            return words[1:]
    return None


class Interpreter:
    """A Python process that runs blocks one after the other, each in its namespace.

    A block that warns fails, as all of our own tests do, unless it is about Spark, which warns by itself.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.log = folder / "interpreter.log"
        self.printed = folder / "printed"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.guide_interpreter", str(self.printed)],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def run(self, block: Block, namespace: str, text: str, timeout_s: float = 100.0) -> None:
        """Raises AssertionError with the block's traceback."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"namespace": namespace, "name": str(block), "line": block.line, "text": text}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        deadline, answer = time.monotonic() + timeout_s, b""
        while not answer.endswith(b"\n"):
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert readable, f"{block} is not done after {timeout_s} s"
            piece = os.read(self._process.stdout.fileno(), 65_536)
            assert piece, f"{block} ended the process:\n{self.logged}"
            answer += piece
        error = json.loads(answer)["error"]
        assert error is None, f"{block} failed:\n{error}\n{self.logged}"

    @property
    def logged(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> int:
        """Its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            return self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
