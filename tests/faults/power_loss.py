"""A folder as a loss of power leaves it.

The shim power_loss.c keeps beside the folder what is on the disk for certain. Of all else that was written each file
may hold nothing, all or a part, and each name that was made, changed or taken away may be as before or as after: the
operating system writes when and in which order it likes. `lose_power` puts the folder into one of those states.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from random import Random
from typing import Final

__all__ = ["begin_shadow", "lose_power", "watch_folder"]

_SECTOR: Final = 512
# Sectors are written in any order. RocksDB's own files are cut off only: it takes a hole in one for damage.
_ANY_ORDER: Final = re.compile(r"\d+\.log|durable-mark")


def begin_shadow(folder: Path, shadow: Path) -> None:
    """The folder, which may be new, counts as on the disk, whole."""
    shutil.rmtree(shadow, ignore_errors=True)
    for kind in ("data", "names", "hold", "lost"):
        (shadow / kind).mkdir(parents=True)
    folder.mkdir(exist_ok=True)
    for inside, _, _ in os.walk(folder):
        lines = []
        for entry in os.scandir(inside):
            lines.append(f"{entry.inode()} {'d' if entry.is_dir() else 'f'} {entry.name}\n")
            if not entry.is_dir():
                shutil.copyfile(entry.path, shadow / "data" / str(entry.inode()))
                os.link(entry.path, shadow / "hold" / str(entry.inode()))
        (shadow / "names" / str(os.stat(inside).st_ino)).write_text("".join(lines))


def watch_folder(folder: Path, shadow: Path) -> None:
    """From now on, in this process; the shim is preloaded in it."""
    os.environ["POWER_ROOT"] = str(folder.resolve())
    os.environ["POWER_SHADOW"] = str(shadow.resolve())


def lose_power(folder: Path, shadow: Path, random: Random) -> None:
    """All processes that wrote are dead. One time in two nothing is there that was not synced."""
    left = folder.with_name(f"{folder.name}.left")
    _build(shadow, folder.stat().st_ino, folder, left, random if random.random() < 0.5 else None)
    shutil.rmtree(folder)
    left.rename(folder)
    shutil.rmtree(shadow)


def _build(shadow: Path, inode: int, now: Path | None, target: Path, random: Random | None) -> None:
    """`now` is the folder as the processes saw it last; None: it was deleted."""
    target.mkdir()
    names: dict[str, tuple[int, bool]] = {}
    on_disk = shadow / "names" / str(inode)
    if on_disk.exists():
        for line in on_disk.read_text().splitlines():
            held_as, kind, name = line.split(" ", 2)
            names[name] = int(held_as), kind == "d"
    seen: dict[str, tuple[int, bool]] = {}
    if now is not None:
        seen = {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(now)}
    if random is not None:
        for name in sorted({*names, *seen}):
            if names.get(name) != seen.get(name) and random.random() < 0.5:
                names.pop(name, None)
                if name in seen:
                    names[name] = seen[name]
        # A file system keeps the order in which names change. RocksDB makes a manifest before CURRENT names it.
        if names.get("CURRENT") == seen.get("CURRENT"):
            names |= {name: held_as for name, held_as in seen.items() if name.startswith("MANIFEST-")}
    for name, (number, is_folder) in names.items():
        still_there = now is not None and seen.get(name) == (number, is_folder)
        if is_folder:
            _build(shadow, number, now / name if still_there and now else None, target / name, random)
            continue
        data = shadow / "data" / str(number)
        synced = data.read_bytes() if data.exists() else b""
        if random is not None and not (shadow / "lost" / str(number)).exists():
            held = shadow / "hold" / str(number)
            path = held if held.exists() else now / name if still_there and now else None
            if path is not None:
                synced = _partly(synced, path.read_bytes(), random, any_order=bool(_ANY_ORDER.fullmatch(name)))
        (target / name).write_bytes(synced)


def _partly(synced: bytes, written: bytes, random: Random, *, any_order: bool) -> bytes:
    how = random.randrange(3)
    if how < 2 or len(written) < len(synced):
        return written if how else synced
    end = random.randint(len(synced), len(written))
    if not any_order:
        return written[:end] if written.startswith(synced) else synced
    padded = synced.ljust(end, b"\0")
    return b"".join(
        (written if random.random() < 0.7 else padded)[at : min(at + _SECTOR, end)] for at in range(0, end, _SECTOR)
    )
