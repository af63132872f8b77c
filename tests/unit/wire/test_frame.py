"""The frame: what a sender puts into one, and what a receiver accepts."""

from __future__ import annotations

import random

import pytest

from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_wire import frame as frame_module
from magnetar_wire.errors import InvalidMessage, MalformedFrame, TooLarge, WireError
from magnetar_wire.frame import DecodedRun, FrameBuilder, decode_frame, find_entry_ids
from magnetar_wire.limits import FRAME_FILL_BYTES, MAX_ENTRY_BYTES, MAX_FRAME_BYTES, MAX_FRAME_ENTRIES

LARGEST = bytes(MAX_ENTRY_BYTES)
LAST = 2**64 - 1


def filled(*added: tuple[int, int, bytes]) -> Frame:
    builder = FrameBuilder()
    for channel, number, entry in added:
        assert builder.try_add_entry(channel, number, entry)
    return build_frame(builder)


def build_frame(builder: FrameBuilder) -> Frame:
    return Frame.FromString(b"".join(builder.build_parts()))


def test_a_frame_is_decoded_to_its_runs() -> None:
    frame = filled((1, 5, b"a"), (1, 6, b""), (2, 7, b"c"), (1, 7, b"d"))
    runs = [DecodedRun(1, 5, [b"a", b""]), DecodedRun(2, 7, [b"c"]), DecodedRun(1, 7, [b"d"])]
    assert decode_frame(frame) == runs
    assert decode_frame(frame.SerializeToString()) == runs


def test_an_empty_frame_has_no_runs() -> None:
    assert decode_frame(build_frame(FrameBuilder())) == []
    assert decode_frame(b"") == []


@pytest.mark.parametrize("second", [(1, 7), (1, 5), (1, 4), (2, 6)])
def test_only_the_next_number_of_the_same_channel_continues_a_run(second: tuple[int, int]) -> None:
    frame = filled((1, 5, b"a"), (*second, b"b"))
    assert [(run.channel, run.first, run.count) for run in frame.runs] == [(1, 5, 1), (*second, 1)]
    assert filled((1, 5, b"a"), (1, 6, b"b")).runs == [Run(channel=1, first=5, count=2)]


def test_all_entries_are_decoded_in_order() -> None:
    draw = random.Random(1)
    for _ in range(50):
        added = [
            (draw.choice((0, 1, LAST)), draw.choice((0, 1, 2, 3, LAST - 1, LAST)), draw.randbytes(draw.randrange(5)))
            for _ in range(draw.randrange(40))
        ]
        runs = decode_frame(filled(*added).SerializeToString())
        back = [(run.channel, run.first + index, entry) for run in runs for index, entry in enumerate(run.entries)]
        assert back == added


def test_a_builder_is_empty_after_a_frame_was_built() -> None:
    builder = FrameBuilder(max_entries=1)
    builder.try_add_entry(1, 1, b"a")
    assert (len(builder), builder.is_full) == (1, True)
    build_frame(builder)
    assert (len(builder), builder.is_full) == (0, False)
    assert builder.try_add_entry(1, 2, b"b")
    assert decode_frame(build_frame(builder)) == [DecodedRun(1, 2, [b"b"])]


def test_a_full_builder_accepts_no_entry() -> None:
    by_entries = FrameBuilder(max_entries=2)
    assert [by_entries.try_add_entry(1, number, b"") for number in range(3)] == [True, True, False]
    by_bytes = FrameBuilder(fill_bytes=10)
    assert [by_bytes.try_add_entry(1, number, b"12345") for number in range(3)] == [True, True, False]
    for builder in (by_entries, by_bytes):
        assert builder.is_full
        assert len(builder) == 2
        assert decode_frame(build_frame(builder))[0].first == 0  # the refused entry changed nothing


def test_a_frame_below_its_limit_accepts_an_entry_that_exceeds_it() -> None:
    """So small entries and a large one are sent in one frame, up to the size of the largest entry."""
    builder = FrameBuilder(fill_bytes=10)
    assert builder.try_add_entry(1, 1, b"123456789")
    assert builder.try_add_entry(1, 2, bytes(1000))
    assert not builder.try_add_entry(1, 3, b"")
    builder = FrameBuilder()
    assert builder.try_add_entry(1, 1, b"a")
    assert not builder.try_add_entry(1, 2, LARGEST)
    assert builder.try_add_entry(1, 2, LARGEST[1:])


