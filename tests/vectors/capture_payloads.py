"""Makes the records of what Pulsar's Java and Go clients write by their schemas.

    python -m tests.vectors.capture_payloads

Needs Java and Maven, which fetch the jars of a Pulsar once, and Go. The programs are in `tests/java_schemas` and
`tests/go_schemas`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.peers import running

__all__ = ["GO_RECORD", "JAVA_RECORD"]

_TESTS: Final = Path(__file__).parents[1]
JAVA_RECORD: Final = Path(__file__).with_name("schemas_java.json")
GO_RECORD: Final = Path(__file__).with_name("schemas_go.json")


def record_java() -> None:
    """The jars of the client alone lack Protocol Buffers; a server's have everything."""
    with running("pulsar"):
        jars = Path(os.environ.get("PEERS_HOME", "/var/tmp/magnetar-peers")) / "pulsar" / "lib"
    with tempfile.TemporaryDirectory() as classes:
        source = _TESTS / "java_schemas" / "SchemaVectors.java"
        subprocess.run(["javac", "-proc:none", "-d", classes, "-cp", f"{jars}/*", source], check=True)
        program = ["java", "-cp", os.pathsep.join((classes, f"{jars}/*")), "SchemaVectors"]
        JAVA_RECORD.write_bytes(subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout)


def record_go() -> None:
    folder = _TESTS / "go_schemas"
    GO_RECORD.write_bytes(subprocess.run(["go", "run", "."], cwd=folder, check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    record_java()
    record_go()
