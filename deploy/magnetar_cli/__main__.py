"""The `magnetar` command. Each act imports what it needs when it is called, so that `--help` is there at once."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="magnetar", description="Messaging and streaming with Pulsar's semantics.")
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("tour", help="show the codec and the metadata store at work")
    parser.parse_args(arguments)
    try:
        from magnetar_cli.tour import tour
    except ModuleNotFoundError as missing:
        print(f"magnetar: this needs {missing.name}: `pip install 'magnetar[server,spark]'` brings it", file=sys.stderr)
        return 1
    return tour()


if __name__ == "__main__":
    sys.exit(main())
