"""The one loop through which metadata nodes are changed: read, decide, put at the version that was read.

Why a lost answer needs care
----------------------------
When the answer to a put is lost, the change was made, or will be, or never. Three things do not settle it. A plain read
may come from a server that lags behind. A fresh read that shows the old version proves nothing either: the first put
may still be on its way and land after the read. And reading the expected payload proves nothing, since another writer
may have written the same.

What settles it
---------------
Repeat the same compare-and-set: the same bytes, at the same expected version v.

- It succeeds. Then exactly one of the two was made: versions only count up, so version v was left once. Whichever it
  was, the other finds another version and is refused for ever. The bytes are the same, so it does not matter which.
- It is refused: the node has left version v, so no copy of ours can be made any more. Either one was, or somebody
  else's change was. Version v + 1 has a token: its writer's. After a `sync`, which the read that follows can't be older
  than, the node is at some version w > v, and the token of v + 1 is at place w - (v + 1) of those kept. Ours: it was
  made. Another: it was not, and we go round with the new value.
- Its answer is lost too: repeat.

What remains
------------
- The token is no longer among the `KEPT_TOKENS` newest, or the node is another incarnation or gone: our version may
  have been made and overwritten or deleted since. That is `OutcomeUnknown`, honestly.
- A create can land after somebody deleted what another had created, since "absent" comes back while a version does not.
  Within a session this ends with the repeat: the server takes a session's requests in order and from one connection, so
  once the repeat is answered the first copy has landed or never will. If the node that is there then is somebody
  else's, ours is taken not to have been made, and we go round. (It may have been made, deleted, and another made. Then
  our change is made once more, on the node that lives; in that one it is once.)
- Versions of two incarnations look alike to the server: a put at version v of a node that was deleted and made again is
  made if the new one is at v too. A node whose incarnations must not be mixed up is not made again under its path.
- A delete leaves no token. Repeated, "no node" may mean ours or another's: `OutcomeUnknown`. The same incarnation still
  there at a later version means that it was not made.

A caller's update function is pure: it is called again for each value that turns out to be the one to change. What it
concludes without a change (`LEAVE`, or an exception) is believed of a fresh read only.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from dataclasses import dataclass

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
    NoNode,
    NotSent,
    OutcomeUnknown,
    SessionLost,
    Unavailable,
    ValueTooLarge,
)
from magnetar_metadata.store import ABSENT, Delete, MetadataStore, Node, Put, SessionState
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness


class Instead(enum.Enum):
    """What an update function returns instead of a new payload."""

    LEAVE = "leave"
    DELETE = "delete"


LEAVE = Instead.LEAVE
DELETE = Instead.DELETE
Update = Callable[[bytes | None], bytes | Instead]


@dataclass(frozen=True, slots=True)
class Stored:
    """A node that is changed through this loop."""

    payload: bytes
    version: int
    # The same as long as the node is not deleted, and never the same again.
    incarnation: bytes


async def read(store: MetadataStore, path: str) -> Stored | None:
    """The node's payload. Possibly stale, as `MetadataStore.get` is."""
    node, envelope = _opened(path, await store.get(path))
    return Stored(envelope.payload, node.version, envelope.incarnation) if node and envelope else None


async def change(
    store: MetadataStore, path: str, update: Update, *, clock: Clock, randomness: Randomness, timeout_s: float = 30.0
) -> Stored | None:
    """Changes the node to what `update` makes of its payload (None: it is absent). Returns what is there then.

    While the store has no connection this waits for it, until `timeout_s` from now. Raises `OutcomeUnknown` if the
    change may have been made and it can't be found out, `NotSent` if it was not made for want of a connection, and
    `SessionLost`; besides, what refuses the change whatever its version, and what `update` raises.
    """
    return await _Loop(store, path, clock, clock.monotonic() + timeout_s).run(update, randomness)


