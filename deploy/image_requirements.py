"""Print the dependencies that `pip install 'magnetar[EXTRA]'` would install: `python image_requirements.py EXTRA`.

The image's build installs them in a separate layer. It runs this before anything is installed, in the folder with
pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any


def list_requirements(project: Path, extras: list[str]) -> list[str]:
    described = tomllib.loads(project.read_text())["project"]
    return [*described["dependencies"], *(one for extra in extras for one in _list_extra(described, extra))]


def _list_extra(described: dict[str, Any], extra: str) -> list[str]:
    """Return the requirements of an extra. `magnetar[other]` in it includes those of another extra."""
    found: list[str] = []
    for one in described["optional-dependencies"][extra]:
        included = re.fullmatch(r"magnetar\[([a-z,]+)\]", one)
        if included is None:
            found.append(one)
        else:
            found += (inner for name in included[1].split(",") for inner in _list_extra(described, name))
    return found


if __name__ == "__main__":
    print("\n".join(list_requirements(Path("pyproject.toml"), sys.argv[1:])))
