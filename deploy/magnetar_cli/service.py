"""Connect a client's command to the service, and turn errors into a line and an exit status.

Nothing of the client is imported before a command runs: `--help` and completion return at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer

from magnetar_cli.cluster_folder import DEFAULT_FOLDER, has_cluster, has_running_broker
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.output import escape_unprintable
from magnetar_cli.user_errors import configure_logs, is_user_error

if TYPE_CHECKING:
    import magnetar
    from magnetar.admin import Admin

__all__ = [
    "DEFAULT_URL",
    "OPERATION_TIMEOUT_S",
    "Terminated",
    "call_admin",
    "check_topics",
    "connect_client",
    "exit_on_error",
    "print_message",
]

DEFAULT_URL: Final = "magnetar://localhost:6652"
# Less than an application's default, since a user waits.
OPERATION_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class Terminated(KeyboardInterrupt):
    """SIGTERM. It is handled like Ctrl-C, with another exit status."""


def call_admin(url: str, act: Callable[[Admin], T], *, changes: bool = False) -> T:
    """Call `act` with an administration client and return its result.

    `changes`: it is not read-only, so that a lost answer means that the outcome is unknown.
    """
    with exit_on_error(changes=changes):
        from magnetar.admin import Admin

        with Admin(url, OPERATION_TIMEOUT_S) as admin:
            return act(admin)


def connect_client(url: str, listener_name: str, **options: Any) -> magnetar.Client:
    import magnetar

    return magnetar.Client(
        url, operation_timeout_seconds=OPERATION_TIMEOUT_S, listener_name=listener_name or None, **options
    )


def check_topics(topics: Sequence[str]) -> None:
    """Check all names before the first topic is changed. Raise `typer.Exit` if one is invalid."""
    with exit_on_error():
        from magnetar.exceptions import InvalidTopicName
        from magnetar_wire.errors import InvalidTopicName as InvalidName
        from magnetar_wire.topic_name import TopicName

        for topic in topics:
            try:
                TopicName.parse(topic)
            except InvalidName as error:
                raise InvalidTopicName(str(error)) from None


def print_message(text: str) -> None:
    """Print a message for people to standard error. Results go to standard output."""
    shown = "\n".join(map(escape_unprintable, text.splitlines()))
    with contextlib.suppress(OSError, ValueError):  # standard error is closed
        print(f"magnetar: {shown}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def exit_on_error(*, changes: bool = False) -> Iterator[None]:
    """Print errors that the user or the service may cause as one line, and raise `typer.Exit` with their status."""
    configure_logs()
    with _sigterm_raises():
        try:
            yield
        except Terminated:
            raise typer.Exit(ExitCode.TERMINATED) from None
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            _exit_on_closed_pipe()
        except Exception as error:
            if not is_user_error(error):
                raise
            code = _choose_exit_code(error, changes=changes)
            print_message(str(error) if code is not ExitCode.UNREACHABLE else _explain_unreachable(error))
            raise typer.Exit(code) from None


def _exit_on_closed_pipe() -> NoReturn:
    """Redirect standard output, so that Python doesn't fail to flush its buffer at the end, and exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no standard output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(ExitCode.PIPE_CLOSED) from None


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def raise_terminated(number: int, frame: object) -> None:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, raise_terminated)
    except ValueError:  # this is not the main thread, as in tests
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _choose_exit_code(error: Exception, *, changes: bool) -> ExitCode:
    from magnetar import exceptions

    if isinstance(error, exceptions.InvalidUrl | exceptions.InvalidTopicName):
        return ExitCode.USAGE
    if not isinstance(error, exceptions.ConnectError | exceptions.Timeout | exceptions.NotConnected):
        return ExitCode.FAILED
    from magnetar_wire.transport import NotReached

    if changes and not isinstance(error.__cause__, NotReached):
        return ExitCode.UNKNOWN
    return ExitCode.UNREACHABLE


def _explain_unreachable(error: Exception) -> str:
    text = str(error)
    if not getattr(error, "found", None):  # otherwise the error describes what listens at the addresses
        text = f"no broker answers: {text}. Start one (`magnetar standalone`), or correct --url."
    if not has_cluster():
        return text
    if not has_running_broker():
        text += f" No broker of the cluster in {DEFAULT_FOLDER} runs: `magnetar cluster up` starts it"
    else:
        text += (
            f" The cluster in {DEFAULT_FOLDER} runs: `magnetar cluster env` prints its URL, and "
            '`eval "$(magnetar cluster env)"` sets it for this shell'
        )
    return text
