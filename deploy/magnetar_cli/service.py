"""Connects a client's command to its service, and turns errors into a line and an exit status.

Nothing of the client is imported before a command runs: `--help` and completion are there at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar

import typer

from magnetar_cli.completion import complete_topic
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.local_folder import DEFAULT_FOLDER, has_cluster, runs_brokers
from magnetar_cli.plain_errors import is_plain, plain_logs

if TYPE_CHECKING:
    import magnetar
    from magnetar.admin import Admin

__all__ = [
    "DEFAULT_URL",
    "PATIENCE_S",
    "AsJson",
    "ListenerName",
    "Terminated",
    "Topic",
    "Topics",
    "Url",
    "administered",
    "check_topics",
    "connected_client",
    "end_as_told",
    "tell",
]

DEFAULT_URL: Final = "magnetar://localhost:6652"
# A user waits; an application has more patience.
PATIENCE_S: Final = 10.0

T = TypeVar("T")

Url = Annotated[
    str,
    typer.Option("--url", envvar="MAGNETAR_URL", metavar="URL", help="Service URL, e.g. magnetar://host:6652."),
]
ListenerName = Annotated[
    str,
    typer.Option(
        envvar="MAGNETAR_LISTENER_NAME", metavar="NAME", help="Connect to the brokers' listener of this name."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Topic = Annotated[str, typer.Argument(help="Topic name, short or full.", autocompletion=complete_topic)]
Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Topic names, short or full.", autocompletion=complete_topic)
]


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, with another exit status."""


def administered(url: str, act: Callable[[Admin], T], *, changes: bool = False) -> T:
    """What `act` returns. `changes`: it does more than look, so that a lost answer leaves open whether it was done."""
    with end_as_told(changes=changes):
        from magnetar.admin import Admin

        with Admin(url, PATIENCE_S) as admin:
            return act(admin)


def check_topics(topics: Sequence[str]) -> None:
    """Before anything is done with the first of several. Raises `typer.Exit`."""
    with end_as_told():
        from magnetar.exceptions import InvalidTopicName
        from magnetar_wire.errors import InvalidTopicName as InvalidName
        from magnetar_wire.topic_name import TopicName

        for topic in topics:
            try:
                TopicName.parse(topic)
            except InvalidName as error:
                raise InvalidTopicName(str(error)) from None


def connected_client(url: str, listener_name: str, **options: Any) -> magnetar.Client:
    import magnetar

    return magnetar.Client(url, operation_timeout_seconds=PATIENCE_S, listener_name=listener_name or None, **options)


def tell(text: str) -> None:
    """What is for people, and is no part of what was asked for."""
    from magnetar_cli.messages.showing import printable

    shown = "\n".join(map(printable, text.splitlines()))
    with contextlib.suppress(OSError, ValueError):  # nobody listens
        print(f"magnetar: {shown}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def end_as_told(*, changes: bool = False) -> Iterator[None]:
    """Around all that a command does: what a user or the service may cause becomes a line and an exit status."""
    plain_logs()
    with _sigterm_raises():
        try:
            yield
        except Terminated:
            raise typer.Exit(ExitCode.TERMINATED) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            _end_of_pipe()
        except Exception as error:
            if not is_plain(error):
                raise
            code = _code_of(error, changes=changes)
            tell(str(error) if code is not ExitCode.UNREACHABLE else _unreachable(error))
            raise typer.Exit(code) from None


def _end_of_pipe() -> NoReturn:
    """What is left in the buffer has nowhere to go, and would be complained about when Python ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # or there is no standard output at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(ExitCode.PIPE_CLOSED) from None


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def raise_it(number: int, frame: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, raise_it)
    except ValueError:  # not the main thread: a test's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _code_of(error: Exception, *, changes: bool) -> ExitCode:
    from magnetar import exceptions

    if isinstance(error, exceptions.InvalidUrl | exceptions.InvalidTopicName):
        return ExitCode.USAGE
    if not isinstance(error, exceptions.ConnectError | exceptions.Timeout | exceptions.NotConnected):
        return ExitCode.FAILED
    from magnetar_wire.transport import NotReached

    if changes and not isinstance(error.__cause__, NotReached):
        return ExitCode.UNKNOWN
    return ExitCode.UNREACHABLE


def _unreachable(error: Exception) -> str:
    text = str(error)
    if not getattr(error, "found", None):  # else it says what is at the addresses, and asks whether they are right
        text = f"no broker answers: {text}. Start one (`magnetar standalone`), or correct --url."
    if not has_cluster():
        return text
    if not runs_brokers():
        text += f" No broker of the cluster in {DEFAULT_FOLDER} runs: `magnetar cluster up` starts it"
    else:
        text += (
            f" The cluster in {DEFAULT_FOLDER} runs: `magnetar cluster env` prints its URL, and "
            '`eval "$(magnetar cluster env)"` sets it for this shell'
        )
    return text
