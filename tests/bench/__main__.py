"""`python -m tests.bench [GROUP …]`: run the benchmarks, one JSON object a line on standard output.

All else goes to standard error. The exit status shows whether the benchmarks ran, not whether a floor was reached.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import tests.bench
from tests.bench.harness import run_group


def main() -> int:
    groups = sorted(name for _, name, _ in pkgutil.iter_modules(tests.bench.__path__) if name.startswith("bench_"))
    names = [group.removeprefix("bench_") for group in groups]
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(names)}; all by default")
    chosen = [part for group in parser.parse_args().groups for part in group.split(",") if part] or names
    for name in chosen:
        if name not in names:
            parser.error(f"there is no group {name!r}: there are {', '.join(names)}")
    failed = 0
    for name in chosen:
        failed += run_group(importlib.import_module(f"tests.bench.bench_{name}"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
