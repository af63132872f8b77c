"""The metadata store's exceptions.

    MetadataError
    ├── InvalidPath, InvalidChange    the caller's mistake: nothing was sent
    ├── ValueTooLarge                 the caller's mistake: a node has at most MAX_VALUE_BYTES
    ├── Refused                       the store has answered, and did nothing: a definite no
    │   ├── BadVersion                the node doesn't have the expected version
    │   │   └── NodeExists            the node was expected to be absent
    │   ├── NoNode                    the node was expected to exist
    │   ├── NotEmpty                  the node has children, so it can't be deleted
    │   ├── NoChildrenAllowed         the node's parent is ephemeral
    │   └── StoreFull                 the store's disk is full
    ├── Unavailable                   there is no answer
    │   ├── NotSent                   the request was not sent, or was rejected unread: nothing is done, now or later
    │   └── OutcomeUnknown            the request was sent: it was done, or will be, or never: see compare_and_set.py
    ├── SessionLost                   this store's session has ended: open another store
    │   └── Closed                    because the store was closed
    ├── ForeignValue                  a node that compare_and_set should change has a value of another writer
    ├── InvalidLocation               a configured location is not that of a metadata store
    ├── NoStore                       there is no store, and the caller did not ask to create one
    ├── StoreInUse                    another process has opened the embedded store's folder
    └── StoreDamaged                  the embedded store's folder lacks acknowledged changes

Unknown is not no: only `Refused` and `NotSent` say that a change was not made. A request in flight when the session is
lost raises `OutcomeUnknown`. A later request raises `SessionLost`, and is not sent.
"""

from __future__ import annotations

__all__ = [
    "BadVersion",
    "Closed",
    "ForeignValue",
    "InvalidChange",
    "InvalidLocation",
    "InvalidPath",
    "MetadataError",
    "NoChildrenAllowed",
    "NoNode",
    "NoStore",
    "NodeExists",
    "NotEmpty",
    "NotSent",
    "OutcomeUnknown",
    "Refused",
    "SessionLost",
    "StoreDamaged",
    "StoreFull",
    "StoreInUse",
    "Unavailable",
    "ValueTooLarge",
]


class MetadataError(Exception):
    """The base of all errors of the metadata store."""


class InvalidPath(MetadataError, ValueError):
    """A path that no node can have."""


class InvalidChange(MetadataError, ValueError):
    """A change that no store can make."""


class NoStore(MetadataError):
    """There is no metadata store at the location, and the caller did not ask to create one."""


class InvalidLocation(MetadataError, ValueError):
    """A line of configuration that names no metadata store."""


class ValueTooLarge(MetadataError, ValueError):
    """A value above the limit of one node."""


class Refused(MetadataError):
    """The store answered and did nothing. `index` is that of the refused change in its transaction."""

    def __init__(self, message: str, path: str, index: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.index = index


class BadVersion(Refused):
    """The node is not at the version that was expected."""


class NodeExists(BadVersion):
    """The node was expected to be absent."""


class NoNode(Refused):
    """The node was expected to be there."""


class NotEmpty(Refused):
    """The node has children, so it can't be deleted."""


class NoChildrenAllowed(Refused):
    """An ephemeral node has no children."""


class StoreFull(Refused):
    """The store's disk has too little space left to write."""


class Unavailable(MetadataError):
    """There is no answer."""


class NotSent(Unavailable):
    """The request never left, or was turned away unread: nothing was done, and nothing will be."""


class OutcomeUnknown(Unavailable):
    """The request left, and its answer did not come. A change may be done already, or be done later, or never."""


class SessionLost(MetadataError):
    """The session has ended, and this store with it. Its ephemeral nodes are deleted, or will be."""


class Closed(SessionLost):
    """The store was closed by its owner."""


class StoreInUse(MetadataError):
    """Another process, or another store of this one, has the folder open."""


class StoreDamaged(MetadataError):
    """What is on the disk lacks changes that were acknowledged, or can't be read."""


class ForeignValue(MetadataError, ValueError):
    """A value that is not in the form in which compare_and_set.py keeps values."""
