"""The errors of clients' requests, all of them as `BrokerError`, with which each handler can answer.

A request that is not answered makes its client wait until its timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.tasks import is_being_cancelled

__all__ = ["INTERNAL_ERROR", "as_broker_error"]

_log = logging.getLogger(__name__)
# The text of an unexpected error in the broker.
INTERNAL_ERROR: Final = "internal error of the broker: see its log"


@contextmanager
def as_broker_error(what: str) -> Iterator[None]:
    """Raise each error of the block as a `BrokerError`, and log unexpected ones. `what`: the request, for the log.

    That includes a request that is interrupted because something it waits for was cancelled. A cancellation of the
    request's own task, as by its client, is raised as it is.
    """
    try:
        yield
    except BrokerError:
        raise
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        _log.exception("%s was interrupted", what)
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, "the request was interrupted: try again") from None
    except Exception:  # noqa: BLE001 (the client waits for an answer)
        _log.exception("%s failed", what)
        raise BrokerError(ErrorCode.UNKNOWN_ERROR, INTERNAL_ERROR) from None
