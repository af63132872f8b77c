"""Prints what `pip install 'magnetar[…]'` would bring besides Magnetar itself: `python image_requirements.py server`.

The image's build installs that in a layer of its own. It runs before anything is installed, and in the folder with
pyproject.toml.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(project: Path, extras: list[str]) -> list[str]:
    described = tomllib.loads(project.read_text())["project"]
    optional = described["optional-dependencies"]
    return [*described["dependencies"], *(one for extra in extras for one in optional[extra])]


if __name__ == "__main__":
    print("\n".join(requirements(Path("pyproject.toml"), sys.argv[1:])))
