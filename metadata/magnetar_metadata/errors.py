"""The errors of the metadata store.

    MetadataError
    ├── InvalidPath, InvalidChange    the caller's mistake: nothing was sent
    ├── ValueTooLarge                 a value above MAX_VALUE_BYTES: nothing was sent
    ├── Refused                       the store answered, and did nothing: a definite no
    │   ├── BadVersion                the node has another version than expected
    │   │   └── NodeExists            the node exists, and was expected to be absent
    │   ├── NoNode                    the node does not exist, and was expected to
    │   ├── NotEmpty                  the node has children, so it can't be deleted
    │   ├── NoChildrenAllowed         the parent is ephemeral
    │   └── StoreFull                 the store's disk has too little free space
    ├── Unavailable                   there is no answer
    │   ├── NotSent                   the request was never sent, or rejected unread: it is not done, now or later
    │   └── OutcomeUnknown            the request was sent: it is done, or will be, or never: see compare_and_set.py
    ├── SessionLost                   the store's session is over for good: open another store
    │   └── Closed                    the store was closed by its owner
    ├── ForeignValue                  a node that compare_and_set should change holds another writer's bytes
    ├── InvalidLocation               an invalid location of a store
    ├── NoStore                       there is no store at the location, and the caller did not ask to create one
    ├── StoreInUse                    another process, or another store of this one, uses the embedded store's folder
    └── StoreDamaged                  the embedded store's folder lacks acknowledged changes, or can't be read

Unknown is not no: only `Refused` and `NotSent` say that a change did not happen. A request that was in flight when the
session was lost raises `OutcomeUnknown`; a later one raises `SessionLost`, and was not sent.
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
    """An invalid path of a node."""


class InvalidChange(MetadataError, ValueError):
    """A change that is invalid for any state of the store."""


class NoStore(MetadataError):
    """A location without a metadata store, where the caller did not ask to create one."""


class InvalidLocation(MetadataError, ValueError):
    """An invalid location of a metadata store."""


class ValueTooLarge(MetadataError, ValueError):
    """A value above the limit of a node."""


class Refused(MetadataError):
    """A definite no: the store answered and did nothing. `index` is that of the refused change in its transaction."""

    def __init__(self, message: str, path: str, index: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.index = index


class BadVersion(Refused):
    """A node with another version than expected."""


class NodeExists(BadVersion):
    """A node that exists, and was expected to be absent."""


class NoNode(Refused):
    """A node that does not exist, and was expected to."""


class NotEmpty(Refused):
    """A node with children, which can't be deleted."""


class NoChildrenAllowed(Refused):
    """A parent that is ephemeral, and so can't have children."""


class StoreFull(Refused):
    """A disk of the store with too little free space to write."""


class Unavailable(MetadataError):
    """A request without an answer."""


class NotSent(Unavailable):
    """A request that was never sent, or rejected unread: it is not done, now or later."""


class OutcomeUnknown(Unavailable):
    """A request without an answer that was sent: a change may be done already, or be done later, or never."""


class SessionLost(MetadataError):
    """The end of the session, and with it of this store: its ephemeral nodes are deleted, or will be."""


class Closed(SessionLost):
    """A store that was closed by its owner."""


class StoreInUse(MetadataError):
    """A folder in use by another process, or by another store of this one."""


class StoreDamaged(MetadataError):
    """A folder that lacks acknowledged changes, or can't be read."""


class ForeignValue(MetadataError, ValueError):
    """A value in another format than that of compare_and_set.py."""
