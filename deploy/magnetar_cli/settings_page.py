"""Write deploy/settings.md, the reference page of all settings, from their declarations.

python -m magnetar_cli.settings_page      (or `make settings`)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from magnetar_bookie.settings.process import BookieSettings
from magnetar_broker.settings.process import BrokerSettings
from magnetar_cli.settings_list import by_subject, toml_value, value_text
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import REQUIRED, Setting, Subject, amount_text, former_names, settings_of, unit_of

__all__ = ["PAGE", "PROCESSES", "settings_page"]

PAGE: Final = Path(__file__).parent.parent / "settings.md"
PROCESSES: Final[dict[str, type[Configuration]]] = {
    "standalone": StandaloneSettings,
    "broker": BrokerSettings,
    "bookie": BookieSettings,
}
_HEAD: Final = """# Settings
All settings of `magnetar standalone`, `magnetar broker` and `magnetar bookie`. This page is generated from their
declarations: `make settings` writes it.

Set them in a TOML file (`--config`), in the environment (`MAGNETAR_` and the name in upper case), or on the command
line (`--set name=value`). The environment overrides the file, and the command line overrides both. In the environment
and on the command line a list is separated by commas. An unknown name, or a value out of bounds, is refused at the
start.

`magnetar standalone --options` prints a standalone's settings as a file for `--config`, with the fifteen most useful
at the top; so do `magnetar broker --options` and `magnetar bookie --options`. (P) marks names that are Pulsar's,
and (B) names that are BookKeeper's, in snake case. (D) marks settings that can be changed while brokers run
([operating.md](operating.md#change-settings-while-brokers-run)).
"""


def settings_page() -> str:
    """Return the page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    declared: dict[str, Setting] = {}
    for kind in PROCESSES.values():
        declared = settings_of(kind) | declared
    subjects = dict(by_subject(declared))
    yield _HEAD
    for subject in subjects:
        yield f"- [{subject.value}](#{_anchor(subject.value)})"
    yield f"- [{_RENAMED}](#{_anchor(_RENAMED)})"
    for subject, names in subjects.items():
        yield from ("", f"## {subject.value}", *_table(subject, names))
    yield from ("", f"## {_RENAMED}", "The former name is refused, with the new one.", "")
    yield from ("| former name | name |", "|---|---|")
    renamed: dict[str, str] = {}
    for kind in PROCESSES.values():
        renamed |= former_names(kind)
    for former, name in sorted(renamed.items()):
        yield f"| `{former}` | `{name}` |"


_RENAMED: Final = "Renamed settings"


def _table(subject: Subject, names: list[str]) -> Iterator[str]:
    having = [process for process, kind in PROCESSES.items() if any(name in kind.model_fields for name in names)]
    yield f"Settings of: {', '.join(having)}." if len(having) < len(PROCESSES) else "Settings of all three processes."
    yield ""
    yield "| setting | default | values | meaning |"
    yield "|---|---|---|---|"
    for name in names:
        kinds = {process: kind for process, kind in PROCESSES.items() if name in kind.model_fields}
        kind = next(iter(kinds.values()))
        one = settings_of(kind)[name]
        mark = {"Pulsar": " (P)", "BookKeeper": " (B)"}.get(one.named_by, "") + (" (D)" if one.dynamic else "")
        only = "" if list(kinds) == having else f" *Only: {', '.join(kinds)}.*"
        meaning = _cell(one.description) + only
        yield f"| `{name}`{mark} | {_defaults(name, kinds)} | {value_text(kind, name)} | {meaning} |"


def _defaults(name: str, kinds: dict[str, type[Configuration]]) -> str:
    found: dict[str, list[str]] = {}
    for process, kind in kinds.items():
        one = settings_of(kind)[name]
        because = f", since {one.default_because}" if one.default_because else ""
        default = "required" if one.default is REQUIRED else f"`{_cell(toml_value(one.default))}`"
        amount = amount_text(one.default, unit_of(name, one))
        default += f" ({amount})" if amount else ""
        found.setdefault(f"{default}{because}", []).append(process)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{', '.join(processes)}: {default}" for default, processes in found.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _anchor(title: str) -> str:
    anchor = "".join(character for character in title.lower() if character.isalnum() or character in " -")
    return anchor.replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(settings_page())
