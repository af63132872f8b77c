"""The option `logger` of Pulsar's client, in terms of Python's `logging`.

All clients of a process log under the logger `magnetar`. A logger of the application, a ConsoleLogger or a FileLogger
is added to it as a handler, once for each logger, console or file."""

from __future__ import annotations

import enum
import logging
import sys
from typing import Any

from magnetar.exceptions import InvalidConfiguration

__all__ = ["ConsoleLogger", "FileLogger", "LoggerLevel", "log_to"]

_LOG = logging.getLogger("magnetar")
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


class LoggerLevel(enum.Enum):
    """Levels with the numbers of Pulsar's client."""

    Debug = 0
    Info = 1
    Warn = 2
    Error = 3

    @property
    def level(self) -> int:
        """The same level in `logging`."""
        return (self.value + 1) * 10


class ConsoleLogger:
    """Logs to standard output."""

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        self.log_level = log_level


class FileLogger:
    """Appends to a file."""

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        self.log_level = log_level
        self.log_file = log_file


class _Relay(logging.Handler):
    def __init__(self, target: logging.Logger) -> None:
        super().__init__()
        self.target = target

    def emit(self, record: logging.LogRecord) -> None:
        if self.target.isEnabledFor(record.levelno):
            self.target.handle(record)


def log_to(logger: Any) -> None:
    """Add a handler for the logger that the application passed. Raises InvalidConfiguration if it is not a logger."""
    if logger is None:
        return
    if isinstance(logger, logging.Logger):
        above: logging.Logger | None = _LOG
        while above is not None:  # records reach a parent already, and would come back
            if above is logger:
                return
            above = above.parent
        if not (logger is _LOG or logger.name.startswith("magnetar.")):
            _add(f"magnetar to the logger {logger.name}", _Relay(logger), logger.getEffectiveLevel())
    elif isinstance(logger, ConsoleLogger):
        _add("magnetar to the console", logging.StreamHandler(sys.stdout), logger.log_level.level)
    elif isinstance(logger, FileLogger):
        handler = logging.FileHandler(logger.log_file, delay=True)
        _add(f"magnetar to {handler.baseFilename}", handler, logger.log_level.level)
    else:
        raise InvalidConfiguration(f"logger = {logger!r}: pass a logging.Logger, a ConsoleLogger or a FileLogger")


def _add(name: str, handler: logging.Handler, level: int) -> None:
    """Add a handler, in place of one of the same name."""
    for present in list(_LOG.handlers):
        if present.name == name:
            _LOG.removeHandler(present)
            present.close()
    handler.name = name
    handler.setFormatter(_FORMAT)
    handler.setLevel(level)
    _LOG.addHandler(handler)
    if _LOG.getEffectiveLevel() > level:
        _LOG.setLevel(level)
