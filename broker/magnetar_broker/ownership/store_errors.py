"""What the metadata store raises, in the words of a broker."""

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
    """Nothing of it is believed to be done or not: whoever asks again finds out. A `ValueError` is of what stands there
    and can't be understood."""
    try:
        yield
    except SessionLost as error:
        raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker has lost its metadata session: {error}") from error
    except Unavailable as error:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY, f"{what}: the metadata store gives no answer now, try again: {error}"
        ) from error
    except (MetadataError, ValueError) as error:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"{what} in the metadata store: {error}") from error


def no_such_bundle(namespace: NamespaceName, bundle: BundleRange, there: Sequence[BundleRange]) -> BrokerError:
    shown = ", ".join(map(str, there[:_SHOWN])) + (" …" if len(there) > _SHOWN else "")
    return BrokerError(ErrorCode.NOT_FOUND, f"{namespace} has no bundle {bundle}: it has {shown}")
