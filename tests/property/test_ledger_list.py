"""The list of a topic's ledgers against a plain model: a list of positions."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.managed_ledger import ledger_list
from magnetar_broker.managed_ledger.append_queue import AppendDone, AppendQueue
from magnetar_broker.managed_ledger.ledger_list import LedgerList, ListChange
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.position import EARLIEST, LATEST, Position
from magnetar_protos import managed_ledger_pb2 as pb
from tests.examples import examples

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("roll"), st.integers(1, 3)),
        st.tuples(st.just("close"), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 12)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=40,
)


class Model:
    """Every entry that there is, and which ledgers are closed."""

    def __init__(self) -> None:
        self.entries: list[Position] = []
        self.closed: dict[int, bool] = {}
        self.removed = EARLIEST

    def first_after(self, position: Position) -> Position | None:
        return next((one for one in self.entries if one > position), None)

    def between(self, after: Position, up_to: Position) -> int:
        return sum(after < one <= up_to for one in self.entries)


class Both:
    def __init__(self) -> None:
        self.node = pb.ManagedLedgerNode(incarnation="i")
        self.pages: dict[int, bytes] = {}
        self.ledger_list = LedgerList("i")
        self.model = Model()
        self.next_ledger = 1
        self.with_chunks: set[int] = set()
        self.index = 0

    def change(self, change: ListChange) -> None:
        made, removed = self.ledger_list.encode(change, self.node)
        self.pages.update((page.number, page.payload) for page in made)
        for number in removed:
            del self.pages[number]
        self.ledger_list.apply(change, self.node)

    def append(self, count: int) -> None:
        current = self.ledger_list.current_ledger
        if current is None:
            return self.roll(1)
        for _ in range(count):
            position = Position(current.ledger_id, current.entries)
            self.ledger_list.add_confirmed(position, 10, self.index, 1000 + self.index)
            self.index += 1
            self.model.entries.append(position)
        return None

    def roll(self, gap: int) -> None:
        self.close(0)
        self.next_ledger += gap
        self.model.closed[self.next_ledger] = False
        if gap % 2 == 0:
            self.with_chunks.add(self.next_ledger)
        self.change(
            ListChange(new_ledger=self.next_ledger, chunks=gap % 2 == 0, empty=self.ledger_list.empty_ledger_id)
        )

    def close(self, _: int) -> None:
        current = self.ledger_list.current_ledger
        if current is not None:
            self.ledger_list.set_closed(5)
            self.model.closed[current.ledger_id] = True

    def trim(self, back: int) -> None:
        entries = self.model.entries
        up_to = entries[-1 - back] if back < len(entries) else LATEST
        going = [one.ledger_id for one in self.ledger_list.closed_up_to(up_to)]
        assert all(self.model.closed[one] for one in going)
        retained = [one for one in entries if one.ledger_id not in going]
        assert all(one <= up_to for one in entries if one.ledger_id in going)
        # The next one is retained for a reason.
        following = [listed for listed in self.ledger_list.ledgers if listed.ledger_id not in going]
        assert not following or following[0].last > up_to or not (following[0].is_closed and following[0].entries)
        if going:
            self.model.entries = retained
            self.change(ListChange(trimmed=going[-1], empty=self.ledger_list.empty_ledger_id))
            assert set(going) <= set(self.ledger_list.deleting)
            self.change(ListChange(deleted=frozenset(going)))

    def reopen(self, _: int) -> None:
        """Another owner reads it: the open ledger is closed first, as a recovery does, and known by its entries."""
        self.close(0)
        known = self.ledger_list
        node = pb.ManagedLedgerNode.FromString(self.node.SerializeToString())
        pages = [pb.LedgerPage.FromString(self.pages[page.number]) for page in node.pages]
        self.ledger_list = LedgerList.decode(node, pages)
        current = self.ledger_list.current_ledger
        if current is not None:
            last = known.find(current.ledger_id)
            assert last is not None
            for entry_id in range(last.entries):
                index = last.last_index - last.entries + 1 + entry_id
                self.ledger_list.add_confirmed(Position(current.ledger_id, entry_id), 10, index, 1000 + index)
            self.ledger_list.set_closed(5)
        assert [(one.ledger_id, one.entries, one.chunks) for one in self.ledger_list.ledgers] == [
            (one.ledger_id, one.entries, one.chunks) for one in known.ledgers
        ]
        assert all(one.chunks == (one.ledger_id in self.with_chunks) for one in known.ledgers)
        assert (self.ledger_list.next_index, self.ledger_list.trimmed_up_to) == (known.next_index, known.trimmed_up_to)

    def check(self) -> None:
        model, found = self.model, self.ledger_list
        assert found.last == (model.entries[-1] if model.entries else found.before_first)
        assert found.entries == len(model.entries)
        positions = [EARLIEST, LATEST, found.before_first, found.last, *model.entries]
        positions += [Position(one.ledger_id, one.entry_id + 1) for one in model.entries]
        positions += [Position(one.ledger_id + 1, -1) for one in model.entries]
        for position in positions:
            expected = model.first_after(position)
            if expected is not None:
                assert found.first_after(position) == expected
            else:
                assert found.first_after(position) > found.last or not model.entries
            assert found.holds(position) == (position in model.entries)
            for other in positions[:6]:
                assert found.entries_between(other, position) == model.between(other, position)


@examples(150)
@given(_steps)
def test_ledger_list_matches_a_plain_list(steps: list[tuple[str, int]]) -> None:
    """RET-3: over rolls, trims and openings, in pages of three ledgers."""
    pages, most = ledger_list.PAGE_LEDGERS, ledger_list.MAX_LEDGERS_IN_NODE
    ledger_list.PAGE_LEDGERS, ledger_list.MAX_LEDGERS_IN_NODE = 3, 5  # type: ignore[misc]
    try:
        both = Both()
        for what, number in steps:
            step: Callable[[int], None] = getattr(both, what)
            step(number)
            both.check()
    finally:
        ledger_list.PAGE_LEDGERS, ledger_list.MAX_LEDGERS_IN_NODE = pages, most  # type: ignore[misc]


@examples(150)
@given(st.lists(st.sampled_from(["append", "large", "send", "send all", "confirm", "fail"]), max_size=60))
def test_append_queue_completes_each_append_once_in_order(steps: list[str]) -> None:
    """MSG-5: a resent entry is sent as it was, before all others; refusals stay in their order."""
    queue = AppendQueue(0, 0, 400)
    acknowledged: list[int] = []
    stored: list[bytes] = []
    appended = 0
    on_the_way: list[bytes] = []

    def done(number: int) -> AppendDone:
        return lambda _: acknowledged.append(number)

    def report_refused() -> None:
        for one in queue.take_refused():
            assert one.error is not None
            one.done(one.error)

    for step in [*steps, *["send", "confirm"] * 60]:
        if step in ("append", "large"):
            entry = b"%d" % appended if step == "append" else b"x" * 6_000_000
            queue.append([NewEntry(entry, 2, 2)], done(appended), 7)
            appended += 1
        elif step in ("send", "send all"):
            on_the_way += queue.take_run(1 if step == "send" else 1000, 1 << 30, 1 << 30, takes_chunks=True)
        elif step == "confirm" and on_the_way:
            for append in queue.confirm(len(on_the_way))[0]:
                assert append.entry.stored == on_the_way.pop(0)
                stored.append(append.entry.stored)
                append.done([Position(1, len(stored))])
        elif step == "fail":
            queue.resend()
            on_the_way.clear()
        report_refused()
    assert acknowledged == list(range(appended))
    assert queue.pending_bytes == 0
    assert len(queue) == 0
    assert queue.next_index == 2 * len(stored)
