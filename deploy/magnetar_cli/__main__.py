"""Entry point of the `magnetar` command.

The commands are in command.py, which takes a moment to import: Ctrl-C in that moment ends the process at once
(early_interrupts.py). The command's libraries come with extras: without one of them the error says how to install it.
"""

from __future__ import annotations

import sys
from typing import Final

from magnetar_cli.early_interrupts import end_at_once

# Which extra brings a module that is missing; every other module comes with `server`.
_EXTRAS: Final = {
    **dict.fromkeys(("typer", "click", "rich"), "cli"),
    **dict.fromkeys(("pyspark", "pyarrow", "numpy"), "spark"),
}


def main() -> None:
    end_at_once()
    try:
        from magnetar_cli.command import app

        app()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module.startswith("magnetar"):
            raise
        extra = _EXTRAS.get(module, "server")
        print(
            f"magnetar: this command needs {module}, which the extra {extra!r} installs: "
            f"run `pip install '.[{extra}]'` in Magnetar's source folder",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
