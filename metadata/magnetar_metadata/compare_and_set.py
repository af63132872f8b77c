"""The one loop through which metadata nodes are changed: read, decide, put at the version that was read.

Why a lost answer needs care
----------------------------
When the answer to a put is lost, the change was made, or will be, or never. Three things do not settle it. A plain read
may come from a server that lags behind. A fresh read that shows the old version proves nothing either: the first put
may still be on its way and land after the read. And reading the expected payload proves nothing, since another writer
may have written the same.

What settles it
---------------
Of a node that was read at version v: repeat the same compare-and-set, the same bytes at the same version.

- It succeeds. Then exactly one of the two was made: versions only count up, so version v was left once. Whichever it
  was, the other finds another version and is refused for ever. The bytes are the same, so it does not matter which.
- It is refused because the node has left version v. No copy of ours can be made any more. Either one was, or somebody
  else's change was. Version v + 1 has a token: its writer's. After a `sync`, which the read that follows can't be older
  than, the node is at some version w > v, and the token of v + 1 is at place w - (v + 1) of those kept. Ours: it was
  made. Another: it was not, and we go round with the new value.
- It is refused for any other reason (a quota, rights, children that have come since). That is said of the repeat alone.
  The same reading decides what can be decided; the refusal itself is not passed on, as it would be taken for a no.
- Its answer is lost too: repeat.

Of a node that was absent: repeat the create, but with another token. "Absent" comes back while a version does not: the
first copy may have been made, and deleted by another session, before the second is made. With the same bytes that would
be the deleted incarnation risen again, and who deleted it would take the node for the one that is gone. With a token
for each copy it is plainly another. Nothing is lost by it: a refused copy is judged by all the tokens tried.

What remains
------------
- The token is no longer among the `KEPT_TOKENS` newest, or the node is another incarnation or gone: our version may
  have been made and overwritten or deleted since. That is `OutcomeUnknown`, honestly.
- A create may be made more than once, each time as another incarnation, if others delete it between: its repeat
  succeeds after a copy was made and deleted, or finds somebody else's node and goes round. In the node that lives it is
  once. So others may have seen, acted on and deleted an incarnation that its own maker never hears of: who keeps
  something by incarnation (an intent, a topic's ledgers) must be able to clean up after one that nobody claims, and
  believes only what `change` returned to be its own.
- A create can't land after its repeat was answered: the server takes a session's requests in order and from one
  connection, so by then the first copy has landed or never will. The same is relied on when a delete is found not made.
- Versions of two incarnations look alike to the server: a put or a delete at version v of a node that was deleted and
  made again is made if the new one is at v too. A node whose incarnations must not be mixed up is not made again under
  its path.
- A delete leaves no token. Repeated, "no node" may mean ours or another's: `OutcomeUnknown`. The same incarnation still
  there means that it was not made.

A caller's update function is pure: it is called again for each value that turns out to be the one to change. What it
concludes without a change (`LEAVE`, or an exception) is believed of a fresh read only.

A store that answers "not now" while it is connected is asked again after a pause that grows; the first time at once.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_metadata.core.envelope import (
    MAX_PAYLOAD_BYTES,
    TOKEN_BYTES,
    Envelope,
    Verdict,
    decode,
    following,
    judge_delete,
    judge_put,
)
from magnetar_metadata.errors import (
    BadVersion,
    ForeignValue,
    InvalidChange,
    NoNode,
    NotSent,
    OutcomeUnknown,
    Refused,
    SessionLost,
    Unavailable,
    ValueTooLarge,
)
from magnetar_metadata.fresh import get_fresh
from magnetar_metadata.store import ABSENT, Change, Delete, MetadataStore, Node, Put, SessionState
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness


class Instead(enum.Enum):
    """What an update function returns instead of a new payload."""

    LEAVE = "leave"
    DELETE = "delete"


LEAVE = Instead.LEAVE
DELETE = Instead.DELETE
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0

Update = Callable[[bytes | None], bytes | Instead]


@dataclass(frozen=True, slots=True)
class Stored:
    """A node that is changed through this loop."""

    payload: bytes
    version: int
    # The same as long as the node is not deleted, and never the same again.
    incarnation: bytes
    # The whole value, with its writers' tokens.
    value: bytes = field(default=b"", repr=False, compare=False)


async def read(store: MetadataStore, path: str, *, fresh: bool = False) -> Stored | None:
    """The node's payload. Possibly stale, as `MetadataStore.get` is, unless it is to be fresh."""
    node = await (get_fresh(store, path) if fresh else store.get(path))
    version, envelope = _opened(path, node)
    return Stored(envelope.payload, version, envelope.incarnation, node.value) if node and envelope else None


