"""Arguments and options that several commands have.

Nothing of the client is imported before a command runs: `--help` and completion return at once.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.completion import complete_topic
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.service import print_message

if TYPE_CHECKING:
    from magnetar import CompressionType, ProducerAccessMode
    from magnetar_cli.messages.message_output import Format

__all__ = [
    "AccessMode",
    "AdminUrl",
    "AsHex",
    "AsJson",
    "AsRaw",
    "Compression",
    "Decode",
    "Force",
    "ListenerName",
    "Start",
    "SubscriptionType",
    "Topic",
    "Topics",
    "Url",
    "Yes",
    "choose_format",
    "confirm",
    "parse_properties",
    "to_access_mode",
    "to_compression_type",
]

Url = Annotated[
    str,
    typer.Option("--url", envvar="MAGNETAR_URL", metavar="URL", help="Service URL, e.g. magnetar://host:6652."),
]
# Of commands that only administer.
AdminUrl = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="MAGNETAR_URL",
        metavar="URL",
        help="Service URL, e.g. magnetar://host:6652, or http://host:8080 for the REST API of Magnetar or Pulsar.",
    ),
]
ListenerName = Annotated[
    str,
    typer.Option(
        envvar="MAGNETAR_LISTENER_NAME", metavar="NAME", help="Connect to the brokers' listener of this name."
    ),
]
Topic = Annotated[str, typer.Argument(help="Topic name, short or full.", autocompletion=complete_topic)]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Topic names, short or full.", autocompletion=complete_topic)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
AsHex = Annotated[bool, typer.Option("--hex", help="Print values in hex.")]
AsRaw = Annotated[bool, typer.Option("--raw", help="Print only the values, unchanged, each with a newline.")]
Decode = Annotated[
    bool,
    typer.Option("--decode/--no-decode", help="Print values by their schema, as JSON. --raw and --hex print payloads."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Force = Annotated[bool, typer.Option("--force", help="Delete it even if it is in use or not empty.")]


class Compression(enum.StrEnum):
    NONE = "none"
    LZ4 = "lz4"
    ZLIB = "zlib"
    ZSTD = "zstd"
    SNAPPY = "snappy"


class AccessMode(enum.StrEnum):
    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    WAIT_FOR_EXCLUSIVE = "wait-for-exclusive"
    EXCLUSIVE_WITH_FENCING = "exclusive-with-fencing"


class SubscriptionType(enum.StrEnum):
    EXCLUSIVE = "exclusive"
    SHARED = "shared"
    FAILOVER = "failover"
    KEY_SHARED = "key_shared"

    @property
    def consumer_type(self) -> str:
        """The name in `magnetar.ConsumerType`."""
        return "".join(word.capitalize() for word in self.split("_"))

    @property
    def delivers_in_order(self) -> bool:
        return self in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class Start(enum.StrEnum):
    """The start position of a new subscription."""

    EARLIEST = "earliest"
    LATEST = "latest"


def to_compression_type(compression: Compression) -> CompressionType:
    from magnetar import CompressionType

    return next(one for one in CompressionType if one.name.lower() == compression)


def to_access_mode(mode: AccessMode) -> ProducerAccessMode:
    from magnetar import ProducerAccessMode

    return next(one for one in ProducerAccessMode if one.name.lower() == mode.replace("-", ""))


def choose_format(*, as_json: bool, as_hex: bool, as_raw: bool) -> Format:
    """Return the format that the options select. Raise `BadParameter` if there are several."""
    from magnetar_cli.messages.message_output import Format

    if as_json + as_hex + as_raw > 1:
        raise typer.BadParameter("--json, --hex and --raw exclude each other: use one of them")
    return Format.JSON if as_json else Format.HEX if as_hex else Format.RAW if as_raw else Format.TEXT


def parse_properties(texts: Sequence[str], option: str = "--property") -> dict[str, str]:
    """Parse `NAME=VALUE`. Raise `BadParameter`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not a property: use NAME=VALUE", param_hint=option)
        found[name] = value
    return found


def confirm(action: str, yes: bool) -> None:
    """Return if the user confirms the action. Raise `typer.Exit` if not, or if there is no terminal to ask at."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        print_message(f"{action}? Nothing was done: standard input is not a terminal to confirm it at, so use --yes")
        raise typer.Exit(ExitCode.USAGE)
    if not typer.confirm(f"{action}?", err=True):
        print_message("nothing was done")
        raise typer.Exit(ExitCode.FAILED)
