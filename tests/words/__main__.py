"""`python -m tests.words`: see the package's docstring."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.words import PROJECT, count, find_new_uses, find_uses, packages, read_limits, write_limits


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.words", description="Words that the glossary replaces.")
    parser.add_argument("--package", choices=list(packages()))
    parser.add_argument("--word", help="list the lines that use this word")
    parser.add_argument("--new", action="store_true", help="list the uses in lines changed since the last commit")
    parser.add_argument("--write", action="store_true", help="lower the limits to what there is")
    chosen = parser.parse_args()
    names = [chosen.package] if chosen.package else list(packages())
    if chosen.new or chosen.word:
        uses = find_new_uses() if chosen.new else (use for name in names for use in find_uses(name))
        for use in uses:
            if not chosen.word or use.word == chosen.word:
                sys.stdout.write(f"{use.path.relative_to(PROJECT)}:{use.line}: {use.word}: {use.text}\n")
        return 0
    limits, total = read_limits(), Counter[str]()
    for name in names:
        counts = count(name)
        total += counts
        sys.stdout.write(f"{name:16}{counts.total():7}   limit {limits.get(name, 0):6}   ")
        sys.stdout.write(", ".join(f"{word} {number}" for word, number in counts.most_common(8)) + "\n")
        if chosen.write:
            limits[name] = min(limits.get(name, counts.total()), counts.total())
    sys.stdout.write(f"{'all':16}{total.total():7}   " + ", ".join(f"{w} {n}" for w, n in total.most_common()) + "\n")
    if chosen.write:
        write_limits(limits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
