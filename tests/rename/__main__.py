"""`python -m tests.rename OLD NEW` renames an identifier in the whole tree, `--module OLD NEW` moves a module.

`--in PATH` limits a rename to files and folders, `--dry-run` changes nothing. What is changed is counted, and what is
not, or should be looked at, is printed. Exit status: 0 done, 1 refused.
"""

from __future__ import annotations

import argparse
import sys

from tests.mutants import PROJECT
from tests.rename.identifiers import CannotRename, rename_identifier
from tests.rename.modules import move_module
from tests.rename.tidy import tidy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.rename")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--module", action="store_true", help="move a module or package, by dotted names")
    parser.add_argument("--in", dest="within", metavar="PATH", nargs="+", default=[], help="rename in these only")
    parser.add_argument("--force", action="store_true", help="rename though the new name is in use")
    parser.add_argument("--dry-run", action="store_true", help="change nothing")
    options = parser.parse_args()
    if options.module and options.within:
        parser.error("--in limits a rename: a module is moved in the whole tree")
    try:
        if options.module:
            report = move_module(PROJECT, options.old, options.new, dry_run=options.dry_run)
        else:
            report = rename_identifier(
                PROJECT, options.old, options.new, within=options.within, force=options.force, dry_run=options.dry_run
            )
    except CannotRename as error:
        print(error, file=sys.stderr)
        return 1
    for what, times in report.counts.items():
        if times:
            print(f"{times:6} {what}")
    print(f"{len(report.changed):6} files {'would be changed' if options.dry_run else 'changed'}")
    for warning in report.warnings:
        print(f"look at: {warning}")
    if not options.dry_run and (left := tidy(PROJECT, report.changed)):
        print(f"ruff finds:\n{left}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