def test_the_largest_entry_always_fits_an_empty_frame() -> None:
    builder = FrameBuilder(fill_bytes=1, max_entries=1)
    assert builder.try_add_entry(LAST, LAST, LARGEST)
    assert decode_frame(build_frame(builder).SerializeToString()) == [DecodedRun(LAST, LAST, [LARGEST])]


def test_an_entry_above_the_limit_is_refused() -> None:
    builder = FrameBuilder()
    with pytest.raises(TooLarge, match=str(MAX_ENTRY_BYTES)):
        builder.try_add_entry(1, 1, LARGEST + b"x")
    assert len(builder) == 0
    with pytest.raises(TooLarge, match=str(MAX_ENTRY_BYTES)):
        decode_frame(Frame(runs=[Run(channel=1, first=1, count=1)], entries=[LARGEST + b"x"]))


@pytest.mark.parametrize(("channel", "number"), [(-1, 0), (0, -1), (2**64, 0), (0, 2**64)])
def test_channels_and_numbers_have_64_bits(channel: int, number: int) -> None:
    builder = FrameBuilder()
    builder.try_add_entry(0, LAST, b"")  # its next number would be 2^64
    with pytest.raises(InvalidMessage):
        builder.try_add_entry(channel, number, b"")
    assert decode_frame(build_frame(builder)) == [DecodedRun(0, LAST, [b""])]


@pytest.mark.parametrize(
    "options", [{"fill_bytes": 0}, {"fill_bytes": MAX_ENTRY_BYTES + 1}, {"max_entries": 0}, {"max_entries": 10_001}]
)
def test_a_builder_of_too_large_frames_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a frame"):
        FrameBuilder(**options)


@pytest.mark.parametrize("entry_bytes", [0, 1, 104, 128, 525])
@pytest.mark.parametrize("last_bytes", [0, MAX_ENTRY_BYTES])
def test_a_receiver_accepts_every_frame_of_a_builder(entry_bytes: int, last_bytes: int) -> None:
    """The maximum number of entries, each in a run of its own with the largest numbers, and then the largest entry that
    still fits.
    """
    builder = FrameBuilder(fill_bytes=MAX_ENTRY_BYTES)
    entry, taken = bytes(entry_bytes), 0
    while taken < MAX_FRAME_ENTRIES - 1 and builder.try_add_entry(LAST, LAST - 2 * taken, entry):
        taken += 1
    capacity = MAX_ENTRY_BYTES - taken * entry_bytes
    assert builder.try_add_entry(LAST - 1, 0, bytes(min(last_bytes, capacity))) or builder.is_full
    serialised = build_frame(builder).SerializeToString()
    assert len(serialised) <= MAX_FRAME_BYTES
    assert sum(len(run.entries) for run in decode_frame(serialised)) >= taken


def test_every_frame_is_below_the_limit() -> None:
    """The bytes of a frame are those of the entries, and for each entry at most a run of its own. A count above 1 takes
    more bytes, but saves a whole run for each entry that it counts.
    """
    run = Run(channel=LAST, first=LAST, count=MAX_FRAME_ENTRIES)
    around = 2 + run.ByteSize() + 1 + 4  # the run's tag and size; the entry's tag and size
    assert around <= 40
    assert max(FRAME_FILL_BYTES, MAX_ENTRY_BYTES) + 40 * MAX_FRAME_ENTRIES <= MAX_FRAME_BYTES