@dataclass
class _Loop:
    """One call of `change`."""

    store: MetadataStore
    path: str
    clock: Clock
    deadline: float

    async def run(self, update: Update, randomness: Randomness) -> Stored | None:
        fresh = False
        while True:
            node, old = await self._read(fresh)
            try:
                new = update(old.payload if old else None)
            except Exception:
                if fresh:
                    raise
                new = LEAVE
            if new is LEAVE or (new is DELETE and node is None):
                if fresh:
                    return Stored(old.payload, node.version, old.incarnation) if node and old else None
                fresh = True
                continue
            if isinstance(new, bytes):
                _check_payload(self.path, new)
                stored = await self._put(node, following(old, randomness.token(TOKEN_BYTES), new))
                if stored is not None:
                    return stored
            else:
                assert node is not None
                assert old is not None
                if await self._delete(node, old):
                    return None
            # Somebody else changed it, so what was read is old, and a server that lags would show it again.
            fresh = True

    async def _put(self, node: Node | None, envelope: Envelope) -> Stored | None:
        """Puts it, or returns None for a definite no."""
        expected = node.version if node else ABSENT
        put = Put(self.path, envelope.encode(), expected)
        lost = await self._settle(put)
        if lost is None:
            return Stored(envelope.payload, expected + 1, envelope.incarnation)
        if not lost.unknown:
            return None
        current_node, current = await self._read_to_judge(lost.unknown)
        verdict = judge_put(envelope, expected, current, current_node.version if current_node else ABSENT)
        if verdict is Verdict.UNKNOWN:
            raise OutcomeUnknown(
                f"{self.path!r} was changed so often, or deleted, that nobody can tell whether our change was made"
            ) from lost.unknown
        return Stored(envelope.payload, expected + 1, envelope.incarnation) if verdict is Verdict.OURS else None

    async def _delete(self, node: Node, old: Envelope) -> bool:
        """Deletes it, or returns False for a definite no."""
        lost = await self._settle(Delete(self.path, node.version))
        if lost is None:
            return True
        if not lost.unknown:
            return False
        _, current = await self._read_to_judge(lost.unknown)
        if judge_delete(old.incarnation, current) is Verdict.UNKNOWN:
            raise OutcomeUnknown(f"{self.path!r} is gone, by our delete or by somebody else's") from lost.unknown
        return False

    async def _settle(self, change: Put | Delete) -> _Refusal | None:
        """Repeats the change until it is answered. None: it was made."""
        unknown: OutcomeUnknown | None = None
        while True:
            try:
                await self.store.transaction([change])
                return None
            except OutcomeUnknown as error:
                unknown = error
                await self._connected(unknown)
            except NotSent as error:
                await self._connected(unknown or error)
            except (BadVersion, NoNode):
                return _Refusal(unknown)
            except SessionLost as error:
                if unknown is not None:
                    raise OutcomeUnknown(f"the session was lost while a change of {self.path!r} was open") from error
                raise

    async def _read(self, fresh: bool) -> tuple[Node | None, Envelope | None]:
        while True:
            try:
                if fresh:
                    await self.store.sync()
                return _opened(self.path, await self.store.get(self.path))
            except Unavailable as error:
                await self._connected(NotSent(f"{self.path!r} was not changed: {error}"))

    async def _read_to_judge(self, unknown: OutcomeUnknown) -> tuple[Node | None, Envelope | None]:
        try:
            return await self._read(fresh=True)
        except (Unavailable, SessionLost) as error:
            raise OutcomeUnknown(f"whether {self.path!r} was changed could not be read: {error}") from unknown

    async def _connected(self, error: Unavailable) -> None:
        """Returns when there is a connection again (or the session is lost), raises `error` at the deadline."""
        session = self.store.session
        left_s = self.deadline - self.clock.monotonic()
        if left_s > 0 and session.state is SessionState.SUSPENDED:
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: object = None) -> None:
                if not moved.done():
                    moved.set_result(None)

            stop = session.listen(wake)
            timer = self.clock.call_later(left_s, wake)
            try:
                await moved
            finally:
                stop()
                timer.cancel()
        if self.clock.monotonic() >= self.deadline:
            raise error


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The change was refused; `unknown` if an earlier copy of it may have been made."""

    unknown: OutcomeUnknown | None


def _opened(path: str, node: Node | None) -> tuple[Node | None, Envelope | None]:
    if node is None:
        return None, None
    try:
        return node, decode(node.value)
    except ForeignValue as error:
        raise ForeignValue(f"{path!r}: {error}") from None


def _check_payload(path: str, payload: bytes) -> None:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueTooLarge(f"the payload for {path!r} takes {len(payload)} bytes, above {MAX_PAYLOAD_BYTES}")
