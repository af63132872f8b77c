"""What can go wrong with the metadata store.

    MetadataError
    ├── InvalidPath, InvalidChange    the caller's mistake: nothing was sent
    ├── ValueTooLarge                 likewise: a node holds at most MAX_VALUE_BYTES
    ├── Refused                       the store answered, and did nothing: a definite no
    │   ├── BadVersion                the node is not at the expected version
    │   │   └── NodeExists            it was expected to be absent
    │   ├── NoNode                    it was expected to be there
    │   ├── NotEmpty                  it has children, so it can't be deleted
    │   ├── NoChildrenAllowed         its parent is ephemeral
    │   └── StoreFull                 its disk has too little space left to write
    ├── Unavailable                   there is no answer
    │   ├── NotSent                   and nothing was or will be done: the request never left, or was turned away unread
    │   └── OutcomeUnknown            the request left: it was done, or will be, or never: see compare_and_set.py
    ├── SessionLost                   this store's session is over for good: open another store
    │   └── Closed                    because its owner closed it
    ├── ForeignValue                  a node that compare_and_set was asked to change holds another writer's bytes
    ├── InvalidLocation               what should say where a store is says nothing of the kind
    ├── NoStore                       there is no store, and the caller did not ask to create one
    ├── StoreInUse                    another process has the embedded store's folder open
    └── StoreDamaged                  the embedded store's folder lacks changes that were acknowledged

Unknown is not no: only `Refused` and `NotSent` say that a change did not happen. A request that was on its way when the
session was lost raises `OutcomeUnknown`; one made after raises `SessionLost`, and was not sent.
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
    """Whatever the metadata store raises."""


class InvalidPath(MetadataError, ValueError):
    """A path that no node can have."""


class InvalidChange(MetadataError, ValueError):
    """A change that can't be made as it is put, whatever the store holds."""


class NoStore(MetadataError):
    """There is no metadata store at the location, and the caller did not ask to create one."""


class InvalidLocation(MetadataError, ValueError):
    """A line of configuration that names no metadata store."""


class ValueTooLarge(MetadataError, ValueError):
    """A value above the limit of one node."""


class Refused(MetadataError):
    """The store answered and did nothing. `index` is the place in its transaction of the change that was refused."""

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
    """The session is over, and with it this store: what was ephemeral is gone or will be."""


class Closed(SessionLost):
    """The store was closed by its owner."""


class StoreInUse(MetadataError):
    """Another process, or another store of this one, has the folder open."""


class StoreDamaged(MetadataError):
    """What is on the disk lacks changes that were acknowledged, or can't be read."""


class ForeignValue(MetadataError, ValueError):
    """A value that is not in the form in which compare_and_set.py keeps values."""
