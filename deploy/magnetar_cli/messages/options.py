"""Options that more than one of the commands about messages has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from magnetar_cli.messages.showing import Format

__all__ = ["AsHex", "AsRaw", "format_of"]

AsHex = Annotated[bool, typer.Option("--hex", help="Print values in hex.")]
AsRaw = Annotated[bool, typer.Option("--raw", help="Print only the values, unchanged, each with a newline.")]


def format_of(*, as_json: bool, as_hex: bool, as_raw: bool) -> Format:
    from magnetar_cli.messages.showing import Format

    if as_json + as_hex + as_raw > 1:
        raise typer.BadParameter("--json, --hex and --raw exclude each other: use one of them")
    return Format.JSON if as_json else Format.HEX if as_hex else Format.RAW if as_raw else Format.TEXT
