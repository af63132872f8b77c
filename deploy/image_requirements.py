"""Prints what `pip install 'magnetar[…]'` would bring besides Magnetar itself: `python image_requirements.py server`.

The image's build installs that in a layer of its own. It runs before anything is installed, and in the folder with
pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def requirements(project: Path, extras: list[str]) -> list[str]:
    described = tomllib.loads(project.read_text())["project"]
    return [*described["dependencies"], *(one for extra in extras for one in _of_extra(described, extra))]


def _of_extra(described: dict[str, Any], extra: str) -> list[str]:
    """The requirements of one extra; `magnetar[other]` in it stands for those of that extra."""
    found: list[str] = []
    for one in described["optional-dependencies"][extra]:
        included = re.fullmatch(r"magnetar\[([a-z,]+)\]", one)
        if included is None:
            found.append(one)
        else:
            found += (inner for name in included[1].split(",") for inner in _of_extra(described, name))
    return found


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])))
