"""Translation of the metadata store's errors into those that a broker reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_metadata.errors import MetadataError, SessionLost, Unavailable
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["no_such_bundle", "told"]

# Bundles that an error names.
_SHOWN: Final = 8


@contextmanager
def told(what: str) -> Iterator[None]:
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


def no_such_bundle(namespace: NamespaceName, bundle: BundleRange, there: Sequence[BundleRange]) -> BrokerError:
    shown = ", ".join(map(str, there[:_SHOWN])) + (" …" if len(there) > _SHOWN else "")
    return BrokerError(ErrorCode.NOT_FOUND, f"{namespace} has no bundle {bundle}: it has {shown}")
