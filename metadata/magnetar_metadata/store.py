"""The metadata store: a small tree of versioned nodes that all processes of a cluster agree on.

Theory of operation
-------------------
A node has a path, a value of at most `MAX_VALUE_BYTES`, and a version: 0 when it is created, and one more after each
change. Changes are linearisable. `get`, `exists` and `children` may return stale data, but never older than this
store's own answered changes, and after `sync` never older than the sync. A node that is deleted and created again
starts at version 0. If that can happen to a node, its value must contain an incarnation. Missing parents are created,
empty and at version 0, with the first node below them, and stay when it is deleted.

**Changes.** `Put` and `Delete` name the version that they expect: a number, `ABSENT` (the node is created), or `ANY`
(the node is created or overwritten; not to be used where there may be two writers). The changes of one `transaction`
are all made, or none. Ephemeral nodes are deleted with the session that created them. Sequential nodes get ten digits,
a number above all that their parent has assigned. Don't create nodes with such names in another way: if the next
number is taken, every sequential put is refused with `NodeExists` until that node is deleted.

**Sessions.** One store object is one session, and ends with it. `session.state` is CONNECTED, SUSPENDED (not connected;
the session may or may not have expired) or LOST (final). A suspended session gets no answers: requests raise
`Unavailable`. The loss of a session can't be missed: listeners are called, `wait_lost` returns, and every later request
and watch of this store raises `SessionLost`. To continue, open a new store. So nobody works on an ephemeral node that
no longer exists. Code that must not rely on the session for too long checks `session.safe_until`: the server may expire
the session one session timeout after the last answered request was **sent**, so act before then, on this process's
monotonic clock, minus a margin. `ping` is a request for that purpose.

**Watches.** A watch is a flag, not a queue of events. It is set at least once after the last change. It may combine
many changes, may be set without a change (always once at the start, and after each reconnect), and does not say what
changed. Clear the flag, then read. `watch` covers the node (created, changed, deleted) and the names of its children.
`watch_subtree` covers every node below a declared root. Roots are declared because ZooKeeper's clients can watch single
nodes only: each change below a declared root also increments the root's change counter, in the same transaction, and
that one node is watched. All processes of a cluster must declare the same roots. An ephemeral node is deleted by the
server, which would not increment the counter, so ephemeral nodes are refused below a declared root: watch their folder
instead.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

ABSENT: Final = -1
ANY: Final = -2

# ZooKeeper's packets have at most 1 MiB; the difference is for the path and the rest of the request.
MAX_VALUE_BYTES: Final = 1_000_000
MAX_PATH_BYTES: Final = 4096
MAX_CHANGES: Final = 500
MAX_VERSION: Final = 2**31 - 1
# The size of a transaction: its values, and for each node that it may have to write the path and 80 bytes. These nodes
# are the changed ones, the parents that may have to be created (each once), and change counters. One value and one path
# of the maximum size fit, unless the path has more than about ten parents.
MAX_TRANSACTION_BYTES: Final = 1_040_000


@dataclass(frozen=True, slots=True)
class Stat:
    """A node's properties without its value."""

    version: int
    # The session with which the node is deleted; 0: the node is not ephemeral.
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node that was read."""

    value: bytes
    stat: Stat

    @property
    def version(self) -> int:
        return self.stat.version


@dataclass(frozen=True, slots=True)
class Put:
    """A change that creates a node or changes its value.

    With `sequential`, ten digits are appended to the path, and `expected` is ABSENT.

    With `ephemeral` and a version, the node with that version, which must have no children, is replaced by an ephemeral
    one of this session: deleted and created in one step. The new node's version is 1 if 0 was expected, else 0. It
    always differs from the expected one, so if several sessions replace the same node, only one succeeds. `ephemeral`
    with ANY is refused.
    """

    path: str
    value: bytes
    expected: int
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A change that deletes a node without children. The node must exist, even with `ANY`."""

    path: str
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """A condition: the transaction fails unless the node has this version, 0 or above."""

    path: str
    expected: int


Change = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of a change: the node's path (with the digits of a sequential node) and its new version.

    The version is ABSENT for a deletion, and the expected version for a check.
    """

    path: str
    version: int


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Session(Protocol):
    """A store's session, for the store's user."""

    @property
    def state(self) -> SessionState: ...

    @property
    def id(self) -> int:
        """The id that `Stat.ephemeral_owner` has; never 0."""

    @property
    def timeout_s(self) -> float:
        """The time without a request after which the server expires the session. The server decides on it."""

    @property
    def answered_sent_at(self) -> float:
        """The time at which the last answered request was sent, on the store's monotonic clock."""

    def safe_until(self, margin_s: float = 1.0) -> float:
        """Return the time, on the monotonic clock, before which no other client can see this session as expired."""

    def listen(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Call `listener` on the event loop at each change of state. Return a function that removes the listener.

        If the session is already lost, `listener` is called at once. Changes arrive in order; LOST is the last one.
        """

    async def wait_lost(self) -> None:
        """Wait until the session is lost, or the store is closed."""


class Watch(Protocol):
    """A flag that is set when a watched node may have changed."""

    async def wait(self) -> None:
        """Wait until the flag is set, and clear it. Raises `SessionLost` after the end of the session."""

    def close(self) -> None:
        """End the watch. A pending `wait` raises `Closed`."""


class MetadataStore(ABC):
    """One session with the metadata store. It belongs to one event loop."""

    @property
    @abstractmethod
    def session(self) -> Session: ...

    @abstractmethod
    async def get(self, path: str) -> Node | None:
        """Return the node, or None if it doesn't exist. It may be stale: see `sync`."""

    @abstractmethod
    async def exists(self, path: str) -> Stat | None:
        """Return the node's properties, or None if it doesn't exist."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """Return the sorted names of the node's children; an empty list if the node doesn't exist."""

    @abstractmethod
    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        """Make all changes, in order, or none: then raise the error of the first one that was refused, with its
        `index`.

        The results are in the order of the changes. A transaction can change a node only once, can't put a node below
        one that it deletes, and can't change "/".
        """

    @abstractmethod
    async def sync(self) -> None:
        """Wait until this store's reads see all changes that were made before this call."""

    @abstractmethod
    async def ping(self) -> None:
        """Send a request that changes nothing, and wait for the answer."""

    @abstractmethod
    def watch(self, path: str) -> Watch:
        """Watch one node, which need not exist, and the names of its children."""

    @abstractmethod
    def watch_subtree(self, root: str) -> Watch:
        """Watch a declared root, and every node below it."""

    @abstractmethod
    async def close(self) -> None:
        """End the session. If the store can be reached, its ephemeral nodes are deleted at once."""

    async def get_after_sync(self, path: str) -> Node | None:
        """Return the node as it was at this call, or later.

        The read is sent after the answer to the sync, not together with it: concurrent callers may share a sync
        (zookeeper/shared_sync.py), which is then sent later than the read would be. If the connection breaks in
        between, the read goes to a server that has seen everything that was answered to this session, including the
        sync.
        """
        await self.sync()
        return await self.get(path)

    async def put(
        self, path: str, value: bytes, expected: int, *, ephemeral: bool = False, sequential: bool = False
    ) -> ChangeResult:
        """Make one `Put`."""
        return (await self.transaction([Put(path, value, expected, ephemeral, sequential)]))[0]

    async def delete(self, path: str, expected: int) -> None:
        """Make one `Delete`."""
        await self.transaction([Delete(path, expected)])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
