"""deploy/settings.md, which is generated."""

from __future__ import annotations

import re

from magnetar_cli.settings_page import PAGE, PROCESSES, settings_page
from magnetar_wire.settings import former_names, settings_of


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == settings_page(), "run `make settings`"


def test_each_setting_has_one_row_with_its_description() -> None:
    rows = re.findall(r"^\| `(\w+)`(?: \([PBD]\))* \| (.*) \|$", settings_page(), re.MULTILINE)
    listed, renamed = dict(row for row in rows if "|" in row[1]), [row for row in rows if "|" not in row[1]]
    assert len(listed) + len(renamed) == len(rows)
    for kind in PROCESSES.values():
        for name, one in settings_of(kind).items():
            assert one.description in listed[name]
        assert {(former, f"`{name}`") for former, name in former_names(kind).items()} <= set(renamed)
