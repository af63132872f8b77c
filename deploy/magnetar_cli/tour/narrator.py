"""Print the tour: a heading for each step, its progress, and its results.

On a terminal, progress is a bar that disappears at the end. Elsewhere it is one line.
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
_MAX_WIDTH: Final = 100


class Narrator:
    def __init__(self, console: Console | None = None) -> None:
        # Characters that the terminal can't show are replaced.
        if console is None and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal or self._console.width > _MAX_WIDTH:
            self._console.width = _MAX_WIDTH

    def title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]")

    def say(self, text: str) -> None:
        self.show(text)

    def done(self, text: str) -> None:
        self._console.print(Padding(f"[green]✓[/green] {text}", (0, 0, 0, _INDENT - 2), expand=False))

    def failed(self, error: str) -> None:
        """Print an error to standard error."""
        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        console.print(f"\nmagnetar tour: {error}", style="red")

    def show(self, content: RenderableType) -> None:
        self._console.print(Padding(content, (0, 0, 0, _INDENT), expand=False))

    @contextlib.contextmanager
    def counting(self, activity: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show progress. Yield a function that is called with the count so far. `total` 0: unknown."""
        columns = (
            TextColumn(" " * (_INDENT - 2)),
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *((BarColumn(bar_width=24), MofNCompleteColumn()) if total else ()),
            TimeElapsedColumn(),
        )
        if not self._console.is_terminal:
            self.say(f"[dim]{activity} …[/dim]")
            yield lambda count: None
            return
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(activity, total=total or None)
            yield lambda count: progress.update(task, completed=count)
