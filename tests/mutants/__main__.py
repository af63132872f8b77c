"""`python -m tests.mutants NAME -- COMMAND…` runs a command on a copy of the tree with that mutant in it.

`--list` names them; `--sim` runs the simulation on each, and fails if one survives or its patch does not fit. Only a
seed counts that violates what the mutant's first line names, and that violates nothing without the mutant. What follows
behind -- goes to the simulation then. `--rounds` does the like with those that name a command of their own: rounds with
disks, or runs of a whole system that is struck.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from typing import Final

from tests.mutants import (
    PROJECT,
    PatchFailed,
    expected_items,
    mutant_tree,
    names,
    run_in,
    seen_by,
    what_it_breaks,
    world_of,
)
from tests.sim.__main__ import violates

# What a run of a whole system, or pytest, prints of what was wrong. That it broke off is none of that.
_FOUND: Final = re.compile(
    r"^(?:the judge: )?(\w+: \d+ findings$|PROBLEM: not reached: .*$|FAILED tests/\S+)", re.MULTILINE
)
# What the simulation prints of a seed that failed: its number, the item or the error's type, and more.
_FAILED: Final = re.compile(r"seed (\d+): (?:Violation: item ([\w, -]+)|(\w+)): (.*)")


def main() -> int:
    arguments = sys.argv[1:]
    command: list[str] = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, command = arguments[:at], arguments[at + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.mutants")
    parser.add_argument("name", nargs="?", help="the mutant; the command follows behind --")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sim", action="store_true", help="the simulation on each mutant, or on the one that is named")
    parser.add_argument(
        "--rounds", action="store_true", help="those that the simulation does not run, by their command"
    )
    parser.add_argument("--seeds", type=int, default=500)
    options = parser.parse_args(arguments)
    if options.name is not None and options.name not in names():
        parser.error(f"there is no mutant {options.name!r}: there are {', '.join(names()) or 'none'}")
    if options.list:
        for name in names():
            print(f"{name:40} {what_it_breaks(name)}")
        return 0
    if options.sim:
        chosen = [options.name] if options.name else [name for name in names() if seen_by(name) is None]
        return 1 if sum(not _noticed(name, options.seeds, command) for name in chosen) else 0
    if options.rounds:
        chosen = [options.name] if options.name else [name for name in names() if seen_by(name) is not None]
        return 1 if sum(not _seen(name) for name in chosen) else 0
    if options.name is None or not command:
        parser.error("a mutant and, behind --, a command")
    try:
        with mutant_tree(options.name) as tree:
            return run_in(tree, command).returncode
    except PatchFailed as error:
        print(error, file=sys.stderr)
        return 2


def failures(printed: str) -> list[tuple[int, str, str]]:
    """Of what the simulation printed: seed, item or the error's type, and what happened, of each seed that failed."""
    found = [_FAILED.match(line) for line in printed.splitlines()]
    return [(int(match[1]), match[2] or match[3], match[4]) for match in found if match]


def _noticed(name: str, seeds: int, more: list[str]) -> bool:
    """Whether some seed violates what the mutant is to violate, and does not without it."""
    others: Counter[str] = Counter()
    start, world = 0, world_of(name)
    try:
        with mutant_tree(name) as tree:
            while start < seeds:
                until = [
                    "--world",
                    world,
                    "--until",
                    expected_items(name),
                    "--start",
                    str(start),
                    "--seeds",
                    str(seeds - start),
                ]
                done = run_in(tree, ["python", "-m", "tests.sim", *until, *more], capture=True)
                failed = failures(done.stdout)
                if not failed and done.returncode:
                    print(f"{name:40} the simulation broke off: {done.stderr.strip()[-300:]}", flush=True)
                    return False
                seen = failed[-1] if failed and violates(failed[-1][1], expected_items(name)) else None
                others.update(item for _, item, _ in failed if not violates(item, expected_items(name)))
                if seen is None:
                    break
                seed, item, what = seen
                alone = ["python", "-m", "tests.sim", "--world", world, "--seed", str(seed), "--quiet"]
                if run_in(PROJECT, alone, capture=True).returncode == 0:
                    print(f"{name:40} seed {seed + 1} of {seeds}: item {item}: {what}{_besides(others)}", flush=True)
                    return True
                others["the seed fails without it, too"] += 1
                start = seed + 1
    except PatchFailed as error:
        print(error, flush=True)
        return False
    print(f"{name:40} SURVIVES after {seeds} seeds ({what_it_breaks(name)}){_besides(others)}", flush=True)
    return False


def _seen(name: str) -> bool:
    """Whether its own command says that something is wrong."""
    command = seen_by(name) or []
    try:
        with mutant_tree(name) as tree:
            done = run_in(tree, command, capture=True)
    except PatchFailed as error:
        print(error, flush=True)
        return False
    said = done.stderr.strip().splitlines()
    found = said[:1] if any(", seed " in line for line in said) else _FOUND.findall(done.stdout)
    if done.returncode == 1 and found:
        print(f"{name:40} {'; '.join(found)[:300]}", flush=True)
        return True
    ended = said[-1][:300] if said else "nothing said"
    print(f"{name:40} SURVIVES, status {done.returncode} ({what_it_breaks(name)}): {ended}", flush=True)
    return False


def _besides(others: Counter[str]) -> str:
    counted = ", ".join(f"{times} by {reason}" for reason, times in sorted(others.items()))
    return f" (for other reasons before: {counted})" if counted else ""


if __name__ == "__main__":
    sys.exit(main())
