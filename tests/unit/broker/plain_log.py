"""A topic's log that is nothing but numbers of entries: what cursors ask of one."""

from __future__ import annotations

from magnetar_bookie.read.striping import Striping
from magnetar_broker.core.position import EARLIEST, Position
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_wire.topic_name import TopicName

__all__ = ["PlainLog"]


class RecordedMarks:
    """What cursors say of the first durable one: one entry of `calls` for each call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: Exception | None = None

    def mark_unsubscribed(self) -> None:
        self.calls.append("mark")

    async def save_mark(self) -> None:
        self.calls.append("save")
        if self.fails is not None:
            raise self.fails


class PlainLog:
    """Ledgers with so many entries each; the last one may be open."""

    def __init__(self, *ledgers: tuple[int, int], is_open: bool = True, name: str = "cursors") -> None:
        self.name = TopicName.parse(name)
        self.incarnation = "i"
        self.still_ours = ()
        self.retention = RecordedMarks()
        self.striping = LedgerStriping(Striping(3, 3, 2))
        self.ledgers = dict(ledgers)
        self.is_open = is_open
        self._trimmed = EARLIEST

    # ── what happens to it ──

    def append(self, count: int = 1) -> Position:
        ledger_id = next(reversed(self.ledgers))
        assert self.is_open
        self.ledgers[ledger_id] += count
        return Position(ledger_id, self.ledgers[ledger_id] - 1)

    def roll(self, ledger_id: int) -> None:
        self.ledgers[ledger_id] = 0
        self.is_open = True

    def trim(self, up_to: Position) -> list[int]:
        """As a managed ledger does: whole closed ledgers."""
        gone = []
        for ledger_id, count in list(self.ledgers.items()):
            if self.ledger_end(ledger_id) is None or Position(ledger_id, count - 1) > up_to:
                break
            self._trimmed = Position(ledger_id, count - 1)
            del self.ledgers[ledger_id]
            gone.append(ledger_id)
        return gone

    # ── what is asked of it ──

    @property
    def before_first(self) -> Position:
        return next((Position(ledger_id, -1) for ledger_id in self.ledgers), self._trimmed)

    @property
    def last(self) -> Position:
        for ledger_id, count in reversed(self.ledgers.items()):
            if count:
                return Position(ledger_id, count - 1)
        return self.before_first

    def first_after(self, position: Position) -> Position:
        for ledger_id, count in self.ledgers.items():
            if Position(ledger_id, count - 1) > position:
                return max(
                    Position(ledger_id, 0), Position(ledger_id, position[1] + 1 if ledger_id == position[0] else 0)
                )
        return Position(self.last.ledger_id, self.last.entry_id + 1)

    def ledger_end(self, ledger_id: int) -> int | None:
        if ledger_id not in self.ledgers or (self.is_open and ledger_id == next(reversed(self.ledgers))):
            return None
        return self.ledgers[ledger_id] - 1

    def next_ledger(self, ledger_id: int) -> int | None:
        ids = list(self.ledgers)
        if ledger_id not in self.ledgers or ledger_id == ids[-1]:
            return None
        return ids[ids.index(ledger_id) + 1]

    def entries_between(self, after: Position, up_to: Position) -> int:
        return max(0, self._up_to(up_to) - self._up_to(after))

    def _up_to(self, position: Position) -> int:
        counts = [
            count if ledger_id < position.ledger_id else max(0, min(count, position.entry_id + 1))
            for ledger_id, count in self.ledgers.items()
            if ledger_id <= position.ledger_id
        ]
        return sum(counts)

    def positions(self) -> list[Position]:
        """Every entry there is."""
        return [Position(ledger_id, entry_id) for ledger_id, count in self.ledgers.items() for entry_id in range(count)]
