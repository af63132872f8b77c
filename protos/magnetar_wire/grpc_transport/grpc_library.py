"""The import of gRPC, with the log of its core turned off.

The core writes to standard error, past Python's logging, about every connection that breaks. We get the necessary
information from statuses. `GRPC_VERBOSITY` in the environment takes precedence.

Its Python part logs an error with a traceback if a client disconnects while it is answered, which is not an error.
"""

from __future__ import annotations

import logging
import os
from typing import Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

__all__ = ["INSTALL_TESTED", "grpc"]

# For error messages: the versions that servers were tested with (known_methods.py).
INSTALL_TESTED: Final = "install a tested version, `pip install 'grpcio>=1.84,<1.86'`"


def _is_worth_logging(record: logging.LogRecord) -> bool:
    return "ExecuteBatchError raised in core" not in str(record.msg)


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_worth_logging)
