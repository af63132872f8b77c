"""Print errors that a user may cause as one line, with exit status 1; others are bugs and keep their traceback."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Final

import typer

__all__ = ["is_plain", "plain_errors", "plain_logs"]


_SDK: Final = "magnetar"
# The module of the SDK (magnetar/_endpoint_check.py) that warns when no broker has answered for a second.
_ENDPOINT_CHECK: Final = "_endpoint_check"


def plain_logs() -> None:
    """Log errors to standard error, without logger and level, and the SDK's warning that no broker answers: the command
    would be silent until its time is over. Other warnings are left out."""
    handler = logging.StreamHandler()
    handler.addFilter(_is_for_users)
    logging.basicConfig(level=logging.ERROR, format="magnetar: %(message)s", handlers=[handler])
    logging.getLogger(_SDK).setLevel(logging.WARNING)
    # kazoo logs each attempt to connect; their outcome is reported once.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)


def _is_for_users(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR or (record.name == _SDK and record.module == _ENDPOINT_CHECK)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if not is_plain(error):
            raise
        print(f"magnetar: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


def is_plain(error: Exception) -> bool:
    """Return whether the error says what is wrong and what to do. Modules that are not imported raised none."""
    if isinstance(error, OSError) and error.filename is not None:
        return True  # a missing folder, or one that this user may not write
    return any(
        isinstance(error, getattr(sys.modules[module], name))
        for module, name in (
            ("magnetar_cli.cluster.errors", "ClusterError"),
            ("magnetar_cli.local_zookeeper", "LocalZooKeeperError"),
            ("magnetar_cli.local_java", "NoJava"),
            ("magnetar_metadata.errors", "MetadataError"),
            ("magnetar_bookie.errors", "LedgerError"),
            ("magnetar.exceptions", "MagnetarException"),
            ("magnetar_wire.errors", "WireError"),
        )
        if module in sys.modules
    )
