"""The one loop that changes metadata nodes: read, decide, and put at the version that was read (compare-and-set).

Why a lost answer needs care
----------------------------
If the answer to a put is lost, the change was made, or will be made, or never will be. Three things don't tell which:

- A plain read: the server that answers may lag behind.
- A fresh read that shows the old version: the first put may still be in flight and be executed after the read.
- A read that shows the expected payload: another writer may have written the same.

How it is found out
-------------------
For a node that was read at version v, the same compare-and-set is repeated: the same bytes at the same version.

- The repeat succeeds. Then exactly one of the two was made: versions only grow, so the node left version v only once.
  The other one finds another version and is refused for ever. It doesn't matter which one was made, since their bytes
  are the same.
- The repeat is refused because the node has left version v. Then no copy of our change can be made any more. Either one
  was made, or another writer's change. Version v + 1 has a token that identifies its writer. A read after a `sync`
  shows the node at some version w > v, and the token of v + 1 is at index w - (v + 1) of the stored tokens. If it is
  ours, our change was made. If not, it wasn't, and the loop continues with the new value.
- The repeat is refused for another reason (a quota, permissions, new children). That only means that the repeat was not
  made. The same read decides, if it can. The refusal itself is not raised, because the caller would take it for a no.
- The answer to the repeat is lost, too: repeat again.

For a node that was absent, the create is repeated with another token. A node can become absent again, while a version
never returns: the first copy may have been made, and deleted by another session, before the second one is made. With
the same bytes, the second would be the deleted incarnation again, and the session that deleted it would not notice.
With a token per copy it is a new incarnation. Nothing is lost by this: a refused copy is compared with all tokens that
were tried.

Limits
------
- If the token is no longer among the `STORED_TOKENS` newest ones, or the node is another incarnation or deleted, our
  version may have been made and then overwritten or deleted. That raises `OutcomeUnknown`.
- A create may be made more than once, each time as another incarnation, if other sessions delete the node in between.
  The existing node has it once. So other sessions may have seen, used and deleted an incarnation that its creator never
  learns of. Code that stores something by incarnation (an intent, a topic's ledgers) must be able to clean up after an
  incarnation without an owner, and may treat only the result of `change` as its own.
- A create can't be executed after its repeat was answered: the server executes a session's requests in order and from
  one connection, so the first copy was executed before, or never will be. The same holds for a delete that was found
  not made.
- The server can't distinguish equal versions of two incarnations: a put or a delete at version v of a node that was
  deleted and created again is executed if the new node has version v, too. If the incarnations of a node must not be
  confused, don't create it again under the same path.
- A delete leaves no token. If its repeat finds no node, our delete or another one was executed: `OutcomeUnknown`. If
  the same incarnation still exists, it was not.

The caller's update function is pure: it is called again for each new value. If it returns `LEAVE` or raises, that
counts only for a fresh read.

A request to a connected store that can't answer is repeated: the first time at once, then after growing pauses.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_metadata.envelope import (
    MAX_PAYLOAD_BYTES,
    TOKEN_BYTES,
    Envelope,
    Verdict,
    decode,
    judge_delete,
    judge_put,
    next_envelope,
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
from magnetar_metadata.store import ABSENT, Change, Delete, MetadataStore, Node, Put, SessionState
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness


class UpdateAction(enum.Enum):
    """An update function's result other than a new payload."""

    LEAVE = "leave"
    DELETE = "delete"


LEAVE = UpdateAction.LEAVE
DELETE = UpdateAction.DELETE
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0

Update = Callable[[bytes | None], bytes | UpdateAction]


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A node that is changed by this loop."""

    payload: bytes
    version: int
    # Constant until the node is deleted, and different for every later node.
    incarnation: bytes
    # The stored value, with its writers' tokens.
    value: bytes = field(default=b"", repr=False, compare=False)


async def read(store: MetadataStore, path: str, *, fresh: bool = False) -> StoredValue | None:
    """Read a node. The result may be stale, as with `MetadataStore.get`, unless `fresh` is set."""
    node = await (store.get_after_sync(path) if fresh else store.get(path))
    version, envelope = _opened(path, node)
    return StoredValue(envelope.payload, version, envelope.incarnation, node.value) if node and envelope else None


def encode_first_value(payload: bytes, randomness: Randomness) -> bytes:
    """Return the value for a node that the caller creates in its own transaction, to be changed by this loop later."""
    return next_envelope(None, randomness.token(TOKEN_BYTES), payload).encode()


def decode_stored(value: bytes, version: int = 0) -> StoredValue:
    """Return the node that has `value` at `version`, to be passed as `known` to `change`. The default version is that
    of a node that a transaction has created with `encode_first_value`. Raises `ForeignValue`."""
    return _stored(decode(value), version)


def encode_next_value(stored: StoredValue, payload: bytes, randomness: Randomness) -> bytes:
    """Return the value for a `Put` at `stored.version` in the caller's own transaction. `stored` comes from `read`."""
    return next_envelope(decode(stored.value), randomness.token(TOKEN_BYTES), payload).encode()


async def change(
    store: MetadataStore,
    path: str,
    update: Update,
    *,
    clock: Clock,
    randomness: Randomness,
    along: Sequence[Change] = (),
    timeout_s: float = 30.0,
    known: StoredValue | None = None,
) -> StoredValue | None:
    """Change the node's payload to `update(payload)`, where None is an absent node. Return the resulting node.

    If the store is not connected, wait for it, for at most `timeout_s`. Raises `OutcomeUnknown` if the change may have
    been made and this can't be found out, `NotSent` if it was not made because there was no connection, `SessionLost`,
    refusals that don't depend on the version, and errors of `update`.

    With `known`, a result of `read`, `decode_stored` or `change`, the node is not read first: `known` counts as a read
    that may be stale.

    The changes of `along` are made in the same transaction. If one of them is refused, nothing is changed, and its
    `Refused` is raised with its index in `along` plus one.
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
    # The pause before a request to a connected store without an answer is repeated.
    pause_s: float = 0.0

    async def run(
        self, update: Update, randomness: Randomness, seen: tuple[int, Envelope] | None = None
    ) -> StoredValue | None:
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
            # Another session has changed the node. A server that lags behind would return the old value again.
            fresh = True

    async def _put(
        self, expected: int, old: Envelope | None, payload: bytes, randomness: Randomness
    ) -> StoredValue | None:
        """Put the payload at the version `expected`. Return None if it was definitely not put."""
        written: list[Envelope] = []

        def next_copy() -> Put:
            # Each copy of a create has its own token; all copies of a later version have the same.
            if old is None or not written:
                written.append(next_envelope(old, randomness.token(TOKEN_BYTES), payload))
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
        """Delete the node. Return False if it was definitely not deleted."""
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
        """Repeat the change until it is answered. Return None if it was made."""
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
                # This copy was refused; an earlier one may have been made.
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
                node = await (self.store.get_after_sync(self.path) if fresh else self.store.get(self.path))
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
        """Wait until it is time to ask again, or the session is lost. Raise `error` at the deadline."""
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
    """The refusal of a change's last copy. `unknown` is set if an earlier copy may have been made."""

    error: Refused
    unknown: OutcomeUnknown | None


def _stored(envelope: Envelope, version: int) -> StoredValue:
    return StoredValue(envelope.payload, version, envelope.incarnation, envelope.encode())


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
