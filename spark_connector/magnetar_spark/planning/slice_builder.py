"""Splits plans into slices, one for each task.

A task has a cost of its own, so it gets at least `_MIN_BYTES` if the partition has as many. There are at most
`maxTasks` tasks, or one for each partition if there are more partitions. Within these limits all tasks get about the
same number of bytes. A ledger can be split anywhere, since reading from any of its entries costs the same.

With `minTasks`, the largest slices are halved until there are that many, or until each has a single entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final, TypeAlias

from magnetar.admin import Piece
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.leases.batch_lease import BatchLease
from magnetar_spark.log_slice import Connection, LogSlice, SlicePiece
from magnetar_spark.options.decoding_options import (
    CHUNK_SEARCH_BYTES,
    CHUNK_SEARCH_LEDGERS,
    DEFAULT_DECODING,
    DecodingOptions,
)
from magnetar_spark.planning.log_plan import LogPlan
from magnetar_spark.planning.topic_discovery import TopicPartition

__all__ = ["build_slices"]

_MIN_BYTES: Final = 8 << 20
# The pieces of one slice, behind the key by which slices are sorted: the number of bytes, negative; the number of the
# plan; and the slice's position among those of the plan.
_SortedRun: TypeAlias = tuple[int, int, tuple[int, ...], list[SlicePiece]]


def build_slices(
    plans: Sequence[LogPlan],
    max_tasks: int,
    lease: BatchLease | None,
    connection: Connection,
    fail_on_data_loss: bool,
    decoding: DecodingOptions = DEFAULT_DECODING,
    *,
    min_tasks: int = 0,
    plan_id: str = "",
) -> list[LogSlice]:
    """Return the slices of all plans, largest first, so that the last task to run is not a large one."""
    total = sum(plan.bytes for plan in plans)
    target_bytes = max(_MIN_BYTES, -(-total // max(max_tasks, min_tasks)))
    runs = [
        _split_evenly([_make_slice_piece(piece) for piece in plan.pieces], max(1, round(plan.bytes / target_bytes)))
        for plan in plans
    ]
    slices = []
    for plan, runs_of_plan in zip(plans, _halve_largest(runs, min_tasks), strict=True):
        partition = TopicPartition.parse(plan.log)
        earlier = [_make_slice_piece(piece) for piece in plan.before]
        for part, pieces in enumerate(runs_of_plan):
            before = _select_nearest(earlier)
            has_all_before = len(before) == len(earlier)
            slices.append(
                LogSlice(
                    topic=partition.topic,
                    partition=partition.partition,
                    log=partition.log,
                    incarnation=plan.incarnation,
                    pieces=tuple(pieces),
                    before=before,
                    bookies=_select_bookies(plan, [*before, *pieces]),
                    lease=lease,
                    connection=connection,
                    fail_on_data_loss=fail_on_data_loss,
                    decoding=decoding,
                    chunks_deleted=plan.chunks_deleted and has_all_before,
                    more_before=plan.more_before or not has_all_before,
                    part=part,
                    parts=len(runs_of_plan),
                    plan_id=plan_id,
                )
            )
            earlier += pieces
    slices.sort(key=lambda one: -sum(piece.bytes for piece in one.pieces))
    return slices


def _split_evenly(pieces: list[SlicePiece], parts: int) -> list[list[SlicePiece]]:
    """Split the pieces into at most `parts` runs with about the same number of bytes. No run is empty."""
    total = sum(piece.bytes for piece in pieces)
    runs: list[list[SlicePiece]] = []
    run: list[SlicePiece] = []
    done, part = 0, 1
    for piece in pieces:
        rest: SlicePiece | None = piece
        while rest is not None:
            capacity = total * part // parts - done
            first, rest = _split_by_bytes(rest, capacity) if part < parts else (rest, None)
            if first is not None:
                run.append(first)
                done += first.bytes
            if rest is not None:
                part += 1
                if run:
                    runs.append(run)
                    run = []
    return [*runs, run] if run else runs


def _halve_largest(plans: list[list[list[SlicePiece]]], min_runs: int) -> list[list[list[SlicePiece]]]:
    """Halve the largest runs until all plans together have `min_runs` runs, or no run has two entries."""
    # The halves of the run at position (3,) are at (3, 0) and (3, 1).
    largest: list[_SortedRun] = [
        (-sum(piece.bytes for piece in run), plan, (number,), run)
        for plan, runs in enumerate(plans)
        for number, run in enumerate(runs)
    ]
    heapq.heapify(largest)
    single: list[_SortedRun] = []
    while largest and len(largest) + len(single) < min_runs:
        _, plan, position, run = one = heapq.heappop(largest)
        if sum(_count_entries(piece) for piece in run) < 2:
            single.append(one)
            continue
        for number, half in enumerate(_halve(run)):
            heapq.heappush(largest, (-sum(piece.bytes for piece in half), plan, (*position, number), half))
    split: list[list[list[SlicePiece]]] = [[] for _ in plans]
    for _, plan, _, run in sorted([*largest, *single], key=itemgetter(1, 2)):
        split[plan].append(run)
    return split


def _halve(run: Sequence[SlicePiece]) -> tuple[list[SlicePiece], list[SlicePiece]]:
    """Split a run of at least two entries into two with about the same number of entries."""
    first: list[SlicePiece] = []
    second: list[SlicePiece] = []
    left = sum(_count_entries(piece) for piece in run) // 2
    for piece in run:
        count = min(left, _count_entries(piece))
        left -= count
        before, after = _split_at(piece, count)
        first += [before] if before else []
        second += [after] if after else []
    return first, second


def _count_entries(piece: SlicePiece) -> int:
    return piece.last_entry_id - piece.first_entry_id + 1


def _split_by_bytes(piece: SlicePiece, capacity: int) -> tuple[SlicePiece | None, SlicePiece | None]:
    """Return the entries that fit into `capacity` bytes, and the others, as if all entries had the same size."""
    entries = _count_entries(piece)
    if capacity >= piece.bytes:
        return piece, None
    return _split_at(piece, min(entries, round(entries * capacity / piece.bytes)) if capacity > 0 else 0)


def _split_at(piece: SlicePiece, count: int) -> tuple[SlicePiece | None, SlicePiece | None]:
    """Return the first `count` entries of the piece, and the others."""
    entries = _count_entries(piece)
    if count == 0:
        return None, piece
    if count == entries:
        return piece, None
    bytes_, messages = piece.bytes * count // entries, piece.messages * count // entries
    cut = piece.first_entry_id + count
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


def _select_nearest(earlier: Sequence[SlicePiece]) -> tuple[SlicePiece, ...]:
    """Return the last pieces that are within the limits of the search for first chunks, with all of their messages."""
    nearest: list[SlicePiece] = []
    ledgers: dict[int, None] = {}
    bytes_ = 0
    for piece in reversed(earlier):
        ledgers[piece.ledger_id] = None
        if len(ledgers) > CHUNK_SEARCH_LEDGERS or bytes_ >= CHUNK_SEARCH_BYTES:
            break
        nearest.append(replace(piece, skip_messages=0, stop_after_messages=0))
        bytes_ += piece.bytes
    nearest.reverse()
    return tuple(nearest)


def _make_slice_piece(piece: Piece) -> SlicePiece:
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


def _select_bookies(plan: LogPlan, pieces: Sequence[SlicePiece]) -> dict[str, str]:
    """Return the addresses of the bookies of these pieces, by their ids."""
    named = dict.fromkeys(bookie for piece in pieces for one in piece.fragments for bookie in one.bookies)
    return {bookie: plan.bookies.get(bookie, "") for bookie in named}
