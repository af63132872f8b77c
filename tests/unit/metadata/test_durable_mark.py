"""The durable mark: a block that is spoiled while it is written leaves the other, also in a file as they used to be."""

from __future__ import annotations

from pathlib import Path

import crc32c
import pytest

from magnetar_metadata.locked_folder import DurableMark

_BLOCK = 4096


def _slot(number: int) -> bytes:
    return number.to_bytes(8, "big") + crc32c.crc32c(number.to_bytes(8, "big")).to_bytes(4, "big")


def _number(folder: Path) -> int | None:
    mark = DurableMark.open(folder)
    mark.close()
    return mark.number


def _spoil_each_block_that_changed(folder: Path, before: bytes) -> list[int | None]:
    """What is read when the block in which something changed is spoiled."""
    path = folder / "durable-mark"
    after = path.read_bytes()
    found = []
    for at in range(0, len(after), _BLOCK):
        if after[at : at + _BLOCK] != before[at : at + _BLOCK]:
            path.write_bytes(after[:at] + b"\xff" * _BLOCK + after[at + _BLOCK :])
            found.append(_number(folder))
    path.write_bytes(after)
    return found


@pytest.mark.parametrize("former", [None, (6, 7), (7, 6)])
def test_each_write_leaves_the_number_before_it_in_another_block(
    tmp_path: Path, former: tuple[int, int] | None
) -> None:
    """CHK-25: disks write blocks of 4096 bytes, for any size of sectors that they report."""
    path = tmp_path / "durable-mark"
    if former is None:
        mark = DurableMark.open(tmp_path)
        mark.begin(tmp_path, 7)
        mark.close()
    else:  # two sectors in one block
        path.write_bytes(b"".join(_slot(number).ljust(512, b"\0") for number in former))
    for number in range(8, 12):
        assert _number(tmp_path) == number - 1
        before = path.read_bytes().ljust(2 * _BLOCK, b"\0")
        mark = DurableMark.open(tmp_path)
        mark.write(number)
        mark.close()
        assert _spoil_each_block_that_changed(tmp_path, before) == [number - 1]


def test_beginning_a_mark_discards_old_slots(tmp_path: Path) -> None:
    (tmp_path / "durable-mark").write_bytes(b"".join(_slot(number).ljust(512, b"\0") for number in (8, 9)))
    mark = DurableMark.open(tmp_path)
    mark.begin(tmp_path, 3)
    mark.close()
    assert _number(tmp_path) == 3
