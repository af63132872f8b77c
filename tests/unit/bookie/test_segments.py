"""The log's files: all bytes are written, although one system call may write less."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from magnetar_bookie.storage.interface import Changes
from magnetar_bookie.storage.rocksdb.group_format import encode_group
from magnetar_bookie.storage.rocksdb.segments import Segments, segment_path


@pytest.mark.parametrize(("records", "most"), [(1, None), (2500, None), (1, 1), (3, 7), (2500, 4000), (2500, 30_000)])
def test_group_is_written_whole_despite_short_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int, most: int | None
) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda file, buffers: writev(file, [_joined(buffers)[:most]]))
    group = encode_group(1, Changes({(7, entry_id): b"record %06d" % entry_id for entry_id in range(records)}))
    segments = Segments(tmp_path, 1 << 20, max_open=10, current=1, end=0)
    segments.append(group)
    segments.write_and_sync(segments.take_pending())
    segments.close()
    assert segment_path(tmp_path, 1).read_bytes() == b"".join(group.parts)


def _joined(buffers: Sequence[Any]) -> bytes:
    assert len(buffers) <= 1024, "more than a call takes"
    return b"".join(buffers)
