"""Settings of a process that uses the metadata store."""

from __future__ import annotations

from pydantic import field_validator

from magnetar_metadata.location import parse_location
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import REQUIRED, Subject, setting

__all__ = ["MetadataLocationSettings", "MetadataRetrySettings"]


class MetadataRetrySettings(Configuration):
    metadata_retry_seconds: float = setting(
        1.0,
        "Seconds between two attempts to reach the metadata store.",
        subject=Subject.METADATA,
        gt=0,
        formerly="metadata_retry_s",
    )


class MetadataLocationSettings(Configuration):
    metadata: str = setting(
        REQUIRED,
        "Location of the metadata store, which all processes of a cluster share: "
        "zookeeper://host:port,host:port/chroot?session_timeout_seconds=10. A bookie also accepts "
        "embedded:///folder.",
        subject=Subject.METADATA,
    )

    @field_validator("metadata")
    @classmethod
    def _check_metadata(cls, value: str) -> str:
        parse_location(value)
        return value
