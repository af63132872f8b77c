"""The metadata store: a small tree of versioned nodes that all processes of a cluster agree on.

Theory of operation
-------------------
A node has a path, a value of at most `MAX_VALUE_BYTES`, and a version, 0 when it is made and one more at each change.
Changes are linearisable; `get`, `exists` and `children` may be stale, but show this store's own answered changes, and
after `sync` are at least as new as the sync.
A node made again after a delete starts at 0: what may be deleted and made again carries an incarnation in its value.
Parents come by themselves, empty and at version 0, when a node below them is made, and stay when it goes.

**Changes.** `Put` and `Delete` name the version that they expect: a number, `ABSENT` (the node is made), or `ANY`
(which makes it or overwrites it, and must not be used where two may write). Several in one `transaction` happen
together or not at all. Ephemeral nodes go with the session that made them; sequential ones get ten digits, above all
that their parent has ever given out. Nobody else makes nodes with such names: where the next number is taken by its
full name, a sequential put is refused with `NodeExists`, each time, until that node goes.

**Sessions.** One store object is one session, and ends with it. `session.state` is CONNECTED, SUSPENDED (no connection;
the session may live on or not) or LOST (for ever). While it is suspended nothing is answered: requests raise
`Unavailable`. A lost session can't be missed: listeners are called, `wait_lost` returns, and every request and every
watch of this store raises `SessionLost` from then on; going on means opening a new store, so nobody works on an
ephemeral node that is no longer theirs. What must not be believed too long asks `session.safe_until`: the server may
give the session up one session time-out after the last request that it answered was **sent**, so ask by then, on this
process' monotonic clock, less a margin. `ping` is a request for that purpose.

**Watches.** A watch is a flag, not a queue of events: it goes up at least once after the last change, may fold many
changes into one, may go up without any (always once at the start, and after each reconnect), and says nothing of what
changed: take the flag down, then read. `watch` covers the node (made, changed, deleted) and the names of its children.
`watch_subtree` covers every node below a declared root; declared, because ZooKeeper's clients watch single nodes only:
each change below a declared root also bumps the root's change counter, in the same transaction, and that one node is
watched. All processes of a cluster must declare the same roots. Ephemeral nodes vanish without a writer who could bump,
so they are refused below a declared root: watch the folder that holds them.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

ABSENT: Final = -1
ANY: Final = -2

# ZooKeeper's packets end at 1 MiB; what is left is for the path and the rest of the request.
MAX_VALUE_BYTES: Final = 1_000_000
MAX_PATH_BYTES: Final = 4096
MAX_CHANGES: Final = 500
MAX_VERSION: Final = 2**31 - 1
# Of a transaction: its values, and the path and 80 bytes for each node that it may have to write: each change's, each
# parent's that a put which makes a node may find missing (once), each change counter's. One value of the largest size
# fits, with a path of the largest size, unless that has more than some ten parents.
MAX_TRANSACTION_BYTES: Final = 1_040_000


@dataclass(frozen=True, slots=True)
class Stat:
    """What a node is besides its value."""

    version: int
    # The session that the node goes with; 0: it stays.
    ephemeral_owner: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read."""

    value: bytes
    stat: Stat

    @property
    def version(self) -> int:
        return self.stat.version


@dataclass(frozen=True, slots=True)
class Put:
    """Makes the node or changes its value.

    With `sequential` the path is the beginning of the name, ten digits are added, and `expected` is ABSENT.

    With `ephemeral` and a version the node at that version, which has no children, is replaced by one of this session:
    deleted and made in one step. The new node's version is 1 if 0 was expected, else 0. It always differs from the
    expected one, so of several sessions that replace the same node only one succeeds. With `ephemeral` and ANY is
    refused.
    """

    path: str
    value: bytes
    expected: int
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes the node, which has no children. With `ANY` it must be there too."""

    path: str
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing; the transaction fails unless the node is at this version, 0 or above."""

    path: str
    expected: int


Change = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Made:
    """What a change came to: the path (a sequential node's whole one) and the version that the node now has.

    A deleted node's is ABSENT, a checked one's what was expected.
    """

    path: str
    version: int


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Session(Protocol):
    """A store's session, as its owner sees it."""

    @property
    def state(self) -> SessionState: ...

    @property
    def id(self) -> int:
        """What `Stat.ephemeral_owner` names; never 0."""

    @property
    def timeout_s(self) -> float:
        """After so long without a request the server gives the session up. The server has the last word on it."""

    @property
    def answered_sent_at(self) -> float:
        """When the last request that was answered was sent, on the store's monotonic clock."""

    def safe_until(self, margin_s: float = 1.0) -> float:
        """Until then, on the monotonic clock, nobody else can have been told that this session is over."""

    def listen(self, listener: Callable[[SessionState], object]) -> Callable[[], None]:
        """Calls `listener` on the event loop at each change of state; returns what ends that.

        Called at once if the session is lost already. Changes arrive in order, LOST last and once.
        """

    async def wait_lost(self) -> None:
        """Returns when the session is lost, or the store closed."""


class Watch(Protocol):
    """A flag that goes up when what is watched may have changed."""

    async def wait(self) -> None:
        """Waits until the flag is up, and takes it down. Raises `SessionLost` once the session is over."""

    def close(self) -> None:
        """Ends the watch, and any `wait` on it with `Closed`."""


class MetadataStore(ABC):
    """One session with the metadata store. All methods are for one event loop."""

    @property
    @abstractmethod
    def session(self) -> Session: ...

    @abstractmethod
    async def get(self, path: str) -> Node | None:
        """The node, or None where there is none. Possibly stale: see `sync`."""

    @abstractmethod
    async def exists(self, path: str) -> Stat | None:
        """The node without its value, or None where there is none."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """The names of the node's children, sorted; none where there is no such node."""

    @abstractmethod
    async def transaction(self, changes: Sequence[Change]) -> list[Made]:
        """Makes all the changes, in order, or none: then the first one refused raises, with its `index`.

        The answers are in the order of the changes. A node may be changed once in a transaction, nothing is put below a
        node that it deletes, and "/" can't be changed.
        """

    @abstractmethod
    async def sync(self) -> None:
        """Reads of this store that begin after the return see all that was done before this call."""

    @abstractmethod
    async def ping(self) -> None:
        """Asks for an answer and nothing else."""

    @abstractmethod
    def watch(self, path: str) -> Watch:
        """Watches one node, whether it is there or not, and the names of its children."""

    @abstractmethod
    def watch_subtree(self, root: str) -> Watch:
        """Watches every node at or below one of the declared roots."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session; its ephemeral nodes go at once where the store can be reached."""

    async def put(
        self, path: str, value: bytes, expected: int, *, ephemeral: bool = False, sequential: bool = False
    ) -> Made:
        """One `Put`."""
        return (await self.transaction([Put(path, value, expected, ephemeral, sequential)]))[0]

    async def delete(self, path: str, expected: int) -> None:
        """One `Delete`."""
        await self.transaction([Delete(path, expected)])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
