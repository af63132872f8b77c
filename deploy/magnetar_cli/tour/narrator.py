"""How the tour is told: a heading for each step, what it does while it does it, and what came of it.

On a terminal a bar moves while something is counted, and goes when that is done. Elsewhere only whole lines are
written, each at once.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Narrator"]

_INDENT: Final = 3
_WIDEST: Final = 100


class Narrator:
    def __init__(self, console: Console | None = None) -> None:
        # What this terminal can't show is no reason to end.
        if console is None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal or self._console.width > _WIDEST:
            self._console.width = _WIDEST

    def title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")

    def say(self, text: str) -> None:
        self.show(text)

    def done(self, text: str) -> None:
        self._console.print(Padding(f"[green]✓[/green] {text}", (0, 0, 0, _INDENT - 2), expand=False))

    def failed(self, why: str) -> None:
        """To standard error, as it stands there."""
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"\nmagnetar tour: {why}", style="red")

    def show(self, what: RenderableType) -> None:
        self._console.print(Padding(what, (0, 0, 0, _INDENT), expand=False))

    @contextlib.contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Yields what is told how many there are by now. 0 in all: nobody knows."""
        columns = (
            TextColumn(" " * (_INDENT - 2)),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *((BarColumn(bar_width=24), MofNCompleteColumn()) if total else ()),
            TimeElapsedColumn(),
        )
        if not self._console.is_terminal:
            self.say(f"[dim]{what} …[/dim]")
            yield lambda count: None
            return
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(what, total=total or None)
            yield lambda count: progress.update(task, completed=count)
