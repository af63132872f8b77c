"""Translation of the metadata store's errors into those that a broker reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar_broker.errors import BrokerError
from magnetar_metadata.errors import MetadataError, SessionLost, Unavailable
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["convert_store_errors"]


@contextmanager
def convert_store_errors(what: str) -> Iterator[None]:
    """Raise errors of the metadata store as `BrokerError`: the outcome is unknown, and a retry finds it out. A
    `ValueError` is about stored data that can't be decoded."""
    try:
        yield
    except SessionLost as error:
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker lost its metadata session: {error}") from error
    except Unavailable as error:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY, f"{what}: the metadata store does not answer, try again: {error}"
        ) from error
    except (MetadataError, ValueError) as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"{what} in the metadata store: {error}") from error
