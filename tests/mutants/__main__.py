"""`python -m tests.mutants NAME -- COMMAND…` runs a command on a copy of the tree with that mutant in it.

`--list` names them; `--sim` runs the simulation on each, and fails if one survives or does not fit any more. A seed
only counts if it violates what the mutant breaks, and violates nothing without the mutant. The arguments behind -- go
to the simulation then. `--rounds` runs the command of each mutant that names one: tests, rounds with disks, or runs of
a whole system with faults.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from typing import Final

from tests.mutants import PROJECT, Mutant, MutantDoesNotFit, load, mutant_tree, names, run_in
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
            print(f"{name:40} {load(name).breaks}")
        return 0
    if options.sim or options.rounds:
        chosen = [load(name) for name in ([options.name] if options.name else names())]
        chosen = [mutant for mutant in chosen if (mutant.world if options.sim else mutant.command)]
        if not chosen:
            parser.error(f"{options.name} names no {'world: use --rounds' if options.sim else 'command: use --sim'}")
        seen = [_noticed(one, options.seeds, command) if options.sim else _seen(one) for one in chosen]
        return 0 if all(seen) else 1
    if options.name is None or not command:
        parser.error("a mutant and, behind --, a command")
    try:
        with mutant_tree(load(options.name)) as tree:
            return run_in(tree, command).returncode
    except MutantDoesNotFit as error:
        print(error, file=sys.stderr)
        return 2


def failures(printed: str) -> list[tuple[int, str, str]]:
    """Of what the simulation printed: seed, item or the error's type, and what happened, of each seed that failed."""
    found = [_FAILED.match(line) for line in printed.splitlines()]
    return [(int(match[1]), match[2] or match[3], match[4]) for match in found if match]


def _noticed(mutant: Mutant, seeds: int, more: list[str]) -> bool:
    """Whether some seed violates what the mutant is to violate, and does not without it."""
    others: Counter[str] = Counter()
    start = 0
    try:
        with mutant_tree(mutant) as tree:
            while start < seeds:
                until = [
                    "--world",
                    mutant.world,
                    "--until",
                    mutant.expected_items,
                    "--start",
                    str(start),
                    "--seeds",
                    str(seeds - start),
                ]
                done = run_in(tree, ["python", "-m", "tests.sim", *until, *more], capture=True)
                failed = failures(done.stdout)
                if not failed and done.returncode:
                    print(f"{mutant.name:40} the simulation broke off: {done.stderr.strip()[-300:]}", flush=True)
                    return False
                seen = failed[-1] if failed and violates(failed[-1][1], mutant.expected_items) else None
                others.update(item for _, item, _ in failed if not violates(item, mutant.expected_items))
                if seen is None:
                    break
                seed, item, what = seen
                alone = ["python", "-m", "tests.sim", "--world", mutant.world, "--seed", str(seed), "--quiet"]
                if run_in(PROJECT, alone, capture=True).returncode == 0:
                    found = f"seed {seed + 1} of {seeds}: item {item}: {what}{_besides(others)}"
                    print(f"{mutant.name:40} {found}", flush=True)
                    return True
                others["the seed fails without it, too"] += 1
                start = seed + 1
    except MutantDoesNotFit as error:
        print(error, flush=True)
        return False
    print(f"{mutant.name:40} SURVIVES after {seeds} seeds ({mutant.breaks}){_besides(others)}", flush=True)
    return False


def _seen(mutant: Mutant) -> bool:
    """Whether its own command fails."""
    try:
        with mutant_tree(mutant) as tree:
            done = run_in(tree, mutant.command, capture=True)
    except MutantDoesNotFit as error:
        print(error, flush=True)
        return False
    errors = done.stderr.strip().splitlines()
    found = errors[:1] if any(", seed " in line for line in errors) else _FOUND.findall(done.stdout)
    if done.returncode == 1 and found:
        print(f"{mutant.name:40} {'; '.join(found)[:300]}", flush=True)
        return True
    ended = errors[-1][:300] if errors else "no output"
    print(f"{mutant.name:40} SURVIVES, status {done.returncode} ({mutant.breaks}): {ended}", flush=True)
    return False


def _besides(others: Counter[str]) -> str:
    counted = ", ".join(f"{times} by {reason}" for reason, times in sorted(others.items()))
    return f" (for other reasons before: {counted})" if counted else ""


if __name__ == "__main__":
    sys.exit(main())
