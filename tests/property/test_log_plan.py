"""Plans of a log against a plain model: a list of all its messages with their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from magnetar_broker.managed_ledger.chunk_lookback import find_first_held, plan_pieces_before
from magnetar_broker.managed_ledger.entry_search import Boundary, EntryFacts
from magnetar_broker.managed_ledger.ledger_list import LedgerList, ListChange
from magnetar_broker.managed_ledger.message_position import BEFORE_ALL, MessagePosition, find_end, find_first
from magnetar_broker.managed_ledger.read_plan import LogPlan, PlanLimits, make_plan
from magnetar_broker.position import LATEST, Position
from magnetar_protos import managed_ledger_pb2 as pb
from tests.examples import examples

_entries = st.lists(
    st.tuples(st.one_of(st.just(1), st.integers(1, 5)), st.one_of(st.just(10), st.integers(1, 60))),
    min_size=1,
    max_size=9,
)
# Near the position of a message that existed once: which one, plus a number of entries and messages; or anything.
_near = st.tuples(st.integers(0, 500), st.sampled_from((0, 0, 0, 1, 5)), st.sampled_from((0, 0, 1, 2, 5)))
_positions = st.one_of(
    _near,
    _near,
    st.tuples(st.integers(0, 14), st.integers(0, 12), st.integers(0, 7)).map(lambda one: MessagePosition(*one)),
)
_limits = st.builds(
    PlanLimits,
    messages=st.one_of(st.just(0), st.integers(1, 12)),
    bytes=st.one_of(st.just(0), st.integers(1, 150)),
    pieces=st.integers(1, 4),
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _entries),
        st.tuples(st.just("append"), _entries),
        st.tuples(st.just("roll"), st.integers(1, 3)),
        st.tuples(st.just("close"), st.none()),
        st.tuples(st.just("trim"), st.integers(1, 3)),
        st.tuples(st.just("reopen"), st.none()),
        st.tuples(st.just("go on"), _limits),
        st.tuples(st.just("go on"), _limits),
        st.tuples(st.just("plan"), st.tuples(_positions, st.one_of(st.none(), _positions), _limits)),
        st.tuples(st.just("plan"), st.tuples(_near, _near, st.just(PlanLimits()))),
    ),
    min_size=8,
    max_size=30,
)


@dataclass(frozen=True)
class Entry:
    facts: EntryFacts

    @property
    def positions(self) -> list[MessagePosition]:
        return [MessagePosition(*self.facts.position, number) for number in range(self.facts.messages)]


class Log:
    """The list of ledgers, and all entries that there ever were."""

    def __init__(self) -> None:
        self.node = pb.ManagedLedgerNode(incarnation="i")
        self.pages: dict[int, bytes] = {}
        self.ledger_list = LedgerList("i")
        self.entries: dict[Position, Entry] = {}
        self.deleted = 0
        self.next_ledger = 1
        self.index = 0
        self.known: dict[Position, Boundary] = {}
        self.looks = 0
        # Where a reader who follows the log has come.
        self.position = BEFORE_ALL
        self.read: list[MessagePosition] = []

    def change(self, change: ListChange) -> None:
        made, missing = self.ledger_list.encode(change, self.node)
        self.pages.update((page.number, page.payload) for page in made)
        for number in missing:
            del self.pages[number]
        self.ledger_list.apply(change, self.node)

    def append(self, entries: list[tuple[int, int]]) -> None:
        if self.ledger_list.current_ledger is None:
            self.roll(1)
        current = self.ledger_list.current_ledger
        assert current is not None
        for messages, size in entries:
            position = Position(current.ledger_id, current.entries)
            self.entries[position] = Entry(EntryFacts(position, self.index, messages, current.length_bytes, size))
            self.index += messages
            self.ledger_list.add_confirmed(position, size, self.index - 1, self.index)

    def roll(self, gap: int) -> None:
        self.close()
        self.next_ledger += gap
        self.change(ListChange(new_ledger=self.next_ledger, empty=self.ledger_list.empty_ledger_id))

    def close(self) -> None:
        if self.ledger_list.current_ledger is not None:
            self.ledger_list.set_closed(5)

    def trim(self, count: int) -> None:
        going = [one.ledger_id for one in self.ledger_list.closed_up_to(LATEST)][:count]
        if going:
            self.deleted = going[-1]
            self.change(ListChange(trimmed=going[-1]))

    def reopen(self) -> None:
        """Another owner reads the list; it finds out what it does not know of the last ledger."""
        current = self.ledger_list.current_ledger
        before = (current.entries, current.last_index, current.length_bytes) if current is not None else (0, 0, 0)
        self.change(ListChange())
        pages = [pb.LedgerPage.FromString(self.pages[page.number]) for page in self.node.pages]
        self.ledger_list = LedgerList.decode(self.node, pages)
        current = self.ledger_list.current_ledger
        if current is not None and before[0]:
            current.entries, current.last_index, current.length_bytes = before
            self.ledger_list.last = current.last
        self.close()
        self.known.clear()

    @property
    def ever(self) -> list[MessagePosition]:
        return [position for entry in self.entries.values() for position in entry.positions]

    def at(self, position: tuple[int, int, int]) -> MessagePosition:
        if isinstance(position, MessagePosition) or not self.entries:
            return MessagePosition(*position)
        which, entries, messages = position
        one = self.ever[which % len(self.ever)]
        return MessagePosition(one.ledger_id, one.entry_id + entries, one.skip_messages + messages)

    def there(self) -> list[MessagePosition]:
        return [position for position in self.ever if position.ledger_id > self.deleted]

    def plan(self, start: MessagePosition, stop: MessagePosition | None, limits: PlanLimits) -> LogPlan:
        rule = make_plan(self.ledger_list, start, stop, limits, self.known.get)
        self.looks = 0
        try:
            position = next(rule)
            while True:
                self.looks += 1
                assert position.ledger_id > self.deleted
                position = rule.send(self.entries[position].facts)
        except StopIteration as done:
            plan: LogPlan = done.value
        if plan.back is not None:
            self.known[plan.back[0]] = plan.back[1]
        self.check(plan, start, stop, limits)
        return plan

    def messages_of(self, plan: LogPlan) -> list[MessagePosition]:
        found: list[MessagePosition] = []
        for piece in plan.pieces:
            before = len(found)
            for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1):
                positions = self.entries[Position(piece.ledger_id, entry_id)].positions
                if piece.stop_after_messages and entry_id == piece.last_entry_id:
                    assert piece.stop_after_messages < len(positions)
                    positions = positions[: piece.stop_after_messages]
                found += positions[piece.skip_messages :] if entry_id == piece.first_entry_id else positions
            assert len(found) - before == piece.messages > 0
            first, last = self.entries[Position(piece.ledger_id, piece.first_entry_id)].facts, entry_id
            assert piece.bytes == (self.entries[Position(piece.ledger_id, last)].facts.back.bytes - first.bytes_before)
        return found

    def check(self, plan: LogPlan, start: MessagePosition, stop: MessagePosition | None, limits: PlanLimits) -> None:
        there = self.there()
        found = self.messages_of(plan)
        wanted = [one for one in there if start <= one and (stop is None or one < stop)]
        # Each that is there, once and in order, up to where the plan ends.
        assert found == wanted[: len(found)]
        assert found == [one for one in wanted if one < plan.stop]
        assert plan.messages == len(found)
        assert plan.messages_behind == sum(one >= plan.stop for one in there)
        assert plan.end_index == self.index
        assert plan.stop >= plan.start >= start
        assert stop is None or plan.stop <= max(start, stop)
        assert plan.bytes == sum(piece.bytes for piece in plan.pieces)
        # The limits hold, and nothing but they end it early.
        assert len(plan.pieces) <= limits.pieces
        if limits.messages:
            assert len(found) <= limits.messages
        entries = list(dict.fromkeys(position.position for position in found))
        assert plan.bytes == sum(self.entries[one].facts.size for one in entries)
        if limits.bytes:
            assert plan.bytes <= limits.bytes or len(entries) == 1
        left = wanted[len(found) :]
        if left:
            following = left[0]
            more = 0 if following.position in entries else self.entries[following.position].facts.size
            ledgers = list(dict.fromkeys([*(one.ledger_id for one in entries), following.ledger_id]))
            assert (
                (limits.messages and len(found) == limits.messages)
                or (limits.bytes and plan.bytes + more > limits.bytes)
                or len(ledgers) > limits.pieces
            )
        # What ended it is a limit, or is not.
        assert not plan.at_limit or left
        if left and not plan.at_limit:
            assert len(ledgers) > limits.pieces
        elif not left and stop is None:
            assert plan.stop == max(start, find_end(self.ledger_list))
        lost = [one for one in self.ever if start <= one and one.ledger_id <= self.deleted]
        if start == BEFORE_ALL:
            assert not plan.begins_in_deleted
        elif lost:
            assert plan.begins_in_deleted
        elif start.position not in self.entries or not start.skip_messages:
            assert not plan.begins_in_deleted
        assert (plan.first, plan.end) == (find_first(self.ledger_list), find_end(self.ledger_list))
        assert plan.first == (there[0] if there else plan.end)
        # The ends, and by halves at most twice as often for each limit.
        assert self.looks <= 3 + 2 * 2 * 5

    def check_before(self, plan: LogPlan, ledgers: int, max_bytes: int) -> None:
        if not plan.pieces:
            return
        assert plan.front is not None
        position = Position(plan.pieces[0].ledger_id, plan.pieces[0].first_entry_id)
        pieces = plan_pieces_before(
            self.ledger_list, find_first_held(self.ledger_list, position, ledgers, max_bytes), position, plan.front
        )
        entries = [
            Position(piece.ledger_id, entry_id)
            for piece in pieces
            for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
        ]
        before = [one for one in self.entries if self.deleted < one.ledger_id and one < position]
        assert entries == before[len(before) - len(entries) :]
        assert len(pieces) <= ledgers
        if before:
            assert pieces
        for piece in pieces:
            there = [one.facts for one in self.entries.values() if one.facts.position in entries]
            of_it = [one for one in there if one.position.ledger_id == piece.ledger_id]
            assert piece.bytes == sum(one.size for one in of_it)
            assert piece.messages in (0, sum(one.messages for one in of_it))

    def go_on(self, limits: PlanLimits) -> None:
        plan = self.plan(self.position, None, limits)
        if plan.begins_in_deleted:
            event("something was deleted before it was read")
        self.check_before(plan, limits.messages or 1, limits.bytes)
        self.read += self.messages_of(plan)
        self.position = plan.stop


# The limit is met at the requested end, which has another name.
@example(
    [
        ("append", [(1, 10), (1, 10)]),
        ("plan", (MessagePosition(0, 1, 0), (0, 0, 1), PlanLimits(bytes=1, pieces=1))),
    ]
)
@given(_steps)
@examples(150)
def test_chained_plans_give_each_message_once_in_order(steps: list[tuple[str, Any]]) -> None:
    """SPK-5, SPK-2: for all limits of plans, with appends, rolls and trims between them."""
    log = Log()
    for step, argument in steps:
        match step, argument:
            case "append", list():
                log.append(argument)
            case "roll", int():
                log.roll(argument)
            case "close", _:
                log.close()
            case "trim", int():
                log.trim(argument)
            case "reopen", _:
                log.reopen()
            case "go on", PlanLimits():
                log.go_on(argument)
            case "plan", (start, stop, PlanLimits() as limits):
                ends = [log.at(start), *([] if stop is None else [log.at(stop)])]
                # Mostly the right way round.
                if ends[-1].entry_id % 5:
                    ends.sort()
                plan = log.plan(ends[0], ends[1] if stop is not None else None, limits)
                # Repeated it gives the same, for anything that has come behind it.
                log.append([(2, 20)])
                again = log.plan(plan.start, plan.stop, PlanLimits())
                assert log.messages_of(again) == log.messages_of(plan)
    while log.position < find_end(log.ledger_list):
        log.go_on(PlanLimits(messages=3))
    deleted = [one for one in log.ever if one.ledger_id <= log.deleted]
    assert log.read == sorted(log.read)
    assert set(log.read) | set(deleted) == set(log.ever)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), min_size=1, max_size=300), st.data())
@examples(30)
def test_a_limit_is_found_with_few_looks(entries: list[tuple[int, int]], data: st.DataObject) -> None:
    log = Log()
    log.append(entries)
    messages = data.draw(st.integers(1, log.index))
    log.plan(BEFORE_ALL, None, PlanLimits(messages=messages))
    # 2^9 entries at most.
    assert log.looks <= 2 * 9 + 1