MALFORMED = {
    "fewer entries than counted": Frame(runs=[Run(channel=1, first=1, count=2)], entries=[b"a"]),
    "more entries than counted": Frame(runs=[Run(channel=1, first=1, count=1)], entries=[b"a", b"b"]),
    "entries without runs": Frame(entries=[b"a"]),
    "a run without entries": Frame(runs=[Run(channel=1, first=1)]),
    "a run without entries beside a good one": Frame(
        runs=[Run(channel=1, first=1, count=2), Run(channel=1, first=3)], entries=[b"a", b"b"]
    ),
    "counts that add up only in 32 bits": Frame(
        runs=[Run(channel=1, first=1, count=2**32 - 1), Run(channel=1, first=1, count=2)], entries=[b"a", b"b"]
    ),
    "numbers that run over": Frame(runs=[Run(channel=1, first=LAST, count=2)], entries=[b"a", b"b"]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_frame_that_contradicts_itself_is_malformed(what: str) -> None:
    with pytest.raises(MalformedFrame):
        decode_frame(MALFORMED[what])
    with pytest.raises(MalformedFrame):
        decode_frame(MALFORMED[what].SerializeToString())


def test_the_largest_number_may_be_used() -> None:
    frame = Frame(runs=[Run(channel=1, first=LAST - 1, count=2)], entries=[b"a", b"b"])
    assert decode_frame(frame) == [DecodedRun(1, LAST - 1, [b"a", b"b"])]


def test_too_many_entries_are_refused() -> None:
    frame = Frame(runs=[Run(channel=1, first=1, count=MAX_FRAME_ENTRIES)], entries=[b""] * MAX_FRAME_ENTRIES)
    assert len(decode_frame(frame)[0].entries) == MAX_FRAME_ENTRIES
    frame.runs[0].count += 1
    frame.entries.append(b"")
    with pytest.raises(TooLarge, match="10001 entries"):
        decode_frame(frame)
    with pytest.raises(TooLarge, match="3 entries"):
        decode_frame(Frame(entries=[b"", b"", b""]), max_entries=2)


def test_too_large_a_frame_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_module, "Frame", None)
    with pytest.raises(TooLarge, match=str(MAX_FRAME_BYTES)):
        decode_frame(bytes(MAX_FRAME_BYTES + 1))


def test_more_runs_than_entries_are_refused_before_they_are_counted() -> None:
    frame = Frame(runs=[Run()] * 100_000)
    with pytest.raises(MalformedFrame):
        decode_frame(frame)


def test_changed_and_cut_frames_raise_nothing_untyped() -> None:
    whole = filled((1, 5, b"a"), (1, 6, b"bb"), (2, 300, b"c"), (LAST, LAST, b"")).SerializeToString()
    cut = [whole[:end] for end in range(len(whole))]
    turned = []
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit >> 3] ^= 1 << (bit & 7)
        turned.append(bytes(changed))
    refused = 0
    for data in [*cut, *turned]:
        try:
            runs = decode_frame(data)
        except WireError:
            refused += 1
        else:
            assert all(run.entries for run in runs)
    assert refused > len(whole)


def test_a_sender_may_begin_a_run_though_the_numbers_continue() -> None:
    """Deliveries from two ledgers, or a redelivery among them: one channel, consecutive numbers, two sets of
    properties.
    """
    builder = FrameBuilder()
    assert builder.try_add_entry(7, 0, b"a")
    assert builder.try_add_entry(7, 1, b"b")
    assert builder.try_add_entry(7, 2, b"c", new_run=True)
    assert builder.run_count == 2
    assert [(run.first, run.entries) for run in decode_frame(build_frame(builder))] == [(0, [b"a", b"b"]), (2, [b"c"])]
    assert builder.run_count == 0


def test_a_frame_joined_from_parts_is_the_same() -> None:
    builder = FrameBuilder()
    entries = ((1, 0, b"abc"), (1, 1, b""), (2, 5, bytes(300)), (2, 6, bytes(100_000)), (1, 2, b"x"))
    for channel, number, entry in entries:
        assert builder.try_add_entry(channel, number, entry)
    runs = [Run(channel=1, first=0, count=2), Run(channel=2, first=5, count=2), Run(channel=1, first=2, count=1)]
    frame = Frame(runs=runs, entries=[entry for _, _, entry in entries])
    assert b"".join(builder.build_parts()) == frame.SerializeToString()
    assert not len(builder)
    assert builder.run_count == 0


def test_the_entries_of_a_run_are_consecutive_or_skip_others() -> None:
    assert list(find_entry_ids(3, [], 2)) == [3, 4]
    assert list(find_entry_ids(3, [0, 5], 3)) == [3, 4, 10]
    assert list(find_entry_ids(2**64 - 4, [1], 2)) == [2**64 - 4, 2**64 - 2]


@pytest.mark.parametrize(
    ("first", "gaps", "count"),
    [(1, [0], 1), (1, [0, 0], 2), (1, [0], 3), (2**64 - 1, [], 2), (2**64 - 2, [1], 2), (1, [2**64 - 1, 0], 3)],
)
def test_entry_ids_that_are_missing_or_have_more_than_64_bits_are_refused(
    first: int, gaps: list[int], count: int
) -> None:
    with pytest.raises(MalformedFrame):
        find_entry_ids(first, gaps, count)
