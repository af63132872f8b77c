"""`python -m tests.mutants NAME -- COMMAND…` runs a command on a copy of the tree with that mutant in it.

`--list` names them; `--sim` runs the simulation on each, and fails if one survives or its patch does not fit. What
follows behind -- goes to the simulation then.
"""

from __future__ import annotations

import argparse
import sys

from tests.mutants import PatchFailed, mutant_tree, names, run_in, what_it_breaks


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
    parser.add_argument("--seeds", type=int, default=500)
    options = parser.parse_args(arguments)
    if options.name is not None and options.name not in names():
        parser.error(f"there is no mutant {options.name!r}: there are {', '.join(names()) or 'none'}")
    if options.list:
        for name in names():
            print(f"{name:32} {what_it_breaks(name)}")
        return 0
    if options.sim:
        chosen = [options.name] if options.name else names()
        return 1 if sum(not _noticed(name, options.seeds, command) for name in chosen) else 0
    if options.name is None or not command:
        parser.error("a mutant and, behind --, a command")
    try:
        with mutant_tree(options.name) as tree:
            return run_in(tree, command).returncode
    except PatchFailed as error:
        print(error, file=sys.stderr)
        return 2


def _noticed(name: str, seeds: int, more: list[str]) -> bool:
    try:
        with mutant_tree(name) as tree:
            command = ["python", "-m", "tests.sim", "--seeds", str(seeds), "--first", *more]
            done = run_in(tree, command, capture=True)
    except PatchFailed as error:
        print(error, flush=True)
        return False
    failed = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    if not failed:
        why = "SURVIVES" if done.returncode == 0 else f"the simulation broke off: {done.stderr.strip()[-300:]}"
        print(f"{name:32} {why} after {seeds} seeds ({what_it_breaks(name)})", flush=True)
        return False
    seed = int(failed[0].split(":")[0].removeprefix("seed "))
    print(f"{name:32} seed {seed + 1} of {seeds}: {failed[0].split(': ', 1)[1]}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
