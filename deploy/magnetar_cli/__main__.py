"""Entry point of the `magnetar` command.

The commands are in command.py, whose import takes some tenths of a second: Ctrl-C in that time ends the process at once
(early_interrupts.py). Commands need libraries of optional extras. If one is missing, the error names the extra.
"""

from __future__ import annotations

import sys
from typing import Final

from magnetar_cli.early_interrupts import exit_on_interrupt

# The extra that installs a missing module; the extra `server` installs all others.
_EXTRAS: Final = {
    **dict.fromkeys(("typer", "click", "rich"), "cli"),
    **dict.fromkeys(("pyspark", "pyarrow", "numpy"), "spark"),
}


def main() -> None:
    exit_on_interrupt()
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
