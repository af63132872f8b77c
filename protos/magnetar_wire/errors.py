"""The errors about invalid names, messages, entries and frames.

WireError
├── InvalidTopicName          an invalid name of a topic, namespace or tenant
├── InvalidMessageId          numbers or bytes that are not a message id
├── InvalidMessage            the caller's mistake: a message that can't be encoded
├── MalformedEntry            the peer's or the disk's fault: bytes that are not an entry
│   ├── ChecksumMismatch      an entry whose bytes do not match its checksum
│   └── MalformedFrame        bytes that are not a frame
├── TooLarge                  a size above a limit, refused before memory is allocated for it
│   └── UncompressedTooLarge  an uncompressed payload above the reader's limit
└── UnsupportedEntry          a valid entry that this version can't decode
    ├── UnknownCompression    an unknown compression
    ├── EncryptedEntry        an encrypted payload
    └── PartOfMessage         one chunk of a message, which can be decoded only together with the others
"""

from __future__ import annotations

__all__ = [
    "ChecksumMismatch",
    "EncryptedEntry",
    "InvalidMessage",
    "InvalidMessageId",
    "InvalidTopicName",
    "MalformedEntry",
    "MalformedFrame",
    "PartOfMessage",
    "TooLarge",
    "UncompressedTooLarge",
    "UnknownCompression",
    "UnsupportedEntry",
    "WireError",
]


class WireError(Exception):
    """The base of all errors about names, messages, entries and frames."""


class InvalidTopicName(WireError, ValueError):
    """An invalid name of a topic, namespace or tenant."""


class InvalidMessageId(WireError, ValueError):
    """Numbers or bytes that are not a message id."""


class InvalidMessage(WireError, ValueError):
    """A message that can't be encoded."""


class MalformedEntry(WireError):
    """Bytes that are not an entry."""


class ChecksumMismatch(MalformedEntry):
    """An entry whose bytes do not match its checksum."""


class MalformedFrame(MalformedEntry):
    """Bytes that are not a frame."""


class TooLarge(WireError):
    """A size above a limit."""


class UncompressedTooLarge(TooLarge):
    """An uncompressed payload above the reader's limit."""


class UnsupportedEntry(WireError):
    """A valid entry that this version can't decode."""


class UnknownCompression(UnsupportedEntry):
    """An entry with an unknown compression."""


class EncryptedEntry(UnsupportedEntry):
    """An entry with an encrypted payload."""


class PartOfMessage(UnsupportedEntry):
    """One chunk of a message, which can be decoded only together with the others."""
