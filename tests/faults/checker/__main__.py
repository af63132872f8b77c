"""`python -m tests.faults.checker FOLDER`: check a history, of this run or of an earlier one.

Exit status: 0 clean, 1 findings, 2 the history can't be checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.faults.checker import LIMIT_S, BrokenHistory, judge


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.checker", description="Judges the history of a run.")
    parser.add_argument("folder", type=Path, help="with the history's files, *.jsonl")
    parser.add_argument("--no-times", action="store_true", help="report how long everything took, without limits")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="what is too long: %(default)s")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    given = parser.parse_args(arguments)
    try:
        verdict = judge(given.folder, times=not given.no_times, limit_s=given.limit)
    except BrokenHistory as error:
        sys.stderr.write(f"broken history: {error}\n")
        return 2
    sys.stdout.write(f"{json.dumps(verdict.as_json(), indent=1) if given.json else verdict}\n")
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