def first_value(payload: bytes, randomness: Randomness) -> bytes:
    """What a node that is changed through this loop holds when it is made by a transaction of the caller's own."""
    return following(None, randomness.token(TOKEN_BYTES), payload).encode()


def made(value: bytes, version: int = 0) -> Stored:
    """Returns the node that holds `value` at `version`, to be passed as `known` to `change`. The default version is
    that of a node which a transaction has made with this `first_value`. Raises `ForeignValue`."""
    return _stored(decode(value), version)


def next_value(stored: Stored, payload: bytes, randomness: Randomness) -> bytes:
    """The value for a `Put` at `stored.version` in a transaction of the caller's own. `stored` comes from `read`."""
    return following(decode(stored.value), randomness.token(TOKEN_BYTES), payload).encode()


async def change(
    store: MetadataStore,
    path: str,
    update: Update,
    *,
    clock: Clock,
    randomness: Randomness,
    along: Sequence[Change] = (),
    timeout_s: float = 30.0,
    known: Stored | None = None,
) -> Stored | None:
    """Changes the node to what `update` makes of its payload (None: it is absent). Returns what is there then.

    While the store has no connection this waits for it, until `timeout_s` from now. Raises `OutcomeUnknown` if the
    change may have been made and it can't be found out, `NotSent` if it was not made for want of a connection, and
    `SessionLost`; besides, what refuses the change whatever its version, and what `update` raises.

    With `known`, which `read`, `made` or `change` returned, nothing is read first: it is as good as another possibly
    stale read.

    `along` are made in the same transaction, or neither is. One of them that is refused raises its `Refused`, whose
    `index` is its place among `along` plus one: nothing was changed.
    """
    loop = _Loop(store, path, clock, clock.monotonic() + timeout_s, tuple(along))
    return await loop.run(update, randomness, (known.version, decode(known.value)) if known is not None else None)


