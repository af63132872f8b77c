"""What can be wrong with what travels and is stored.

WireError
├── InvalidTopicName          a topic, namespace or tenant can't be called that
├── InvalidMessageId          numbers, or bytes, that are no message id
├── InvalidMessage            the caller's: a message that can't be encoded as it is
├── MalformedEntry            the peer's or the disk's: bytes that are no entry
│   ├── ChecksumMismatch      they were one: some of them changed on the way
│   └── MalformedFrame        likewise of a frame
├── TooLarge                  a size above a stated limit, refused before memory is taken for it
│   └── UncompressedTooLarge  of a payload without its compression: the limit is the reader's own
└── UnsupportedEntry          a good entry that this code can't open
    ├── UnknownCompression    compressed in a way that it does not know
    ├── EncryptedEntry        encrypted
    └── PartOfMessage         one chunk of a message: only all of them together can be opened
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
    """Whatever this package raises about what it was given."""


class InvalidTopicName(WireError, ValueError):
    """A name that no topic, namespace or tenant can have."""


class InvalidMessageId(WireError, ValueError):
    """Numbers, or bytes, that are no message id."""


class InvalidMessage(WireError, ValueError):
    """A message that can't be encoded as it is."""


class MalformedEntry(WireError):
    """Bytes that are no entry."""


class ChecksumMismatch(MalformedEntry):
    """An entry whose bytes changed since its checksum was made."""


class MalformedFrame(MalformedEntry):
    """Bytes that are no frame."""


class TooLarge(WireError):
    """A size above a stated limit."""


class UncompressedTooLarge(TooLarge):
    """A payload that is larger without its compression than the reader allows."""


class UnsupportedEntry(WireError):
    """A good entry that this code can't open."""


class UnknownCompression(UnsupportedEntry):
    """An entry compressed in a way that this code does not know."""


class EncryptedEntry(UnsupportedEntry):
    """An entry whose payload is encrypted."""


class PartOfMessage(UnsupportedEntry):
    """One chunk of a message that was too large for one entry."""
