"""The log of a process, on standard error: one line per record, as text or as JSON.

    2026-01-31T09:30:00.123Z WARNING magnetar_bookie.server.garbage_collector 3 ledgers are …
    {"time": "2026-01-31T09:30:00.123Z", "level": "WARNING", "logger": "magnetar_bookie.server.garbage_collector",
    "message": …}

Messages may contain data of clients, which must not forge lines: characters that break lines are escaped. A traceback
follows on lines of its own, indented. In JSON it is the field `trace`, and the values of `extra` are fields beside the
message.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final

__all__ = ["log_to_stderr"]

# Libraries that log every connection and request at INFO.
_QUIET: Final = ("kazoo", "asyncio", "grpc", "uvicorn")
_OF_ANY_RECORD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = "".join(_escaped(character) for character in record.getMessage())
        line = f"{_moment(record)} {record.levelname} {record.name} {message}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        for name, value in record.__dict__.items():
            if name not in _OF_ANY_RECORD:
                fields.setdefault(name, value)
        # JSON in ASCII has no character that breaks a line.
        return json.dumps(fields, default=str)


def _moment(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def log_to_stderr(level: str, log_format: str = "text") -> None:
    """Log all records of this process from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
