"""Ctrl-C while the command is imported: no traceback, and the status that shells have for it."""

from __future__ import annotations

import subprocess
import sys

# SIGINT arrives while typer is imported.
_CODE = """
import signal, sys
import magnetar_cli.__main__ as command

class RaisesSignal:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, RaisesSignal())
sys.argv = ["magnetar", "--help"]
command.main()
"""


# A shell's background job ignores SIGINT. The child sets this by itself: a `preexec_fn` would run after the fork
# handlers of all libraries, which may end the child if other tests have used gRPC in this process.
_AS_FROM_A_TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
_AS_IN_THE_BACKGROUND = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"


def _ran(begun: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", begun + _CODE]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_ctrl_c_during_the_imports_ends_it_quietly() -> None:
    ended = _ran(_AS_FROM_A_TERMINAL)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    ended = _ran(_AS_IN_THE_BACKGROUND)
    assert ended.returncode == 0
    assert "tour" in ended.stdout


def test_a_command_sees_to_it_itself() -> None:
    """When the command's module is imported, SIGINT raises again."""
    code = (
        "import signal, sys\n"
        "from magnetar_cli.early_interrupts import exit_on_interrupt\n"
        "from magnetar_cli.command import app\n"
        "exit_on_interrupt()\n"
        "assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler\n"
        "sys.argv = ['magnetar', 'topics', '--help']\n"
        "try:\n    app()\n"
        "except SystemExit:\n    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    command = [sys.executable, "-c", _AS_FROM_A_TERMINAL + code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
