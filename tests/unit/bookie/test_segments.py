"""The log's files: all bytes are written, although one system call may write less."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from magnetar_bookie.storage.interface import Changes
from magnetar_bookie.storage.rocksdb.group_format import encode_group
from magnetar_bookie.storage.rocksdb.segments import Segments, segment_path


@pytest.mark.parametrize(
    ("records", "record_bytes", "most"),
    [
        (1, 13, None),
        (2500, 13, None),
        (3, 2_000_000, None),
        (1, 13, 1),
        (3, 13, 7),
        (2500, 13, 4000),
        (2500, 13, 30_000),
        (3, 2_000_000, 300_000),
    ],
)
def test_group_is_written_whole_despite_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, record_bytes: int, most: int | None
) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda file, buffers: writev(file, [_joined(buffers)[:most]]))
    random = Random(1)
    group = encode_group(1, Changes({(7, entry_id): random.randbytes(record_bytes) for entry_id in range(records)}))
    segments = Segments(tmp_path, 1 << 23, max_open=10, current=1, end=0)
    segments.append(group)
    segments.write_and_sync(segments.take_pending())
    segments.close()
    assert segment_path(tmp_path, 1).read_bytes() == b"".join(group.parts)


def _joined(buffers: Sequence[Any]) -> bytes:
    assert len(buffers) <= 1024, "more than a call takes"
    assert sum(map(len, buffers)) <= 524_288, "the page cache would be allocated in larger blocks"
    return b"".join(buffers)
