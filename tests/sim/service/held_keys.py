"""Which consumers of Key_Shared subscriptions hold which keys, as one broker knows it, and the checks of it; and the
check that a client hands out the entries of a key in the order in which they came to it (SUB-6).

A broker that serves a subscription knows which entries it has delivered to whom, which acknowledgements have arrived,
and which consumers have left. By that knowledge, with each delivery of an entry of a key:

- all unacknowledged entries of the key are at this consumer, those that it negatively acknowledged included (35, 53);
- an entry that its last holder left behind comes before later entries of the key; and one that comes for the first time
  is behind all that came before it (SUB-6).

What a broker decides between the arrival of a request and its handling is judged as if it had handled it: that only
excuses. An entry's key is that of its first message; no key counts as a key (SUB-5, SUB-13).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from tests.sim.invariants.history import Violation
from tests.sim.service.subscription_acks import Entry, WireAck

__all__ = ["ArrivedKeys", "HeldKeys", "KeyedEntry", "keyed_entry"]


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    position: Entry
    key: bytes | str | None
    # One bit for each message.
    messages: int


def keyed_entry(position: Entry, stored: bytes) -> KeyedEntry:
    messages = decode_messages(decode_entry(stored))
    columns = [column for column in (messages.ordering_keys, messages.keys) if column is not None]
    key = next((column[0] for column in columns if column[0] is not None), None)
    return KeyedEntry(position, key, (1 << len(messages)) - 1)


@dataclass(slots=True)
class _Delivered:
    # Its consumer, as the broker opened it; None: that has left.
    holder: object | None
    # Messages that are not acknowledged, as bits.
    left: int


@dataclass(slots=True)
class _Key:
    # What is not acknowledged, and the last entry that was ever delivered.
    delivered: dict[Entry, _Delivered] = field(default_factory=dict)
    last: Entry = (-1, -1)


class HeldKeys:
    """The keys of one subscription at one broker, from its first consumer there to its last, or from a move of its
    cursor or a truncation of its topic on.

    `before`: those until then. What was delivered since the broker made the move, and before the client knew that, is
    not held, but it is not new either.
    """

    def __init__(self, since: int, look: Callable[[str], None], before: HeldKeys | None = None) -> None:
        # The tick since which it knows all.
        self.since = since
        self._look = look
        self._keys: dict[bytes | str | None, _Key] = {}
        # Delivered in this time: what is redelivered is not new.
        self._known: dict[Entry, bytes | str | None] = {} if before is None else before._known

    def see(self, entry: KeyedEntry) -> None:
        """The broker delivers the entry during a move."""
        self._known[entry.position] = entry.key

    def deliver(self, entry: KeyedEntry, acknowledged: int, consumer: object) -> None:
        """The broker delivers the entry to this consumer. `acknowledged`: its messages that are, as bits."""
        self._look("35, 53")
        position, key = entry.position, self._keys.setdefault(entry.key, _Key())
        for other, delivered in key.delivered.items():
            if delivered.holder is None and other < position:
                raise Violation(
                    "SUB-6", f"{consumer} is delivered {position} of key {entry.key!r} before {other}, which waits"
                )
            if delivered.holder is not None and delivered.holder is not consumer:
                raise Violation(
                    "35, 53",
                    f"{consumer} is delivered {position} of key {entry.key!r}, and {delivered.holder} holds {other}",
                )
        if position not in self._known and position < key.last:
            raise Violation("SUB-6", f"{consumer} is first delivered {position} of key {entry.key!r} after {key.last}")
        self._known[position] = entry.key
        key.last = max(key.last, position)
        key.delivered[position] = _Delivered(consumer, entry.messages & ~acknowledged)

    def acknowledge(self, ack: WireAck) -> None:
        """An acknowledgement has arrived from any consumer."""
        for position in [*ack.whole, *ack.parts]:
            delivered = self._delivered(position)
            if delivered is not None:
                delivered.left &= ~ack.parts.get(position, -1)
                if not delivered.left:
                    del self._keys[self._known[position]].delivered[position]

    def _delivered(self, position: Entry) -> _Delivered | None:
        key = self._keys.get(self._known[position]) if position in self._known else None
        return None if key is None else key.delivered.get(position)

    def leave(self, consumer: object) -> None:
        for key in self._keys.values():
            for delivered in key.delivered.values():
                if delivered.holder is consumer:
                    delivered.holder = None

    def forget(self, consumer: object) -> None:
        """The subscription was moved: what was delivered to the consumer before is void."""
        for key in self._keys.values():
            key.delivered = {
                position: delivered for position, delivered in key.delivered.items() if delivered.holder is not consumer
            }


class ArrivedKeys:
    """The entries that came to a client in the present epoch, and of which it has handed out no message. A client that
    drops some of them without beginning an epoch hands out later ones before."""

    def __init__(self) -> None:
        self._waiting: dict[bytes | str | None, dict[Entry, None]] = {}
        self._keys: dict[Entry, bytes | str | None] = {}

    def arrive(self, entry: KeyedEntry) -> None:
        self._keys[entry.position] = entry.key
        self._waiting.setdefault(entry.key, {})[entry.position] = None

    def hand_out(self, position: Entry) -> Entry | None:
        """Return an entry of the same key that came before this one, and waits still."""
        waiting = self._waiting.get(self._keys.get(position), {})
        if position not in waiting:
            return None
        first = next(iter(waiting))
        del waiting[position]
        return first if first != position else None
