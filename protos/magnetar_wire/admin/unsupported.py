"""Paths of Pulsar's REST API that a broker answers with 405, and what is missing for each.

`/openapi.json` shows them, and the guide lists them. A path that becomes supported leaves this list and gets a route in
the table of admin calls.
"""

from __future__ import annotations

from typing import Final

from magnetar_wire.admin.route import UnsupportedRoute

__all__ = ["UNSUPPORTED"]

UNSUPPORTED: Final[tuple[UnsupportedRoute, ...]] = ()
