"""Print errors that a user may cause as one line, with exit status 1. Other errors are bugs: their traceback is
printed."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Final

import typer

from magnetar_cli.exit_codes import ExitCode

__all__ = ["configure_logs", "is_user_error", "print_user_errors"]

_SDK: Final = "magnetar"
# The module of the SDK (magnetar/_connections/endpoint_check.py) that warns when no broker has answered for a second.
_ENDPOINT_CHECK: Final = "endpoint_check"


def configure_logs() -> None:
    """Log errors to standard error, without logger and level, and the SDK's warning that no broker answers: otherwise
    the command would print nothing until its timeout. Other warnings are not logged."""
    handler = logging.StreamHandler()
    handler.addFilter(_is_for_users)
    logging.basicConfig(level=logging.ERROR, format="magnetar: %(message)s", handlers=[handler])
    logging.getLogger(_SDK).setLevel(logging.WARNING)
    # kazoo logs each attempt to connect; their outcome is reported once.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


def _is_for_users(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or (record.name == _SDK and record.module == _ENDPOINT_CHECK)


@contextlib.contextmanager
def print_user_errors() -> Iterator[None]:
    """Print a user's error and raise `typer.Exit`."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except Exception as error:
        if not is_user_error(error):
            raise
        print(f"magnetar: {error}", file=sys.stderr)
        raise typer.Exit(ExitCode.FAILED) from None


def is_user_error(error: Exception) -> bool:
    """Return whether the error's message is for users. A module that is not imported can't have raised it."""
    if isinstance(error, OSError) and error.filename is not None:
        return True  # e.g. a missing folder, or one that this user may not write
    return any(
        isinstance(error, getattr(sys.modules[module], name))
        for module, name in (
            ("magnetar_cli.cluster.errors", "ClusterError"),
            ("magnetar_cli.zookeeper_server", "NoZooKeeperJars"),
            ("magnetar_cli.local_java", "NoJava"),
            ("magnetar_metadata.errors", "MetadataError"),
            ("magnetar_bookie.errors", "LedgerError"),
            ("magnetar.exceptions", "MagnetarException"),
            ("magnetar_wire.errors", "WireError"),
        )
        if module in sys.modules
    )
