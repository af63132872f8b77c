"""Write a history (history.md): one file of one writer. `say` returns when the operating system has the line.

So the line survives a kill -9 of the process. Lines may come from any thread.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

__all__ = ["FORMAT", "Recorder", "digest"]

FORMAT: Final = 1


class Recorder:
    def __init__(self, folder: Path, writer: str, name: str = "") -> None:
        """`name`: the file's, where the writer has several."""
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = writer
        self._file = (folder / f"{name or writer}.jsonl").open("xb", buffering=0)
        self._lock = threading.Lock()
        self.say("history", format=FORMAT, writer=writer)

    def say(self, what: str, **fields: Any) -> None:
        line = {"at": time.monotonic(), "what": what, **fields}
        with self._lock:
            line["at"] = time.monotonic()  # in a file, times never go back
            self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def digest(
    payload: bytes | None, key: str | None = None, properties: Mapping[str, str] | None = None, event_ms: int = 0
) -> str:
    """Of all that a message is made of. A null payload is not an empty one, and no key is not an empty one."""
    whole = json.dumps([key, sorted((properties or {}).items()), event_ms, payload is None]).encode()
    return f"{zlib.crc32(payload or b'', zlib.crc32(whole)):08x}"
