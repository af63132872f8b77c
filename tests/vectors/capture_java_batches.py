"""Records what Pulsar's Java client sends with key-based batching: `python -m tests.vectors.capture_java_batches`.

`java_batches.json` then has the entries in base64, in order. `tests/java_batches` is the program that publishes
`MESSAGES`; `broker.py` records them.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.peers import java_client_jars
from tests.vectors.broker import serving

__all__ = ["MESSAGES", "RECORD"]

RECORD: Final = Path(__file__).with_name("java_batches.json")
_SOURCES: Final = Path(__file__).parents[1] / "java_batches"
_TIMEOUT_S: Final = 100.0


def _messages() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for number in range(3):
        messages += [{"content": f"{key}{number}".encode(), "partition_key": key} for key in "ab"]
        messages.append({"content": b"ordered%d" % number, "partition_key": "a", "ordering_key": "o"})
        messages.append({"content": b"without key%d" % number})
        messages.append({"content": b"bytes%d" % number, "partition_key": b"kb"})
    return [*messages, {"content": b"alone", "partition_key": "c"}]


# The arguments of our `send`.
MESSAGES: Final = _messages()


def capture() -> list[str]:
    library = f"{java_client_jars()}/*"
    with tempfile.TemporaryDirectory() as classes, serving(5_242_880) as broker:
        sources = map(str, _SOURCES.glob("*.java"))
        subprocess.run(["javac", "-d", classes, "-cp", library, *sources], check=True, timeout=_TIMEOUT_S)
        command = ["java", "-cp", os.pathsep.join((classes, library)), "KeyedBatches", broker.url]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S, capture_output=True)
        return [base64.b64encode(sent.entry).decode() for sent in broker.take()]


if __name__ == "__main__":
    RECORD.write_text(json.dumps(capture(), indent=1) + "\n")
