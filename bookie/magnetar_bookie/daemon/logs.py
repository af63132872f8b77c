"""Logging of a process: to standard error, a line each: time (UTC), level, logger, message.

    2026-01-31T09:30:00.123Z WARNING magnetar_bookie.server.collector 3 ledgers are here of which …

What comes from outside must not be able to forge a line: what breaks lines in a message is written as an escape. A
traceback follows on lines of its own, indented.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Final

__all__ = ["log_to_stderr"]

# They tell of every connection and request otherwise.
_QUIET: Final = ("kazoo", "asyncio", "grpc", "uvicorn")


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        message = "".join(_escaped(character) for character in record.getMessage())
        line = f"{moment} {record.levelname} {record.name} {message}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def log_to_stderr(level: str) -> None:
    """Whatever is logged in this process from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
