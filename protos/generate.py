"""Generate the code of magnetar_protos: `python protos/generate.py [FOLDER]` (default: in place)."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent


def generate(folder: Path) -> list[Path]:
    """Write the code of every .proto file below `folder`, and return the written files."""
    sources = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "magnetar_protos").glob("*.proto"))
    status = protoc.main(["protoc", f"-I{ROOT}", f"--python_out={folder}", f"--pyi_out={folder}", *sources])
    if status:
        raise SystemExit(f"protoc failed with status {status}")
    return [folder / source.replace(".proto", f"_pb2{ending}") for source in sources for ending in (".py", ".pyi")]


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
