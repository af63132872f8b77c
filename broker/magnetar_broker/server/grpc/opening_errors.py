"""Errors with which the openings of producers and consumers end that are no answers of the topic."""

from __future__ import annotations

import asyncio
import logging

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["interrupted_opening"]

_log = logging.getLogger(__name__)


def interrupted_opening(topic: str, error: asyncio.CancelledError) -> BrokerError:
    """Return the answer to an opening of which not the client has cancelled a part. Without an answer the client would
    wait until its timeout."""
    _log.error("Opening a producer or consumer of %s was interrupted", topic, exc_info=error)
    return BrokerError(ErrorCode.SERVICE_NOT_READY, "the opening was interrupted: try again")