@dataclass
class _Loop:
    """One call of `change`."""

    store: MetadataStore
    path: str
    clock: Clock
    deadline: float
    along: tuple[Change, ...] = ()
    # How long to wait before a store that is connected and gave no answer is asked again.
    pause_s: float = 0.0

    async def run(
        self, update: Update, randomness: Randomness, seen: tuple[int, Envelope] | None = None
    ) -> Stored | None:
        fresh = False
        while True:
            version, old = seen or await self._read(fresh)
            seen = None
            try:
                new = update(old.payload if old else None)
            except Exception:
                if fresh:
                    raise
                new = LEAVE
            if new is LEAVE or (new is DELETE and old is None):
                if fresh:
                    return _stored(old, version) if old else None
                fresh = True
                continue
            if isinstance(new, bytes):
                _check_payload(self.path, new)
                stored = await self._put(version, old, new, randomness)
                if stored is not None:
                    return stored
            elif new is not DELETE:
                raise InvalidChange(f"the update of {self.path!r} returned {new!r:.80}: return bytes, LEAVE or DELETE")
            else:
                assert old is not None
                if await self._delete(version, old):
                    return None
            # Somebody else changed it, so what was read is old, and a server that lags would show it again.
            fresh = True

    async def _put(self, expected: int, old: Envelope | None, payload: bytes, randomness: Randomness) -> Stored | None:
        """Puts it at the version `expected`, or returns None for a definite no."""
        written: list[Envelope] = []

        def next_copy() -> Put:
            # A create has a token for each copy, a later version one for all.
            if old is None or not written:
                written.append(following(old, randomness.token(TOKEN_BYTES), payload))
            return Put(self.path, written[-1].encode(), expected)

        refusal = await self._settle(next_copy)
        if refusal is None:
            return _stored(written[-1], expected + 1)
        if not refusal.unknown:
            return None
        current_version, current = await self._read_to_judge(refusal.unknown)
        verdicts = [judge_put(envelope, expected, current, current_version) for envelope in written]
        if Verdict.OURS in verdicts:
            return _stored(written[verdicts.index(Verdict.OURS)], expected + 1)
        if Verdict.UNKNOWN in verdicts:
            raise OutcomeUnknown(
                f"unknown whether {self.path!r} was changed by this client: it was changed often or deleted "
                f"since, or the retry was refused: {refusal.error}"
            ) from refusal.unknown
        return None

    async def _delete(self, version: int, old: Envelope) -> bool:
        """Deletes it, or returns False for a definite no."""
        refusal = await self._settle(lambda: Delete(self.path, version))
        if refusal is None:
            return True
        if not refusal.unknown:
            return False
        _, current = await self._read_to_judge(refusal.unknown)
        if judge_delete(old.incarnation, current) is Verdict.UNKNOWN:
            raise OutcomeUnknown(f"{self.path!r} was deleted, by this client or another one") from refusal.unknown
        return False

    async def _settle(self, next_copy: Callable[[], Put | Delete]) -> _Refusal | None:
        """Repeats the change until it is answered. None: it was made."""
        unknown: OutcomeUnknown | None = None
        while True:
            try:
                await self.store.transaction([next_copy(), *self.along])
                return None
            except OutcomeUnknown as error:
                unknown = error
                await self._connected(unknown)
            except NotSent as error:
                await self._connected(unknown or error)
            except Refused as error:
                # Said of this copy only: an earlier one may have been made.
                if unknown is None and (error.index > 0 or not isinstance(error, (BadVersion, NoNode))):
                    raise
                return _Refusal(error, unknown)
            except SessionLost as error:
                if unknown is not None:
                    raise OutcomeUnknown(
                        f"unknown whether {self.path!r} was changed: the session was lost before the answer"
                    ) from error
                raise

    async def _read(self, fresh: bool) -> tuple[int, Envelope | None]:
        while True:
            try:
                node = await (get_fresh(self.store, self.path) if fresh else self.store.get(self.path))
                return _opened(self.path, node)
            except Unavailable as error:
                await self._connected(NotSent(f"{self.path!r} was not changed: {error}"))

    async def _read_to_judge(self, unknown: OutcomeUnknown) -> tuple[int, Envelope | None]:
        try:
            return await self._read(fresh=True)
        except (Unavailable, SessionLost) as error:
            raise OutcomeUnknown(
                f"unknown whether {self.path!r} was changed, since it can't be read: {error}"
            ) from unknown

    async def _connected(self, error: Unavailable) -> None:
        """Returns when it is time to ask again (or the session is lost), raises `error` at the deadline."""
        session = self.store.session
        wait_s = self.deadline - self.clock.monotonic()
        if session.state is SessionState.CONNECTED:
            wait_s = min(wait_s, self.pause_s)
            self.pause_s = min(max(_FIRST_PAUSE_S, self.pause_s * 2), _LONGEST_PAUSE_S)
        if wait_s > 0 and session.state is not SessionState.LOST:
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: object = None) -> None:
                if not moved.done():
                    moved.set_result(None)

            stop = session.listen(wake)
            timer = self.clock.call_later(wait_s, wake)
            try:
                await moved
            finally:
                stop()
                timer.cancel()
        if self.clock.monotonic() >= self.deadline:
            raise error


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The last copy of a change was refused; `unknown` if an earlier one may have been made."""

    error: Refused
    unknown: OutcomeUnknown | None


def _stored(envelope: Envelope, version: int) -> Stored:
    return Stored(envelope.payload, version, envelope.incarnation, envelope.encode())


def _opened(path: str, node: Node | None) -> tuple[int, Envelope | None]:
    if node is None:
        return ABSENT, None
    try:
        return node.version, decode(node.value)
    except ForeignValue as error:
        raise ForeignValue(f"{path!r}: {error}") from None


def _check_payload(path: str, payload: bytes) -> None:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueTooLarge(
            f"the payload for {path!r} has {len(payload)} bytes, above the limit of {MAX_PAYLOAD_BYTES}"
        )
