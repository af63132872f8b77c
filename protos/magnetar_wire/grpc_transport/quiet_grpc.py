"""gRPC, told to keep its core's log to itself before it is imported for the first time.

The core writes to standard error by itself, about every connection that breaks, past Python's logging. What we need to
know comes as statuses. `GRPC_VERBOSITY` in the environment counts where it is set.

Its Python part logs an error, with a traceback, when a client goes away in the moment in which it is answered. That is
every client's right.
"""

from __future__ import annotations

import logging
import os
from typing import Final

os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc
import grpc.aio

__all__ = ["INSTALL_TESTED", "grpc"]

# For errors: the versions that servers were tested with (known_methods.py).
INSTALL_TESTED: Final = "install a tested version, `pip install 'grpcio>=1.84,<1.86'`"


def _is_worth_telling(record: logging.LogRecord) -> bool:
    return "ExecuteBatchError raised in core" not in str(record.msg)


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_worth_telling)
