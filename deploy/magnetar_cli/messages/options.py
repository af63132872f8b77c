"""Options that more than one of the commands about messages has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from magnetar_cli.messages.showing import Format

__all__ = ["AsHex", "AsRaw", "format_of"]

AsHex = Annotated[bool, typer.Option("--hex", help="Show values in hex.")]
AsRaw = Annotated[bool, typer.Option("--raw", help="Values alone, as they are, each with a newline behind it.")]


def format_of(*, as_json: bool, as_hex: bool, as_raw: bool) -> Format:
    from magnetar_cli.messages.showing import Format

    if as_json + as_hex + as_raw > 1:
        raise typer.BadParameter("messages are shown in one of the ways --json, --hex and --raw")
    return Format.JSON if as_json else Format.HEX if as_hex else Format.RAW if as_raw else Format.TEXT
