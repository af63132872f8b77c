"""The list of a topic's ledgers: pages, positions, and how it stands in the metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar_broker.managed_ledger.ledger_list import ForeignList, LedgerList, ListChange, ListedLedger
from magnetar_broker.position import EARLIEST, LATEST, Position
from magnetar_metadata.envelope import MAX_PAYLOAD_BYTES
from magnetar_protos import managed_ledger_pb2 as pb


class Metadata:
    """What the node and the pages hold."""

    def __init__(self) -> None:
        self.node = pb.ManagedLedgerNode(incarnation="i")
        self.pages: dict[int, bytes] = {}
        self.largest = 0

    def change(self, ledger_list: LedgerList, change: ListChange) -> None:
        made, gone = ledger_list.encode(change, self.node)
        for page in made:
            assert page.number not in self.pages
            self.pages[page.number] = page.payload
            self.largest = max(self.largest, len(page.payload))
        for number in gone:
            del self.pages[number]
        self.largest = max(self.largest, self.node.ByteSize())
        ledger_list.apply(change, self.node)

    def read(self) -> LedgerList:
        node = pb.ManagedLedgerNode.FromString(self.node.SerializeToString())
        return LedgerList.decode(node, [pb.LedgerPage.FromString(self.pages[page.number]) for page in node.pages])


def write(metadata: Metadata, ledger_list: LedgerList, ledger_id: int, entries: int) -> None:
    """One more ledger, from its making to its close."""
    metadata.change(ledger_list, ListChange(new_ledger=ledger_id, empty=ledger_list.empty_ledger_id))
    for entry_id in range(entries):
        ledger_list.add_confirmed(
            Position(ledger_id, entry_id), 100, ledger_list.next_index + entry_id, 1000 + ledger_id
        )
    ledger_list.set_closed(2000 + ledger_id)


def view(ledger_list: LedgerList) -> LedgerList:
    """Without what only differences of are meant."""
    first = ledger_list.ledgers[0] if ledger_list.ledgers else ListedLedger(0)
    relative = [
        replace(one, rank=one.rank - first.rank, bytes_before=one.bytes_before - first.bytes_before)
        for one in ledger_list.ledgers
    ]
    return replace(ledger_list, ledgers=relative)


def test_long_ledger_list_is_paged_and_read_back_unchanged() -> None:
    """RET-3: the list outgrows one metadata node, and nothing of it is lost; trimming takes it, pages and all."""
    metadata, ledger_list, ledgers = Metadata(), LedgerList("i"), 25_000
    for number in range(1, ledgers + 1):
        if number % 500:  # a change writes the whole node: one for each would take the test a minute
            before = 2 * number - 2
            ledger_list.ledgers.append(
                ListedLedger(3 * number, True, 2, 200, 100 * before, before, 2 * number - 1, 5, 6, 7)
            )
            ledger_list.next_index = 2 * number
        else:
            write(metadata, ledger_list, 3 * number, 2)
    assert len(metadata.pages) >= 20
    assert metadata.largest < MAX_PAYLOAD_BYTES / 5
    metadata.change(
        ledger_list, ListChange(new_ledger=3 * ledgers + 3)
    )  # what is known of the last is written with the next
    again = metadata.read()
    assert again == ledger_list
    assert again.entries == 2 * ledgers
    assert again.entries_between(Position(30, 0), Position(60, 1)) == 21
    assert again.first_after(Position(59, 5)) == Position(60, 0)

    # Half a page goes, and later the rest of it.
    page = metadata.node.pages[0].last_ledger_id
    metadata.change(ledger_list, ListChange(trimmed=page - 600))
    assert view(metadata.read()) == view(ledger_list)
    assert ledger_list.before_first == Position(page - 597, -1)
    pages = len(metadata.pages)
    metadata.change(ledger_list, ListChange(deleted=frozenset(ledger_list.deleting)))
    metadata.change(ledger_list, ListChange(trimmed=page))
    assert len(metadata.pages) == pages - 1
    assert view(metadata.read()) == view(ledger_list)
    metadata.change(ledger_list, ListChange(trimmed=3 * ledgers))
    assert metadata.pages == {}
    assert view(metadata.read()) == view(ledger_list)
    assert ledger_list.trimmed_up_to == Position(3 * ledgers, 1)
    assert ledger_list.next_index == 2 * ledgers


def test_empty_ledger_list_retains_the_position_of_the_log() -> None:
    metadata, ledger_list = Metadata(), LedgerList("i")
    assert ledger_list.last == ledger_list.before_first == EARLIEST
    assert ledger_list.at_or_after(EARLIEST) is None
    write(metadata, ledger_list, 7, 3)
    metadata.change(ledger_list, ListChange(trimmed=7))
    again = metadata.read()
    assert again.ledgers == []
    assert again.last == again.before_first == Position(7, 2)
    assert again.first_after(EARLIEST) == Position(7, 3)
    assert again.first_after(LATEST) == Position(7, 3)
    assert again.next_index == 3
    assert again.deleting == [7]


def test_a_ledger_that_was_closed_empty_leaves_with_the_next_change() -> None:
    """CHK-31: an empty ledger is not kept for ever."""
    metadata, ledger_list = Metadata(), LedgerList("i")
    write(metadata, ledger_list, 1, 2)
    write(metadata, ledger_list, 2, 0)
    assert ledger_list.empty_ledger_id == 2
    write(metadata, ledger_list, 3, 1)
    assert [one.ledger_id for one in ledger_list.ledgers] == [1, 3]
    assert ledger_list.deleting == [2]
    assert ledger_list.last == Position(3, 0)


def test_changes_made_twice_do_no_harm() -> None:
    metadata, ledger_list = Metadata(), LedgerList("i")
    for ledger_id in (1, 2, 3):
        write(metadata, ledger_list, ledger_id, 1)
    for _ in range(2):
        metadata.change(ledger_list, ListChange(trimmed=1))
    assert [one.ledger_id for one in ledger_list.ledgers] == [2, 3]
    assert ledger_list.deleting == [1]
    for _ in range(2):
        metadata.change(ledger_list, ListChange(deleted=frozenset([1])))
    assert ledger_list.deleting == []


@pytest.mark.parametrize(
    "ledgers",
    [
        [pb.ListedLedger(ledger_id=2, closed=True, entries=1), pb.ListedLedger(ledger_id=1, closed=True, entries=1)],
        [pb.ListedLedger(ledger_id=1), pb.ListedLedger(ledger_id=2)],
    ],
)
def test_a_list_that_nobody_of_ours_wrote_is_refused(ledgers: list[pb.ListedLedger]) -> None:
    with pytest.raises(ForeignList):
        LedgerList.decode(pb.ManagedLedgerNode(incarnation="i", ledgers=ledgers))
