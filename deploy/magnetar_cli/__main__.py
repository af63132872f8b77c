"""Where the `magnetar` command begins. What it does is in command.py, which takes a moment to import: Ctrl-C in that
moment ends the process at once (early_interrupts.py)."""

from __future__ import annotations

import sys

from magnetar_cli.early_interrupts import end_at_once


def main() -> None:
    end_at_once()
    try:
        from magnetar_cli.command import app

        app()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("magnetar"):
            raise
        print(
            f"magnetar: this needs {missing.name}: `pip install '.[server,spark]'` in Magnetar's folder brings it",
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
