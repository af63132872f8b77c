"""Plans cut into what single tasks read.

A task costs something itself, so none has less than `_LEAST_BYTES` to read unless the partition has no more; and there
are no more tasks than are asked for, or than partitions. Within these every task gets about the same number of bytes,
wherever in a ledger the cut then is: entries of a ledger are read from any place with the same effort.

`minTasks` asks for smaller tasks: then the largest are cut in half until there are as many, or each has a single entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final, TypeAlias

from magnetar.admin import Piece
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.chunk_reach import REACH_BYTES, REACH_LEDGERS
from magnetar_spark.leases.batch_lease import TaskLease
from magnetar_spark.log_slice import Connection, LogSlice, SlicePiece
from magnetar_spark.options.decoding_options import DEFAULT_DECODING, Decoding
from magnetar_spark.planning.log_plan import LogPlan
from magnetar_spark.planning.topic_discovery import ReadLog

__all__ = ["cut_into_slices"]

_LEAST_BYTES: Final = 8 << 20
# Of a run of pieces: its bytes, negative; which plan it is of; where it is in that; and the run.
_Run: TypeAlias = tuple[int, int, tuple[int, ...], list[SlicePiece]]


def cut_into_slices(
    plans: Sequence[LogPlan],
    most: int,
    lease: TaskLease | None,
    connection: Connection,
    fail_on_data_loss: bool,
    decoding: Decoding = DEFAULT_DECODING,
    *,
    min_tasks: int = 0,
    plan_id: str = "",
) -> list[LogSlice]:
    """Largest first, so that no large one is left to be read when all else is done."""
    total = sum(plan.bytes for plan in plans)
    aim = max(_LEAST_BYTES, -(-total // max(most, min_tasks)))
    runs = [_cut([_slice_piece(piece) for piece in plan.pieces], max(1, round(plan.bytes / aim))) for plan in plans]
    slices = []
    for plan, cut in zip(plans, _cut_further(runs, min_tasks), strict=True):
        log = ReadLog.of(plan.log)
        earlier = [_slice_piece(piece) for piece in plan.before]
        for part, pieces in enumerate(cut):
            before = _nearest(earlier)
            reaches = len(before) == len(earlier)
            slices.append(
                LogSlice(
                    topic=log.topic,
                    partition=log.partition,
                    log=log.log,
                    incarnation=plan.incarnation,
                    pieces=tuple(pieces),
                    before=before,
                    bookies=_addresses(plan, [*before, *pieces]),
                    lease=lease,
                    connection=connection,
                    fail_on_data_loss=fail_on_data_loss,
                    decoding=decoding,
                    chunks_deleted=plan.chunks_deleted and reaches,
                    more_before=plan.more_before or not reaches,
                    part=part,
                    parts=len(cut),
                    plan_id=plan_id,
                )
            )
            earlier += pieces
    slices.sort(key=lambda one: -sum(piece.bytes for piece in one.pieces))
    return slices


def _cut(pieces: list[SlicePiece], parts: int) -> list[list[SlicePiece]]:
    """Into so many runs of about as many bytes each, or fewer, none of them empty."""
    total = sum(piece.bytes for piece in pieces)
    runs: list[list[SlicePiece]] = []
    run: list[SlicePiece] = []
    done, part = 0, 1
    for piece in pieces:
        rest: SlicePiece | None = piece
        while rest is not None:
            # As many bytes as there may be before this part's end.
            room = total * part // parts - done
            taken, rest = _split(rest, room) if part < parts else (rest, None)
            if taken is not None:
                run.append(taken)
                done += taken.bytes
            if rest is not None:
                part += 1
                if run:
                    runs.append(run)
                    run = []
    return [*runs, run] if run else runs


def _cut_further(plans: list[list[list[SlicePiece]]], least: int) -> list[list[list[SlicePiece]]]:
    """Cut the runs with the most bytes in half until all plans together have `least` runs, or none has two entries."""
    # By bytes, and then by the place of the plan and of the run in it: halves of (3,) are (3, 0) and (3, 1).
    largest: list[_Run] = [
        (-sum(piece.bytes for piece in run), at, (number,), run)
        for at, runs in enumerate(plans)
        for number, run in enumerate(runs)
    ]
    heapq.heapify(largest)
    whole: list[_Run] = []
    while largest and len(largest) + len(whole) < least:
        _, at, place, run = one = heapq.heappop(largest)
        if sum(_entries(piece) for piece in run) < 2:
            whole.append(one)
            continue
        for half, part in enumerate(_halves(run)):
            heapq.heappush(largest, (-sum(piece.bytes for piece in part), at, (*place, half), part))
    cut: list[list[list[SlicePiece]]] = [[] for _ in plans]
    for _, at, _, run in sorted([*largest, *whole], key=itemgetter(1, 2)):
        cut[at].append(run)
    return cut


def _halves(run: Sequence[SlicePiece]) -> tuple[list[SlicePiece], list[SlicePiece]]:
    """By entries, of which the run has two at least."""
    first: list[SlicePiece] = []
    second: list[SlicePiece] = []
    left = sum(_entries(piece) for piece in run) // 2
    for piece in run:
        taken = min(left, _entries(piece))
        left -= taken
        before, behind = _split_at(piece, taken)
        first += [before] if before else []
        second += [behind] if behind else []
    return first, second


def _entries(piece: SlicePiece) -> int:
    return piece.last_entry_id - piece.first_entry_id + 1


def _split(piece: SlicePiece, room: int) -> tuple[SlicePiece | None, SlicePiece | None]:
    """The entries of the piece that have room, and the others; bytes and messages are reckoned to be spread evenly."""
    entries = _entries(piece)
    if room >= piece.bytes:
        return piece, None
    return _split_at(piece, min(entries, round(entries * room / piece.bytes)) if room > 0 else 0)


def _split_at(piece: SlicePiece, taken: int) -> tuple[SlicePiece | None, SlicePiece | None]:
    """The first `taken` entries of the piece, and the others."""
    entries = _entries(piece)
    if taken == 0:
        return None, piece
    if taken == entries:
        return piece, None
    bytes_, messages = piece.bytes * taken // entries, piece.messages * taken // entries
    cut = piece.first_entry_id + taken
    return (
        replace(piece, last_entry_id=cut - 1, stop_after_messages=0, bytes=bytes_, messages=messages),
        replace(
            piece,
            first_entry_id=cut,
            skip_messages=0,
            bytes=piece.bytes - bytes_,
            messages=piece.messages - messages,
        ),
    )


def _nearest(earlier: Sequence[SlicePiece]) -> tuple[SlicePiece, ...]:
    """The last of them, whole ones, within what may be looked through."""
    nearest: list[SlicePiece] = []
    ledgers: dict[int, None] = {}
    bytes_ = 0
    for piece in reversed(earlier):
        ledgers[piece.ledger_id] = None
        if len(ledgers) > REACH_LEDGERS or bytes_ >= REACH_BYTES:
            break
        nearest.append(replace(piece, skip_messages=0, stop_after_messages=0))
        bytes_ += piece.bytes
    nearest.reverse()
    return tuple(nearest)


def _slice_piece(piece: Piece) -> SlicePiece:
    return SlicePiece(
        ledger_id=piece.ledger_id,
        first_entry_id=piece.first_entry_id,
        last_entry_id=piece.last_entry_id,
        skip_messages=piece.skip_messages,
        stop_after_messages=piece.stop_after_messages,
        bytes=piece.bytes,
        messages=piece.messages,
        striping=Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum),
        fragments=tuple(Fragment(one.first_entry_id, tuple(one.bookies)) for one in piece.fragments),
        open=piece.open,
    )


def _addresses(plan: LogPlan, pieces: Sequence[SlicePiece]) -> dict[str, str]:
    """Of those bookies that these pieces name."""
    named = dict.fromkeys(bookie for piece in pieces for one in piece.fragments for bookie in one.bookies)
    return {bookie: plan.bookies.get(bookie, "") for bookie in named}
